"""A run that is asked for a cache, parameters, a speed-up or a loss finds its own K."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import headcount as hc
from headcount import HeadcountError
from headcount.bench.heads_for import Goal, cut_copy
from headcount.heads.mask import HeadMask
from headcount.runs.evaluate import evaluate_model
from headcount.runs.how_many import Choices, meet_goal
from headcount.runs.job import Options, PruningJob
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.result import FewestWithin, RunResult, Sides
from headcount.runs.run import Run
from headcount.runs.settings import RunSettings, TrainingSettings
from headcount.tasks.from_scratch import train_tokenizer
from tests.runs.test_other_tasks import BRIEF, images, translation
from tests.tasks.text_data import captions, write

TRAINING = TrainingSettings(epochs=2.0, batch_size=16, learning_rate=1e-3)
SCORING = (
    "surgeon", "michel", "random", "ablation", "magnitude", "wanda", "taylor", "fisher", "flap",
    "osscar",
)  # fmt: skip


@pytest.fixture
def settings(encoder: Path, tables: Path) -> RunSettings:
    return RunSettings(
        str(encoder), "classification", str(tables), "michel", seed=1, training=TRAINING
    )


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bases") / "base"


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, and two decoders that can read it: one with groups of two queries, one without."""
    folder = tmp_path_factory.mktemp("text")
    train, valid = captions(200)[1], captions(33, seed=1)[1]
    (folder / "data").mkdir()
    write(folder / "data" / "train.txt", train)
    write(folder / "data" / "valid.txt", valid)
    tokenizer = train_tokenizer(train, 60)
    torch.manual_seed(0)
    ids: dict[str, Any] = {"vocab_size": len(tokenizer), "bos_token_id": 1, "eos_token_id": 2}
    grouped = LlamaConfig(
        hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=64, **ids,
    )  # fmt: skip
    plain = GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=64, **ids)
    LlamaForCausalLM(grouped).save_pretrained(folder / "grouped")
    GPT2LMHeadModel(plain).save_pretrained(folder / "plain")
    for name in ("grouped", "plain"):
        tokenizer.save_pretrained(folder / name)
    return folder


def decoder(text: Path, name: str, **asked: Any) -> RunSettings:
    return RunSettings(
        str(text / name), "language-modelling", str(text / "data"), training=BRIEF, **asked
    )


@pytest.mark.parametrize(
    ("name", "settings"), [("plain", {}), ("grouped", {}), ("grouped", {"even": True})]
)
@pytest.mark.parametrize("method", ["michel", "handover"])
def test_half_of_the_cache(
    text: Path, name: str, settings: dict[str, Any], method: str, tmp_path: Path
) -> None:
    asked = decoder(text, name, cache=0.5, method=method, settings=settings)
    result = prune(asked, tmp_path / "out", speed=False)
    assert result.reached is not None and result.reached.met
    assert result.heads.ratio == result.reached.got == 0.5
    assert RunResult.load(tmp_path / "out") == result
    said = "asked: cache 0.5 · got 0.50"
    assert said in [row[0] for row in result.rows()]
    assert said in (tmp_path / "out" / "README.md").read_text()
    assert "asked:cache=0.5" in "".join(result.signatures.values())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    whole = AutoModelForCausalLM.from_pretrained(asked.model)
    left, had = (
        sum(b.num_key_value_heads for b in hc.find_heads(m).blocks) for m in (model, whole)
    )
    assert left * 2 == had
    if settings:
        assert len({block.num_heads for block in hc.find_heads(model).blocks}) == 1


def test_the_cache_of_groups_is_not_shrunk_by_single_heads(text: Path, tmp_path: Path) -> None:
    asked = decoder(text, "grouped", cache=0.5, method="michel", settings={"unit": "head"})
    with pytest.raises(HeadcountError, match=r"unit is head, but the cache .* leave out unit"):
        prune(asked, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["michel", "ste"])
@pytest.mark.parametrize(("name", "asked"), [("parameters", 0.8), ("speed_up", 1.15)])
def test_parameters_and_speed_are_the_most_heads_that_do(
    settings: RunSettings, name: str, asked: float, method: str, tmp_path: Path, base: Path
) -> None:
    goal: dict[str, Any] = {name: asked}
    chosen = replace(settings, method=method, **goal)
    result = prune(chosen, tmp_path / "out", base=base, speed=False)
    assert result.reached is not None and result.reached.met
    one_more = replace(settings, method=method, keep=int(result.heads.after) + 1)
    other = prune(one_more, tmp_path / "more", base=base, speed=False)
    if name == "parameters":
        assert result.reached.got == pytest.approx(result.parameters.ratio)
        assert result.parameters.ratio <= asked < other.parameters.ratio
    else:
        assert result.reached.got >= asked
    run = Run.open(chosen, tmp_path, Silent())
    model = run.load()
    batch = run.middle_batch(model)
    assert hc.heads_for(model, batch=batch, **goal) == result.heads.after


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parameters": 0.2}, r"parameters 0.2 cannot be had: with 1 of 6 heads 0\.\d+ of the par"),
        ({"speed_up": 50}, r"speed_up 50 .* the model is [\d.]+ times as fast; ask for [\d.]+ or"),
        ({"cache": 0.5}, "BertForSequenceClassification keeps no keys and values"),
        ({"method": "unpruned", "cache": 0.5}, "unpruned keeps all heads; leave out cache"),
        ({"parameters": 0.9, "settings": {"until": 0.9}}, "settings of michel say already how"),
        ({"within": 0.01, "method": "joint-dsp"}, "joint-dsp would train .* surgeon, michel, rand"),
        ({"within": 0.01, "method": "pipelined-dsp"}, "pipelined-dsp would train again; choose"),
    ],
)
def test_what_cannot_be_had_is_told_before_anything_is_written(
    settings: RunSettings, change: dict[str, Any], said: str, tmp_path: Path, base: Path
) -> None:
    with pytest.raises(HeadcountError, match=said):
        prune(replace(settings, **change), tmp_path / "out", base=base)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["cache", "parameters", "speed_up", "within"])
@pytest.mark.parametrize("value", [0, -0.5, 0.0, 5000, float("nan"), True, "half"])
def test_a_number_that_makes_no_sense_is_told(settings: RunSettings, name: str, value: Any) -> None:
    with pytest.raises(HeadcountError, match=f"{name} is .*, expected"):
        replace(settings, **{name: value})


@pytest.mark.parametrize("name", ["cache", "parameters", "within"])
def test_a_share_is_not_above_one(settings: RunSettings, name: str) -> None:
    with pytest.raises(HeadcountError, match=f"{name} is 1.5, expected"):
        replace(settings, **{name: 1.5})  # type: ignore[arg-type]


def test_one_way_to_say_how_many(settings: RunSettings) -> None:
    with pytest.raises(HeadcountError, match="keep and within each say how many heads stay; give"):
        replace(settings, keep=3, within=0.1)
    with pytest.raises(HeadcountError, match="cache and speed_up each say"):
        replace(settings, cache=0.5, speed_up=1.1)


def test_heads_that_are_larger_than_the_average_are_fewer(tmp_path: Path) -> None:
    """An encoder's heads have no cache, and those that this method loves are the decoder's."""
    chosen = replace(translation(tmp_path), method="michel", cache=0.5, training=BRIEF)
    run = Run.open(chosen, tmp_path, Silent())
    model = run.load()
    _ = run.sets
    heads = hc.find_heads(model)

    class Loved(Choices):
        def mask(self, keep: int) -> HeadMask:
            return HeadMask.from_indices(heads, heads.indices[-keep:])  # the decoder's

    job = PruningJob(chosen, tmp_path / "out", Options(), Silent())
    loved = Loved(run, model, job._pruner_for)
    goal = Goal("cache", 0.5)
    found = meet_goal(loved, goal, 6).count
    batch = run.middle_batch(model)
    before = goal.count(model, batch)
    small = [cut_copy(model, loved.mask(keep)) for keep in (found, found + 1)]
    assert found < 6
    assert [goal.is_met(before, goal.count(one, batch)) for one in small] == [True, False]


@pytest.mark.parametrize("method", SCORING)
def test_the_fewest_heads_within_a_loss(
    settings: RunSettings, method: str, tmp_path: Path, base: Path
) -> None:
    chosen = replace(settings, method=method, within=0.05)
    out = tmp_path / "out"
    result = prune(chosen, out, base=base, speed=False)
    found = result.fewest_within
    assert found is not None
    tried = dict(found.tried)
    assert found.heads == result.heads.after
    model = AutoModelForSequenceClassification.from_pretrained(out)
    assert len(hc.find_heads(model)) == found.heads
    least = 0.95 * found.chosen_on.before
    assert found.chosen_on.after == tried[found.heads] >= least
    assert found.heads == 1 or tried[found.heads - 1] < least
    # The halves have the same number of examples, so that their mean is the whole set's score.
    both = (found.chosen_on.after + found.reported_on.after) / 2
    assert both == pytest.approx(result.scores["validation"]["accuracy"])
    rows = [row[0] for row in result.rows()]
    assert f"asked: within 5 % · found {found.heads} heads, {len(tried)} tried" in rows
    assert "accuracy, half to report on" in rows
    assert RunResult.load(out) == result
    assert json.loads((out / "metrics.json").read_text())["fewest_within"]["asked"] == 0.05
    keep = replace(settings, method=method, keep=found.heads)
    if method != "ablation":  # which measures on half of the data here
        other = prune(keep, tmp_path / "keep", base=base, speed=False)
        assert other.scores == result.scores
        assert (out / "mask.json").read_text() == (tmp_path / "keep" / "mask.json").read_text()
        first, second = (load_file(tmp_path / one / "model.safetensors") for one in ("out", "keep"))
        assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("make", [translation, images])
def test_any_task_may_be_asked_for_a_loss(make: Any, tmp_path: Path) -> None:
    chosen = replace(make(tmp_path), method="michel", within=0.5, training=BRIEF)
    result = prune(chosen, tmp_path / "out", base=tmp_path / "base", speed=False)
    assert result.fewest_within is not None
    assert result.fewest_within.heads == result.heads.after


def test_a_perplexity_may_rise_by_as_much(text: Path, tmp_path: Path) -> None:
    chosen = decoder(text, "plain", method="surgeon", within=0.002)
    result = prune(chosen, tmp_path / "out", speed=False)
    found = result.fewest_within
    assert found is not None
    tried = dict(found.tried)
    assert tried[found.heads] <= 1.002 * found.chosen_on.before
    assert found.heads == 1 or tried[found.heads - 1] > 1.002 * found.chosen_on.before
    again, other = evaluate_model(replace(chosen, model=str(tmp_path / "out")), None, Silent())
    assert again.metric == "perplexity" and other


def test_groups_and_even_layers_are_kept_while_looking(text: Path, tmp_path: Path) -> None:
    own = {"even": True, "unit": "group"}
    chosen = decoder(text, "grouped", method="michel", within=0.001, settings=own)
    found = prune(chosen, tmp_path / "out", speed=False).fewest_within
    assert found is not None
    assert all(keep % 4 == 0 for keep, _ in found.tried)


def test_a_search_that_was_stopped_finds_the_same(
    settings: RunSettings, tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = replace(TRAINING, recovery_epochs=1.0)
    chosen = replace(settings, within=0.05, training=training)
    whole = prune(chosen, tmp_path / "whole", base=base, speed=False)

    class DiedError(Exception):
        pass

    def die(*args: object) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(PruningJob, "_measure", die)
        with pytest.raises(DiedError):
            prune(chosen, tmp_path / "out", base=base, speed=False)
    with pytest.raises(HeadcountError, match=r"begun with within 0.05, but now it is 0.1"):
        prune(replace(chosen, within=0.1), tmp_path / "out", base=base, resume=True)
    resumed = prune(chosen, tmp_path / "out", base=base, speed=False, resume=True)
    assert resumed.fewest_within == whole.fewest_within
    assert resumed.scores == whole.scores


def test_fewer_heads_that_do_better_are_told() -> None:
    sides = Sides(0.8, 0.8)
    found = FewestWithin(0.01, 4, sides, sides, ((2, 0.7), (4, 0.8), (6, 0.79)))
    assert found.doubts(greater_is_better=True) == (4, 6)
    assert found.doubts(greater_is_better=False) == (2, 4)
    assert FewestWithin(0.01, 4, sides, sides, ((2, 0.7), (4, 0.8))).doubts(True) is None


def test_a_run_with_a_keep_says_nothing_of_it(
    settings: RunSettings, tmp_path: Path, base: Path
) -> None:
    result = prune(replace(settings, keep=3), tmp_path / "out", base=base, speed=False)
    assert result.reached is None and result.fewest_within is None
    written = (tmp_path / "out" / "metrics.json").read_text()
    assert "reached" not in written and "within" not in written
    assert "within" not in (tmp_path / "out" / "settings.json").read_text()
