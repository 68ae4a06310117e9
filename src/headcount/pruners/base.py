"""What every pruner is: it makes gates while training, and a mask of exactly K at the end.

A new pruner is one file: a frozen dataclass of settings, and a class that overrides what it needs
of `Pruner`. The rest of the house asks a pruner these things, and never which class it is.
"""

from __future__ import annotations

import fnmatch
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from headcount.batch import Batch
from headcount.errors import HeadcountError, SettingError
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.pruners.choice import Keep, Scope, choose, normalised_by_block
from headcount.pruners.gated import Gated
from headcount.pruners.settings import LearnedSettings, PrunerSettings, find_preset
from headcount.surgery.compensate import RIDGE, compensate

if TYPE_CHECKING:
    from headcount.pruners.scored import ScoringData

# What a pruner works on: a model that it trains; a fine-tuned model, of which it trains only the
# gates; or a fine-tuned model that it leaves as it is.
Needs = Literal["training", "gate training", "scoring"]
Clip = float | Literal["with-model"] | None


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
        settings: an instance of `settings_class`, or the name of a preset; None for the defaults.
        seed: draws the noise and random starts; the same seed gives the same run.
        **given: single settings, in place of those in `settings`.
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[PrunerSettings]] = PrunerSettings
    withheld: ClassVar[tuple[str, ...]] = ()  # settings that mean nothing to this one
    needs: ClassVar[Needs] = "training"
    takes_many: ClassVar[bool] = False  # several K at once
    finds_count: ClassVar[bool] = False  # works without a keep
    keeps_all: ClassVar[bool] = False  # what the others are measured against
    learns_choice: ClassVar[bool] = True  # its selection during training says something
    # What is left of a model learns from the model as it was, if a `distillation` is asked for.
    teaches_itself: ClassVar[bool] = False

    settings: PrunerSettings

    def __init__(
        self,
        keep: Keep | None,
        settings: PrunerSettings | str | None = None,
        *,
        seed: int = 0,
        **given: Any,
    ) -> None:
        super().__init__()
        self.settings = self._settings(settings, given)
        if isinstance(keep, Collection) and not self.takes_many:
            raise HeadcountError(
                f"{self.name} chooses for one K, got {keep}; give one number, or use JointDSP or "
                "PipelinedDSP, which learn for several at once"
            )
        self.keep: Keep | None = tuple(keep) if isinstance(keep, Collection) else keep
        self.seed = seed
        self.present: HeadMask | None = None  # heads that were not cut while training; None for all
        self.committed: HeadMask | None = None  # the choice, once it is final
        self.scope = Scope(
            self.settings.kinds,
            self.settings.layers,
            self.settings.min_per_block,
            self.settings.even,
            self.settings.unit,
        )
        self.heads: HeadMap | None = None

    @classmethod
    def _settings(
        cls, settings: PrunerSettings | str | None, given: Mapping[str, Any]
    ) -> PrunerSettings:
        if isinstance(settings, str):
            try:
                settings = find_preset(cls.settings_class, settings)
            except SettingError as error:
                raise error.of(cls.name) from None
        if settings is not None and not isinstance(settings, PrunerSettings):
            raise HeadcountError(
                f"settings of {cls.name} are {settings!r}, expected {cls.settings_class.__name__}; "
                "give single settings by their names"
            )
        names = meaningful(cls)
        for name in given:
            if name not in names:
                raise HeadcountError(
                    f"{cls.name} has no setting {name}; it has {', '.join(sorted(names))}"
                )
        try:
            return replace(cls.settings_class() if settings is None else settings, **given)
        except SettingError as error:
            raise error.of(cls.name) from None

    @classmethod
    def needs_keep(cls, settings: PrunerSettings) -> bool:
        """Whether it needs a number of heads to keep."""
        return not cls.finds_count

    @classmethod
    def finds_own_count(cls, settings: PrunerSettings) -> bool:
        """Whether these settings alone say how many heads stay, so that a keep would change it."""
        return False

    @classmethod
    def is_post_hoc(cls) -> bool:
        """Whether it needs a model that was fine-tuned before."""
        return cls.needs != "training"

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
            self.units = self.scope.units(heads)
            self.prepare(len(self.places))

    def prepare(self, number: int) -> None:
        """Make what is to be learned, for that many heads, or one for each of the `units`."""

    def refuse(self, model: nn.Module) -> None:
        """Refuse a model that it could not prune, before that is trained."""

    @abstractmethod
    def importance(self) -> Tensor:
        """The score of each head in the scope by which the K best are kept."""

    @property
    def looks_at(self) -> int:
        """How many training examples it asks to see before the first step; see `look`."""
        return 0

    def look(self, model: nn.Module, batches: Iterable[Batch]) -> None:
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
            total_steps: number of steps of the whole training.
        """
        commit_at = self.settings.commit_at
        if commit_at is None or step < commit_at * total_steps:
            return None
        return self.mask() if len(self.counts) == 1 else self.mask(self.counts[0])

    def choosing_steps(self, total_steps: int) -> int:
        """Steps in which the choice is made; a cooldown or countdown is a share of them."""
        commit_at = self.settings.commit_at
        return total_steps if commit_at is None else round(commit_at * total_steps)

    @property
    def cuts_while_training(self) -> bool:
        """Whether heads may be cut before the training ends."""
        return self.settings.commit_at is not None

    def commit(self, heads: HeadMask) -> None:
        """Learn that all heads except these are cut; if that leaves no choice, it is final."""
        self.present = heads
        if len(self.counts) == 1 and heads == self.mask():
            self.committed = heads

    def score(self, model: nn.Module, data: ScoringData) -> None:
        """Rank the heads of a fine-tuned model, which is not changed.

        Args:
            model: the fine-tuned model.
            data: gives batches, or the metric, as the pruner asks for them.
        """
        self.bind(find_heads(model))

    def make_up(
        self,
        model: nn.Module,
        mask: HeadMask,
        batches: Iterable[Batch],
        frozen: Collection[str] = (),
    ) -> None:
        """Change the output weights so that the heads outside the mask are missed less.

        That is what `compensate` stands for in a run. A method may have its own way.

        Args:
            model: with all its heads; changed in place, for a cut with this mask.
            mask: the heads that stay.
            batches: a few hundred examples.
            frozen: names of parameters that must not change.
        """
        compensate(model, mask, batches, getattr(self.settings, "ridge", RIDGE), frozen)

    @property
    def ranks_once(self) -> bool:
        """Whether one ranking, down to the last head, serves every K."""
        return False

    @property
    def operating_sample(self) -> int:
        """How many training examples an operation looks at; 0 for pruners that never operate."""
        return 0

    def is_due(self, step: int, total_steps: int) -> bool:
        """Whether the time of an operation on the model has come that was not done."""
        return False

    @property
    def has_operated(self) -> bool:
        """Whether an operation was done."""
        return False

    @property
    def begins_anew(self) -> bool:
        """Whether the optimizer and its learning rate are to start again now."""
        return False

    @property
    def late_rate(self) -> float | None:
        """The model's learning rate in the last of the `parts`; None for the same as before."""
        return None

    def parts(self, total_steps: int) -> list[int]:
        """The first step of each part of the training, and the number of all steps.

        The learning rate runs through its schedule once in each part.
        """
        return [0, total_steps]

    def operate(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        step: int,
        total_steps: int,
        agree: Callable[[HeadMask], HeadMask] | None = None,
    ) -> HeadMask:
        """Choose the heads that stay, in the middle of a training; see `Handover`."""
        raise NotImplementedError(f"{self.name} never operates, so no operation is ever due")

    @property
    def clip(self) -> Clip:
        """Longest gradient of the pruner's own parameters; `with-model` clips both together."""
        return self.settings.clip if isinstance(self.settings, LearnedSettings) else 1.0

    @property
    def decays(self) -> bool:
        """Whether the pruner's learning rate follows the trainer's schedule."""
        return not isinstance(self.settings, LearnedSettings) or self.settings.decay

    @property
    def temperature(self) -> float | None:
        """Of this step's gates; None for pruners without one."""
        return None

    def readings(self) -> dict[str, float]:
        """What the training logs show of the pruner, besides its temperature."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides parameters and buffers; plain JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` gave."""

    def signature(self) -> list[str]:
        """What was decided by settings, for the signature of a result."""
        parts = []
        if len(self.counts) > 1:
            parts.append(f"trained:{'+'.join(map(str, self.counts))}")
        if self.settings.even:
            parts.append("even")
        if self.settings.unit != "head":
            parts.append(f"unit:{self.settings.unit}")
        return [*parts, *self._commit_signature()]

    def _commit_signature(self) -> list[str]:
        commit_at = self.settings.commit_at
        return [] if commit_at is None else [f"commit:{commit_at:g}"]

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
        with frozen(model, self.settings.freeze), Gated(model, self) as gated:
            yield gated


@contextmanager
def frozen(model: nn.Module, patterns: Sequence[str]) -> Iterator[None]:
    """Keep parameters whose names match a pattern from training as long as the block lasts."""
    for pattern in patterns:
        if not any(fnmatch.fnmatch(name, pattern) for name, _ in _all_names(model)):
            raise HeadcountError(
                f"no parameter of the model is called {pattern!r}, so none can be frozen; "
                "names are those of model.named_parameters(), with * for any part"
            )
    matched = [p for p in matching_parameters(model, patterns) if p.requires_grad]
    for parameter in matched:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in matched:
            parameter.requires_grad_(True)


def matching_parameters(model: nn.Module, patterns: Sequence[str]) -> list[nn.Parameter]:
    """The parameters that have a name of these patterns.

    A tied parameter has several names, and one of them is enough: a decoder's embeddings are often
    called `model.shared` or `lm_head` too.
    """
    found = {
        id(parameter): parameter
        for name, parameter in _all_names(model)
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }
    return list(found.values())


def _all_names(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return model.named_parameters(remove_duplicate=False)


def meaningful(pruner: type[Pruner]) -> set[str]:
    """The names of the settings that a pruner's class takes in Python."""
    return {field.name for field in fields(pruner.settings_class)} - {*pruner.withheld}
