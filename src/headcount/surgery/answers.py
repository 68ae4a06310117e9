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

    def add(self, want: Call | None, give: Call | None, batch: Batch) -> None:
        """Add a batch: what went through the map of the model as it was, and as it became."""
        if want is None or give is None:
            return
        (_, wanted), (inputs, given) = want, give
        missing, counts = wanted - given, _counting(batch, wanted)
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


def _counting(batch: Batch, answers: Tensor) -> Tensor:
    """Which answers count: one for an example does, and one for a token that is no padding."""
    places = answers[..., 0]
    counts = places.new_ones(places.shape).bool()
    for name, none in (("attention_mask", 0), ("labels", IGNORED)):
        marks = batch.get(name)
        if places.dim() == 2 and isinstance(marks, Tensor) and marks.shape == places.shape:
            counts &= marks.to(places.device) != none
    return counts.flatten()


def find_answers(model: nn.Module, batch: Batch, frozen: Collection[str]) -> Answers | None:
    """The linear map that gives the model's logits; None if there is none that may be fitted.

    A language model has none: its map has a row for every token, and often is the embedding, too.

    Args:
        model: in evaluation mode, without gradients.
        batch: any batch, to see where the logits come from.
        frozen: names of parameters that must not change.
    """
    if gives_vectors(model) or getattr(model, "get_output_embeddings", lambda: None)() is not None:
        return None
    heard: dict[str, list[Tensor]] = {}

    def hear(name: str, module: nn.Module, args: Any, answer: Tensor) -> None:
        heard.setdefault(name, []).append(answer)

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if type(module) is nn.Linear and module.weight.device.type != "meta":
                hooks.enter_context(module.register_forward_hook(partial(hear, name)))
        logits = getattr(model(**without_answers(model, batch)), "logits", None)
    for name, answers in heard.items():
        own = {f"{name}.weight", f"{name}.bias"}
        if len(answers) == 1 and answers[0] is logits and not own & set(frozen):
            return Answers(name, model.get_submodule(name))  # type: ignore[arg-type]
    return None
