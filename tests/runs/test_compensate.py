"""Runs that give back part of what their cut takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

import headcount as hc
from headcount.runs.prune import prune, prune_many
from headcount.runs.result import RunResult
from headcount.runs.settings import RunSettings, TrainingSettings
from headcount.study.places import Places


@pytest.fixture
def settings(encoder: Path, tables: Path) -> RunSettings:
    training = TrainingSettings(epochs=1.0, batch_size=16, learning_rate=1e-3)
    return RunSettings(
        str(encoder), "classification", str(tables), method="michel", keep=3, training=training
    )


def test_the_same_heads_with_other_output_projections(
    settings: RunSettings, tmp_path: Path
) -> None:
    given = {"plain": {}, "fit": {"compensate": True}, "again": {"compensate": True}}
    results, found = {}, {}
    for name, own in given.items():
        out = tmp_path / name
        results[name] = prune(
            replace(settings, settings=own), out, base=tmp_path / "base", speed=False
        )
        found[name] = load_file(out / "model.safetensors")
    masks = {hc.HeadMask.load(tmp_path / name / "mask.json") for name in given}
    assert len(masks) == 1
    changed = {n for n, t in found["plain"].items() if not t.equal(found["fit"][n])}
    fit = {name for name in changed if "attention.output.dense" in name}
    assert fit
    assert changed <= fit | {"classifier.weight", "classifier.bias"}  # the last map, if it pays
    assert all(t.equal(found["again"][n]) for n, t in found["fit"].items())
    fitted = results["fit"]
    assert fitted.difference < 1e-5
    assert fitted.before == results["plain"].before
    assert "|keep:3/6|compensated|seed:0|" in fitted.signatures["validation"]
    assert "compensated" not in results["plain"].signatures["validation"]


def test_each_number_of_heads_is_compensated_for_itself(
    settings: RunSettings, tmp_path: Path
) -> None:
    own = {"compensate": True, "compensate_sample": 8}
    several = replace(settings, method="pipelined-dsp", keep=(4, 1), settings=own)
    results = prune_many(several, tmp_path / "out", base=tmp_path / "base", speed=False)
    base = load_file(tmp_path / "base" / "model.safetensors")
    bias = "bert.encoder.layer.0.attention.output.dense.bias"
    biases = [load_file(tmp_path / "out" / f"keep-{k}" / "model.safetensors")[bias] for k in (4, 1)]
    assert not biases[0].equal(biases[1])
    assert not biases[1].equal(base[bias])
    for keep, result in results.items():
        assert result == RunResult.load(tmp_path / "out" / f"keep-{keep}")
        shared = result.seconds["base"] + result.seconds["pruning"]
        assert result.cost == pytest.approx(result.seconds["compensate"] + shared / 2)


def test_a_study_ranks_heads_once_for_both(settings: RunSettings, tmp_path: Path) -> None:
    places, own = Places(tmp_path), {"step": 1}
    plain = replace(settings, settings=own)
    fitted = replace(plain, settings=own | {"compensate": True}, variant="michel-fit")
    assert places.ranking(plain) == places.ranking(fitted)
    assert places.ranking(plain) != places.ranking(settings)


@pytest.mark.parametrize(
    ("method", "changes"), [("fisher", {"weight"}), ("flap", {"bias"}), ("osscar", {"weight"})]
)
def test_a_method_makes_up_for_its_cut_in_its_own_way(
    settings: RunSettings, method: str, changes: set[str], tmp_path: Path
) -> None:
    found = {}
    for name, own in {"plain": {"compensate": False}, "own": {}}.items():
        chosen = replace(settings, method=method, settings=own)
        prune(chosen, tmp_path / name, base=tmp_path / "base", speed=False)
        found[name] = load_file(tmp_path / name / "model.safetensors")
    changed = {name for name, t in found["plain"].items() if not t.equal(found["own"][name])}
    assert changed
    assert all("attention.output.dense" in name for name in changed)
    assert {name.rpartition(".")[2] for name in changed} == changes


def test_the_surgeon_fits_with_its_own_ridge_and_leaves_what_is_frozen(
    settings: RunSettings, tmp_path: Path
) -> None:
    given = {"plain": {}, "stiff": {"ridge": 1e6}, "frozen": {"freeze": ["bert.encoder.layer.0.*"]}}
    found = {}
    for name, own in given.items():
        own = {"measured": False, **own}  # each layer loses a head then
        chosen = replace(settings, method="surgeon", settings=own)
        prune(chosen, tmp_path / name, base=tmp_path / "base", speed=False)
        found[name] = load_file(tmp_path / name / "model.safetensors")
    wrong = replace(settings, method="surgeon", settings={"freeze": ["encoder.layer.0.*"]})
    with pytest.raises(hc.HeadcountError, match="no parameter of the model is called"):
        prune(wrong, tmp_path / "wrong", base=tmp_path / "base", speed=False)
    base = load_file(tmp_path / "base" / "model.safetensors")
    bias = "bert.encoder.layer.{}.attention.output.dense.bias"
    moved = {
        name: [float((weights[bias.format(n)] - base[bias.format(n)]).abs().max()) for n in (0, 1)]
        for name, weights in found.items()
    }
    assert moved["plain"][0] > 0
    assert moved["frozen"][0] == 0 and moved["frozen"][1] > 0
    weight = "bert.encoder.layer.0.attention.output.dense.weight"
    assert not found["plain"][weight].equal(found["stiff"][weight])
