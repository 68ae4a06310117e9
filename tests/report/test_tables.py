from __future__ import annotations

import shutil
import statistics
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from headcount.report.table_text import to_frame, to_latex, to_markdown, to_terminal
from headcount.report.tables import Table, build_table
from headcount.study.read import read_study

from .synthetic import BORN, EXAMPLES, RIGHT, SPLITS, Writer, answers, write_study


@pytest.fixture(scope="module")
def table(written_study: Path) -> Table:
    study = read_study(written_study)
    assert study.problems == []
    return build_table(study, next(study.comparisons()))


def test_rows_are_numbers_of_heads_and_cells_mean_and_deviation(table: Table) -> None:
    assert list(table.rows) == [36, 24, 12, 6, 2]
    assert table.methods == ("joint-dsp", "ste", "michel")
    values = [(156 + seed) / EXAMPLES for seed in range(3)]
    cell = table.rows[12]["joint-dsp"]
    assert cell.mean == pytest.approx(statistics.mean(values))
    assert cell.deviation == pytest.approx(statistics.stdev(values))
    assert cell.seeds == 3
    assert {k: [m for m, c in row.items() if c.best] for k, row in table.rows.items()} == {
        36: ["ste"], 24: ["joint-dsp"], 12: ["joint-dsp"], 6: ["joint-dsp"], 2: ["joint-dsp"],
    }  # fmt: skip


def test_what_is_worse_than_the_best_is_tested(table: Table) -> None:
    # 164 and 165 right of 200, one differing answer per seed, to three examples: a resample has
    # about Poisson(3) of them, which is 0 or at least 6 with 0.134.
    row = table.rows[36]
    test, other = row["joint-dsp"].against_best, row["michel"]
    assert test is not None and test.p_value == pytest.approx(0.134, abs=0.03)
    assert test.n == 600
    assert not row["joint-dsp"].worse and row["ste"].against_best is None
    assert other.against_best is not None
    assert other.corrected == pytest.approx(2 * other.against_best.p_value)  # of two tests
    assert table.rows[12]["michel"].worse
    assert table.notes == ()


def test_unpruned_and_own_counts_stand_apart(table: Table) -> None:
    assert table.unpruned is not None
    assert table.unpruned[0] == BORN
    assert table.unpruned[1].mean == pytest.approx(169 / EXAMPLES)
    assert [(row.penalty, row.heads) for row in table.own_count] == [(0.01, 39), (0.1, 19), (1, 4)]


def test_different_goals_are_different_rows(study_folder: Path) -> None:
    results = study_folder / "results.csv"
    rows = pd.read_csv(results)
    own = rows["method"] == "hard-concrete"
    rows.loc[own, "signature"] = [
        f"keep:{heads}/48|asked:cache={0.2 if heads < 10 else 0.6}" for heads in rows[own]["heads"]
    ]
    rows.to_csv(results, index=False)
    study = read_study(study_folder)
    table = build_table(study, next(study.comparisons()))
    assert [(row.asked, row.heads) for row in table.own_count] == [
        ("cache=0.2", 4),
        ("cache=0.6", 29),
    ]
    assert "| hard-concrete | cache=0.2 | 4.0 |" in to_markdown(table)


def test_markdown(table: Table) -> None:
    text = to_markdown(table)
    assert "| heads | joint-dsp | ste | michel | seeds |" in text
    assert "| 12 | **78.50 ± 0.50** | 75.50 ± 0.50† | 42.50 ± 0.50† | 3 |" in text
    assert "Unpruned, 48 heads: 84.50 ± 0.50 (3 seeds)." in text
    assert "| hard-concrete | 0.1 | 19.0 | 70.00 ± 0.00 | 3 |" in text


def test_latex(table: Table) -> None:
    text = to_latex(table)
    assert r"12 & \textbf{78.50 $\pm$ 0.50} & 75.50 $\pm$ 0.50$^\dagger$ &" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    assert r"accuracy, \%" in text


def test_more_methods_than_numbers_of_heads_are_rows_the_best_first(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    methods = ("joint-dsp", "ste", "michel", "random", "surgeon", "attrition")
    for number, (method, keep) in enumerate(product(methods, (12, 6))):
        right = 100 + number
        writer.run(method, keep, 0, {SPLITS[0]: answers(right)}, {SPLITS[0]: right / EXAMPLES})
    study = read_study(writer.finish())
    table = build_table(study, next(study.comparisons()))
    columns, rows = to_terminal(table)
    assert columns == ["12 heads", "6 heads", "seeds"]
    assert [row[0] for row in rows] == list(reversed(methods))
    assert rows[0] == ["attrition", "55.00*", "55.50*", "1"]
    text = to_markdown(table)
    assert "| method | 12 heads | 6 heads | seeds |\n| --- | ---: | ---: | ---: |" in text
    assert "| attrition | **55.00** | **55.50** | 1 |" in text
    assert r"method & 12 heads & 6 heads & seeds \\" in to_latex(table)


def test_methods_are_sorted_by_how_far_they_are_from_the_best(tmp_path: Path) -> None:
    writer = Writer(tmp_path, metric="perplexity")
    # A perplexity of 1000 instead of 800 is less far off than one of 40 instead of 19.
    for method, by_heads in {
        "ste": {24: 40.0, 12: 800.0},
        "michel": {24: 19.0, 12: 1000.0},
    }.items():
        for keep, value in by_heads.items():
            writer.run(method, keep, 0, {}, {"test": value})
    writer.run("surgeon", 24, 0, {}, {"test": 19.5})  # what was not run does not count
    study = read_study(writer.finish())
    table = build_table(study, next(study.comparisons()))
    assert table.methods == ("surgeon", "michel", "ste")


def test_frame_has_every_number(table: Table) -> None:
    frame = to_frame(table)
    assert len(frame) == 1 + 5 * 3 + 3
    row = frame[(frame["heads"] == 2) & (frame["method"] == "ste")].iloc[0]
    assert row["mean"] == pytest.approx((RIGHT["ste"][2] + 1) / EXAMPLES)
    assert row["test"] == "paired bootstrap"


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, seeds=1))
    text = to_markdown(build_table(study, next(study.comparisons())))
    assert "| 12 | **78.00** |" in text
    assert "p < 0.05 (McNemar, exact; over the seeds whose predictions both have, " in text
    assert "(1 seed)" in text and "standard deviation" not in text


def test_less_perplexity_is_better(tmp_path: Path) -> None:
    writer = Writer(tmp_path, metric="perplexity")
    for method, value in (("ste", 21.0), ("joint-dsp", 24.5)):
        losses = [{"prediction": value + i % 5, "reference": None} for i in range(50)]
        writer.run(method, 12, 0, {"test": losses}, {"test": value})
    study = read_study(writer.finish())
    row = build_table(study, next(study.comparisons())).rows[12]
    assert row["ste"].best and row["joint-dsp"].worse
    text = to_markdown(build_table(study, next(study.comparisons())))
    assert "| ste | **21.00** | 1 |\n| joint-dsp | 24.50† | 1 |" in text


def test_a_method_that_is_ahead_where_both_ran_is_not_called_worse(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for method, seed, right in (("ste", 0, 100), ("ste", 1, 180), ("joint-dsp", 0, 130)):
        writer.run(method, 12, seed, {SPLITS[0]: answers(right)}, {SPLITS[0]: right / EXAMPLES})
    study = read_study(writer.finish())
    table = build_table(study, next(study.comparisons()))
    assert table.rows[12]["ste"].best and not table.rows[12]["joint-dsp"].worse
    assert "on the seeds that both have it is ahead of ste" in table.notes[0]


def test_a_seed_whose_predictions_are_lost_is_left_out_of_the_test(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    places = {}
    for method, seed, right in product(("ste", "joint-dsp"), (0, 1), (100,)):
        right += 60 * (method == "joint-dsp")
        found = {SPLITS[0]: answers(right)}
        places[method, seed] = writer.run(method, 12, seed, found, {SPLITS[0]: right / EXAMPLES})
    shutil.rmtree(places["ste", 0] / "predictions")
    study = read_study(writer.finish())
    table = build_table(study, next(study.comparisons()))
    assert table.rows[12]["ste"].worse and not table.notes
    shutil.rmtree(places["joint-dsp", 1] / "predictions")
    table = build_table(study, next(study.comparisons()))
    assert not table.rows[12]["ste"].worse
    assert "no readable predictions" in table.notes[0]


def test_without_references_there_is_no_test_but_a_note(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for method, value in (("ste", 0.5), ("joint-dsp", 0.6)):
        plain = [row["prediction"] for row in answers(10)]
        writer.run(method, 12, 0, {SPLITS[0]: plain}, {SPLITS[0]: value})  # type: ignore[dict-item]
    study = read_study(writer.finish())
    table = build_table(study, next(study.comparisons()))
    assert not table.rows[12]["ste"].worse
    assert len(table.notes) == 1 and "ste with 12 heads is not tested" in table.notes[0]


def test_a_fraction_stands_in_the_row_of_its_count(study_folder: Path) -> None:
    results = pd.read_csv(study_folder / "results.csv")
    results["keep"] = results["keep"].replace(12, 0.25)
    results.to_csv(study_folder / "results.csv", index=False)
    study = read_study(study_folder)
    assert list(build_table(study, next(study.comparisons())).rows) == [36, 24, 12, 6, 2]


def test_a_name_stays_in_its_cell(table: Table) -> None:
    nasty = "a|b<i>&\\_%\n\n[1]*"
    named = replace(
        table,
        title=nasty,
        methods=(nasty,),
        rows={k: {nasty: cells["ste"]} for k, cells in table.rows.items()},
        own_count=tuple(replace(row, method=nasty) for row in table.own_count),
    )
    shown = r"a\|b&lt;i&gt;&amp;\\\_%  \[1\]\*"
    text = to_markdown(named)
    assert f"– {shown}\n" in text
    assert f"| heads | {shown} | seeds |" in text and f"| {shown} | 0.1 | 19.0 |" in text
    latex = to_latex(named)
    shown = r"a\textbar{}b$<$i$>$\&\textbackslash{}\_\%  {[}1{]}{*}"
    assert f"heads & {shown} & seeds" in latex and f"    {shown} & 0.1 & 19.0" in latex
    assert "\n\n" not in latex
