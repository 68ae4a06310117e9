"""The linear map that a classifier answers with, fitted to what a cut model hands it.

A cut changes what the last layer gives, and the map was made for what it gave before. Least squares
finds the map whose answers come closest to the old ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from headcount.batch import IGNORED, Batch, gives_vectors, without_answers
from headcount.surgery.least_squares import LeastSquares
from headcount.surgery.outputs import token_marks

Call = tuple[Tensor, Tensor]  # what the map was given, and what it gave


class Answers:
    """The last linear map of a classifier, with the sums to fit it by.

    Args:
        name: of the module.
        projection: the module; what it gives are the model's logits.
    """

    def __init__(self, name: str, projection: nn.Linear) -> None:
        self.name, self.projection = name, projection
        self._sums = LeastSquares(constant=projection.bias is not None)
        self._heard: Call | None = None

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Note what goes through the map until the block ends."""

        def hear(module: nn.Module, args: tuple[Any, ...], answer: Tensor) -> None:
            self._heard = args[0], answer

        with self.projection.register_forward_hook(hear):
            yield

    def heard(self) -> Call | None:
        """What went through the map last, its input and its answers; None if nothing did."""
        heard, self._heard = self._heard, None
        return heard

    def add(self, want: Call | None, give: Call | None, model: nn.Module, batch: Batch) -> None:
        """Add a batch: what went through the map of the model as it was, and as it became."""
        if want is None or give is None:
            return
        (_, wanted), (inputs, given) = want, give
        missing, counts = wanted - given, _counting(model, batch, wanted)
        self._sums.add(inputs.flatten(0, -2)[counts], missing.flatten(0, -2)[counts])

    def fitted(self) -> dict[str, Tensor]:
        """The map's parameters after the fit, by their names in the model."""
        sums, own = self._sums, self.projection
        if not sums.count or not sums.is_finite:
            return {}
        change, constant = sums.solve(sums.best_ridge())
        found = {f"{self.name}.weight": own.weight.detach() + change.to(own.weight)}
        if own.bias is not None:
            found[f"{self.name}.bias"] = own.bias.detach() + constant.to(own.bias)
        return found


def _counting(model: nn.Module, batch: Batch, answers: Tensor) -> Tensor:
    """Which answers count: one for an example does, and one for a token that is no padding."""
    places = answers[..., 0]
    counts = places.new_ones(places.shape).bool()
    if places.dim() == 2:
        labels = batch.get("labels")
        told = [labels != IGNORED] if isinstance(labels, Tensor) else []
        for marks in (*told, *token_marks(model, batch, "encoder", places.shape[1])):
            if marks.shape == places.shape:
                counts &= marks.to(places.device)
    return counts.flatten()


def find_answers(model: nn.Module, batch: Batch, frozen: Collection[str]) -> Answers | None:
    """The linear map that gives the model's logits; None if there is none that may be fitted.

    A language model has none: its map has a row for every token. Neither has a model that uses the
    weights of the map elsewhere too, as embeddings for example.

    Args:
        model: in evaluation mode, without gradients.
        batch: any batch, to see where the logits come from.
        frozen: names of parameters that must not change.
    """
    if gives_vectors(model) or _writes(model):
        return None
    heard: dict[str, list[Tensor]] = {}

    def hear(name: str, module: nn.Module, args: Any, answer: Tensor) -> None:
        heard.setdefault(name, []).append(answer)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if _may_change(module):
                hooks.enter_context(module.register_forward_hook(partial(hear, name)))
        logits = getattr(model(**without_answers(model, batch)), "logits", None)
    for name, answers in heard.items():
        if len(answers) == 1 and answers[0] is logits:
            found, own = model.get_submodule(name), {f"{name}.weight", f"{name}.bias"}
            if not own & set(frozen) and not _is_shared(model, found):
                return Answers(name, found)  # type: ignore[arg-type]
    return None


def _writes(model: nn.Module) -> bool:
    """Whether it is a language model; one that captions images need not say where its map is."""
    words = getattr(model, "get_output_embeddings", lambda: None)()
    return words is not None or bool(getattr(model, "can_generate", lambda: False)())


def _may_change(module: nn.Module) -> bool:
    """Whether it is a linear map with a weight of its own, which is here."""
    return (
        type(module) is nn.Linear
        and type(module.weight) is nn.Parameter
        and module.weight.device.type != "meta"
    )


def _is_shared(model: nn.Module, module: nn.Module) -> bool:
    """Whether another module of the model has one of its parameters, too."""
    own = {id(parameter) for parameter in module.parameters()}
    others = (part for part in model.modules() if part is not module)
    return any(id(p) in own for part in others for p in part.parameters(recurse=False))
