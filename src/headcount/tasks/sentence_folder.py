"""What a folder of sentence-transformers holds besides weights: modules, how texts go in, files.

`modules.json` lists a Transformer, a pooling, and maybe others after it. headcount prunes the
Transformer. What comes after it stays as it is.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from torch import nn
from transformers import AutoConfig

from headcount.errors import HeadcountError
from headcount.heads.mask import MASK_FILE
from headcount.json_file import checked, entry, read_json
from headcount.loading.folder import (
    COMPANIONS,
    MODULES,
    NO_CODE,
    first_line,
    leads_out,
    loading,
)
from headcount.tasks.base import Processor

LENGTH = 512  # tokens of a text, where neither tokenizer nor model knows a limit
_PACKAGE = "sentence_transformers"
_PROMPTS = "config_sentence_transformers.json"
_WEIGHTS = (".safetensors", ".bin", ".h5", ".ot", ".msgpack", ".onnx", ".index.json")
_WRITTEN = ("config.json", "README.md")  # for each model again


@dataclass(frozen=True)
class Reading:
    """How a text goes into an encoder.

    Attributes:
        longest: how many tokens of it; the others are cut off.
        prompt: what stands before it.
        lower: whether it is put into lower case first.
    """

    longest: int
    prompt: str = ""
    lower: bool = False

    def text(self, sentence: str) -> str:
        """The text that the tokenizer gets for a sentence."""
        text = self.prompt + sentence
        return text.lower() if self.lower else text


def folder_of(source: str) -> Path:
    """The files of an encoder besides its weights, in a folder."""
    if Path(source).is_dir():
        return Path(source)
    with loading(source):
        return Path(snapshot_download(source, allow_patterns=list(COMPANIONS)))


def has_modules(folder: Path) -> bool:
    """Whether a folder is one of sentence-transformers."""
    return (folder / MODULES).is_file()


def reading_of(source: str, tokenizer: Processor, prompt: str | None) -> Reading:
    """How sentence-transformers gives a text to this encoder.

    Args:
        source: a folder or a name on the hub.
        tokenizer: the encoder's.
        prompt: what stands before every text; None for the folder's default.
    """
    folder = folder_of(source)
    file = next(iter(sorted(folder.glob("sentence_*config.json"))), None)
    said = {} if file is None else checked(read_json(file), dict, str(file))
    length = said.get("max_seq_length")
    if not isinstance(length, int) or length < 1:
        length = _limit(source, tokenizer)
    own = _default_prompt(folder) if prompt is None else prompt
    return Reading(length, own, bool(said.get("do_lower_case")))


def _limit(source: str, tokenizer: Processor) -> int:
    """What tokenizer and model read; a tokenizer that knows no limit says 10 ** 30."""
    with loading(source):
        config = AutoConfig.from_pretrained(source, **NO_CODE).get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    limits = [tokenizer.model_max_length, positions]
    known = [n for n in limits if isinstance(n, int) and 0 < n < 10**9]
    return min(known, default=LENGTH)


def _default_prompt(folder: Path) -> str:
    file = folder / _PROMPTS
    if not file.is_file():
        return ""
    said = checked(read_json(file), dict, str(file))
    name, prompts = said.get("default_prompt_name"), said.get("prompts")
    if name is None or not isinstance(prompts, dict):
        return ""
    return str(checked(prompts.get(name, ""), str, f"the prompt {name} of {file}"))


def later_modules(source: str, folder: Path) -> list[nn.Module]:
    """What comes after the Transformer, loaded by sentence-transformers."""
    made = []
    for place, row in enumerate(_listed(source, folder)):
        kind, path = entry(row, "type", str), entry(row, "path", str)
        module, _, name = kind.rpartition(".")
        if module.split(".")[0] != _PACKAGE:
            raise HeadcountError(
                f"{source} has a module {kind} of its own, whose code headcount does not run; give "
                "an encoder with modules of sentence-transformers"
            )
        if (name == "Transformer") != (place == 0):
            raise HeadcountError(
                f"{source} has {name} at place {place} of {MODULES}, expected one Transformer, at "
                "the beginning; give an encoder that is built so"
            )
        if place:
            made.append(_loaded(source, folder, module, name, path))
    return made


def _listed(source: str, folder: Path) -> list[Any]:
    return list(checked(read_json(folder / MODULES), list, f"{source}/{MODULES}"))


def _loaded(source: str, folder: Path, module: str, name: str, path: str) -> nn.Module:
    if leads_out(folder / path, folder):
        raise HeadcountError(f"{source}/{path} leads out of the folder; put the files there")
    try:
        cls: Any = getattr(import_module(module), name)
        loaded: nn.Module = cls.load(str(folder), subfolder=path)
    except Exception as error:  # of any type: each module reads files of its own
        raise HeadcountError(
            f"{source} has a module {name} that cannot be loaded: {first_line(error)}; restore its "
            f"folder {path}"
        ) from error
    return loaded.eval().requires_grad_(False)


def copy_beside(source: Path, target: Path) -> None:
    """Copy the files and modules of a folder of sentence-transformers; what is there stays.

    Left out are weights, other folders (graphs and checkpoints of the unpruned model), what is
    written for every model again, and links that lead out. Of a folder that headcount wrote, only
    what belongs to the model is copied: it also has the figures of another run.
    """
    patterns = COMPANIONS if _is_ours(source) else ("*",)
    files = [file for pattern in patterns for file in source.glob(pattern)]
    for row in _listed(str(source), source):
        if path := entry(row, "path", str):
            files += (source / path).rglob("*")
    for file in sorted({*files}):
        place = file.relative_to(source)
        if (
            file.is_file()
            and str(place) not in _WRITTEN
            and not (len(place.parts) == 1 and file.name.endswith(_WEIGHTS))
            and not place.name.startswith(".")
            and not (target / place).exists()
            and not leads_out(file, source)
        ):
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / place)


def _is_ours(folder: Path) -> bool:
    """Whether headcount wrote a folder: a pruned model has a mask, a base its own settings."""
    return (folder / MASK_FILE).is_file() or any(folder.glob("base_*.json"))
