"""Load the tokenizer and the model of a task, from a folder or the hub.

`load_for` loads a model of any class as it is. `load_classifier` gives a model a classifier for the
task's labels: its own, if it fits, or a fresh one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from headcount.errors import HeadcountError
from headcount.loading.folder import (
    NO_CODE,
    first_line,
    loading,
    place_of,
    refuse_quantised,
)
from headcount.tasks.base import Processor

FRESH = "_headcount_fresh"
# Weights are trained and fitted in this type, whatever type they were saved in: half precision
# would lose small updates to rounding. `TrainingSettings.precision` is about computing only.
WEIGHTS = torch.float32


def load_tokenizer(source: str) -> Processor:
    """The tokenizer of a model folder or hub name, with a padding token.

    Raises:
        HeadcountError: there is no tokenizer, or no token to pad with.
    """
    source = place_of(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **NO_CODE)
        words = len(tokenizer.get_vocab()) - len(tokenizer.all_special_ids)
    except Exception as error:  # of any type: tokenizers without their files raise many
        raise HeadcountError(
            f"{source} has no tokenizer that can be loaded: {first_line(error)}; save the "
            "tokenizer into the model's folder"
        ) from error
    if words < 1:  # without files, transformers makes an empty one from the class
        raise HeadcountError(
            f"{source} has no tokenizer: there are none of its files in the folder; save the "
            "tokenizer there too"
        )
    if tokenizer.pad_token is None:  # GPT-2 and others were trained without padding
        if tokenizer.eos_token is None:
            raise HeadcountError(
                f"the tokenizer of {source} has neither a padding token nor an end-of-text token; "
                "set its pad_token and save it"
            )
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_for(auto: Any, source: str, task: str, *, whole: bool, **kwargs: Any) -> PreTrainedModel:
    """A model, pruned or not, loaded with the auto class of a task.

    Args:
        auto: the class, for example `AutoModelForSeq2SeqLM`.
        source: a model folder or a name on the hub.
        task: the name of the task, for the error.
        whole: whether all weights must be in the file; False if an output layer may be fresh.
        **kwargs: more arguments for `from_pretrained`.

    Raises:
        HeadcountError: there is no model, it is damaged, or it is not for this task.
    """
    source = place_of(source)
    with loading(source):
        config = AutoConfig.from_pretrained(source, **NO_CODE)
        refuse_quantised(config)
        if type(config) not in auto._model_mapping:
            raise HeadcountError(
                f"{source} is a {config.model_type} model, which cannot be used for {task}: "
                f"{auto.__name__} does not know it"
            )
        model, info = auto.from_pretrained(
            source, output_loading_info=True, dtype=WEIGHTS, **NO_CODE, **kwargs
        )
    missing = sorted(info["missing_keys"])
    if whole and missing:
        raise HeadcountError(
            f"{source} has no weights for {missing[0]} and {len(missing) - 1} other tensors of "
            f"{type(model).__name__}; give a model that was trained for {task}"
        )
    for module in model.modules():
        # Marian's positions are not trained, but loading makes them ordinary parameters.
        if "Sinusoidal" in type(module).__name__:
            module.requires_grad_(False)
    return model  # type: ignore[no-any-return]


def load_classifier(
    source: str, tokenizer: Processor, labels: Sequence[str], max_length: int
) -> tuple[PreTrainedModel, list[int]]:
    """A model that classifies sequences; its own classifier is kept if it has these labels.

    A fine-tuned model that has the same labels in another order keeps its order. If its labels have
    no names (`LABEL_0`, …), or those of the data have none ("0", "1", …), they are assumed to be in
    the order of `labels`. A classifier with the same number of other labels is kept to start from,
    but does not count as fine-tuned.

    Args:
        source: a model folder, pruned or not, or a hub name.
        tokenizer: the tokenizer from `load_tokenizer`.
        labels: names of the labels in the data's order; empty for a regression.
        max_length: the longest input in tokens; a model that cannot read it is refused.

    Returns:
        The model, and for each of its outputs the number of the label in `labels`.
    """
    source = place_of(source)
    count = len(labels) or 1
    with loading(source):
        config = AutoConfig.from_pretrained(source, **NO_CODE)
        refuse_quantised(config)
        order, foreign = _order(config, labels)
        if order is None:
            config.num_labels = count
            order = list(range(count))
        if labels and (foreign or not _named(config)):
            config.id2label = {place: labels[number] for place, number in enumerate(order)}
            config.label2id = {name: place for place, name in config.id2label.items()}
        config.problem_type = "single_label_classification" if labels else "regression"
        model, info = AutoModelForSequenceClassification.from_pretrained(
            source,
            config=config,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            dtype=WEIGHTS,
            **NO_CODE,
        )
    made = _made(source, model, info)
    setattr(model, FRESH, tuple(made) or (("classifier of other labels",) if foreign else ()))
    _teach_padding(model, tokenizer)
    refuse_length(source, model, max_length)
    return model, order


def _order(config: Any, labels: Sequence[str]) -> tuple[list[int] | None, bool]:
    """The label of each output, None if their number differs; and whether their names differ."""
    if config.num_labels != (len(labels) or 1):
        return None, True
    in_order = list(range(len(labels) or 1))
    if not labels or not _named(config) or list(labels) == [str(i) for i in in_order]:
        return in_order, False
    numbers = {_plain(name): number for number, name in enumerate(labels)}
    own = [_plain(config.id2label[place]) for place in in_order]
    if sorted(own) != sorted(numbers):
        return in_order, True
    return [numbers[name] for name in own], False


def _named(config: Any) -> bool:
    names = list(config.id2label.values())
    return not all(re.fullmatch(r"(LABEL_)?\d+", str(name)) for name in names)


def _plain(name: str) -> str:
    """One spelling of a label: POSITIVE is positive, not-entailment is not_entailment."""
    return re.sub(r"[^a-z0-9]+", "_", str(name).lower())


def _made(source: str, model: PreTrainedModel, info: dict[str, Any]) -> list[str]:
    """The tensors that the file does not have: the classifier, and maybe the pooler before it."""
    made = sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})
    encoder = f"{model.base_model_prefix}."
    lost = [key for key in made if key.startswith(encoder) and "pooler" not in key]
    if lost:
        raise HeadcountError(
            f"{source} has no weights for {lost[0]} and {len(lost) - 1} other tensors of "
            f"{type(model).__name__} that fit its config.json; the folder is incomplete or damaged"
        )
    return made


def _teach_padding(model: PreTrainedModel, tokenizer: Processor) -> None:
    """Set the padding token: a model that classifies by the last token must know it."""
    for config in (model.config, model.config.get_text_config()):
        if getattr(config, "pad_token_id", None) is None:
            config.pad_token_id = tokenizer.pad_token_id


def refuse_length(source: str, model: PreTrainedModel, max_length: int) -> None:
    """Refuse texts that are longer than the model has positions."""
    limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None)]
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings"):
            # RoBERTa and its relatives begin to count after the padding token.
            start = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - start)
    limit = min((n for n in limits if isinstance(n, int) and n > 0), default=max_length)
    if max_length > limit:
        raise HeadcountError(
            f"{source} reads at most {limit} tokens, but inputs may have {max_length}; give a "
            f"maximal length of {limit} or less"
        )


def is_fine_tuned(model: PreTrainedModel) -> bool:
    """Whether the model was loaded with its own classifier for the task's labels."""
    return not getattr(model, FRESH, ())
