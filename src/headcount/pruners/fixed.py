"""Choices that learn nothing: at random, by a layout given beforehand, or no pruning at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.heads.mask import HeadMask
from headcount.pruners.base import Pruner


class Random(Pruner):
    """Keep K heads drawn at random, the same from the first step to the last."""

    name: ClassVar[str] = "random"

    def prepare(self, number: int) -> None:
        """Draw the ranking."""
        generator = torch.Generator().manual_seed(self.seed)
        self.ranking = torch.randperm(number, generator=generator).to(torch.float64)

    def importance(self) -> Tensor:
        """A random ranking."""
        return self.ranking


class Fixed(Pruner):
    """Keep the same heads from the first step to the last, chosen before the model has learned.

    What a learned choice must beat: the model has all of the training to get used to its heads.
    With `like`, a fresh model gets the layout that another one was pruned to (Voita et al.,
    Table 2: "from scratch").

    Args:
        keep: K, spread over the blocks as evenly as can be, which heads of a block at random. With
            `like` it may be left out, or must be what that keeps.
        like: a mask, its file, or the folder of a pruned model.
        **scope: see `Pruner`.
    """

    name: ClassVar[str] = "fixed"

    def __init__(
        self,
        keep: int | float | None = None,
        *,
        like: HeadMask | str | Path | None = None,
        **scope: Any,
    ) -> None:
        if keep is None and like is None:
            raise HeadcountError(
                "a fixed layout is not said; give keep, a number of heads, or like, the mask of a "
                "pruned model"
            )
        # A choice that never changes is final before the training begins.
        super().__init__(keep, **{"commit_at": 0.0, **scope})
        if like is not None and self.scope.min_per_block:
            raise HeadcountError(
                "the layout to follow says how many heads a block keeps; leave out min_per_block"
            )
        self.told = keep is not None
        self.like = like if isinstance(like, HeadMask | None) else _mask_of(Path(like))

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


def _mask_of(path: Path) -> HeadMask:
    return HeadMask.load(path / "mask.json" if path.is_dir() else path)


class Unpruned(Pruner):
    """Keep every head: what the others are measured against."""

    name: ClassVar[str] = "unpruned"

    def __init__(self, **scope: Any) -> None:
        super().__init__(None, **scope)

    def prepare(self, number: int) -> None:
        """Keep them all."""
        self.count = number

    def importance(self) -> Tensor:
        """All alike."""
        return torch.ones(self.count, dtype=torch.float64)
