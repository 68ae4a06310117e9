"""What the pruners share that score a fine-tuned model and leave it as it is."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from headcount.errors import HeadcountError
from headcount.pruners.base import Pruner
from headcount.pruners.choice import Keep


class Scored(Pruner):
    """A pruner that learns nothing while training; call its `fit` before `mask`.

    Args:
        keep: K; None ranks all heads down to the last.
        **scope: see `Pruner`.
    """

    asks_for: ClassVar[str]  # what its `fit` takes

    def __init__(self, keep: Keep | None, **scope: Any) -> None:
        super().__init__(keep, **scope)
        self.scores: Tensor | None = None  # of each head in the scope

    def importance(self) -> Tensor:
        """The scores that `fit` found."""
        if self.scores is None:
            raise HeadcountError(
                f"{self.name} has scored no model yet; call fit({self.asks_for}) first"
            )
        return self.scores
