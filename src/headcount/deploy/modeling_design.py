"""What a modelling file of a pruned model says: its classes, its blocks, its configuration."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from headcount.deploy import plain
from headcount.deploy.auto_class import auto_classes, loading_lines
from headcount.deploy.modeling_file import (
    MODULE,
    Classes,
    Kind,
    Layers,
    generated,
    modeling_file,
)
from headcount.deploy.regular import NotHeldError, RegularBlock, regular_blocks
from headcount.heads import families
from headcount.heads.anatomy import Anatomy
from headcount.heads.find import find_heads
from headcount.surgery.class_swap import own_class

PER_BLOCK = "heads_per_block"  # in config.json: the heads of each block that lost some
PER_LAYER = "per_layer_config"  # the entry that transformers and vLLM know, where it can say them
Lost = dict[str, RegularBlock]  # the blocks that lost heads, by their path in the base model


@dataclass(frozen=True)
class Design:
    """A modelling file, and the configuration beside it.

    Attributes:
        name: the generated class of the model.
        base_name: the generated class that `AutoModel` loads.
        config: the configuration as JSON has it.
        code: the text of the file.
        load: the Python that loads the folder.
        blocks: the regular form of every block.
    """

    name: str
    base_name: str
    config: dict[str, Any]
    code: str
    load: str
    blocks: tuple[RegularBlock, ...]


def design_of(model: PreTrainedModel) -> Design:
    """The modelling file and the configuration for a model that lost heads.

    Raises:
        NotHeldError: no file of this kind builds it.
    """
    if getattr(model.config, "is_heterogeneous", False):
        raise NotHeldError(f"its {PER_LAYER} says already how its layers differ")
    blocks = regular_blocks(find_heads(model))
    lost = {
        _path_in_base(model, regular.block.path): regular
        for regular in blocks
        if regular.block.num_heads < regular.block.born
    }
    kinds = _kinds(model, lost)
    layers = _layers(model, lost, blocks)
    base = _base_class(model, lost)
    classes = Classes(type(model.config), base, type(model), _auto_classes(model, base))
    entry = PER_LAYER if layers else PER_BLOCK
    config = _bare_config(model)
    config[entry] = _heads_by_layer(lost, layers) if layers else _heads_by_block(lost)
    if layers:
        # So that the family's own configuration loads too: tokenizers read it without the flag.
        config["allow_global_per_layer_attribute_access"] = True
    config["auto_map"] = {key: f"{MODULE}.{name}" for key, name in classes.auto_map.items()}
    config["architectures"] = [generated(type(model))]
    code = modeling_file(classes, kinds, entry, layers)
    return Design(
        name=generated(type(model)),
        base_name=generated(base),
        config=config,
        code=code,
        load=loading_lines(classes.autos[0], "trust_remote_code=True"),
        blocks=blocks,
    )


def _path_in_base(model: PreTrainedModel, path: str) -> str:
    """The path of a block seen from the base model, which is inside most classes for a task."""
    if model.base_model is model:
        return path
    prefix = f"{model.base_model_prefix}."
    if not path.startswith(prefix):
        raise NotHeldError(f"{path} is outside of the base model")
    return path.removeprefix(prefix)


def _kinds(model: PreTrainedModel, lost: Lost) -> tuple[Kind, ...]:
    """The kinds of blocks, each with its paths: patterns, unless blocks of a pattern differ."""
    shapes: dict[str, set[Any]] = {}
    for path, regular in lost.items():
        shapes.setdefault(_pattern(path), set()).add(_shape(regular.block.anatomy))
    found: dict[Any, dict[str, RegularBlock]] = {}
    for path, regular in lost.items():
        pattern = _pattern(path)
        place = pattern if len(shapes[pattern]) == 1 else path
        found.setdefault(_shape(regular.block.anatomy), {})[place] = regular
    return tuple(_kind(model, of_shape) for of_shape in found.values())


def _kind(model: PreTrainedModel, blocks: dict[str, RegularBlock]) -> Kind:
    block = next(iter(blocks.values())).block
    attention = model.get_submodule(block.path).get_submodule(block.anatomy.core)
    read = _count_names(model) if block.anatomy.reads_config else ()
    return Kind(tuple(blocks), block.anatomy, own_class(type(attention)), read)


def _pattern(path: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", path)


def _shape(anatomy: Anatomy) -> tuple[Any, ...]:
    """What the modelling file says about a block; blocks with the same are of one kind."""
    parts = tuple(part for part in anatomy.parts if not part.whole)
    counts = (anatomy.num_heads, anatomy.num_key_value_heads, anatomy.counts)
    return anatomy.core, parts, counts, anatomy.arguments, anatomy.shares_bias, anatomy.reads_config


def _count_names(model: PreTrainedModel) -> tuple[tuple[str, bool], ...]:
    """The names of head counts that the configuration has, and whether each counts queries."""
    config = model.config.get_text_config()
    names = [(name, True) for name in families.HEAD_COUNTS]
    names += [(name, False) for name in families.KEY_VALUE_COUNTS]
    return tuple((name, queries) for name, queries in names if hasattr(config, name))


def _layers(model: PreTrainedModel, lost: Lost, blocks: tuple[RegularBlock, ...]) -> Layers | None:
    """How `per_layer_config` says the layout; None if it cannot.

    It can for a decoder whose layers have a block each, all built in the same way, and whose heads
    need no more than to be counted.
    """
    config, anatomy = model.config, blocks[0].block.anatomy
    patterns = {_pattern(path) for path in lost}
    kinds = {(regular.block.kind, _shape(regular.block.anatomy)) for regular in blocks}
    names = dict(_count_names(model))
    path = patterns.pop()
    if (
        patterns
        or len(kinds) > 1
        or blocks[0].block.kind != "decoder"
        or anatomy.arguments
        or anatomy.shares_bias
        or path.count("*") != 1
        or "num_attention_heads" not in names
        or config.get_text_config() is not config
        or getattr(config, "num_hidden_layers", None) != len(blocks)
    ):
        return None
    key_values = next((n for n, queries in names.items() if not queries), "num_attention_heads")
    return Layers(path, "num_attention_heads", key_values)


def _heads_by_layer(lost: Lost, layers: Layers) -> dict[str, dict[str, int]]:
    before = layers.path.index("*")
    names = (layers.key_values, layers.queries)  # the same name, if each query has its own keys
    return {
        path[before:].partition(".")[0]: dict(zip(names, reversed(regular.counts), strict=True))
        for path, regular in lost.items()
    }


def _heads_by_block(lost: Lost) -> dict[str, dict[str, Any]]:
    """The heads of each block: how many, and which, if that matters."""
    entries = {}
    for path, regular in lost.items():
        anatomy = regular.block.anatomy
        entry: dict[str, Any] = {"heads": len(regular.queries)}
        if anatomy.group_size > 1:
            entry["key_value_heads"] = len(regular.key_values)
        if anatomy.arguments or anatomy.shares_bias:
            entry["kept"] = [head or 0 for head in regular.queries]  # any, for a head of zeros
            entry["out_of"] = anatomy.num_heads
        entries[path] = entry
    return entries


def _base_class(model: PreTrainedModel, lost: Lost) -> type[PreTrainedModel]:
    """The class that `AutoModel` is to load."""
    own, inside = type(model), model.base_model
    if isinstance(inside, PreTrainedModel) and inside is not model:
        return type(inside)
    base: Any = transformers.MODEL_MAPPING.get(type(model.config), own)
    if not isinstance(base, type) or issubclass(own, base):
        return own
    with torch.device("meta"):
        paths = dict(base(copy.deepcopy(model.config)).named_modules())
    return base if all(path in paths for path in lost) else own


def _auto_classes(model: PreTrainedModel, base: type[PreTrainedModel]) -> tuple[str, ...]:
    """The auto classes that load the model's class, the one that people use first."""
    found = auto_classes(type(model))
    if base is type(model):
        return ("AutoModel", *found)
    if not found:
        raise NotHeldError(f"no auto class of transformers loads {type(model).__name__}")
    return found


def _bare_config(model: PreTrainedModel) -> dict[str, Any]:
    """The configuration without what only headcount understands, and with the size of a head."""
    made = copy.deepcopy(model.config.to_dict())
    bare = {key: value for key, value in made.items() if key not in plain.OWN_ENTRIES}
    if "head_dim" in bare and not bare["head_dim"]:
        sizes = {block.anatomy.head_size for block in find_heads(model).blocks}
        bare["head_dim"] = sizes.pop() if len(sizes) == 1 else None
    return bare
