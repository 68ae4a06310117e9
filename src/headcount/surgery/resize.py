"""Keep some rows of a module's tensors, and the sizes that the module states of itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headcount.errors import HeadcountError


def keep_rows(
    module: nn.Module, tensors: Sequence[tuple[str, int]], rows: Sequence[int], now: int
) -> None:
    """Keep these rows of the named tensors, along the dimension given for each.

    A parameter stays the same object, so that whoever holds it (a tied module, an optimizer's
    parameter group) sees the change.

    Args:
        module: the submodule that owns the tensors.
        tensors: name and dimension of each.
        rows: indices of the rows that stay.
        now: number of rows expected there before.
    """
    for name, dim in tensors:
        tensor = getattr(module, name)
        if tensor.shape[dim] != now:
            if tensor.shape[dim] == len(rows):  # a tied tensor that was cut in another place
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
