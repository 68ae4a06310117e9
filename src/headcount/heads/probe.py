"""The proof at the door: does the model do what recognition took it to do?

Recognition by structure is a guess until it is seen to hold. Before heads of a model are used for
the first time, a few tokens or pixels go through the model up to the first block of each kind, and
that block alone runs again with other values in some heads' rows. The slices of these heads in the
input of the output projection must change, and no other slice may: exactly what a cut relies on.

What it cannot see: values per head that come from outside the block (ALiBi) and tensors per head
that were overlooked, which `surgery/trial.py` sees; code that only some inputs reach (a sliding
window that these few tokens fit in, a cache), and blocks that these inputs do not reach. A block
that cannot be run this way stays unproved, and is taken as it was recognised.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from headcount.heads.anatomy import Anatomy, Part
from headcount.heads.probe_inputs import small_inputs

SWITCH = "HEADCOUNT_PROBE"  # 0 in the environment switches the probe off
TOLERANCE = 1e-5  # rounding of values that must not change, relative to the largest above 1
Kind = tuple[type, type, Anatomy, frozenset[tuple[str, Any]]]
"""Classes of a block, what it was taken for, and the switches that may change its layout."""
_PROVED: dict[Kind, str | None] = {}  # why a kind was refuted; None if it was not


def refuted(model: nn.Module, blocks: Sequence[tuple[str, Anatomy]]) -> dict[str, str]:
    """Why blocks are not what they were taken for, by their paths; empty if all hold.

    Args:
        model: any; nothing in it is changed.
        blocks: path of each block's home module, and its anatomy, before any removal.
    """
    if is_off():
        return {}
    kinds = {path: kind_of(model, path, anatomy) for path, anatomy in blocks}
    unknown = {kind: path for path, kind in reversed(kinds.items()) if kind not in _PROVED}
    if unknown and can_run(model):
        for path, call in first_calls(model, list(unknown.values())).items():
            _PROVED[kinds[path]] = _refutation(model.get_submodule(path), kinds[path][2], call)
    found = {path: _PROVED.get(kind) for path, kind in kinds.items()}
    return {path: reason for path, reason in found.items() if reason is not None}


def is_off() -> bool:
    """Whether the user asked for no proofs."""
    return os.environ.get(SWITCH) == "0"


def kind_of(model: nn.Module, path: str, anatomy: Anatomy) -> Kind:
    """What blocks must have in common, so that what is proved of one holds for all."""
    home = model.get_submodule(path)
    core = home.get_submodule(anatomy.core)
    config = getattr(home, "config", None) or getattr(model, "config", None)
    switches = frozenset().union(*map(_switches, (home, core, config)))
    return type(home), type(core), anatomy, switches


def _switches(of: Any) -> frozenset[tuple[str, Any]]:
    """What is on or off, or named, in a module or a configuration."""
    known = vars(of) if hasattr(of, "__dict__") else {}
    return frozenset(
        (name, value)
        for name, value in known.items()
        if isinstance(value, bool | str) and not name.startswith("_") and name != "training"
    )


def can_run(model: nn.Module) -> bool:
    """Whether the model can be called here: its weights are there, whole, and not compiled."""
    tensors = [*model.parameters(), *model.buffers()]
    return (
        hasattr(model, "config")
        and all(type(t) in (nn.Parameter, Tensor) and not t.is_meta for t in tensors)
        and not any(hasattr(module, "_hf_hook") for module in model.modules())
        and not isinstance(getattr(model, "module", None), nn.Module)
    )


Call = tuple[tuple[Any, ...], dict[str, Any]]


class _Enough(Exception):  # noqa: N818
    """All that was wanted of a forward pass has been seen."""


def first_calls(model: nn.Module, paths: Sequence[str]) -> dict[str, Call]:
    """What each of these modules is called with, when a small input goes through the model."""
    seen: dict[str, Call] = {}

    def note(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen.setdefault(path, (args, kwargs))
            if len(seen) == len(paths):
                raise _Enough

        return hook

    with undisturbed(model), ExitStack() as hooks:
        for path in paths:
            module = model.get_submodule(path)
            hooks.enter_context(module.register_forward_pre_hook(note(path), with_kwargs=True))
        for inputs in small_inputs(model):
            try:
                model(**inputs)
            except _Enough:
                break
            except Exception:
                continue
    return seen


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode without a trace: its modes and all generators come back."""
    training = [module for module in model.modules() if module.training]
    threads = torch.get_num_threads()
    model.eval()
    torch.set_num_threads(1)  # so little work takes longer when it is shared
    try:
        with torch.no_grad(), torch.random.fork_rng(range(torch.cuda.device_count())):
            yield
    finally:
        torch.set_num_threads(threads)
        for module in training:
            module.training = True


def _refutation(home: nn.Module, anatomy: Anatomy, call: Call) -> str | None:
    """Why a block is not what it was taken for; None if it is, or if it cannot be run alone."""
    args, kwargs = as_float32(call)
    with undisturbed(home):
        twin = bare_twin(home)
        try:
            usual = _combined(twin, anatomy, args, kwargs)
            again = _combined(twin, anatomy, args, kwargs)
        except Exception:  # it needs more than it was called with
            return None
        if not _same(usual, again) or usual.shape[-1] != anatomy.num_heads * anatomy.head_size:
            return None if usual.shape == again.shape else "it gives another answer every time"
        tried = []
        for heads in _sets(anatomy):
            with _other_values(twin, anatomy, heads):
                try:
                    tried.append((heads, _combined(twin, anatomy, args, kwargs)))
                except Exception:
                    return None
        if all(_same(usual, changed) for _, changed in tried):
            return None  # nothing can be seen: code that needs another device, say
        for heads, changed in tried:
            reason = _compare(usual, changed, anatomy, heads)
            if reason is not None:
                return reason
        return _swapped(twin, anatomy, lambda: _combined(twin, anatomy, args, kwargs))


def bare_twin(home: nn.Module) -> nn.Module:
    """A copy of a block in float32 on the CPU, without anybody's hooks."""
    twin = copy.deepcopy(home).to("cpu", torch.float32)
    for module in twin.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return twin


def as_float32(value: Any) -> Any:
    """All tensors of a call on the CPU, numbers in half precision as float32, and no cache.

    A cache would remember the calls before.
    """
    if isinstance(value, Cache):
        return None
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return value.float() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {key: as_float32(one) for key, one in value.items()}
    if type(value) in (tuple, list):
        return type(value)(as_float32(one) for one in value)
    return value


def _combined(
    home: nn.Module, anatomy: Anatomy, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """What goes into the output projection."""
    seen: list[Tensor] = []

    def note(module: nn.Module, given: tuple[Any, ...]) -> None:
        seen.append(given[0].detach().clone())
        raise _Enough

    with home.get_submodule(anatomy.output).register_forward_pre_hook(note):
        try:
            home(*args, **kwargs)
        except _Enough:
            return seen[0]
    raise RuntimeError("the output projection was not called")


def _sets(anatomy: Anatomy) -> list[tuple[int, ...]]:
    """Sets of heads in which every two heads, and every two groups, are told apart both ways."""
    heads = range(anatomy.num_heads)
    found: dict[tuple[int, ...], None] = {}
    for size in (1, anatomy.group_size):
        for bit in range((heads[-1] // size).bit_length()):
            for side in (0, 1):
                chosen = tuple(head for head in heads if (head // size >> bit) & 1 == side)
                if 0 < len(chosen) < len(heads):
                    found[chosen] = None
    return list(found)


@contextmanager
def _other_values(home: nn.Module, anatomy: Anatomy, heads: Sequence[int]) -> Iterator[None]:
    """Give the rows of these heads other values for as long as the block lasts."""
    kept = [head for head in range(anatomy.num_heads) if head not in set(heads)]
    before: list[tuple[Tensor, Tensor]] = []
    for part in anatomy.parts:
        if part.path == anatomy.output or part.whole:
            continue
        for tensor, rows, dim in _rows(home, anatomy, part, kept):
            before.append((tensor, tensor.detach().clone()))
            # Another sign, and not zero either where the rows were.
            tensor.index_copy_(dim, rows, 0.05 - tensor.index_select(dim, rows))
    try:
        yield
    finally:
        for tensor, values in before:
            tensor.copy_(values)


def _rows(
    home: nn.Module, anatomy: Anatomy, part: Part, kept: Sequence[int]
) -> Iterator[tuple[Tensor, Tensor, int]]:
    """The tensors of a part, the rows that go when these heads stay, and their dimension."""
    staying, total = anatomy.rows_to_keep(part, range(anatomy.num_heads), kept)
    going = torch.tensor(sorted(set(range(total)) - set(staying)), dtype=torch.long)
    module = home.get_submodule(part.path)
    for name, dim in part.tensors:
        tensor = getattr(module, name, None)
        if isinstance(tensor, Tensor) and len(going):
            yield tensor, going, dim


def _compare(usual: Tensor, changed: Tensor, anatomy: Anatomy, heads: Sequence[int]) -> str | None:
    """Whether the slices of these heads changed, and no others."""
    if usual.shape != changed.shape:
        return "its answer has another shape when the rows of some heads have other values"
    by_head = (changed - usual).unflatten(-1, (anatomy.num_heads, anatomy.head_size))
    largest = by_head.abs().amax(-1).flatten(0, -2).amax(0)
    limit = TOLERANCE * max(1.0, float(usual.abs().max()))
    deciding = _deciding(anatomy, heads)
    for head, change in enumerate(largest.tolist()):
        if head not in heads and not change <= limit:
            return f"the rows of other heads decide the values of head {head} too"
        if head in deciding and change <= limit:
            return f"the rows of head {head} do not decide its values"
    return None


def _deciding(anatomy: Anatomy, heads: Sequence[int]) -> set[int]:
    """Those of these heads whose values must change: their whole group is among them.

    What queries decide may not be seen: a single position attends to itself, whatever they say.
    """
    size = anatomy.group_size
    return {
        head
        for head in heads
        if {*range(head - head % size, head - head % size + size)} <= {*heads}
    }


def _swapped(home: nn.Module, anatomy: Anatomy, combined: Callable[[], Tensor]) -> str | None:
    """Whether keys are where values were looked for: without values there is nothing to combine."""
    parts = [part for part in anatomy.parts[1:3] if not part.whole]
    if [[s.unit for s in part.segments] for part in parts] != [["key_value"]] * 2:
        return None  # not three projections apart
    keys, values = parts
    try:
        with _zeroed(home, values):
            rest = float(combined().abs().max())
        with _zeroed(home, keys):
            nothing = float(combined().abs().max())
    except Exception:
        return None
    return "its keys are where its values were looked for" if nothing == 0.0 < rest else None


@contextmanager
def _zeroed(home: nn.Module, part: Part) -> Iterator[None]:
    module = home.get_submodule(part.path)
    tensors = [getattr(module, name) for name, _ in part.tensors]
    before = [tensor.detach().clone() for tensor in tensors if isinstance(tensor, Tensor)]
    for tensor in tensors:
        tensor.zero_()
    try:
        yield
    finally:
        for tensor, values in zip(tensors, before, strict=True):
            tensor.copy_(values)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(one, other) and one.isfinite().all())
