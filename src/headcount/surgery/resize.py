"""Keep some rows of a module's tensors, and update every count that a forward pass reads.

These counts are sizes of the module, attributes of the block, and values of the configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headcount.errors import HeadcountError
from headcount.heads import families
from headcount.heads.anatomy import Anatomy


def keep_rows(
    module: nn.Module, tensors: Sequence[tuple[str, int]], rows: Sequence[int], now: int
) -> None:
    """Keep these rows of the named tensors, along the dimension given for each.

    A parameter stays the same object, so that all who hold it (a tied module, an optimizer's
    parameter group) see the change.

    Args:
        module: the submodule that owns the tensors.
        tensors: name and dimension of each tensor.
        rows: indices of the rows that stay.
        now: the number of rows before, which is checked.
    """
    for name, dim in tensors:
        tensor = getattr(module, name)
        if tensor.shape[dim] != now:
            if tensor.shape[dim] == len(rows):  # a tied tensor that was cut in another module
                continue
            raise HeadcountError(
                f"{type(module).__name__}.{name} has {tensor.shape[dim]} rows, expected {now}; "
                "was it changed by something else?"
            )
        with torch.no_grad():
            small = _take(tensor.detach(), dim, rows)
            if isinstance(tensor, nn.Parameter):
                gradient = tensor.grad
                tensor.grad = None
                tensor.data = small
                tensor.grad = None if gradient is None else _take(gradient, dim, rows)
            else:
                setattr(module, name, small)
    _state_sizes(module)


def update_counts(home: nn.Module, anatomy: Anatomy, kept: Sequence[int]) -> None:
    """Write the new counts to the block's attributes and to its view of the configuration."""
    sizes = group_sizes(anatomy, kept)
    uneven = is_uneven(anatomy, kept)
    heads = len(kept)
    # If keys and values are repeated before the cache, each query has its own.
    key_value = heads if uneven and not anatomy.dispatches else len(sizes)
    values = {
        "heads": heads,
        "width": heads * anatomy.head_size,
        "query_width": heads * anatomy.key_size,
        "key_value": key_value,
        "key_value_width": key_value * anatomy.head_size,
        "groups": sizes[0] if sizes and not uneven else 1,
    }
    for count in anatomy.counts:
        setattr(home.get_submodule(count.path), count.attribute, values[count.role])
    if anatomy.reads_config:
        own = dict.fromkeys(families.HEAD_COUNTS, heads)
        own |= dict.fromkeys(families.KEY_VALUE_COUNTS, key_value)
        view_config(home.get_submodule(anatomy.core)).override(own)


def _take(tensor: Tensor, dim: int, rows: Sequence[int]) -> Tensor:
    index = torch.tensor(list(rows), dtype=torch.long, device=tensor.device)
    return tensor.index_select(dim, index).contiguous()


def _state_sizes(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, Conv1D):
        module.nx, module.nf = module.weight.shape
    elif isinstance(module, nn.Embedding):
        module.num_embeddings, module.embedding_dim = module.weight.shape


def group_sizes(anatomy: Anatomy, kept: Sequence[int]) -> tuple[int, ...]:
    """How many kept queries each key-value head serves; those that serve none are left out."""
    served = Counter(head // anatomy.group_size for head in kept)
    return tuple(served[kv] for kv in sorted(served))


def is_uneven(anatomy: Anatomy, kept: Sequence[int]) -> bool:
    """Whether the remaining key-value heads serve different numbers of queries."""
    return len(set(group_sizes(anatomy, kept))) > 1


def view_config(attention: nn.Module) -> ConfigView:
    """The block's own view of its configuration, made if it has none yet."""
    config = attention.config
    if isinstance(config, ConfigView):
        return config
    view = ConfigView(config)
    attention.config = view  # type: ignore[assignment]
    return view


class ConfigView:
    """A configuration as one block sees it: the model's own, except for a few values.

    The model's configuration stays shared and unchanged. The view shows later changes to it, such
    as another attention implementation.
    """

    def __init__(self, config: Any) -> None:
        self.__dict__["whole"] = config
        self.__dict__["own"] = {}

    def override(self, values: dict[str, Any]) -> None:
        """Replace those of these values that the configuration has."""
        self.own.update({name: v for name, v in values.items() if hasattr(self.whole, name)})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("whole", "own"):
            raise AttributeError(name)
        return self.own[name] if name in self.own else getattr(self.whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.whole, name, value)
