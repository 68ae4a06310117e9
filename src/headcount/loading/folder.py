"""Load a model from a folder or the hub, and write a model folder completely or not at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from reprlib import repr as in_brief
from typing import Any

import transformers
from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoModel, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.json_file import parse_json, read_bytes
from headcount.loading import checkpoint
from headcount.loading.module_list import MODULES, say_in_one_folder, transformer_path
from headcount.surgery.remove import remove_heads

# What must stay with everything that is made of a model.
LICENCES = ("LICENSE*", "LICENCE*", "license*", "COPYING*", "NOTICE*")
# Files of a model besides weights and configuration: tokenizers, processors, generation, and the
# modules that sentence-transformers puts after the model.
COMPANIONS = (
    "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json",
    "*.model", "*preprocessor_config.json", "processor_config.json", "chat_template*",
    "generation_config.json", "normalizer.json", MODULES, "sentence_*config.json",
    "config_sentence_transformers.json", "[0-9]*_*/*",
    "[0-9]*_*/**/*", *LICENCES,
)  # fmt: skip
# A folder may bring Python code. transformers would ask whether to run it; we never do.
NO_CODE: dict[str, Any] = {"trust_remote_code": False}
# The largest numbers that a configuration may have, by its keys: more than any model has.
MOST = (
    (re.compile(r"layer|expert|depth|heads?$"), 10_000),
    (re.compile(r"label"), 1_000_000),
    (re.compile(r"size|dim|embd|^d_"), 10_000_000),
)


def load_model(source: str) -> PreTrainedModel:
    """Load a model, pruned or not, in the class that its `config.json` names.

    Args:
        source: a folder as `save_pretrained` writes it, or a name on the hub.

    Raises:
        HeadcountError: there is no model, or it is damaged, quantised, or lacks weights.
    """
    source = place_of(source)
    with loading(source):
        config = AutoConfig.from_pretrained(source, **NO_CODE)
        refuse_quantised(config)
        cls = _model_class(config)
        model, info = cls.from_pretrained(
            source, config=config, output_loading_info=True, **NO_CODE
        )
    missing = sorted(info["missing_keys"])
    if missing:
        raise HeadcountError(
            f"{source} has no weights for {missing[0]} and {len(missing) - 1} other tensors of "
            f"{cls.__name__}; the folder is incomplete or its config.json names another class"
        )
    return model  # type: ignore[no-any-return]


def random_model(source: str) -> PreTrainedModel:
    """A model with random weights, with the class, sizes and heads from a `config.json`.

    Args:
        source: a folder, which needs only a `config.json`, or a name on the hub.
    """
    source = place_of(source)
    with loading(source):
        config = AutoConfig.from_pretrained(source, **NO_CODE)
        kept = checkpoint.KeptHeads.of(config)
        vars(config).pop("quantization_config", None)
        cls = _model_class(config)
        model: PreTrainedModel = (AutoModel.from_config if cls is AutoModel else cls)(config)
        if kept is not None:
            remove_heads(model, kept.for_model(find_heads(model)))
    return model


@contextmanager
def loading(source: str) -> Iterator[None]:
    """Turn whatever another library raises about a damaged folder into one sentence.

    A configuration can hold anything, so that any exception may come out of the classes that it
    is given to: a KeyError for an activation, a ZeroDivisionError for a model without heads.

    Args:
        source: the folder or the name on the hub, for the sentence.
    """
    try:
        yield
    except HeadcountError:
        raise
    except Exception as error:
        raise HeadcountError(_why_not_loaded(source, error)) from error


def _why_not_loaded(source: str, error: Exception) -> str:
    if isinstance(error, RuntimeError) and "mismatch" in str(error).lower():
        return (
            f"the weights in {source} do not have the shapes that its config.json says: the kept "
            "heads written there disagree with the weights; restore the config.json that was saved "
            "with them"
        )
    if "weights_only" in str(error):  # torch's own words advise to run what is in the file
        return (
            f"cannot load a model from {source}: its weights are in a pickle that holds more than "
            "weights, which is never run; give weights in safetensors"
        )
    reason = first_line(error)
    if " " not in reason:  # a KeyError says only the key
        reason = f"{type(error).__name__}: {reason}"
    return (
        f"cannot load a model from {source}: {reason}; give a folder as save_pretrained wrote it, "
        "or a name on the hub"
    )


def place_of(source: str) -> str:
    """The folder that has a model's `config.json`, or its name on the hub.

    It is the folder that is given, or for an older one of sentence-transformers the one inside.

    Args:
        source: a model folder or a name on the hub.

    Raises:
        HeadcountError: the folder holds no model, which is seen before anything tries to load it.
    """
    place = inner_place(source)
    _refuse_bad_folder(place)
    return place


def inner_place(source: str) -> str:
    """Where the files of a Transformer are; the source itself if it is no folder."""
    folder = Path(source)
    try:
        inner = transformer_path(folder) if source and folder.is_dir() else ""
    except OSError:  # a name that no folder can have
        return source
    if not inner:
        return source
    if leads_out(folder / inner, folder) or not (folder / inner).is_dir():
        raise HeadcountError(
            f"{folder / MODULES} has its first module in {inner}, which is no folder beside it; "
            "put the files there"
        )
    return str(folder / inner)


def _refuse_bad_folder(source: str) -> None:
    path = Path(source)
    try:
        there = path.exists()
    except (OSError, ValueError) as error:  # a name that is too long, or has a zero in it
        raise HeadcountError(
            f"{in_brief(source)} cannot be the name of a model: "
            f"{getattr(error, 'strerror', None) or error}; give a model folder or a hub name"
        ) from error
    if not there:
        if source.startswith((".", "/", "~")):
            raise HeadcountError(f"there is no folder {source}; give a model folder or a hub name")
        return
    file = path / "config.json"
    if not file.is_file():
        raise HeadcountError(
            f"{source} is not a model: it has no config.json; give a folder that save_pretrained "
            "wrote"
        )
    try:
        config = parse_json(read_bytes(file).decode("utf-8"))
    except ValueError as error:
        raise HeadcountError(
            f"{file} is damaged, it is not valid JSON: {error}; restore the file"
        ) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise HeadcountError(
            f"{file} is not a model's configuration: it names no model_type; restore the file"
        )
    entry = config.get("quantization_config")
    if entry is not None and not isinstance(entry, dict):
        raise HeadcountError(
            f"{file} has {in_brief(entry)} as quantization_config, expected keys and values; "
            "restore the file"
        )
    _refuse_absurd_sizes(file, config)


def is_language_model(source: str) -> bool:
    """Whether a model folder or hub name holds a model that writes text from left to right."""
    source = place_of(source)
    with loading(source):
        config: Any = AutoConfig.from_pretrained(source, **NO_CODE)
    names = config.architectures or ()
    return any(str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in names)


def is_pruned(source: str) -> bool:
    """Whether a model folder or hub name holds a model that lost heads."""
    source = place_of(source)
    with loading(source):
        config: Any = AutoConfig.from_pretrained(source, **NO_CODE)
    return checkpoint.KeptHeads.of(config) is not None


def _refuse_absurd_sizes(file: Path, config: dict[str, Any]) -> None:
    """Refuse numbers of layers, heads and so on that would keep a computer busy for days.

    transformers makes something for each of them before it looks at the weights.
    """
    parts = [config]
    for part in parts:  # which grows: a model of several towers has a part for each
        parts.extend(value for value in part.values() if isinstance(value, dict))
        for key, value in part.items():
            most = next((most for words, most in MOST if words.search(key)), None)
            numbers = [n for n in (value if isinstance(value, list) else [value]) if type(n) is int]
            if most and max(numbers, default=0) > most:
                raise HeadcountError(
                    f"{file} has {in_brief(value)} as {key}, expected at most {most:,}; restore "
                    "the file"
                )


def refuse_quantised(config: Any) -> None:
    """Refuse a quantised model, whose rows cannot be cut."""
    checkpoint.KeptHeads.of(config)


def _model_class(config: Any) -> Any:
    """The class that a configuration names; the base model's if transformers does not know it."""
    names = getattr(config, "architectures", None)
    if not names and names in (None, []):
        return AutoModel
    if not (isinstance(names, list) and isinstance(names[0], str)):
        raise _wrong_architecture(names, "expected a list with the name of a class")
    cls = getattr(transformers, names[0], AutoModel)
    if cls is AutoModel:
        return cls
    if not (isinstance(cls, type) and issubclass(cls, PreTrainedModel)):
        raise _wrong_architecture(names, "which is no model")
    if not isinstance(config, getattr(cls, "config_class", None) or ()):
        raise _wrong_architecture(names, f"which is no {config.model_type} model")
    return cls


def _wrong_architecture(names: Any, problem: str) -> HeadcountError:
    return HeadcountError(
        f"config.json has {in_brief(names)} as architectures, {problem}; restore the config.json "
        "that was saved with the weights"
    )


def first_line(error: BaseException) -> str:
    """The message of another library's error, short enough for one sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return repr(error)
    # The errors of some checks end their first line with a colon, and say what is wrong below it.
    text = f"{lines[0]} {lines[1]}" if lines[0].endswith(":") and lines[1:] else lines[0]
    return text.rstrip(".") if len(text) <= 400 else f"{text[:400]} …"


def copy_companions(
    source: str, target: Path, patterns: Sequence[str] = COMPANIONS
) -> tuple[str, ...]:
    """Copy tokenizer, processor, generation and licence files: the small model is ready to use.

    A link that leads out of the folder is left out: whoever made the folder could have pointed it
    at any file of the one who copies it. What an older folder of sentence-transformers has in a
    folder of its own for the Transformer goes beside the rest, and `modules.json` says so.

    Args:
        source: a model folder or a name on the hub.
        target: the folder to copy to. Files that it has already stay.
        patterns: the names of the files, with stars.

    Returns:
        The names of what was left out.
    """
    if Path(source).is_dir():
        folder = Path(source)
    else:
        folder = Path(snapshot_download(source, allow_patterns=list(patterns)))
    inner = Path(inner_place(str(folder)))
    files = {file.relative_to(inner): file for file in _found(inner, patterns)}
    if inner != folder:
        around = (file for file in _found(folder, patterns) if not file.is_relative_to(inner))
        files = {file.relative_to(folder): file for file in around} | files
    left_out = []
    for place, file in files.items():
        if (target / place).exists():
            continue
        if leads_out(file, folder):
            left_out.append(str(place))
        else:
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / place)
            if inner != folder and str(place) == MODULES:
                say_in_one_folder(target)
    return tuple(left_out)


def _found(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """The files of a folder with these names."""
    for pattern in patterns:
        yield from (file for file in sorted(folder.glob(pattern)) if file.is_file())


def left_out_words(source: str, names: Sequence[str]) -> str:
    """What to tell about files that were not copied."""
    return f"left out, because they are links that lead out of {source}: {', '.join(names)}"


def leads_out(file: Path, folder: Path) -> bool:
    """Whether a file is a link out of its folder. The hub's cache keeps its files in `blobs`."""
    home, real = folder.resolve(), file.resolve()
    homes = [home]
    if home.parent.name == "snapshots":
        homes.append(home.parents[1] / "blobs")
    return not any(real.is_relative_to(one) for one in homes)
