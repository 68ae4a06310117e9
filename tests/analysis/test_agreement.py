from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headcount.analysis.agreement import Choice, agreement
from headcount.analysis.store import find_analyses, load_analysis, save_analysis
from headcount.cli import app
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask

from ..report.synthetic import write_study

LAYOUT = tuple((f"encoder.{layer}", 12) for layer in range(6))


def choice(kept: range, method: str = "a", seed: int = 0, study: str = "s") -> Choice:
    return Choice(study, method, seed, HeadMask("bert", LAYOUT, frozenset(kept)))


def test_the_same_sets_agree_fully_and_disjoint_ones_less_than_by_chance() -> None:
    found = agreement([choice(range(12)), choice(range(12), "b"), choice(range(12, 24), "c")])
    by_pair = {(o.first, o.second): o for o in found.overlaps}
    assert by_pair["a", "b"].kappa == 1 and by_pair["a", "b"].p_value < 1e-12
    assert by_pair["a", "c"].shared == 0 and by_pair["a", "c"].kappa < 0
    assert by_pair["a", "c"].p_value == pytest.approx(1.0)
    assert by_pair["a", "c"].expected == pytest.approx(2.0)  # 12 · 12 / 72


def test_draws_at_random_share_what_chance_says() -> None:
    import random

    choices = [
        Choice("s", "random", seed, HeadMask("bert", LAYOUT, frozenset(drawn)))
        for seed in range(40)
        for drawn in [random.Random(seed).sample(range(72), 12)]
    ]
    (overlap,) = agreement(choices).overlaps
    assert overlap.pairs == 40 * 39 / 2
    assert overlap.kappa == pytest.approx(0.0, abs=0.03)
    assert overlap.p_value > 0.5


def test_more_pairs_of_the_same_overlap_are_no_stronger_proof_than_twice_one() -> None:
    pair = [choice(range(12)), choice(range(6, 18), "b")]
    many = [*pair, choice(range(12), seed=1), choice(range(6, 18), "b", seed=1)]
    (one,) = agreement(pair).overlaps
    four = next(o for o in agreement(many).overlaps if o.pairing == "two methods")
    assert four.pairs == 4
    assert four.p_value == pytest.approx(2 * one.p_value)


def test_a_method_is_compared_with_itself_across_studies() -> None:
    found = agreement([choice(range(12), study="x"), choice(range(12), study="y")])
    assert [o.pairing for o in found.overlaps] == ["two studies"]
    assert (found.overlaps[0].first, found.overlaps[0].second) == ("x: a", "y: a")


def test_masks_of_different_models_are_refused() -> None:
    other = Choice("s", "b", 0, HeadMask("bert", (("encoder.0", 12),), frozenset(range(6))))
    with pytest.raises(HeadcountError, match="another model"):
        agreement([choice(range(6)), other])
    with pytest.raises(HeadcountError, match="same number of heads"):
        agreement([choice(range(6)), choice(range(5), "b")])


def test_the_command_writes_what_the_report_finds(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study")
    done = CliRunner().invoke(app, ["agreement", str(study)])
    assert done.exit_code == 0, done.output
    folder = study / "analyses" / "agreement"
    by_folder, problems = find_analyses(study)
    assert list(by_folder) == [folder] and not problems
    found = by_folder[folder]
    assert {p.name for p in folder.iterdir()} == {
        "analysis.json", "table.csv", "table.md", "agreement.svg", "agreement.pdf", "agreement.png",
    }  # fmt: skip
    again = tmp_path / "again"
    save_analysis(found, again)
    assert load_analysis(again) == found
    (folder / "analysis.json").write_text("{")
    assert len(find_analyses(study)[1]) == 1
