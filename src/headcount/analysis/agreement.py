"""Do methods and seeds keep the same heads? Overlap of kept sets, against chance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from scipy.stats import hypergeom

from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Pairing = Literal["seeds of one method", "two methods", "two studies"]


@dataclass(frozen=True)
class Choice:
    """A kept set and where it comes from.

    Attributes:
        study: whose run it is; a name.
        method: that chose.
        seed: of the run.
        mask: the kept heads.
    """

    study: str
    method: str
    seed: int
    mask: HeadMask


@dataclass(frozen=True)
class Overlap:
    """How far kept sets of one size agree, all pairs of two groups together.

    Attributes:
        first: a method, with its study where there are several.
        second: likewise; the same for seeds of one method.
        pairing: what the pairs are.
        keep: K.
        pairs: of kept sets.
        shared: heads that a pair has in common, the mean.
        expected: what two draws at random have in common.
        kappa: (shared − expected) / (K − expected): 1 for the same sets, 0 for chance.
        p_value: of sharing so many by chance or more. Pairs that share a set are not independent,
            so it is twice the median of the single pairs' p-values, which is valid all the same.
    """

    first: str
    second: str
    pairing: Pairing
    keep: int
    pairs: int
    shared: float
    expected: float
    kappa: float
    p_value: float


@dataclass(frozen=True)
class Agreement(Analysis):
    """Of all kept sets of some runs.

    Attributes:
        model: its name.
        heads: of the unpruned model.
        overlaps: by number of heads, most first.
    """

    kind: ClassVar[str] = "agreement"

    model: str
    heads: int
    overlaps: tuple[Overlap, ...]

    @property
    def title(self) -> str:
        return f"Agreement of the kept heads, {self.model}"

    @property
    def note(self) -> str:
        tests = len(self.overlaps)
        sure = sum(o.p_value < 0.05 / tests for o in self.overlaps)
        return (
            "Heads that two kept sets of the same size have in common, and κ = (shared − chance) / "
            "(K − chance): 1 for the same heads, 0 for two draws at random. The test is "
            f"hypergeometric; of {tests} tests {sure} are below 0.05 after Bonferroni's correction."
        )

    def table(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(
            {
                "keep": [o.keep for o in self.overlaps],
                "first": [o.first for o in self.overlaps],
                "second": [o.second for o in self.overlaps],
                "pairing": [o.pairing for o in self.overlaps],
                "pairs": [o.pairs for o in self.overlaps],
                "shared": [o.shared for o in self.overlaps],
                "by chance": [o.expected for o in self.overlaps],
                "kappa": [o.kappa for o in self.overlaps],
                "p": [o.p_value for o in self.overlaps],
            }
        )

    def figures(self) -> Mapping[str, Figure]:
        from headcount.analysis.figures.agreement import draw_agreement

        return {"agreement": draw_agreement(self)} if self.overlaps else {}


def agreement(choices: Sequence[Choice], model: str = "the model") -> Agreement:
    """Compare kept sets of the same size: seeds of a method, methods, and studies.

    Methods are compared with one another within a study, at different seeds too; a method with
    itself across studies tells whether the important heads are the same for two tasks.

    Args:
        choices: of models with the same heads.
        model: its name.

    Raises:
        HeadcountError: the masks are of different models, or no two can be compared.
    """
    if not choices:
        raise HeadcountError("there are no masks to compare; give a study with finished runs")
    layout = choices[0].mask.layout
    for choice in choices:
        if choice.mask.layout != layout:
            raise HeadcountError(
                f"{choice.method} of {choice.study} keeps heads of another model than "
                f"{choices[0].method} of {choices[0].study}; compare runs of one model"
            )
    born = sum(count for _, count in layout)
    several = len({choice.study for choice in choices}) > 1
    groups: dict[tuple[int, str, str, Pairing], list[tuple[HeadMask, HeadMask]]] = {}
    for a, b in combinations(choices, 2):
        if len(a.mask) != len(b.mask) or not 0 < len(a.mask) < born:
            continue
        pairing = _pairing(a, b)
        if pairing is not None:
            first, second = sorted(_name(choice, several) for choice in (a, b))
            groups.setdefault((len(a.mask), first, second, pairing), []).append((a.mask, b.mask))
    if not groups:
        raise HeadcountError(
            "no two of these runs kept the same number of heads; compare methods or seeds at one K"
        )
    order = sorted(groups.items(), key=lambda item: (-item[0][0], item[0][3], item[0][1:3]))
    return Agreement(model, born, tuple(_overlap(key, pairs, born) for key, pairs in order))


def _name(choice: Choice, several: bool) -> str:
    return f"{choice.study}: {choice.method}" if several else choice.method


def _pairing(a: Choice, b: Choice) -> Pairing | None:
    if a.study == b.study:
        return "seeds of one method" if a.method == b.method else "two methods"
    return "two studies" if a.method == b.method else None


def _overlap(
    key: tuple[int, str, str, Pairing], pairs: list[tuple[HeadMask, HeadMask]], born: int
) -> Overlap:
    keep, first, second, pairing = key
    shared = [len(a.kept & b.kept) for a, b in pairs]
    by_chance = hypergeom(born, keep, keep)
    p_values = sorted(float(by_chance.sf(count - 1)) for count in shared)
    middle = p_values[len(p_values) // 2]
    p = middle if len(pairs) == 1 else min(1.0, 2 * middle)
    expected = keep * keep / born
    mean = sum(shared) / len(shared)
    kappa = (mean - expected) / (keep - expected)
    return Overlap(first, second, pairing, keep, len(pairs), mean, expected, kappa, p)


def choices_of(folders: Sequence[Path]) -> Iterator[Choice]:
    """The kept sets of the finished runs of studies.

    Args:
        folders: outputs of `headcount compare`.
    """
    from headcount.report.study_data import read_study
    from headcount.study.entry import UNPRUNED

    for folder in folders:
        for run in read_study(folder).runs.values():
            if run.mask is not None and run.method != UNPRUNED:
                seed = int(run.settings.get("seed", 0))
                yield Choice(folder.name, run.method, seed, run.mask)
