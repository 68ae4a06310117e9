from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headcount as hc
from headcount.analysis.agreement import Choice, agreement, choices_of
from headcount.analysis.base import find_analyses, load_analysis, save_analysis
from headcount.cli import app
from headcount.errors import HeadcountError
from headcount.heads.mask import HeadMask
from headcount.report.page.sections import told_apart
from headcount.report.write import analysis_sections

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


def test_heads_that_are_kept_in_any_case_are_no_agreement() -> None:
    import random

    scope = frozenset(range(24))  # two layers; the others are in every mask

    def drawn(seed: int) -> Choice:
        chosen = frozenset(random.Random(seed).sample(sorted(scope), 8))
        mask = HeadMask("bert", LAYOUT, chosen | (frozenset(range(72)) - scope))
        return Choice("s", "random", seed, mask, scope)

    (overlap,) = agreement([drawn(seed) for seed in range(40)]).overlaps
    assert (overlap.keep, overlap.expected) == (8, pytest.approx(8 * 8 / 24))
    assert overlap.kappa == pytest.approx(0.0, abs=0.03)
    whole = choice(range(len(drawn(0).mask)), "random", seed=1)
    with pytest.raises(HeadcountError, match="same kinds and layers"):
        agreement([drawn(0), whole])


def test_studies_of_one_name_are_two_and_runs_tell_their_scope(tmp_path: Path) -> None:
    folders = [write_study(tmp_path / task / "study", seeds=1) for task in ("mnli", "sst2")]
    for file in folders[0].glob("runs/joint-dsp-12-*/settings.json"):
        told = json.loads(file.read_text())
        told["settings"] = {"kinds": ["encoder"], "layers": [1, 3]}
        file.write_text(json.dumps(told))
    choices = list(choices_of([*folders, folders[0] / "." / "runs" / ".."]))
    assert {one.study for one in choices} == {"mnli/study", "sst2/study"}
    assert len(choices) == len({(c.study, c.method, c.mask.kept) for c in choices})
    (scoped,) = [one for one in choices if one.within is not None]
    assert scoped.within == {*range(12, 24), *range(36, 48)}
    assert {one.study for one in choices_of(folders[:1])} == {"study"}


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
    (tmp_path / "file").touch()
    with pytest.raises(HeadcountError, match="file is not a folder"):
        save_analysis(found, tmp_path / "file" / "inside" / "out")
    twin = folder.with_name("twin")
    save_analysis(found, twin)
    whole = (twin / "agreement.svg").read_text()
    (twin / "agreement.svg").write_text(whole[: len(whole) // 2])
    sections, problems = analysis_sections(study)
    assert [len(section.pictures) for section in sections] == [1, 0]
    assert len(problems) == 1 and "twin/agreement.svg is damaged" in problems[0]
    first, second = (section.anchor for section in told_apart(sections))
    assert second == f"{first}-2"
    shutil.rmtree(twin)
    (folder / "analysis.json").write_text("{")
    assert len(find_analyses(study)[1]) == 1


def test_analyses_are_found_from_the_top() -> None:
    assert hc.analysis.agreement is agreement
    with pytest.raises(AttributeError, match=r"attribute.*analyses"):
        _ = hc.analyses
