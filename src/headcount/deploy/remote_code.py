"""Folders with a small modelling file: any layout, in transformers and vLLM, without headcount.

A class of transformers has one number of heads for all layers. The modelling file has a class that
builds the model of transformers and then gives each attention block its own number of heads. Who
loads the folder with `trust_remote_code=True` runs that file.

The `model_type` stays that of the family: transformers chooses tokenizers and conversions of
weights by it. Who loads the folder without that flag gets an error: the weights of a block that
lost heads have other shapes than the family's own class.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from transformers import PreTrainedModel

from headcount.deploy import plain
from headcount.deploy.compare import largest_gap, tolerance_of
from headcount.deploy.modeling_design import Design, design_of
from headcount.deploy.modeling_file import MODULE
from headcount.deploy.rebuild import filled, read_config, refuse_other_shapes
from headcount.deploy.regular import regular_state, repeated_key_value_heads
from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.loading.folder import loading

FLAG = (
    f"Layers have different numbers of heads, which no configuration of transformers says. "
    f"`{MODULE}.py` builds them. transformers runs code from a folder only if "
    "`trust_remote_code=True` allows it; read the file first. vLLM takes the same flag, with "
    '`model_impl="transformers"`.'
)


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
    design = design_of(model)
    with _written(design) as module:
        cls = getattr(module, design.name)
        state = regular_state(model, design.blocks)
        refuse_other_shapes(cls, read_config(cls, design.config), state)
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
    design = design_of(model)
    with _written(design) as module:
        cls = getattr(module, design.name)
        config, state = read_config(cls, design.config), regular_state(model, design.blocks)
        refuse_other_shapes(cls, config, state)
        filled(cls, config, state, model).save_pretrained(folder)
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
