"""What figures show, apart from how they are saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from headcount.analysis.settling import draw_dynamics, settled, settles_at
from headcount.report.curves import draw_metric
from headcount.report.layers import draw_kinds
from headcount.study.read import StudyData, read_study
from headcount.training.history import Selection, SelectionHistory

from .synthetic import Writer, write_translation

METHODS = ("joint-dsp", "joint-dsp-no-annealing", "ste", "michel")
COUNTS = (12, 4)


@pytest.fixture(scope="module")
def translated(tmp_path_factory: pytest.TempPathFactory) -> StudyData:
    folder = tmp_path_factory.mktemp("translated")
    return read_study(write_translation(folder, METHODS, COUNTS, seeds=2, watched=True))


def test_settled_is_the_share_of_the_final_heads(written_study: Path) -> None:
    run = read_study(written_study).runs["joint-dsp-12-seed0"]
    curve = settled(run)
    assert curve is not None
    # 60 % of 12 heads are others at first: round(7.2) = 7; none from step 500 on.
    np.testing.assert_allclose(curve.values[[0, 5, 10]], [5 / 12, 1, 1])
    assert curve.steps[-1] == 1000
    assert settles_at(run) == 500


@pytest.mark.parametrize(
    ("heads", "step"),
    [
        ([(1, 2), (1, 3), (3, 1), (1, 3)], 10),
        ([(1, 3), (1, 2), (1, 3), (1, 3)], 20),  # it was there before, and left again
        ([(1, 2), (1, 2), (1, 2), (1, 3)], 30),
        ([(1, 2), (1, 2)], 0),
        ([], None),
    ],
)
def test_a_choice_settles_when_it_changes_no_more(
    heads: list[tuple[int, ...]], step: int | None, written_study: Path
) -> None:
    run = read_study(written_study).runs["ste-12-seed0"]
    selections = [Selection(10 * place, of) for place, of in enumerate(heads)]
    assert settles_at(replace(run, history=SelectionHistory(selections))) == step


def titles_and_labels(figure: Figure) -> tuple[list[str], set[str]]:
    panels = [axes for axes in figure.axes if axes.get_visible()]
    titles = [axes.get_title(loc="left") for axes in panels]
    return [title for title in titles if title], {axes.get_ylabel() for axes in panels} - {""}


def test_dynamics_have_a_panel_per_method_and_a_colour_per_count(translated: StudyData) -> None:
    figure = draw_dynamics(translated, next(translated.comparisons()))
    assert isinstance(figure, Figure)
    titles, labels = titles_and_labels(figure)
    assert sorted(titles) == ["joint-dsp", "joint-dsp-no-annealing", "ste"]  # Michel's do not learn
    assert labels == {"τ", "final heads\nselected, %", "BLEU\ntest"}
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["4 heads", "12 heads", "settled (mean)"]
    share = figure.axes[len(titles)]  # the second row
    thick = [line for line in share.lines if line.get_linewidth() == 2.0]
    assert len({tuple(line.get_color()) for line in thick}) == len(thick) == len(COUNTS)
    marks = [line for line in share.lines if line.get_marker() == "v"]
    runs = [translated.runs[f"joint-dsp-4-seed{seed}"] for seed in range(2)]
    expected = np.mean([settles_at(run) for run in runs])  # type: ignore[arg-type]
    assert marks[0].get_xdata()[0] == pytest.approx(expected)  # type: ignore[index]


def test_histories_without_temperature_and_metric_have_one_row(study_folder: Path) -> None:
    for path in study_folder.glob("runs/*/selection_history.json"):
        rows = [{k: row[k] for k in ("step", "heads")}
                for row in json.loads(path.read_text())["selections"]]  # fmt: skip
        path.write_text(json.dumps({"selections": rows}))
    study = read_study(study_folder)
    figure = draw_dynamics(study, next(study.comparisons()))
    assert isinstance(figure, Figure)
    titles, labels = titles_and_labels(figure)
    assert titles == ["joint-dsp", "ste", "hard-concrete"]
    assert labels == {"final heads\nselected, %"}
    assert "λ = 0.1" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_kinds_are_counted_over_seeds(translated: StudyData) -> None:
    figure = draw_kinds(translated, next(translated.comparisons()), "joint-dsp")
    assert isinstance(figure, Figure)
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == [
        "encoder self-attention", "decoder self-attention", "cross-attention", "as many of each",
    ]  # fmt: skip
    by_kind = [container.lines[0] for container in figure.axes[0].containers]  # type: ignore[attr-defined]
    for line in by_kind:
        assert list(line.get_xdata()) == [4, 12, 36]  # the last is the unpruned model
        assert line.get_ydata()[-1] == 12
    together = np.array([line.get_ydata() for line in by_kind], dtype=float).sum(axis=0)
    np.testing.assert_allclose(together, [4, 12, 36])
    kept = []
    for seed in range(2):
        mask = translated.runs[f"joint-dsp-12-seed{seed}"].mask
        assert mask is not None
        counts = mask.counts()
        kept.append(sum(count for name, count in counts.items() if name.startswith("decoder")))
    assert by_kind[1].get_ydata()[1] == pytest.approx(np.mean(kept))


def test_one_kind_needs_no_figure_of_kinds(written_study: Path) -> None:
    study = read_study(written_study)
    said = draw_kinds(study, next(study.comparisons()), "ste")
    assert said == "the model has one kind of attention"
    assert draw_kinds(study, next(study.comparisons()), "pipelined-dsp") == (
        "no readable mask of pipelined-dsp"
    )


@pytest.mark.parametrize(("worst", "scale"), [(30.0, "linear"), (900.0, "log")])
def test_perplexities_far_apart_get_an_axis_of_powers(
    worst: float, scale: str, tmp_path: Path
) -> None:
    writer = Writer(tmp_path, metric="perplexity")
    for keep, value in ((None, 18.0), (24, 20.0), (12, worst)):
        method = "unpruned" if keep is None else "ste"
        writer.run(method, keep, 0, {}, {"test": value})
    (comparison,) = read_study(writer.finish()).comparisons()
    figure = draw_metric(comparison)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert axes.get_yscale() == scale
    figure.draw_without_rendering()
    if scale == "log":
        assert "500" in [tick.get_text() for tick in axes.get_yticklabels()]
