"""What a folder of sentence-transformers holds besides weights: modules, how texts go in, files.

`modules.json` lists a Transformer, a pooling, and maybe others after it. headcount prunes the
Transformer. What comes after it stays as it is. The vectors are those that `encode` gives: after
all modules, with the default prompt, and no longer than the folder says.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as in_brief
from typing import Any

from huggingface_hub import snapshot_download
from sentence_transformers.util import import_from_string
from torch import Tensor, nn
from transformers import AutoConfig

from headcount.errors import HeadcountError
from headcount.heads.mask import MASK_FILE
from headcount.json_file import checked, read_json
from headcount.loading.folder import (
    COMPANIONS,
    NO_CODE,
    first_line,
    inner_place,
    leads_out,
    loading,
    place_of,
)
from headcount.loading.module_list import (
    MODULES,
    Listed,
    has_modules,
    listed_modules,
    transformer_path,
)
from headcount.tasks.base import Processor

LENGTH = 512  # tokens of a text, where neither tokenizer nor model knows a limit
_PACKAGE = "sentence_transformers"
_ENCODING = "config_sentence_transformers.json"  # prompts, and the length of vectors
_TRANSFORMER = "Transformer"
_TASK = "feature-extraction"
_FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}
VECTOR = "sentence_embedding"  # what modules call the vector of a text
_WEIGHTS = (".safetensors", ".bin", ".h5", ".ot", ".msgpack", ".onnx", ".index.json")
_WRITTEN = ("config.json", "README.md")  # for each model again


@dataclass(frozen=True)
class Reading:
    """How a text goes into an encoder.

    Attributes:
        longest: how many tokens of it; the others are cut off.
        prompt: what is put before it.
        lower: whether it is put into lower case first.
        prompt_tokens: how many tokens the prompt has; some poolings leave them out.
    """

    longest: int
    prompt: str = ""
    lower: bool = False
    prompt_tokens: int = 0

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


def at_hand(source: str) -> str:
    """The encoder as it can be loaded: fetched, if its Transformer is in a folder of its own."""
    folder = folder_of(source)
    if has_modules(folder):
        _refuse_other_order(source, listed_modules(folder))
    return str(folder) if transformer_path(folder) else source


def _refuse_other_order(source: str, rows: Sequence[Listed]) -> None:
    names = [row.name for row in rows]
    if names[:1] != [_TRANSFORMER] or _TRANSFORMER in names[1:]:
        raise HeadcountError(
            f"{source} has {', '.join(names) or 'nothing'} in {MODULES}, expected one Transformer, "
            "at the beginning; give an encoder that is built so"
        )


def reading_of(source: str, tokenizer: Processor, prompt: str | None) -> Reading:
    """How sentence-transformers gives a text to this encoder.

    Args:
        source: a folder or a name on the hub.
        tokenizer: the encoder's.
        prompt: what is put before every text; None for the folder's default.
    """
    folder = folder_of(source)
    inner = Path(inner_place(str(folder)))
    file = next(iter(sorted(inner.glob("sentence_*config.json"))), None)
    said = {} if file is None else _said(file)
    if file is not None:
        _refuse_other_outputs(file, said)
    length = said.get("max_seq_length")
    if not isinstance(length, int) or length < 1:
        length = _limit(source, tokenizer)
    own = _default_prompt(folder) if prompt is None else prompt
    reading = Reading(length, own, bool(said.get("do_lower_case")))
    return replace(reading, prompt_tokens=_tokens(tokenizer, reading)) if own else reading


def _said(file: Path) -> dict[str, Any]:
    try:
        said: dict[str, Any] = checked(read_json(file), dict, "its content")
    except ValueError as error:
        raise HeadcountError(
            f"{file} does not say how texts are encoded: {error}; restore the file"
        ) from error
    return said


def _refuse_other_outputs(file: Path, said: dict[str, Any]) -> None:
    """Refuse an encoder that takes anything else from its model than the last hidden states."""
    kinds = said.get("modality_config", {"text": _FORWARD})
    text = kinds.get("text") if isinstance(kinds, dict) else None
    how = text if isinstance(text, dict) else {}
    found = (said.get("transformer_task", _TASK), *(how.get(key) for key in _FORWARD))
    if found != (_TASK, *_FORWARD.values()):
        raise HeadcountError(
            f"{file} has {', '.join(map(str, found))} for texts, expected {_TASK}, "
            f"{', '.join(_FORWARD.values())}; give an encoder that pools the last hidden states"
        )


def _tokens(tokenizer: Processor, reading: Reading) -> int:
    """How many tokens a prompt has, without a special one at its end."""
    ids = tokenizer(reading.text(""), truncation=True, max_length=reading.longest)["input_ids"]
    return len(ids) - (bool(ids) and ids[-1] in tokenizer.all_special_ids)


def _limit(source: str, tokenizer: Processor) -> int:
    """What tokenizer and model read; a tokenizer that knows no limit says 10 ** 30."""
    place = place_of(source)
    with loading(source):
        config = AutoConfig.from_pretrained(place, **NO_CODE).get_text_config()
    positions = getattr(config, "max_position_embeddings", None)
    limits = [tokenizer.model_max_length, positions]
    known = [n for n in limits if isinstance(n, int) and 0 < n < 10**9]
    return min(known, default=LENGTH)


def _default_prompt(folder: Path) -> str:
    file = folder / _ENCODING
    said = _said(file) if file.is_file() else {}
    name, prompts = said.get("default_prompt_name"), said.get("prompts")
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise HeadcountError(
            f"{file} has {in_brief(prompt)} as its default prompt {name}, expected a text; restore "
            "the file, or give --option prompt=TEXT"
        )
    return prompt


def later_modules(source: str, folder: Path) -> list[nn.Module]:
    """What comes after the Transformer, loaded by sentence-transformers."""
    rows = listed_modules(folder)
    for row in rows:
        if row.module.split(".")[0] != _PACKAGE:
            raise HeadcountError(
                f"{source} has a module {row.module}.{row.name} of its own, whose code headcount "
                "does not run; give an encoder with modules of sentence-transformers"
            )
    made = [_loaded(source, folder, row) for row in rows[1:]]
    return [*made, *_shortening(folder)]


def _shortening(folder: Path) -> list[nn.Module]:
    """Cuts vectors to the length that a folder says, if it says one."""
    file = folder / _ENCODING
    length = _said(file).get("truncate_dim") if file.is_file() else None
    return [_FirstOf(length)] if isinstance(length, int) and length > 0 else []


class _FirstOf(nn.Module):
    """The first numbers of a vector.

    Args:
        length: how many.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """The features with a shorter vector."""
        return {**features, VECTOR: features[VECTOR][..., : self.length]}


def _loaded(source: str, folder: Path, row: Listed) -> nn.Module:
    if leads_out(folder / row.path, folder):
        raise HeadcountError(f"{source}/{row.path} leads out of the folder; put the files there")
    try:
        cls: Any = import_from_string(f"{row.module}.{row.name}")  # old names, too
        loaded: nn.Module = cls.load(str(folder), subfolder=row.path)
    except Exception as error:  # of any type: each module reads files of its own
        raise HeadcountError(
            f"{source} has a module {row.name} that cannot be loaded: {first_line(error)}; restore "
            f"its folder {row.path}"
        ) from error
    return loaded.eval().requires_grad_(False)


def copy_beside(source: Path, target: Path) -> None:
    """Copy the files and modules of a folder of sentence-transformers; what is there stays.

    Left out are weights of the Transformer, other folders (graphs and checkpoints of the unpruned
    model), what is written for every model again, and links that lead out. Of a folder that
    headcount wrote, only what belongs to the model is copied: it also has the figures of another
    run.
    """
    patterns = COMPANIONS if _is_ours(source) else ("*",)
    files = {file for pattern in patterns for file in source.glob(pattern)}
    first, *others = listed_modules(source)
    inner = source / first.path
    if first.path:
        files |= {*inner.glob("*")}
    for row in others:
        if row.path:
            files |= {*(source / row.path).rglob("*")}
    for file in sorted(files):
        place = file.relative_to(source)
        if (
            file.is_file()
            and str(place) not in _WRITTEN
            and not (file.parent in (source, inner) and file.name.endswith(_WEIGHTS))
            and not place.name.startswith(".")
            and not (target / place).exists()
            and not leads_out(file, source)
        ):
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / place)


def _is_ours(folder: Path) -> bool:
    """Whether headcount wrote a folder: a pruned model has a mask, a base its own settings."""
    return (folder / MASK_FILE).is_file() or any(folder.glob("base_*.json"))
