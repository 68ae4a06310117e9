"""Plain folders: a pruned model that transformers loads as it is, without headcount.

A configuration has one number of heads for all layers. Where the layout says the same (an even
layout; *which* heads are kept may differ from layer to layer), the model is written in its own
class. Some classes insist that heads times their size is the width of the model. Those are written
in an equivalent class that does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from headcount.deploy.auto_class import auto_class, loading_lines
from headcount.deploy.compare import largest_gap, tolerance_of
from headcount.deploy.rebuild import filled, read_config, refuse_other_shapes
from headcount.deploy.regular import (
    NotHeldError,
    RegularBlock,
    regular_blocks,
    regular_state,
    repeated_key_value_heads,
)
from headcount.errors import HeadcountError
from headcount.heads import families
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads

OWN_ENTRIES = ("quantization_config", "pruned_heads")  # what pruned models have, and plain ones not
Config = dict[str, Any]
State = dict[str, Tensor]


@dataclass(frozen=True)
class Plain:
    """A model in a plain form.

    Attributes:
        model: the same model, in a class of transformers.
        why: which class that is and why, in a sentence.
        repeats: how many key-value heads are copies of others.
    """

    model: PreTrainedModel
    why: str
    repeats: int


@dataclass(frozen=True)
class Form:
    """A class that may hold the model, with its configuration.

    Attributes:
        cls: the class.
        config: the configuration as JSON has it.
        why: which class that is and why, in a sentence.
    """

    cls: type[PreTrainedModel]
    config: Config
    why: str


@dataclass(frozen=True)
class Candidates:
    """What a plain form may be made of.

    Attributes:
        forms: classes that may hold the model, the best first.
        state: its weights in regular form.
        repeats: how many key-value heads of that form are copies of others.
    """

    forms: tuple[Form, ...]
    state: State
    repeats: int = 0


def plain_form(model: PreTrainedModel) -> Plain:
    """The model in a class of transformers that runs it without headcount.

    Args:
        model: the model, pruned or not; it is not changed.

    Raises:
        NotHeldError: no configuration says its layout.
    """
    candidates, problems = _candidates(model), list[str]()
    for form, config in _fitting(candidates, problems):
        made = filled(form.cls, config, candidates.state, model)
        gap = largest_gap(model, made)
        if gap <= tolerance_of(model):
            return Plain(made, form.why, candidates.repeats)
        problems.append(f"{form.cls.__name__} would differ by {gap:.1e}")
    raise NotHeldError("; ".join(problems))


def plain_config(model: PreTrainedModel) -> PreTrainedConfig:
    """The configuration of the plain form alone, which takes no memory for weights.

    Raises:
        NotHeldError: no configuration says its layout.
    """
    problems: list[str] = []
    for _, config in _fitting(_candidates(model), problems):
        return config
    raise NotHeldError("; ".join(problems))


def _candidates(model: PreTrainedModel) -> Candidates:
    heads = find_heads(model)
    if len(heads) == heads.born:
        why = f"{type(model).__name__}, as it was: no heads were removed"
        return Candidates((Form(type(model), _bare(model.config), why),), model.state_dict())
    blocks = regular_blocks(heads, common_group=True)
    counts = even_counts(model, blocks)
    state = _with_bias_columns(heads, regular_state(model, blocks))
    return Candidates(tuple(_forms(model, counts)), state, repeated_key_value_heads(blocks))


def _fitting(
    candidates: Candidates, problems: list[str]
) -> Iterator[tuple[Form, PreTrainedConfig]]:
    """The forms that take these weights, with their configurations; notes why others do not."""
    for form in candidates.forms:
        try:
            config = read_config(form.cls, form.config)
            refuse_other_shapes(form.cls, config, candidates.state)
        except NotHeldError as problem:
            problems.append(str(problem))
        else:
            yield form, config


def even_counts(
    model: PreTrainedModel, blocks: tuple[RegularBlock, ...]
) -> dict[tuple[str, ...], RegularBlock]:
    """One block for each configuration of the model, by the place of that configuration in it.

    Raises:
        NotHeldError: blocks that share a configuration have different numbers of heads.
    """
    found: dict[tuple[str, ...], RegularBlock] = {}
    for block in blocks:
        if block.is_emptied:
            raise NotHeldError(f"{block.block.name} has no heads")
        place = _config_place(model, block)
        first = found.setdefault(place, block)
        if first.counts != block.counts:
            raise NotHeldError(
                f"{first.block.name} has {first.counts[0]} heads and {block.block.name} has "
                f"{block.counts[0]}"
            )
    return found


def _config_place(model: PreTrainedModel, regular: RegularBlock) -> tuple[str, ...]:
    """Where the configuration of a block is inside the model's: a tower may have its own."""
    anatomy = regular.block.anatomy
    attention = model.get_submodule(regular.block.path).get_submodule(anatomy.core)
    own: Any = getattr(attention, "config", model.config)
    own = getattr(own, "whole", own)  # a block that lost heads may have a view of it
    return next((place for place, node in _nodes(model.config) if node is own), ())


def _nodes(config: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield place, config
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            yield from _nodes(value, (*place, name))


def _with_bias_columns(heads: HeadMap, state: State) -> State:
    """The state with position biases of the kept heads, where one block has them for all (T5)."""
    of_stack: dict[str, tuple[str, tuple[int, ...]]] = {}
    for block in heads.blocks:
        if not block.anatomy.shares_bias or block.kind == "cross":
            continue
        stack = block.name.rpartition(".")[0]
        first, kept = of_stack.setdefault(stack, (block.name, block.heads))
        if kept != block.heads:
            raise NotHeldError(
                f"{first} and {block.name} share a position bias and have kept different heads"
            )
        key = f"{block.path}.relative_attention_bias.weight"
        if key in state:
            state[key] = state[key][:, list(block.heads)].contiguous()
    return state


def _forms(
    model: PreTrainedModel, counts: Mapping[tuple[str, ...], RegularBlock]
) -> Iterator[Form]:
    """Classes that may hold the model, the best first.

    Best is its own, if that has a key for the size of a head, which every program then knows. Next
    is an equivalent class that has one. Last is its own class, which reads the key all the same.
    """
    config = _bare(model.config)
    cls = type(model)
    knows_size = True
    for place, regular in counts.items():
        node = _inside(config, place)
        knows_size &= _say(node, _inside_object(model.config, place), regular)
    own = Form(cls, config, f"{cls.__name__}, its own class")
    others = list(_equivalents(model, config))
    yield from ([own, *others] if knows_size else [*others, own])


def _say(node: Config, config: Any, regular: RegularBlock) -> bool:
    """Write the numbers of heads into a configuration; whether it has a key for their size."""
    queries, key_values = regular.counts
    names = getattr(config, "attribute_map", {})
    for keys, count in ((families.HEAD_COUNTS, queries), (families.KEY_VALUE_COUNTS, key_values)):
        for key in {names.get(key, key) for key in keys}:
            if isinstance(node.get(key), int):
                node[key] = count
    size = regular.block.anatomy.head_size
    known = [key for key in (*families.HEAD_SIZES, "d_kv") if _declares(config, key)]
    for key in known or ["head_dim"]:
        node[key] = size
    return bool(known) or queries * size == getattr(config, "hidden_size", None)


def _declares(config: Any, key: str) -> bool:
    """Whether the class of a configuration has a key, and not only this instance."""
    try:
        return key in type(config)().to_dict()
    except Exception:  # a class that cannot be made without arguments
        return False


def _bare(config: PreTrainedConfig) -> Config:
    """A configuration as JSON has it, without what only pruned models have."""
    made: Config = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in made.items() if key not in OWN_ENTRIES}


def _inside(config: Config, place: tuple[str, ...]) -> Config:
    for name in place:
        config = config[name]
    return config


def _inside_object(config: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        config = getattr(config, name)
    return config


def _equivalents(model: PreTrainedModel, config: Config) -> Iterator[Form]:
    """Classes that compute what the model's class computes, and have a key for the head size."""
    own = type(model).__name__
    for prefix, to in EQUIVALENTS.get(model.config.model_type, ()):
        if (given := to(config)) is None:
            continue
        model_type, new_prefix, changed = given
        cls = getattr(transformers, own.replace(prefix, new_prefix, 1), None)
        if not own.startswith(prefix) or cls is None:
            continue
        known = cls.config_class().to_dict()
        merged = {key: value for key, value in config.items() if key in known} | changed
        merged |= {"model_type": model_type, "architectures": [cls.__name__]}
        why = (
            f"{cls.__name__}, which computes what {own} computes, and says the size of a head "
            "apart from their number"
        )
        yield Form(cls, merged, why)


Given = tuple[str, str, Config]


def _as_mistral(config: Config) -> Given | None:
    if config.get("attention_bias") or config.get("mlp_bias"):
        return None
    return "mistral", "Mistral", {"sliding_window": None}


def _as_seed_oss(config: Config) -> Given | None:
    if config.get("use_sliding_window"):
        return None
    llama = config["model_type"] == "llama"
    biases = {
        "attention_bias": bool(config.get("attention_bias")) if llama else True,
        "attention_out_bias": bool(config.get("attention_bias")) if llama else False,
        "mlp_bias": bool(config.get("mlp_bias")),
    }
    return "seed_oss", "SeedOss", {**biases, "attention_dropout": 0.0, "residual_dropout": 0.0}


# By model type: how the names of its classes begin, and what makes a configuration equivalent.
EQUIVALENTS: dict[str, tuple[tuple[str, Callable[[Config], Given | None]], ...]] = {
    "llama": (("Llama", _as_mistral), ("Llama", _as_seed_oss)),
    "qwen2": (("Qwen2", _as_seed_oss),),
}


def held(model: PreTrainedModel, source: str) -> str:
    """How a plain folder would hold the model; raises NotHeldError if it cannot."""
    return plain_form(model).why


def write(model: PreTrainedModel, source: str, folder: Path) -> dict[str, Any]:
    """Write a plain folder, load it again, and compare it with the model."""
    plain = plain_form(model)
    plain.model.save_pretrained(folder)
    again = type(plain.model).from_pretrained(folder, dtype=plain.model.dtype)
    gap = largest_gap(model, again)
    if not gap <= tolerance_of(model):
        raise HeadcountError(
            f"the plain folder answers something else: its outputs differ by {gap:.1e}, expected "
            f"at most {tolerance_of(model):.0e}; give --to remote-code"
        )
    return {
        "class": type(plain.model).__name__,
        "why": plain.why,
        "repeated_key_value_heads": plain.repeats,
        "difference": gap,
        "load": loading_lines(auto_class(type(plain.model))),
    }
