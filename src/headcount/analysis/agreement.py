"""Do methods and seeds keep the same heads? Overlap of kept sets, compared with chance.

`choices_of` reads the kept sets of studies, `agreement` compares them, `draw_agreement` draws κ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from scipy.stats import hypergeom

from headcount.analysis.base import Analysis
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.plots.style import new_figure
from headcount.pruners.methods import UNPRUNED
from headcount.study.read import read_study

Pairing = Literal["seeds of one method", "two methods", "two studies"]
_Key = tuple[int, str, str, Pairing]  # K, the names of the two sides, and how they are paired


@dataclass(frozen=True)
class Choice:
    """A kept set and the run it comes from.

    Attributes:
        study: name of the run's study.
        method: name of the method that chose the heads.
        seed: the run's seed.
        mask: the kept heads.
        within: flat indices of the heads that the method decided about. All other heads are kept
            in any case. None means that it decided about all heads.
    """

    study: str
    method: str
    seed: int
    mask: HeadMask
    within: frozenset[int] | None = None

    @property
    def scope(self) -> frozenset[int]:
        """The heads that the method decided about."""
        return frozenset(range(self.mask.born)) if self.within is None else self.within

    @property
    def chosen(self) -> frozenset[int]:
        """The kept heads among those that the method decided about."""
        return self.mask.kept & self.scope


@dataclass(frozen=True)
class Overlap:
    """How far kept sets of one size agree, over all pairs of two groups.

    Attributes:
        first: name of a method, preceded by its study if there are several studies.
        second: name of the other method; the same name for two seeds of one method.
        pairing: what the pairs are.
        keep: K, counted among the heads that the methods decided about.
        pairs: number of pairs of kept sets.
        shared: heads that a pair has in common, averaged over the pairs.
        expected: heads that two random sets of this size have in common on average.
        kappa: (shared − expected) / (K − expected): 1 for the same sets, 0 for chance.
        p_value: probability that chance gives this overlap or a larger one. Pairs that share a set
            are not independent. So it is twice the median p-value of the pairs, which stays valid.
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
    """How far the runs of one or several studies agree on the heads to keep.

    Attributes:
        model: name of the model.
        heads: number of heads of the unpruned model.
        overlaps: one per pair of groups and K, largest K first.
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
            "(K − chance): 1 for the same heads, 0 for two draws at random. All are counted among "
            "the heads that the methods decided about, and sets are compared where those are the "
            f"same. The test is hypergeometric; of {tests} tests {sure} are below 0.05 after "
            "Bonferroni's correction."
        )

    def table(self) -> pd.DataFrame:
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
        return {"agreement": draw_agreement(self)} if self.overlaps else {}


def agreement(choices: Sequence[Choice], model: str = "the model") -> Agreement:
    """Compare kept sets of the same size: seeds of a method, methods, and studies.

    Within a study, every method is compared with itself and with every other, also across seeds.
    Across studies, a method is compared with itself only: this shows whether two tasks need the
    same heads.

    Args:
        choices: the kept sets to compare, see `choices_of`. All must be of models with the same
            heads.
        model: name of the model, for the title and the figure.

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
    # All sets of a group have the same scope, so that one number of heads gives chance.
    groups: dict[tuple[_Key, frozenset[int]], list[tuple[Choice, Choice]]] = {}
    for a, b in combinations(choices, 2):
        keep = len(a.chosen)
        if a.scope != b.scope or keep != len(b.chosen) or not 0 < keep < len(a.scope):
            continue
        pairing = _pairing(a, b)
        if pairing is not None:
            first, second = sorted(_name(choice, several) for choice in (a, b))
            groups.setdefault(((keep, first, second, pairing), a.scope), []).append((a, b))
    if not groups:
        raise HeadcountError(
            "no two of these runs kept the same number of heads, out of the same kinds and layers; "
            "compare methods or seeds at one K"
        )
    overlaps = [_overlap(key, pairs, len(scope)) for (key, scope), pairs in groups.items()]
    overlaps.sort(key=lambda o: (-o.keep, o.pairing, o.first, o.second))
    return Agreement(model, born, tuple(overlaps))


def _pairing(a: Choice, b: Choice) -> Pairing | None:
    if a.study == b.study:
        return "seeds of one method" if a.method == b.method else "two methods"
    return "two studies" if a.method == b.method else None


def _name(choice: Choice, several: bool) -> str:
    return f"{choice.study}: {choice.method}" if several else choice.method


def _overlap(key: _Key, pairs: list[tuple[Choice, Choice]], heads: int) -> Overlap:
    keep, first, second, pairing = key
    shared = [len(a.chosen & b.chosen) for a, b in pairs]
    by_chance = hypergeom(heads, keep, keep)
    p_values = sorted(float(by_chance.sf(count - 1)) for count in shared)
    middle = p_values[len(p_values) // 2]
    p = middle if len(pairs) == 1 else min(1.0, 2 * middle)
    expected = keep * keep / heads
    mean = sum(shared) / len(shared)
    kappa = (mean - expected) / (keep - expected)
    return Overlap(first, second, pairing, keep, len(pairs), mean, expected, kappa, p)


def choices_of(folders: Sequence[Path]) -> Iterator[Choice]:
    """Read the kept sets of all finished runs of some studies.

    A study is named by the end of its path, as long as needed to tell it from the others.

    Args:
        folders: study folders, as `headcount compare` writes them. One given twice counts once.
    """
    for folder, name in _names(folders).items():
        for run in read_study(folder).runs.values():
            if run.mask is not None and run.method != UNPRUNED:
                seed = int(run.settings.get("seed", 0))
                within = _within(run.mask, run.settings.get("settings") or {})
                yield Choice(name, run.method, seed, run.mask, within)


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """The shortest ends of the paths that are all different."""
    places = list(dict.fromkeys(folder.resolve() for folder in folders))
    for parts in range(1, max((len(place.parts) for place in places), default=0)):
        names = ["/".join(place.parts[-parts:]) for place in places]
        if len(set(names)) == len(places):
            return dict(zip(places, names, strict=True))
    return {place: str(place) for place in places}


def _within(mask: HeadMask, settings: Mapping[str, Any]) -> frozenset[int] | None:
    """The heads of the kinds and layers that the run's settings name; None if they name none."""
    kinds, layers = settings.get("kinds"), settings.get("layers")
    if kinds is None and layers is None:
        return None
    inside: set[int] = set()
    start = 0
    for name, count in mask.layout:
        kind, layer = name.split(".")[-2:]
        if (kinds is None or kind in kinds) and (layers is None or int(layer) in layers):
            inside.update(range(start, start + count))
        start += count
    return frozenset(inside)


def draw_agreement(found: Agreement) -> Figure:
    """κ of every pair of methods; a diagonal cell compares two seeds of one method."""
    counts = sorted({o.keep for o in found.overlaps}, reverse=True)
    names = list(dict.fromkeys(n for o in found.overlaps for n in (o.first, o.second)))
    columns = min(3, len(counts))
    rows = -(-len(counts) // columns)
    side = 0.42 * len(names) + 0.3
    figure = new_figure(columns * side + 2.4, rows * (side + 0.4) + 1.3)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for place, (axes, keep) in enumerate(zip(grid.flat, counts, strict=False)):
        image = _draw_kappas(axes, found, names, keep)
        lowest = place + columns >= len(counts)
        shown = names if lowest else [""] * len(names)
        axes.set_xticks(range(len(names)), shown, rotation=50, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
    for axes in grid.flat[len(counts) :]:
        axes.set_visible(False)
    bar = figure.colorbar(image, ax=grid, fraction=0.05)
    bar.set_label("κ: 1 the same heads, 0 chance", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(f"{found.model}: do methods keep the same heads?", fontsize=10)
    return figure


def _draw_kappas(axes: Axes, found: Agreement, names: list[str], keep: int) -> AxesImage:
    values = np.full((len(names), len(names)), np.nan)
    for overlap in found.overlaps:
        if overlap.keep == keep:
            a, b = names.index(overlap.first), names.index(overlap.second)
            values[max(a, b), min(a, b)] = overlap.kappa
    image = axes.imshow(values, cmap="RdBu", vmin=-1, vmax=1)
    for (y, x), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = "white" if abs(value) > 0.65 else "black"
            text = f"{value:.2f}".replace("0.", ".").replace("-", "−")
            axes.text(x, y, text, ha="center", va="center", fontsize=7.5, color=colour)
    axes.set_title(f"{keep} heads", fontsize=9)
    return image
