"""Folders with a small modelling file: any layout, in transformers and vLLM, without headcount.

A class of transformers has one number of heads for all layers. The modelling file has a class that
builds the model of transformers and then gives each attention block its own number of heads. Who
loads the folder with `trust_remote_code=True` runs that file.

The `model_type` stays that of the family: transformers chooses tokenizers and conversions of
weights by it. Who loads the folder without that flag gets an error: the weights of a block that
lost heads have other shapes than the family's own class.
"""

from __future__ import annotations

import copy
import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

from headcount.deploy import plain
from headcount.deploy.auto_class import auto_classes, loading_lines
from headcount.deploy.compare import largest_gap, tolerance_of
from headcount.deploy.modeling_file import (
    MODULE,
    Classes,
    Kind,
    Layers,
    generated,
    modeling_file,
)
from headcount.deploy.regular import (
    NotHeldError,
    RegularBlock,
    regular_blocks,
    regular_state,
    repeated_key_value_heads,
)
from headcount.errors import HeadcountError
from headcount.heads import families
from headcount.heads.anatomy import Anatomy
from headcount.heads.find import find_heads
from headcount.loading.folder import first_line, loading
from headcount.surgery.class_swap import own_class

PER_BLOCK = "heads_per_block"  # in config.json: the heads of each block that lost some
PER_LAYER = "per_layer_config"  # the entry that transformers and vLLM know, where it can say them
FLAG = (
    f"Layers have different numbers of heads, which no configuration of transformers says. "
    f"`{MODULE}.py` builds them. transformers runs code from a folder only if "
    "`trust_remote_code=True` allows it; read the file first. vLLM takes the same flag, with "
    '`model_impl="transformers"`.'
)
Lost = dict[str, RegularBlock]  # the blocks that lost heads, by their path in the base model


def held(model: PreTrainedModel, source: str) -> str:
    """How a modelling file holds the model, in a few words.

    Args:
        model: the model; it is not changed.
        source: its folder or hub name.

    Raises:
        NotHeldError: the file would not build the model.
    """
    if not _lost_heads(model):
        return plain.held(model, source)
    design = _design(model)
    with _written(design) as module:
        _refuse_other_shapes(model, design, module)
    return f"{design.name}, built block by block"


def write(model: PreTrainedModel, source: str, folder: Path) -> dict[str, Any]:
    """Write configuration, weights and modelling file, load them again, and compare.

    Args:
        model: the model; it is not changed.
        source: its folder or hub name.
        folder: an existing folder.

    Returns:
        The largest difference of outputs, the class, why it is that one, and how to load it.

    Raises:
        NotHeldError: the file would not build the model.
        HeadcountError: what was written answers something else.
    """
    if not _lost_heads(model):
        return plain.write(model, source, folder)
    design = _design(model)
    with _written(design) as module:
        _refuse_other_shapes(model, design, module)
        _filled(model, design, module).save_pretrained(folder)
    with _imported(folder) as module, loading(str(folder)):
        again = getattr(module, design.name).from_pretrained(folder, dtype=model.dtype)
        gap = largest_gap(model, again)
        _refuse_other_base(again, getattr(module, design.base_name).from_pretrained(folder))
    if not gap <= tolerance_of(model):
        raise HeadcountError(
            f"the folder with {MODULE}.py answers something else: its outputs differ by {gap:.1e}, "
            f"expected at most {tolerance_of(model):.0e}; use the model with headcount"
        )
    own = type(model).__name__
    return {
        "difference": gap,
        "class": design.name,
        "why": f"{design.name}, which is {own} with its own number of heads in every block",
        "repeated_key_value_heads": repeated_key_value_heads(design.blocks),
        "load": design.load,
        "flag": FLAG,
    }


def _lost_heads(model: PreTrainedModel) -> bool:
    """Whether heads were removed; a model with all of them needs no code of its own."""
    heads = find_heads(model)
    return len(heads) < heads.born


@dataclass(frozen=True)
class Design:
    """A modelling file, and the configuration beside it.

    Attributes:
        name: the generated class of the model.
        base_name: the generated class that `AutoModel` loads.
        config_name: the generated class of its configuration.
        config: the configuration as JSON has it.
        code: the text of the file.
        load: the Python that loads the folder.
        blocks: the regular form of every block.
    """

    name: str
    base_name: str
    config_name: str
    config: dict[str, Any]
    code: str
    load: str
    blocks: tuple[RegularBlock, ...]


def _design(model: PreTrainedModel) -> Design:
    heads = find_heads(model)
    if len(heads) == heads.born:
        raise NotHeldError("no heads were removed, so it needs no code of its own")
    if getattr(model.config, "is_heterogeneous", False):
        raise NotHeldError(f"its {PER_LAYER} says already how its layers differ")
    blocks = regular_blocks(heads)
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
        config_name=generated(type(model.config)),
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


@contextmanager
def _written(design: Design) -> Iterator[ModuleType]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{MODULE}.py").write_text(design.code, encoding="utf-8")
        with _imported(Path(folder)) as module:
            yield module


@contextmanager
def _imported(folder: Path) -> Iterator[ModuleType]:
    """The modelling file of a folder as a module, which nobody else sees afterwards.

    `AutoModel` would copy the file into the cache of Hugging Face first.
    """
    name = f"headcount_export.{MODULE}"  # what comes after the dot is written into config.json
    spec = importlib.util.spec_from_file_location(name, folder / f"{MODULE}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.dont_write_bytecode = bytecode
        sys.modules.pop(name, None)


def _config(design: Design, module: ModuleType) -> Any:
    return getattr(module, design.config_name).from_dict(copy.deepcopy(design.config))


def _refuse_other_shapes(model: PreTrainedModel, design: Design, module: ModuleType) -> None:
    """Refuse a design that does not build, or builds tensors of other shapes than the weights."""
    try:
        with torch.device("meta"):
            built = getattr(module, design.name)(_config(design, module)).state_dict()
    except Exception as error:  # classes check their configurations in many ways
        raise NotHeldError(f"{design.name} cannot be built: {first_line(error)}") from error
    state = regular_state(model, design.blocks)
    for key in sorted(built.keys() ^ state.keys()):
        raise NotHeldError(f"{design.name} has {'no' if key in state else 'a'} {key}")
    for key, tensor in built.items():
        if tensor.shape != state[key].shape:
            raise NotHeldError(
                f"{design.name} takes {key} in the shape {list(tensor.shape)}, not "
                f"{list(state[key].shape)}"
            )


def _filled(model: PreTrainedModel, design: Design, module: ModuleType) -> PreTrainedModel:
    """The generated model with the weights of the model."""
    cls = getattr(module, design.name)
    made: PreTrainedModel = cls._from_config(_config(design, module), dtype=model.dtype)
    made.load_state_dict(regular_state(model, design.blocks))
    made.tie_weights()
    if model.can_generate():
        made.generation_config = copy.deepcopy(model.generation_config)
    return made


def _refuse_other_base(model: PreTrainedModel, base: PreTrainedModel) -> None:
    """Refuse a folder of which `AutoModel` would read other weights than the class for the task.

    transformers only reports weights that it does not find, and draws them at random.
    """
    inside, alone = model.base_model.state_dict(), base.state_dict()
    for key in inside.keys() & alone.keys():
        if not torch.equal(inside[key].float(), alone[key].float()):
            raise HeadcountError(
                f"AutoModel does not find {key} in the folder with {MODULE}.py; use the model with "
                "headcount"
            )
