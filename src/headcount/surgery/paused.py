"""Forward passes that wait for a projection's fit, so that each batch goes through the model once.

To fit the blocks of a model one after another, every batch has to reach a block, and then continue
with what the block gives after its fit. A pass is a greenlet, which suspends the model's own
`forward`: the code needs to know nothing about the model.

All batches wait at once, so a pass should hold little. Inside an attention block it would hold
queries, keys, values and more. So it goes back to the beginning of the layer after the inputs of
a projection were recorded, and computes the attention again after the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor, nn
from transformers import Cache

from headcount.batch import Batch, other_forward, without_answers
from headcount.surgery.offloaded import fetched
from headcount.surgery.outputs import Output, listening

Changed = dict[str, Tensor]  # parameters by name
Layers = dict[str, str]  # the name of the layer that a projection is in, by that of the projection


class Call(NamedTuple):
    """One call of a projection in a forward pass.

    Attributes:
        output: the projection.
        values: its input.
        answer: its module's output.
        given: what its layer was given; None if the pass cannot go back to that layer's beginning.
    """

    output: Output
    values: Tensor
    answer: Tensor
    given: Tensor | None


class _Back(BaseException):
    """Leads a pass from a projection back to the beginning of its layer."""


class Pass:
    """A forward pass of one batch; use it inside `pausing` only.

    Args:
        model: in evaluation mode, without gradients.
        batch: the arguments of the forward pass.
        changed: parameters that replace those of projections. They are read when the pass leaves
            a projection, so they may be added while it waits.
        layers: the layer of each projection from which a pass may go back to its beginning.
        shared: embeddings by module, for both passes of a batch: they would be held twice.
    """

    def __init__(
        self, model: nn.Module, batch: Batch, changed: Changed, layers: Layers, shared: Changed
    ) -> None:
        self._model, self._batch, self._changed, self._layers = model, batch, changed, layers
        self._shared = shared
        self._begin()

    def _begin(self) -> None:
        self._running = greenlet(self._run)
        self._running.shared = self._shared
        self._running.gr_context = copy_context()  # else the caller's context variables are unset
        self._modes = _modes()
        self._waits: Call | None = None

    def _run(self) -> None:
        self._model(**without_answers(self._model, self._batch))

    def go_to(self, output: Output, calls: int) -> list[Call]:
        """Run until a projection was called this many times, and return the calls.

        If the pass ends first, because the model did not need this block for the batch, it starts
        again for the next one.
        """
        heard: list[Call] = []
        while len(heard) < calls:
            with self._own_modes():
                self._waits = self._running.switch(*self._answer())
            if self._waits is None:
                self._begin()
                break
            if self._waits.output.name == output.name:
                heard.append(self._waits)
        if calls == 1 and heard and output.name in self._layers:
            self._waits = None
            with self._own_modes():
                self._running.switch(_Back)
        return heard

    @contextmanager
    def _own_modes(self) -> Iterator[None]:
        """Restore the pass's modes: it may wait inside `autocast`, which belongs to the thread."""
        outside = _modes()
        _set_modes(self._modes)
        try:
            yield
        finally:
            self._modes = _modes()
            _set_modes(outside)

    def _answer(self) -> list[Tensor]:
        """What the call gives at which the pass waits; nothing at the beginning of a layer."""
        if self._waits is None:
            return []
        output, values, answer, _ = self._waits
        weight = self._changed.get(f"{output.name}.weight")
        bias = self._changed.get(f"{output.name}.bias")
        if weight is None and bias is None:
            return [answer]
        with fetched(output.projection):
            rows = output.weight() if weight is None else output.by_rows(weight)
            own = output.projection.bias if bias is None else bias
            return [nn.functional.linear(values, rows, own)]

    def finish(self) -> None:
        """Run on to the end of the pass."""
        while not self._running.dead:
            with self._own_modes():
                self._waits = self._running.switch(*self._answer())

    def stop(self) -> None:
        """End the pass where it waits."""
        if self._running:
            with self._own_modes():
                self._running.throw()


class _Modes(NamedTuple):
    """How the thread computes: with gradients or without, and `autocast` per kind of device."""

    gradients: bool
    cached: bool
    autocasts: tuple[tuple[str, bool, torch.dtype], ...]


def _modes() -> _Modes:
    devices = ["cpu"]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        devices.append(accelerator.type)
    autocasts = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    return _Modes(torch.is_grad_enabled(), torch.is_autocast_cache_enabled(), tuple(autocasts))


def _set_modes(modes: _Modes) -> None:
    torch.set_grad_enabled(modes.gradients)
    torch.set_autocast_cache_enabled(modes.cached)
    for device, enabled, dtype in modes.autocasts:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


@contextmanager
def pausing(
    model: nn.Module, outputs: Iterable[Output], layers: Layers, embeddings: Iterable[str]
) -> Iterator[None]:
    """Let passes wait after each call of these projections; do not call the model otherwise.

    Passes of one batch share what these embeddings give.
    """

    def wait(output: Output, values: Tensor, answer: Tensor) -> Tensor:
        running = getcurrent()
        given = running.given if output.name in layers else None
        gone_on_with = running.parent.switch(Call(output, values, answer, given))
        if gone_on_with is _Back:
            raise _Back
        return gone_on_with  # type: ignore[no-any-return]

    with torch.no_grad(), listening(list(outputs), wait), ExitStack() as replaced:
        for name in set(layers.values()):
            layer = model.get_submodule(name)
            replaced.enter_context(other_forward(layer, partial(_from_beginning, layer.forward)))
        for name in embeddings:
            hook = partial(_share, name)
            replaced.enter_context(model.get_submodule(name).register_forward_hook(hook))
        yield


def _share(name: str, module: nn.Module, args: Any, answer: Tensor) -> Tensor | None:
    """Give the second pass of a batch the same tensor as the first."""
    shared = getcurrent().shared
    other = shared.pop(name, None)
    if other is not None and torch.equal(other, answer):
        return other  # type: ignore[no-any-return]
    shared[name] = answer
    return None


def _from_beginning(plain: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """A layer's forward pass, which waits here after it was led back."""
    getcurrent().given = next(tensors_in((args, given)), None)
    while True:
        try:
            return plain(*args, **given)
        except _Back:
            pass
        getcurrent().parent.switch()


def look_round(
    model: nn.Module, outputs: Sequence[Output], batch: Batch
) -> tuple[list[tuple[Output, int]], Layers, list[str]]:
    """The projections in the order of their first calls, with the number of calls.

    Also their layers, and the embeddings that passes may share. A layer is the innermost member of
    a list of modules. One that changes its own inputs cannot be begun twice, and is left out. So is
    one that is given a cache, which it would add to again: some models have it and no `use_cache`.
    Embeddings that the model changes in place are left out, too.
    """
    looked_up: dict[str, list[tuple[Tensor, int]]] = {}
    calls: dict[str, int] = {}
    layers: Layers = {}
    begun: dict[str, list[tuple[Tensor, int]]] = {}
    homes = {output.name: _layer_of(model, output) for output in outputs}

    def begin(name: str, module: nn.Module, args: Any, given: Any) -> None:
        begun[name] = [(tensor, tensor._version) for tensor in tensors_in((args, given))]
        if any(isinstance(value, Cache) for value in (*args, *given.values())):
            del begun[name]

    def hear(output: Output, values: Tensor, answer: Tensor) -> None:
        calls[output.name] = calls.get(output.name, 0) + 1
        home = homes[output.name]
        if home in begun and all(tensor._version == was for tensor, was in begun[home]):
            layers[output.name] = home
        else:
            layers.pop(output.name, None)

    def look_up(name: str, module: nn.Module, args: Any, answer: Tensor) -> None:
        looked_up.setdefault(name, []).append((answer, answer._version))

    with listening(outputs, hear), ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding):
                hooks.enter_context(module.register_forward_hook(partial(look_up, name)))
        for name in {home for home in homes.values() if home}:
            hook = partial(begin, name)
            layer = model.get_submodule(name)
            hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
        model(**without_answers(model, batch))
    by_name = {output.name: output for output in outputs}
    order = [(by_name[name], count) for name, count in calls.items()]
    unchanged = [
        name
        for name, given in looked_up.items()
        if len(given) == 1 and all(tensor._version == was for tensor, was in given)
    ]
    return order, layers, unchanged


def added_to_input(
    model: nn.Module, outputs: Sequence[Output], layers: Layers, batch: Batch
) -> set[str]:
    """The names of the projections whose outputs are added to what their layers were given.

    That is what a residual connection does, if nothing comes between. Nothing is guessed: the sum
    must be the input of a module of the layer later in the pass, or what the layer gives.

    Args:
        model: in evaluation mode, without gradients.
        outputs: the projections.
        layers: see `look_round`.
        batch: the arguments of the forward pass.
    """
    given: Changed = {}  # by layer
    sums: Changed = {}  # by projection, until its layer ends
    found: set[str] = set()

    def begin(name: str, module: nn.Module, args: Any, more: Any) -> None:
        given.update((name, tensor) for tensor in [*tensors_in((args, more))][:1])

    def hear(output: Output, values: Tensor, answer: Tensor) -> None:
        start = given.get(layers.get(output.name, ""))
        if start is not None and start.shape == answer.shape:
            sums[output.name] = start + answer

    def see(seen: Any) -> None:
        for name, expected in sums.items():
            if name not in found and any(
                tensor.shape == expected.shape and torch.allclose(tensor, expected)
                for tensor in tensors_in(seen)
            ):
                found.add(name)

    def end(module: nn.Module, args: Any, answer: Any) -> None:
        see(answer)
        sums.clear()

    with listening(outputs, hear), ExitStack() as hooks:
        for name in set(layers.values()):
            layer = model.get_submodule(name)
            hook = partial(begin, name)
            hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
            hooks.enter_context(layer.register_forward_hook(end))
            for module in layer.modules():
                hooks.enter_context(module.register_forward_pre_hook(_passing(see)))
        model(**without_answers(model, batch))
    return found


def _passing(see: Callable[[Any], None]) -> Callable[[nn.Module, Any], None]:
    """A hook that shows what a module is given."""
    return lambda module, args: see(args)


def _layer_of(model: nn.Module, output: Output) -> str:
    """The innermost member of a list of modules that the projection is in; empty if in none."""
    parts = output.name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if isinstance(model.get_submodule(".".join(parts[: end - 1])), nn.ModuleList):
            return ".".join(parts[:end])
    return ""


def tensors_in(given: Any) -> Iterator[Tensor]:
    """The tensors of what a module takes or gives."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, Mapping):
        yield from tensors_in(tuple(given.values()))
    elif isinstance(given, tuple | list):
        for part in given:
            yield from tensors_in(part)
