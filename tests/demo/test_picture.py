"""The demo's picture: nothing covers anything, and it can be read in a README."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from headcount.demo.picture import draw_demo
from headcount.demo.run import METHODS
from headcount.heads.mask import HeadMask
from headcount.plots.style import PALE, look

LAYOUT = tuple((f"encoder.{layer}", 12) for layer in range(6))
KEEPS = (12, 6)
SCORES = {
    (method, keep): 0.84 - 0.03 * place - 0.01 * (keep == 6)
    for place, (method, keep) in enumerate(product(METHODS, KEEPS))
}
MASKS = {
    key: HeadMask("bert", LAYOUT, frozenset((5 * place + 7 * n) % 72 for n in range(key[1])))
    for place, key in enumerate(SCORES)
}


@pytest.fixture(scope="module")
def figure() -> Figure:
    drawn = draw_demo(SCORES, 0.85, 72, MASKS)
    drawn.draw_without_rendering()
    return drawn


def rows(figure: Figure) -> list[tuple[Axes, list[Axes]]]:
    """The bars and the maps of each number of heads."""
    wide = 1 + len(METHODS)
    parts = [figure.axes[start : start + wide] for start in range(0, len(figure.axes), wide)]
    return [(bars, maps) for bars, *maps in parts]


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


def test_bars_are_the_accuracies_in_the_colours_of_all_figures(figure: Figure) -> None:
    assert len(rows(figure)) == len(KEEPS)
    for keep, (bars, _) in zip(KEEPS, rows(figure), strict=True):
        assert bars.get_title("left") == f"{keep} of 72 heads"
        assert [label.get_text() for label in bars.get_yticklabels()] == list(METHODS)
        assert bars.get_xlim() == (0, 100)  # nothing empty beyond 100 %
        for method, bar in zip(METHODS, bars.patches, strict=True):
            assert bar.get_width() == pytest.approx(100 * SCORES[method, keep])
            assert to_hex(bar.get_facecolor()) == look(method)["color"]


def test_maps_show_the_kept_heads_in_the_same_colours(figure: Figure) -> None:
    for keep, (_, maps) in zip(KEEPS, rows(figure), strict=True):
        for method, axes in zip(METHODS, maps, strict=True):
            (image,) = axes.images
            shown = np.asarray(image.get_array()).ravel()
            assert set(np.flatnonzero(shown)) == MASKS[method, keep].kept
            colours = [to_hex(image.cmap(image.norm(value))) for value in (0, 1)]
            assert colours == [PALE, look(method)["color"]]


def test_titles_are_close_to_their_maps(figure: Figure) -> None:
    for _, maps in rows(figure):
        for axes in maps:
            title = axes._left_title.get_window_extent()  # type: ignore[attr-defined]
            gap = (title.y0 - axes.get_window_extent().y1) * 72 / figure.dpi
            assert 0 <= gap < 8  # points


def test_no_text_covers_another_or_leaves_the_picture(figure: Figure) -> None:
    assert not figure.legends and not any(axes.get_legend() for axes in figure.axes)
    boxes = {text: text.get_window_extent() for text in texts(figure)}
    for (one, box), (other, around) in combinations(boxes.items(), 2):
        assert not box.overlaps(around), (one.get_text(), other.get_text())
    whole = figure.bbox
    for text, box in boxes.items():
        inside = whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 <= box.y1
        assert inside and box.y1 <= whole.y1, text.get_text()


def test_it_can_be_read_at_half_the_width_of_a_readme(figure: Figure) -> None:
    readme = 830  # pixels of a README's column
    points = min(text.get_fontsize() for text in texts(figure))
    assert points / 72 / figure.get_figwidth() * readme / 2 > 5.5  # pixels


def test_numbers_can_be_told_from_their_bars(figure: Figure) -> None:
    def light(colour: str) -> float:
        parts = [int(to_hex(colour)[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    for bars, _ in rows(figure):
        for bar, text in zip(bars.patches, bars.texts, strict=False):
            pair = sorted((light(str(to_hex(bar.get_facecolor()))), light(str(text.get_color()))))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) > 4.5  # WCAG's least contrast
