"""What every pruner is: it makes gates while training, and a mask of exactly K at the end."""

from __future__ import annotations

import fnmatch
import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import Keep, Scope, choose, normalised_by_block
from headcount.pruners.gated import Gated


class Pruner(nn.Module):
    """A way to choose K heads.

    Use it inside `PruningTrainer`, or in a loop of your own:

        with pruner.attached(model) as gated:
            optimizer = torch.optim.AdamW([*model_groups, *gated.parameter_groups()])
            for step, batch in enumerate(loader):
                gated.begin_step(step, total_steps)
                loss = model(**batch).loss + gated.penalty()
                ...
        mask = pruner.mask()

    Args:
        keep: K, a count, or a fraction below 1, of the heads in the scope; for DSP also several;
            None for pruners that find their own, and to rank all heads down to the last.
        kinds: decide about heads of these kinds only (`encoder`, `decoder`, `cross`).
        layers: decide about heads of these layers only.
        min_per_block: leave at least so many heads in each block.
        freeze: patterns of parameter names (`model.decoder.*`) that do not train as long as the
            pruner is attached; Voita et al. freeze the decoder while pruning the encoder.
        commit_at: a share of the training after which the choice is final: a `PruningTrainer` then
            cuts the other heads out, and trains the small model on. None chooses to the end.
        seed: of the noise and of random starts; the same seed gives the same run.
    """

    name: ClassVar[str]
    takes_many: ClassVar[bool] = False  # several K at once
    # What is left of a model learns from the model as it was, if a `distillation` is asked for.
    teaches_itself: ClassVar[bool] = False

    def __init__(
        self,
        keep: Keep | None,
        *,
        kinds: Sequence[str] | None = None,
        layers: Sequence[int] | None = None,
        min_per_block: int = 0,
        freeze: Sequence[str] = (),
        commit_at: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if commit_at is not None and not 0 <= commit_at < 1:
            raise HeadcountError(
                f"commit_at is {commit_at}, expected a share of the training; give one from 0 to "
                "below 1"
            )
        if (
            isinstance(min_per_block, bool)
            or min_per_block != int(min_per_block)
            or min_per_block < 0
        ):
            raise HeadcountError(
                f"min_per_block is {min_per_block!r}, expected a whole number of heads; give one "
                "from 0"
            )
        if isinstance(keep, Collection) and not self.takes_many:
            raise HeadcountError(
                f"{self.name} chooses for one K, got {keep}; give one number, or use JointDSP or "
                "PipelinedDSP, which learn for several at once"
            )
        self.keep: Keep | None = tuple(keep) if isinstance(keep, Collection) else keep
        self.freeze, self.seed, self.commit_at = tuple(freeze), seed, commit_at
        self.present: HeadMask | None = None  # heads that were not cut while training; None for all
        self.committed: HeadMask | None = None  # the choice, once it is final
        self.scope = Scope(
            None if kinds is None else tuple(kinds),
            None if layers is None else tuple(layers),
            int(min_per_block),
        )
        self.heads: HeadMap | None = None

    def bind(self, heads: HeadMap) -> None:
        """Get to know the heads to choose from; called when the pruner is attached."""
        if self.heads is not None and self.heads.layout != heads.layout:
            raise HeadcountError(
                "this pruner was attached to a model with other heads before; make a new one"
            )
        if self.heads is None:
            self.heads = heads
            keep = self.scope.least(heads) if self.keep is None else self.keep
            self.count = self.scope.counts(heads, keep)[-1]
            self.places = self.scope.positions(heads)
            self.prepare(len(self.places))

    def prepare(self, number: int) -> None:
        """Make what is to be learned, for that many heads."""

    def refuse(self, model: nn.Module) -> None:
        """Tell of a model that it could not prune, before that is trained."""

    @abstractmethod
    def importance(self) -> Tensor:
        """The score of each head in the scope by which the K best are kept."""

    @property
    def looks_at(self) -> int:
        """How many training examples it asks to see before the first step; see `look`."""
        return 0

    def look(self, model: nn.Module, batches: Iterable[Mapping[str, Any]]) -> None:
        """Learn from the model as it is before the first step, without gates.

        Args:
            model: the one to be trained.
            batches: what it takes, labels included.
        """

    def begin_step(self, step: int, total_steps: int) -> None:
        """Called before each training step, with steps counted from 0."""

    def lasting(self, step: int, total_steps: int) -> HeadMask | None:
        """The heads that can still be kept at the end; None for all.

        Args:
            step: optimizer steps done.
            total_steps: of the whole training.
        """
        if self.commit_at is None or step < self.commit_at * total_steps:
            return None
        return self.mask() if len(self.counts) == 1 else self.mask(self.counts[0])

    def choosing_steps(self, total_steps: int) -> int:
        """Steps in which the choice is made; a cooldown or countdown is a share of them."""
        return total_steps if self.commit_at is None else round(self.commit_at * total_steps)

    @property
    def cuts_while_training(self) -> bool:
        """Whether heads may be cut before the training ends."""
        return self.commit_at is not None

    def commit(self, heads: HeadMask) -> None:
        """Learn that all heads but these are cut; if that leaves no choice, it is final."""
        self.present = heads
        if len(self.counts) == 1 and heads == self.mask():
            self.committed = heads

    def gates(self) -> Tensor:
        """The gates of a training step for the heads in the scope, differentiable."""
        return self.mask_gates()

    def balanced(self, gates: Tensor) -> Tensor:
        """These gates, with their gradient divided by its norm in each block.

        The loss is far more sensitive to some layers than to others; what is compared between
        layers then is how sure a head's gradient is, not how large.
        """
        if gates.requires_grad:
            blocks = self.scope.blocks(self.bound())
            gates.register_hook(lambda gradient: normalised_by_block(gradient, blocks))
        return gates

    def penalty(self) -> Tensor:
        """What is added to the loss."""
        return torch.zeros((), dtype=torch.float64)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for the optimizer, with their own learning rate."""
        return []

    def bound(self) -> HeadMap:
        """The heads, or an error if the pruner was never attached."""
        if self.heads is None:
            raise HeadcountError("this pruner has seen no model yet; attach it to one first")
        return self.heads

    @property
    def counts(self) -> tuple[int, ...]:
        """Every K there is a mask for, the largest first."""
        return (self.count,)

    def mask(self, keep: int | float | None = None) -> HeadMask:
        """Exactly K heads of the scope, and all heads outside it.

        Args:
            keep: which K, of a pruner that was given several; None for the smallest, which is the
                hardest.
        """
        heads = self.bound()
        if self.committed is not None and keep is None:
            return self.committed
        count = self.count if keep is None else self.scope.count(heads, keep)
        if keep is not None and count not in self.counts:
            raise HeadcountError(
                f"there is no mask of {count} heads, for which nothing was learned; choose from "
                f"{', '.join(map(str, self.counts))}"
            )
        everywhere = torch.zeros(len(heads), dtype=torch.float64)
        everywhere[self.places] = self.importance().detach().to("cpu", torch.float64)
        if self.present is not None:
            gone = [index not in self.present.kept for index in heads.indices]
            everywhere[torch.tensor(gone)] = -math.inf
        return choose(heads, self.scope, everywhere, count)

    def mask_gates(self) -> Tensor:
        """The mask as gates of the scope's heads: what evaluation uses, also during training."""
        kept = set(self.mask().indices)
        indices = self.bound().indices
        return torch.tensor([float(indices[place] in kept) for place in self.places])

    @contextmanager
    def attached(self, model: nn.Module) -> Iterator[Gated]:
        """Put the gates in place, and freeze what is to be frozen, as long as the block lasts."""
        self.bind(find_heads(model))
        with frozen(model, self.freeze), Gated(model, self) as gated:
            yield gated


@contextmanager
def frozen(model: nn.Module, patterns: Sequence[str]) -> Iterator[None]:
    """Keep parameters whose names match a pattern from training as long as the block lasts."""
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    for pattern in patterns:
        if not fnmatch.filter([name for name, _ in model.named_parameters()], pattern):
            raise HeadcountError(
                f"no parameter of the model is called {pattern!r}, so none can be frozen; "
                "names are those of model.named_parameters(), with * for any part"
            )
    matched = [model.get_parameter(name) for name in names if matches(name, patterns)]
    for parameter in matched:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in matched:
            parameter.requires_grad_(True)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a parameter's name is one that is to be frozen."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
