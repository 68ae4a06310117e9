"""What all analyses are: a small typed result with a table, figures and a note."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Analysis(ABC):
    """What was found out about the heads of a model.

    Every analysis is a frozen dataclass of numbers, texts, tuples and such dataclasses: what JSON
    can hold, so that one analysis is one file.

    Attributes:
        kind: its name on the command line and in files.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def title(self) -> str:
        """What was asked, of which model and data, in a line."""

    @property
    @abstractmethod
    def note(self) -> str:
        """What was found and how it was measured, in a few sentences."""

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """The numbers, one row per thing that was measured, nothing rounded."""

    @abstractmethod
    def figures(self) -> Mapping[str, Figure]:
        """Figures by the name of their file; none where there is nothing to see."""
