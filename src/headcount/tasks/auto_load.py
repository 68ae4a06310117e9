"""Load the model that a task needs, or say in one sentence why that cannot be."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.folder import first_line, refuse_bad_folder, refuse_quantised
from headcount.tasks.classifier import LOADING_ERRORS, WEIGHTS


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
    refuse_bad_folder(source)
    try:
        config = AutoConfig.from_pretrained(source)
        refuse_quantised(config)
        if type(config) not in auto._model_mapping:
            raise HeadcountError(
                f"{source} is a {config.model_type} model, which cannot be used for {task}: "
                f"{auto.__name__} does not know it"
            )
        model, info = auto.from_pretrained(
            source, output_loading_info=True, dtype=WEIGHTS, **kwargs
        )
    except LOADING_ERRORS as error:
        raise HeadcountError(f"cannot load a model from {source}: {first_line(error)}") from error
    missing = sorted(info["missing_keys"])
    if whole and missing:
        raise HeadcountError(
            f"{source} has no weights for {missing[0]} and {len(missing) - 1} other tensors of "
            f"{type(model).__name__}; give a model that was trained for {task}"
        )
    for module in model.modules():
        # Marian's positions are not for training, but loading makes them parameters like others.
        if "Sinusoidal" in type(module).__name__:
            module.requires_grad_(False)
    return model  # type: ignore[no-any-return]
