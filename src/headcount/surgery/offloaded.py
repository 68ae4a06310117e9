"""Weights that accelerate keeps in memory or on disk, and fetches for each forward pass.

Such models run, so they can be masked and scored. Their weights are not there to be changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock


def refuse_offloaded(model: nn.Module, block: AttentionBlock, done: str) -> None:
    """Refuse a block whose weights are elsewhere; `done` says what cannot be done to them."""
    for module in model.get_submodule(block.path).modules():
        if is_offloaded(module):
            raise HeadcountError(
                f"the weights of {block.name} ({block.path}) are offloaded to memory or disk, "
                f"where they cannot be {done}; load the model without offloading "
                "(device_map='cpu'), remove heads, save it, and load the small one as you like"
            )


def is_offloaded(module: nn.Module) -> bool:
    """Whether the module's own weights are elsewhere."""
    away = any(parameter.is_meta for parameter in module.parameters(recurse=False))
    return away and hasattr(module, "_hf_hook")


@contextmanager
def fetched(module: nn.Module) -> Iterator[None]:
    """Have the module's own weights here, to be read, until the block ends."""
    if not is_offloaded(module):
        yield
        return
    from accelerate.utils import align_module_device

    with align_module_device(module):
        yield
