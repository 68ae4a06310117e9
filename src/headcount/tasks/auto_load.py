"""Load the model or the processor that a task needs, with one sentence if that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedModel

from headcount.errors import HeadcountError

_TROUBLE = (OSError, ValueError, KeyError, RuntimeError, ImportError)
_TROUBLE += (HFValidationError, SafetensorError, json.JSONDecodeError)


def load_part(auto: Any, source: str, what: str, **kwargs: Any) -> Any:
    """A tokenizer or processor by its auto class.

    Args:
        auto: the class, for example `AutoTokenizer`.
        source: a model folder or a name on the hub.
        what: for the error, for example "tokenizer".
        **kwargs: for `from_pretrained`.
    """
    _refuse_missing(source)
    try:
        return auto.from_pretrained(source, **kwargs)
    except _TROUBLE as error:
        raise HeadcountError(f"cannot load a {what} from {source}: {_line(error)}") from error


def load_for(auto: Any, source: str, task: str, *, whole: bool, **kwargs: Any) -> PreTrainedModel:
    """A model, pruned or not, by the auto class of a task.

    Args:
        auto: the class, for example `AutoModelForSeq2SeqLM`.
        source: a model folder or a name on the hub.
        task: for the error.
        whole: whether all weights must be there; False where an output layer may be fresh.
        **kwargs: for `from_pretrained`.

    Raises:
        HeadcountError: there is no model, it is damaged, or not one for this task.
    """
    _refuse_missing(source)
    try:
        config = AutoConfig.from_pretrained(source)
        if type(config) not in auto._model_mapping:
            raise HeadcountError(
                f"{source} is a {config.model_type} model, which cannot be used for {task}: "
                f"{auto.__name__} does not know it"
            )
        model, info = auto.from_pretrained(source, output_loading_info=True, **kwargs)
    except _TROUBLE as error:
        raise HeadcountError(f"cannot load a model from {source}: {_line(error)}") from error
    missing = sorted(info["missing_keys"])
    if whole and missing:
        raise HeadcountError(
            f"{source} has no weights for {missing[0]} and {len(missing) - 1} other tensors of "
            f"{type(model).__name__}; give a model that was trained for {task}"
        )
    return model  # type: ignore[no-any-return]


def _refuse_missing(source: str) -> None:
    path = Path(source).expanduser()
    if source.startswith((".", "/", "~")) and not path.exists():
        raise HeadcountError(f"there is no folder {source}; give a model folder or a hub name")
    if path.is_dir() and not (path / "config.json").is_file():
        raise HeadcountError(
            f"{source} is not a model: it has no config.json; give a folder that save_pretrained "
            "wrote"
        )


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else repr(error)
