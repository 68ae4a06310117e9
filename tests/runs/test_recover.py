"""Runs that train on after their cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import Trainer

import headcount as hc
from headcount.errors import HeadcountError
from headcount.runs import base_model, stages
from headcount.runs.prune import prune, prune_many
from headcount.runs.resume import train as really_train
from headcount.runs.settings import RunSettings, TrainingSettings
from tests.runs.stopping import stopped_training


@pytest.fixture
def settings(encoder: Path, tables: Path) -> RunSettings:
    training = TrainingSettings(epochs=1.0, recovery_epochs=2.0, batch_size=16, learning_rate=1e-3)
    return RunSettings(
        str(encoder), "classification", str(tables), method="surgeon", keep=3, training=training
    )


def without(settings: RunSettings) -> RunSettings:
    return replace(settings, training=replace(settings.training, recovery_epochs=None))


def test_the_same_heads_trained_on(settings: RunSettings, tmp_path: Path) -> None:
    base = tmp_path / "base"
    plain = prune(without(settings), tmp_path / "plain", base=base, speed=False)
    trained = prune(settings, tmp_path / "trained", base=base, speed=False)
    masks = {hc.HeadMask.load(tmp_path / name / "mask.json") for name in ("plain", "trained")}
    assert len(masks) == 1
    assert trained.before == plain.before
    assert trained.difference < 1e-5
    assert trained.seconds["recovery"] > 0
    assert trained.cost == pytest.approx(sum(trained.seconds.values()))
    assert "|compensated|recovery:2|" in trained.signatures["validation"]
    assert "recovery" not in plain.signatures["validation"]
    weights = [load_file(tmp_path / n / "model.safetensors") for n in ("plain", "trained")]
    assert weights[0].keys() == weights[1].keys()
    queries = {n: t for n, t in weights[0].items() if "query.weight" in n and t.numel()}
    assert queries and not any(t.equal(weights[1][n]) for n, t in queries.items())


def test_a_teacher_changes_what_is_learned_after_the_cut(
    settings: RunSettings, tmp_path: Path
) -> None:
    taught = replace(settings, training=replace(settings.training, distil=0.7))
    base, found = tmp_path / "base", []
    for name, chosen in {"alone": settings, "taught": taught}.items():
        result = prune(chosen, tmp_path / name, base=base, speed=False)
        found.append(load_file(tmp_path / name / "model.safetensors"))
    assert "|distil:0.7|" in result.signatures["validation"]
    assert not found[0]["classifier.weight"].equal(found[1]["classifier.weight"])


def test_each_number_of_heads_recovers_for_itself(settings: RunSettings, tmp_path: Path) -> None:
    several = replace(settings, method="pipelined-dsp", keep=(4, 2))
    results = prune_many(several, tmp_path / "out", base=tmp_path / "base", speed=False)
    for keep, result in results.items():
        assert result.heads.after == keep
        assert result.difference < 1e-5
        shared = result.seconds["base"] + result.seconds["pruning"]
        assert result.cost == pytest.approx(result.seconds["recovery"] + shared / 2)


def test_a_recovery_that_was_stopped_goes_on_to_the_same_result(
    settings: RunSettings, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    prune(settings, tmp_path / "whole", base=base, speed=False)

    with stopped_training():
        prune(settings, tmp_path / "twice", base=base, speed=False)
    prune(settings, tmp_path / "twice", base=base, speed=False, resume=True)
    whole, twice = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "twice"))
    assert all(t.equal(twice[n]) for n, t in whole.items())


@pytest.mark.parametrize(
    ("method", "warm", "rates"),
    [
        ("surgeon", False, [1e-3, 1e-4]),  # fine-tuned, trained on after the cut
        ("handover", True, [1e-3, 1e-4]),
        ("handover", False, [1e-3]),  # one training, whose second part has the other rate
        ("joint-dsp", False, [1e-3]),  # nothing was fine-tuned before
    ],
)
def test_a_model_that_was_fine_tuned_before_may_have_a_learning_rate_of_its_own(
    settings: RunSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    warm: bool,
    rates: list[float],
) -> None:
    seen = []

    def noted(trainer: Trainer) -> None:
        seen.append(trainer.args.learning_rate)
        pruner = getattr(trainer, "pruner", None)
        assert not isinstance(pruner, hc.Handover) or pruner.late_rate in (1e-4, 2e-4)
        really_train(trainer)

    for module in (base_model, stages):
        monkeypatch.setattr(module, "train", noted)
    training = replace(settings.training, pruning_learning_rate=1e-4, warm_start=warm)
    if method != "surgeon":
        training = replace(training, recovery_epochs=None)
    chosen = replace(settings, method=method, training=training)
    base = tmp_path / "base" if len(rates) > 1 else None
    prune(chosen, tmp_path / "out", base=base, speed=False)
    assert seen == rates
    if base is not None:  # it serves a run with another rate after it as well
        other = replace(training, pruning_learning_rate=2e-4)
        prune(replace(chosen, training=other), tmp_path / "other", base=base, speed=False)
        assert seen == [*rates, 2e-4]


def test_no_epochs_are_no_recovery() -> None:
    with pytest.raises(HeadcountError, match="recovery_epochs is 0, expected a number above 0"):
        TrainingSettings(recovery_epochs=0)


def test_what_trains_the_model_itself_has_nothing_to_recover_from(
    settings: RunSettings, tmp_path: Path
) -> None:
    said = r"handover trains the model itself.* recovery_epochs, which is for pipelined-dsp"
    with pytest.raises(HeadcountError, match=said):
        prune(replace(settings, method="handover"), tmp_path / "out", speed=False)
    assert list(tmp_path.glob("out*")) == []


def test_what_is_frozen_stays_as_it_is_after_the_cut(settings: RunSettings, tmp_path: Path) -> None:
    frozen = replace(settings, method="random", settings={"freeze": ["bert.embeddings.*"]})
    prune(frozen, tmp_path / "out", base=tmp_path / "base", speed=False)
    base, out = (load_file(tmp_path / n / "model.safetensors") for n in ("base", "out"))
    name = "bert.embeddings.word_embeddings.weight"
    assert out[name].equal(base[name])
    assert not out["classifier.weight"].equal(base["classifier.weight"])
