from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headcount.plots import style
from headcount.report.curves import draw_gain_by_heads, draw_gain_by_metric
from headcount.report.write import Report, write_report
from headcount.study.read import read_study

from ..cli.conftest import headcount  # noqa: F401
from .synthetic import SPLITS, Writer, answers, write_study, write_translation

FIGURES = {
    "metric-matched", "metric-few-heads-matched", "gain-by-metric-matched", "heads-by-lambda",
    "gain-by-heads", "training-dynamics", "layers-joint-dsp", "layers-ste", "layers-michel",
    "layers-hard-concrete",
}  # fmt: skip
STARTS = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    return write_report(write_study(folder, seeds=2, splits=SPLITS[:1]))


def test_every_figure_is_there_in_three_formats(report: Report) -> None:
    figures = [path for path in report.written if path.parent.name == "figures"]
    assert {path.stem for path in figures} == FIGURES
    assert len(figures) == 3 * len(FIGURES)
    for path in figures:
        content = path.read_bytes()
        assert content.startswith(STARTS[path.suffix]) and len(content) > 4000
    assert report.notes == []
    assert report.left_out == ["figure kinds is left out: the model has one kind of attention"]


def test_tables_are_there_in_three_formats(report: Report) -> None:
    tables = {path.name for path in report.written if path.parent.name == "tables"}
    assert tables == {"matched.md", "matched.tex", "matched.csv"}


def test_the_page_has_tables_to_download_and_figures(report: Report) -> None:
    page = report.written[-1]
    assert page.name == "report.html"
    text = page.read_text(encoding="utf-8")
    assert all(f'data-file="matched.{ending}"' in text for ending in ("md", "tex", "csv"))
    layers = (page.parent / "figures" / "layers-ste.svg").read_bytes()
    assert base64.b64encode(layers[layers.index(b"<svg") :]).decode() in text


def test_the_same_figure_gives_the_same_files(written_study: Path, tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        study = read_study(written_study)
        figure = draw_gain_by_heads(study, next(study.comparisons()))
        assert not isinstance(figure, str)
        contents.append([path.read_bytes() for path in style.save(figure, tmp_path / name)])
    assert contents[0] == contents[1]


def test_a_gain_that_was_not_measured_has_no_panel(written_study: Path) -> None:
    study = read_study(written_study)
    drawn = []
    for measured in (True, False):
        if not measured:
            runs = {
                name: replace(run, result=replace(run.result, examples_per_second=None))
                for name, run in study.runs.items()
            }
            study = replace(study, runs=runs)
        comparison = next(study.comparisons())
        for draw in (draw_gain_by_heads, draw_gain_by_metric):
            figure = draw(study, comparison)
            assert not isinstance(figure, str)
            drawn.append([axes.get_ylabel() for axes in figure.axes])
    both, size = ["speed-up, %", "shrinkage, %"], ["shrinkage, %"]
    assert drawn == [both, both, size, size]


@pytest.fixture
def one_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of other things than formats; saving is what takes the time."""
    monkeypatch.setattr(style, "FORMATS", ("svg",))


@pytest.mark.usefixtures("one_format")
def test_translation_with_three_kinds_and_what_it_lacks(tmp_path: Path) -> None:
    report = write_report(write_translation(tmp_path))
    table = report.tables[0]
    assert table.rows[4]["michel"].worse
    names = {path.name for path in report.written}
    assert {"layers-joint-dsp.svg", "kinds-joint-dsp.svg", "kinds-michel.svg"} <= names
    names_out = [note.split()[1] for note in report.left_out]
    assert names_out == ["heads-by-lambda", "training-dynamics"]


@pytest.mark.usefixtures("one_format")
def test_one_number_of_heads_leaves_figures_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.run("ste", 12, 0, {"dev": answers(10)}, {"dev": 0.05})
    report = write_report(writer.finish())
    told = "\n".join(report.left_out)
    assert "figure metric-dev is left out: fewer than two numbers of heads" in told


@pytest.mark.usefixtures("one_format")
def test_command(headcount: Any, tmp_path: Path) -> None:  # noqa: F811
    writer = Writer(tmp_path)
    for split, right in (("dev", 150), ("test", 140)):
        writer.run("unpruned", None, right, {split: answers(right)}, {split: right / 200})
        for keep in (24, 12):
            count = right + keep - 36
            writer.run("ste", keep, right, {split: answers(count)}, {split: count / 200})
    writer.finish()
    (tmp_path / "runs" / "ste-12-seed140" / "metrics.json").unlink()
    done = headcount("report", tmp_path)
    assert done.code == 0, done.err
    assert "69.00*" in done.out and "Unpruned, 48 heads: 75.00 (1 seed)" in done.out
    assert "note: run ste-12-seed140 is missing or broken" in done.out
    assert "files are in" in done.out
    # The last evaluation set is the one that is reported.
    assert "comes closest: 82.9 %" in " ".join(done.out.split("note:")[-1].split())
    tables = {path.name for path in (tmp_path / "report" / "tables").glob("*.md")}
    assert tables == {"dev.md", "test.md"}
    refused = headcount("report", tmp_path / "nowhere")
    assert refused.code == 2
    assert "is no study" in refused.err


@pytest.mark.usefixtures("one_format")
def test_some_methods_alone_in_a_folder_of_their_own(
    headcount: Any,  # noqa: F811
    study_folder: Path,
    tmp_path: Path,
) -> None:
    chosen = ("--method", "ste", "--method", "joint-dsp")
    done = headcount("report", study_folder, *chosen, "--output", tmp_path / "two")
    assert done.code == 0, done.err
    assert not (study_folder / "report").exists()
    first = (tmp_path / "two" / "tables" / "matched.md").read_text(encoding="utf-8")
    assert "| heads | joint-dsp | ste | seeds |" in first and "Unpruned" in first
    assert "note:" not in done.out.replace("note: figure", "")  # others are not missed
    layers = {path.stem for path in (tmp_path / "two" / "figures").glob("layers-*.svg")}
    assert layers == {"layers-ste", "layers-joint-dsp"}
    refused = headcount("report", study_folder, "--method", "voita", "--output", tmp_path / "no")
    assert refused.code == 2 and not (tmp_path / "no").exists()
    assert "has no results of 'voita'; choose among joint-dsp, ste, michel" in refused.err
