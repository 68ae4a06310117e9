"""Gradient importance (Michel, Levy and Neubig 2019): how much the loss feels each head's gate.

The importance of a head is the mean over examples of the absolute gradient of the loss with
respect to its gate (eq. 21 of the DSP paper), found in one backward pass per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from headcount.batch import Batch, answers_per_example, batch_size
from headcount.errors import HeadcountError, SettingError
from headcount.gates import masked
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.backward import Backward
from headcount.pruners.choice import choose, normalised_by_block
from headcount.pruners.scored import Scored, ScoredSettings, ScoringData
from headcount.pruners.settings import PrunerSettings

Granularity = Literal["example", "token", "batch"]
Called = list[str]  # the block of each call, in the order of calls


@dataclass(frozen=True)
class MichelSettings(ScoredSettings):
    """How heads are scored and removed.

    Attributes:
        step: heads to remove before they are scored again, or a share of them below 1. None scores
            once and removes all at once.
        until: stop before the metric falls below this share of the unpruned model's. The keep may
            then be left out. Of runs only: in Python, give `fit` a function.
        granularity: where the absolute value is taken: per example as in the paper, per token as
            in its authors' code, or per batch as in others'.
        normalise: divide the scores of each block by their ℓ2 norm, as the paper does.
    """

    step: int | float | None = None
    until: float | None = None
    granularity: Granularity = "example"
    normalise: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None and not self.step > 0:
            raise SettingError(
                "step",
                self.step,
                "a number of heads from 1 or a share of them; leave it out to remove all at once",
            )
        if self.until is not None and not 0 < self.until <= 1:
            raise SettingError("until", self.until, "a share of the metric, such as 0.9")


class Michel(Scored):
    """Rank the heads of a fine-tuned model by their gradient importance, and keep the best K.

    It learns nothing while training: call `fit` with data before `mask`. The score of a group is
    the sum of its heads' scores. So the absolute value stays that of each head, as in the paper:
    heads of a group that pull in opposite directions do not cancel.

    Args:
        keep: K; None ranks all heads down to the last.
        settings: see `MichelSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "michel"
    settings_class: ClassVar[type[PrunerSettings]] = MichelSettings
    asks_for: ClassVar[str] = "model, batches"
    settings: MichelSettings

    @classmethod
    def needs_keep(cls, settings: PrunerSettings) -> bool:
        """Not with `until`, which says when to stop; a keep is then the fewest heads."""
        return not (isinstance(settings, MichelSettings) and settings.until is not None)

    @property
    def ranks_once(self) -> bool:
        """Not with `until`: where it stops is found on the way."""
        return self.settings.until is None

    @property
    def rounds(self) -> int:
        """How often the data is gone through, once the heads are known."""
        return len(list(self._course()))

    def _course(self) -> Iterator[int]:
        """How many heads are left after each step, down to K."""
        left, step = len(self.places), self._at_a_time()
        while left > self.count:
            left = max(self.count, self.units.after(left, step))
            yield left

    def _at_a_time(self) -> int:
        all_heads = len(self.places)
        step = self.settings.step or all_heads
        return max(1, round(step * all_heads)) if step < 1 else int(step)

    def fit(
        self,
        model: nn.Module,
        batches: Iterable[Batch],
        until: Callable[[HeadMask], bool] | None = None,
    ) -> HeadMask:
        """Score the heads and remove them, all at once or step by step, down to K.

        Args:
            model: the fine-tuned model; it is not changed.
            batches: what the model takes, labels included; gone through once per step, so give a
                list or a loader.
            until: asked with the mask after each step whether it is still good enough; the first
                that is not, and all after it, are not taken.
        """
        heads = find_heads(model)
        self.bind(heads)
        mask, left = HeadMask.all(heads), len(self.places)
        rank = torch.zeros(len(heads), dtype=torch.float64)
        for smaller in self._course():
            scores = importance(
                model, heads, mask, batches, self.settings.granularity, self.settings.normalise
            )
            present = torch.tensor([index in mask.kept for index in heads.indices])
            # A head that stays ranks above all that went before it.
            rank = torch.where(
                present, scores / (scores.max() + 1e-300) + 2.0 * (len(heads) - left), rank
            )
            chosen = choose(heads, self.scope, torch.where(present, scores, -1.0), smaller)
            if until is not None and not until(chosen):
                self.count = left
                break
            mask, left = chosen, smaller
        self.scores = rank[self.places]
        return self.mask()

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Score the heads on a sample of the training data."""
        self.bind(find_heads(model))
        batches = data.batches(self.settings, self.rounds)
        share = self.settings.until
        until = None if share is None else _good_enough(model, data.metric(), share)
        self.fit(model, batches, until)


def _good_enough(
    model: nn.Module, score: Callable[[], float], share: float
) -> Callable[[HeadMask], bool]:
    """Whether a mask leaves the model at least this share of its metric."""
    whole = score()
    floor = share * whole if whole > 0 else whole / share

    def good_enough(mask: HeadMask) -> bool:
        with masked(model, mask):
            return score() >= floor

    return good_enough


def importance(
    model: nn.Module,
    heads: HeadMap,
    mask: HeadMask,
    batches: Iterable[Batch],
    granularity: Granularity = "example",
    normalise: bool = True,
) -> Tensor:
    """The gradient importance of every head that is there now, with the gates at the mask.

    Args:
        model: gives a `loss` that is a mean over the batch; its parameters get no gradients.
        heads: its heads.
        mask: the gates' values; the gradient at a closed gate is that of opening it.
        batches: what the model takes, labels included.
        granularity: where the absolute value is taken.
        normalise: divide the scores of each block by their ℓ2 norm.
    """
    total = torch.zeros(len(heads), dtype=torch.float64)
    examples = 0
    back = Backward(model)
    with back.opened(), _leaf_gates(model, heads, mask, back) as called:
        for batch in batches:
            size = batch_size(batch)
            factors = _factors(model, batch, granularity)
            rows: dict[str, list[list[Tensor]]] = {block.name: [] for block in heads.blocks}
            called.clear()
            for part in back.passes(batch):
                for name, calls in rows.items():
                    found = [g for n, g in zip(called, back.gradients, strict=True) if n == name]
                    calls.append(
                        [_rows(g.cpu().double() / back.scale, part, granularity) for g in found]
                    )
                called.clear()
            parts = [
                _absolute(_joined(rows[b.name], granularity), factors, b.num_heads, granularity)
                for b in heads.blocks
            ]
            # The loss is a mean over the examples; the gradient of one example's is `size` times.
            total += torch.cat(parts) * (size if factors is None else 1.0)
            examples += size
    if not examples:
        raise HeadcountError("there is no data to score the heads on; give at least one batch")
    scores = total / examples
    return normalised_by_block(scores, heads.blocks) if normalise else scores


def _rows(gradient: Tensor, batch: Batch, granularity: Granularity) -> Tensor:
    """The gradient of a call per head and token, per head and example, or per head."""
    rows = gradient.flatten(0, -2)
    if granularity == "example":
        rows = rows.unflatten(0, (batch_size(batch), -1)).sum(1)
    elif granularity == "batch":
        rows = rows.sum(0, keepdim=True)
    return rows


def _factors(model: nn.Module, batch: Batch, granularity: Granularity) -> Tensor | None:
    """What turns the gradient of the batch's loss into those of its examples' own losses.

    The loss of a text is a mean over the tokens of all examples, in which a long one counts more.
    The paper's expectation is over examples, whatever batches they come in.
    """
    answers = answers_per_example(model, batch)
    if answers is None or granularity == "batch":
        return None  # every example counts the same
    answers = answers.cpu().double()
    return torch.where(answers > 0, answers.sum() / answers.clamp(min=1.0), 0.0)


def _weighted(rows: Tensor, factors: Tensor) -> Tensor:
    """The rows of each example times its factor."""
    by_example: Tensor = rows.unflatten(0, (len(factors), -1))
    return (by_example * factors[:, None, None]).flatten(0, 1)


def _joined(parts: Sequence[Sequence[Tensor]], granularity: Granularity) -> list[Tensor]:
    """The rows of each call in a whole batch, from those in its parts."""
    calls = zip(*parts, strict=True)
    if granularity == "batch":
        return [torch.stack(call).sum(0) for call in calls]
    return [torch.cat(call) for call in calls]


def _absolute(
    calls: Sequence[Tensor], factors: Tensor | None, heads: int, granularity: Granularity
) -> Tensor:
    """Absolute gradients per head, summed, of a block that was called never, once or more often.

    Layers may share a block (ALBERT), and its gates then are the same ones in all of them.
    """
    if not calls:
        return torch.zeros(heads, dtype=torch.float64)
    if factors is not None:
        calls = [_weighted(rows, factors) for rows in calls]
    rows = torch.cat(list(calls)) if granularity == "token" else torch.stack(list(calls)).sum(0)
    return rows.abs().sum(0)


@contextmanager
def _leaf_gates(
    model: nn.Module, heads: HeadMap, mask: HeadMask, back: Backward
) -> Iterator[Called]:
    """Gates that are leaves of the graph, one per head at every place of the block's output.

    They come as blocks are called, which need not be the order in which the model has them.
    """
    called: Called = []
    with ExitStack() as hooks:
        for block in heads.blocks:
            if block.num_heads:
                values = torch.tensor([float(index in mask.kept) for index in block.indices])
                projection = model.get_submodule(block.path).get_submodule(block.anatomy.output)
                hook = _LeafGate(values, block, called, back)
                hooks.enter_context(projection.register_forward_pre_hook(hook))
        yield called


class _LeafGate:
    def __init__(
        self, values: Tensor, block: AttentionBlock, called: Called, back: Backward
    ) -> None:
        self.values, self.block, self.called, self.back = values, block, called, back

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        combined = args[0]
        shape = (*combined.shape[:-1], self.block.num_heads)
        leaf = self.back.leaf(self.values.to(combined).expand(shape).clone())
        if not self.back.again:
            self.called.append(self.block.name)
        by_head = combined.unflatten(-1, (self.block.num_heads, self.block.head_size))
        return ((by_head * leaf.unsqueeze(-1)).flatten(-2), *args[1:])
