"""Load a model from a folder or the hub, and write a model folder completely or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModel, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.loading import checkpoint
from headcount.surgery.remove import remove_heads

# Files of a model besides weights and configuration: tokenizers, processors, generation.
COMPANIONS = (
    "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json",
    "*.model", "*preprocessor_config.json", "processor_config.json", "chat_template*",
    "generation_config.json", "normalizer.json",
)  # fmt: skip


def load_model(source: str) -> PreTrainedModel:
    """Load a model, pruned or not, in the class that its `config.json` names.

    Args:
        source: a folder as `save_pretrained` writes it, or a name on the hub.

    Raises:
        HeadcountError: there is no model, or it is damaged, quantised, or lacks weights.
    """
    refuse_bad_folder(source)
    try:
        config = AutoConfig.from_pretrained(source)
        refuse_quantised(config)
        cls = _model_class(config)
        model, info = cls.from_pretrained(source, config=config, output_loading_info=True)
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        raise HeadcountError(f"cannot load a model from {source}: {first_line(error)}") from error
    except RuntimeError as error:
        raise HeadcountError(_why_weights_do_not_fit(source, error)) from error
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
    refuse_bad_folder(source)
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError, HFValidationError) as error:
        raise HeadcountError(
            f"cannot read a configuration from {source}: {first_line(error)}"
        ) from error
    refuse_quantised(config)
    entry = vars(config).pop("quantization_config", None)
    cls = _model_class(config)
    model: PreTrainedModel = (AutoModel.from_config if cls is AutoModel else cls)(config)
    if entry:
        heads = find_heads(model)
        remove_heads(model, checkpoint.KeptHeads(**entry).for_model(heads))
    return model


def refuse_bad_folder(source: str) -> None:
    """Refuse a folder that holds no model, before anything tries to load it."""
    path = Path(source)
    if not path.exists():
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
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise HeadcountError(f"{file} is damaged, it is not valid JSON: {error}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise HeadcountError(f"{file} is not a model's configuration: it names no model_type")


def refuse_quantised(config: Any) -> None:
    """Refuse a quantised model, whose rows cannot be cut."""
    entry = getattr(config, "quantization_config", None)
    method = entry.get("quant_method") if isinstance(entry, dict) else None
    if entry and method != checkpoint.METHOD:
        raise HeadcountError(
            f"this model is quantised ({method}) and its rows cannot be cut; "
            "remove heads from the unquantised model, then quantise the result"
        )


def _model_class(config: Any) -> Any:
    names = getattr(config, "architectures", None) or []
    return getattr(transformers, names[0], AutoModel) if names else AutoModel


def _why_weights_do_not_fit(source: str, error: RuntimeError) -> str:
    if "mismatch" not in str(error).lower():
        return f"cannot load a model from {source}: {first_line(error)}"
    return (
        f"the weights in {source} do not have the shapes that its config.json says: the kept heads "
        "written there disagree with the weights; restore the config.json that was saved with them"
    )


def first_line(error: Exception) -> str:
    """The message of another library's error, short enough for one sentence."""
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else repr(error)


def copy_companions(source: str, target: Path) -> None:
    """Copy tokenizer, processor and generation files, so that the small model is ready to use."""
    if Path(source).is_dir():
        folder = Path(source)
    else:
        folder = Path(snapshot_download(source, allow_patterns=list(COMPANIONS)))
    for pattern in COMPANIONS:
        for file in folder.glob(pattern):
            if file.is_file() and not (target / file.name).exists():
                shutil.copyfile(file, target / file.name)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name only if the block ends without an error."""
    if path.exists():
        raise HeadcountError(f"{path} exists already; give a new folder for the output")
    if not path.absolute().parent.is_dir():
        raise HeadcountError(f"{path} cannot be written: {path.parent} is not a folder")
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    except OSError as error:
        raise HeadcountError(
            f"{path} cannot be written: {error.strerror or error}; give another folder"
        ) from error
    try:
        yield scratch
        scratch.chmod(0o755)
        scratch.rename(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HeadcountError(f"{path} cannot be written: {reason}; make room for it") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
