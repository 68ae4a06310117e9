from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headcount.report.figures import style
from headcount.report.figures.dynamics import settled
from headcount.report.figures.efficiency import draw_gain_by_heads
from headcount.report.study_data import read_study
from headcount.report.write import Report, write_report

from ..cli.conftest import headcount  # noqa: F401
from .synthetic import SPLITS, Writer, answers, write_study

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


def test_tables_are_there_in_three_formats(report: Report) -> None:
    tables = {path.name for path in report.written if path.parent.name == "tables"}
    assert tables == {"matched.md", "matched.tex", "matched.csv"}


def test_the_page_has_tables_to_download_and_figures(report: Report) -> None:
    page = report.written[-1]
    assert page.name == "report.html"
    text = page.read_text(encoding="utf-8")
    assert all(f'data-file="matched.{ending}"' in text for ending in ("md", "tex", "csv"))
    layers = (page.parent / "figures" / "layers-ste.svg").read_text(encoding="utf-8")
    assert layers[layers.index("<svg") :] in text


def test_the_same_figure_gives_the_same_files(written_study: Path, tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        study = read_study(written_study)
        figure = draw_gain_by_heads(study, next(study.comparisons()))
        assert not isinstance(figure, str)
        contents.append([path.read_bytes() for path in style.save(figure, tmp_path / name)])
    assert contents[0] == contents[1]


@pytest.fixture
def one_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of other things than formats; saving is what takes the time."""
    monkeypatch.setattr(style, "FORMATS", ("svg",))


def test_settled_is_the_share_of_the_final_heads(written_study: Path) -> None:
    run = read_study(written_study).runs["joint-dsp-12-seed0"]
    curve = settled(run)
    assert curve is not None
    # 60 % of 12 heads are others at first: round(7.2) = 7; none from step 500 on.
    np.testing.assert_allclose(curve[1][[0, 5, 10]], [5 / 12, 1, 1])
    assert curve[0][-1] == 1000


@pytest.mark.usefixtures("one_format")
def test_translation_with_three_kinds_and_what_it_lacks(tmp_path: Path) -> None:
    writer = translation_study(tmp_path)
    report = write_report(writer.finish())
    table = report.tables[0]
    assert table.rows[4]["michel"].worse
    names = {path.name for path in report.written}
    assert "layers-joint-dsp.svg" in names
    left_out = [note for note in report.notes if "left out" in note]
    assert [note.split()[1] for note in left_out] == ["heads-by-lambda", "training-dynamics"]


def translation_study(folder: Path, counts: tuple[int, ...] = (12, 4, 2)) -> Writer:
    kinds = ("encoder", "decoder", "cross")
    layout = tuple((f"{kind}.{layer}", 4) for kind in kinds for layer in range(3))
    writer = Writer(folder, metric="bleu", layout=layout)
    draw = random.Random(0)
    texts = [" ".join(draw.choices(list("abcdefgh"), k=8)) for _ in range(40)]
    for method, harm in (("joint-dsp", 1), ("michel", 5)):
        for keep in counts:
            rows = [
                {"prediction": " ".join([*t.split()[: 8 - harm], *["x"] * harm]), "reference": t}
                for t in texts
            ]
            value = 30.0 - harm - 12 / keep
            writer.run(method, keep, 0, {"test": rows}, {"test": value}, generates=True)
    return writer


@pytest.mark.usefixtures("one_format")
def test_one_number_of_heads_leaves_figures_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.run("ste", 12, 0, {"dev": answers(10)}, {"dev": 0.05})
    report = write_report(writer.finish())
    told = "\n".join(report.notes)
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
    tables = {path.name for path in (tmp_path / "report" / "tables").glob("*.md")}
    assert tables == {"dev.md", "test.md"}
    refused = headcount("report", tmp_path / "nowhere")
    assert refused.code == 2
    assert "is no study" in refused.err
