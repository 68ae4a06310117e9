"""Choices that learn nothing: at random, given before the training, and all heads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.mask import MASK_FILE, HeadMask
from headcount.pruners.base import Needs, Pruner
from headcount.pruners.choice import Keep
from headcount.pruners.settings import PostHocSettings, PrunerSettings


class Random(Pruner):
    """Keep K heads drawn at random, the same from the first step to the last."""

    name: ClassVar[str] = "random"
    settings_class: ClassVar[type[PrunerSettings]] = PostHocSettings
    needs: ClassVar[Needs] = "scoring"
    withheld: ClassVar[tuple[str, ...]] = ("commit_at",)
    learns_choice: ClassVar[bool] = False

    def prepare(self, number: int) -> None:
        """Draw the ranking."""
        generator = torch.Generator().manual_seed(self.seed)
        self.ranking = torch.randperm(number, generator=generator).to(torch.float64)

    def importance(self) -> Tensor:
        """A random ranking."""
        return self.ranking


@dataclass(frozen=True)
class FixedSettings(PrunerSettings):
    """Which layout is kept from the first step on.

    Attributes:
        like: a mask, its file, or the folder of a pruned model, whose layout the training has from
            the first step (Voita et al., Table 2: "from scratch"). None spreads K evenly over the
            blocks.
        commit_at: 0, because a choice that never changes is final before the training begins.
    """

    like: HeadMask | str | Path | None = None
    commit_at: float | None = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.like, str | Path):
            place = Path(self.like)
            file = place / MASK_FILE if place.is_dir() else place
            object.__setattr__(self, "like", HeadMask.load(file))
        if self.like is not None and self.min_per_block:
            raise HeadcountError(
                "the layout to follow says how many heads a block keeps; leave out min_per_block"
            )


class Fixed(Pruner):
    """Keep the same heads from the first step to the last, chosen before the model has learned.

    What a learned choice must beat: the model has all of the training to get used to its heads.

    Args:
        keep: K, spread over the blocks as evenly as can be, which heads of a block at random. With
            `like` it may be left out, or must be what that keeps.
        settings: see `FixedSettings`.
        **given: see `Pruner`.
    """

    name: ClassVar[str] = "fixed"
    settings_class: ClassVar[type[PrunerSettings]] = FixedSettings
    # Its layout is given, or as even as K allows.
    withheld: ClassVar[tuple[str, ...]] = ("even", "unit")
    finds_count: ClassVar[bool] = True
    learns_choice: ClassVar[bool] = False
    settings: FixedSettings

    def __init__(
        self,
        keep: Keep | None = None,
        settings: PrunerSettings | str | None = None,
        **given: Any,
    ) -> None:
        super().__init__(keep, settings, **given)
        self.told = keep is not None
        like = self.settings.like
        self.like = like if isinstance(like, HeadMask) else None
        if not self.told and self.like is None:
            raise HeadcountError(
                "a fixed layout is missing; give keep, a number of heads, or like, the mask of a "
                "pruned model"
            )

    @classmethod
    def finds_own_count(cls, settings: PrunerSettings) -> bool:
        """With a layout to follow."""
        return isinstance(settings, FixedSettings) and settings.like is not None

    def bind(self, heads: HeadMap) -> None:
        """Get to know the heads; a mask of another model is refused."""
        if self.like is not None:
            self.like.refuse_other_model(heads)
        super().bind(heads)

    def prepare(self, number: int) -> None:
        """Rank the heads: those of the mask first, or by turns one of each block."""
        heads = self.bound()
        if self.like is not None:
            kept = [heads.indices[place] in self.like.kept for place in self.places]
            if self.told and self.count != sum(kept):
                raise HeadcountError(
                    f"the layout to follow keeps {sum(kept)} heads, but keep is {self.count}; "
                    "leave out keep"
                )
            self.count = sum(kept)
            self.ranking = torch.tensor(kept, dtype=torch.float64)
            return
        generator = torch.Generator().manual_seed(self.seed)
        turns = []
        for block in self.scope.blocks(heads):
            # Blocks of one turn in random order too, for a K that does not fill the turn.
            order = torch.randperm(block.num_heads, generator=generator)
            turns.append(order + torch.rand(1, generator=generator, dtype=torch.float64))
        self.ranking = -torch.cat(turns)

    def importance(self) -> Tensor:
        """The ranking of the layout."""
        return self.ranking

    def _commit_signature(self) -> list[str]:
        return ["layout:even" if self.like is None else "layout:given"]


class Unpruned(Pruner):
    """Keep every head: what the others are measured against."""

    name: ClassVar[str] = "unpruned"
    withheld: ClassVar[tuple[str, ...]] = ("even", "unit")  # there is nothing to choose
    keeps_all: ClassVar[bool] = True
    finds_count: ClassVar[bool] = True
    learns_choice: ClassVar[bool] = False

    def __init__(self, settings: PrunerSettings | str | None = None, **given: Any) -> None:
        super().__init__(None, settings, **given)

    def prepare(self, number: int) -> None:
        """Keep them all."""
        self.count = number

    def importance(self) -> Tensor:
        """The same for all."""
        return torch.ones(self.count, dtype=torch.float64)
