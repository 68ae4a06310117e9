from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertForSequenceClassification
from typer.testing import CliRunner

from headcount import HeadMask, find_heads, masked
from headcount.analysis import (
    BatchSubject,
    TaskSubject,
    ablate_all_but_one,
    ablate_checkpoints,
    ablate_greedy,
    ablate_one,
    ablate_transfer,
    load_analysis,
    save_analysis,
)
from headcount.analysis.ablation.checkpoints import find_checkpoints
from headcount.analysis.ablation.greedy import steps
from headcount.analysis.ablation.replay import MaskedPasses
from headcount.cli import app
from headcount.errors import HeadcountError
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings
from headcount.runs.trainer import Evaluation
from headcount.stats.significance import RESAMPLES
from headcount.tasks.metrics import METRICS

from ..tiny import BATCH, Family, build, families

PLANTED = "encoder.1.0"


@families("bert", "gpt2", "llama", "t5", "marian", "vit", "albert")
def test_shared_passes_give_what_masking_each_head_gives(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    heads = find_heads(model)
    everything = HeadMask.all(heads)
    masks = [everything - HeadMask.from_indices(heads, [index]) for index in heads.indices]
    masks += [HeadMask.random(heads, 0.5, seed=1), HeadMask.none(heads), everything]
    passes = MaskedPasses(model, inputs, rows=3 * BATCH)
    assert passes.plan.stacks and any(passes.plan.calls)
    before = {name: vars(module).keys() for name, module in model.named_modules()}
    found = passes.run(inputs, masks, torch.clone)
    for mask, given in zip(masks, found, strict=True):
        with torch.no_grad(), masked(model, mask):
            expected = model(**inputs).logits
        assert float((expected - given).abs().max()) < 1e-5
    changes = [float((found[-1] - given).abs().max()) for given in found[:-1]]
    assert min(changes) > 1e-4  # every head matters, so an equality says something
    assert before == {name: vars(module).keys() for name, module in model.named_modules()}


def test_layers_before_the_closed_head_are_not_computed_again() -> None:
    model = build("bert")
    inputs = {"input_ids": torch.randint(5, 50, (4, 7))}
    heads = find_heads(model)
    passes = MaskedPasses(model, inputs, rows=8)
    rows: list[list[int]] = [[], [], []]
    for place, layer in enumerate(model.bert.encoder.layer):
        layer.intermediate.register_forward_hook(
            lambda module, args, output, place=place: rows[place].append(len(output))
        )
    masks = [HeadMask.all(heads) - HeadMask.from_indices(heads, [i]) for i in heads.indices]
    passes.run(inputs, masks, torch.clone)
    # One whole pass of 4 examples, then 4 heads of each layer, two of them side by side.
    assert [sum(row) for row in rows] == [4 + 16, 4 + 32, 4 + 48]
    assert rows[0] == [4, 8, 8]


def test_a_model_that_mixes_examples_is_run_as_a_whole_for_each_mask() -> None:
    model, inputs = build("bert"), {"input_ids": torch.randint(5, 50, (4, 7))}
    decoder = model.cls.predictions.decoder
    decoder.register_forward_pre_hook(lambda module, args: (args[0] - args[0].mean(0),))
    heads = find_heads(model)
    passes = MaskedPasses(model, inputs)
    assert not passes.plan.stacks and not any(passes.plan.calls)
    mask = HeadMask.all(heads) - HeadMask.from_indices(heads, [0])
    with torch.no_grad(), masked(model, mask):
        expected = model(**inputs).logits
    assert torch.equal(passes.run(inputs, [mask], torch.clone)[0], expected)


@pytest.fixture(scope="module")
def planted() -> BatchSubject:
    """A model of which one head alone decides, and two sets that it answers rightly."""
    encoder = build("bert")
    model = BertForSequenceClassification(encoder.config).eval()
    model.bert.load_state_dict(encoder.bert.state_dict(), strict=False)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 50, (320, 7), generator=generator)
    with torch.no_grad():
        for place, layer in enumerate(model.bert.encoder.layer):
            layer.attention.output.dense.weight *= 0.01
            if place == 1:
                layer.attention.output.dense.weight[:, :8] *= 2000  # its first head
        model.classifier.weight.normal_(generator=generator)
        logits = model(input_ids=ids).logits
        model.classifier.bias[1] -= (logits[:, 1] - logits[:, 0]).median()  # two equal classes
        labels = model(input_ids=ids).logits.argmax(-1)
    halves = {"first": slice(160), "second": slice(160, None)}
    return BatchSubject(
        model,
        {name: [{"input_ids": ids[part], "labels": labels[part]}] for name, part in halves.items()},
    )


def test_the_planted_head_is_the_significant_one(planted: BatchSubject, tmp_path: Path) -> None:
    found = ablate_one(planted)
    assert found.whole == 1.0
    assert [e.name for e in found.significant(corrected=True)] == [PLANTED]
    assert found.ranked()[0].name == PLANTED
    assert f"{len(found.effects)} paired tests" in found.note
    table = found.table()
    assert table.shape == (3, 5) and table["0"].min() == table.loc[1, "0"]
    save_analysis(found, tmp_path / "one")
    assert load_analysis(tmp_path / "one") == found
    assert (tmp_path / "one" / "heads.png").exists()
    assert (tmp_path / "one" / "histogram.svg").exists()


class ByF1(BatchSubject):
    """A metric whose test resamples, where accuracy has an exact one."""

    metric = "macro_f1"

    def evaluate(self, split: str, masks: Sequence[HeadMask]) -> list[Evaluation]:
        return [
            replace(one, metrics={self.metric: METRICS[self.metric](one.predictions, one.gold)})
            for one in super().evaluate(split, masks)
        ]


def test_resampled_tests_are_fine_enough_for_the_correction(planted: BatchSubject) -> None:
    found = ablate_one(ByF1(planted.model, planted._batches))
    assert len(found.effects) / (1 + RESAMPLES) > found.alpha  # so that the usual would not do
    assert [e.name for e in found.significant(corrected=True)] == [PLANTED]
    assert "which none can be" not in found.note
    coarse = replace(found, least=1 / (1 + RESAMPLES))
    assert "which none can be: their resamples tell no p-value below 0.001" in coarse.note
    assert "which none can be" not in ablate_one(planted).note


def test_one_head_is_enough_where_the_planted_one_stays(planted: BatchSubject) -> None:
    found = ablate_all_but_one(planted)
    assert (found.chosen_on, found.split, found.halves) == ("first", "second", False)
    middle = found.blocks[1]
    assert f"{middle.block}.{middle.best}" == PLANTED
    assert middle.change > -0.1
    assert set(found.figures()) == {"all-but-one"}


def test_with_one_set_heads_are_chosen_on_a_half_of_it(planted: BatchSubject) -> None:
    single = BatchSubject(planted.model, {"only": planted._batches["first"]})
    found = ablate_all_but_one(single)
    assert found.halves and found.examples == 80
    assert "every other example" in found.note


def test_a_batch_of_one_example_is_in_one_half_alone(planted: BatchSubject) -> None:
    (whole,) = planted._batches["first"]
    parts = [slice(0, 4), slice(4, 5)]
    batches = [{name: value[part] for name, value in whole.items()} for part in parts]
    halves = BatchSubject(planted.model, {"only": batches}).halved()
    assert [len(halves._batches[name]) for name in halves.sets] == [2, 1]
    everything = HeadMask.all(halves.heads)
    answers = [halves.evaluate(name, [everything])[0].predictions for name in halves.sets]
    assert [len(given) for given in answers] == [3, 2]


def test_the_same_head_matters_on_both_sets(planted: BatchSubject, tmp_path: Path) -> None:
    found = ablate_transfer(planted)
    assert (found.first.split, found.second.split) == ("first", "second")
    assert found.pearson > 0.9 and found.p_value < 1e-3
    assert PLANTED in found.note.partition("in both:")[2]
    save_analysis(found, tmp_path / "transfer")
    assert load_analysis(tmp_path / "transfer") == found


def test_parts_of_different_data_are_told_apart(planted: BatchSubject) -> None:
    here, there = copy.copy(planted), copy.copy(planted)
    here.data, there.data = "mnli", "snli"
    found = ablate_transfer(here, there)
    assert (found.first.split, found.second.split) == ("mnli first", "snli first")
    assert found.pearson == pytest.approx(1.0)


def test_a_task_knows_the_name_of_its_data(classifier: Path, tables: Path) -> None:
    assert (
        TaskSubject(RunSettings(str(classifier), "classification", str(tables))).data == tables.name
    )


def test_the_planted_head_is_closed_last(planted: BatchSubject) -> None:
    found = ablate_greedy(planted, step=0.25)
    for curve in found.curves:
        assert [point.heads for point in curve.points] == [0, 3, 6, 9, 12]
        assert curve.points[0].value == 1.0
        assert curve.points[3].value > curve.points[4].value + 0.2
    assert [curve.order for curve in found.curves] == ["importance", "ablation"]
    with pytest.raises(HeadcountError, match="kind 'cross'"):
        ablate_greedy(planted, kinds=["cross"])
    with pytest.raises(HeadcountError, match="step is 0"):
        ablate_greedy(planted, step=0)


@pytest.mark.parametrize("step", [0.1, 0.3, 0.4, 0.7, 1 / 3, 1.0])
def test_no_two_points_are_further_apart_than_the_step(step: float) -> None:
    shares = steps(step)
    assert shares[0] == 0 and shares[-1] == 1
    gaps = [after - before for before, after in pairwise(shares)]
    assert min(gaps) > 1e-6 and max(gaps) < step + 1e-6


def test_checkpoints_are_measured_by_their_own_unpruned_metric(planted: BatchSubject) -> None:
    found = ablate_checkpoints([planted, planted, planted], step=0.5)
    assert [found.relative(m, m.points[0]) for m in found.moments] == [100.0] * 3
    assert found.moments[0] == found.moments[2]
    assert set(found.figures()) == {"checkpoints", "training"}
    with pytest.raises(HeadcountError, match="at least two"):
        ablate_checkpoints([planted])


def test_checkpoints_are_found_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (500, 1000, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "config.json").touch()
    names = [path.name for path in find_checkpoints([tmp_path])]
    assert names == ["checkpoint-20", "checkpoint-500", "checkpoint-1000"]
    given = sorted(tmp_path.iterdir())
    assert given[0].name == "checkpoint-1000"  # as a shell lists them
    assert [path.name for path in find_checkpoints(given)] == names
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").touch()
    mixed = [tmp_path / "checkpoint-1000", tmp_path / "base"]
    assert find_checkpoints(mixed) == mixed
    with pytest.raises(HeadcountError, match="no model"):
        find_checkpoints([tmp_path], "epoch-*")


def test_too_few_examples_are_refused(planted: BatchSubject) -> None:
    one = {name: value[:1] for name, value in planted._batches["first"][0].items()}
    with pytest.raises(HeadcountError, match="has 1 example, expected at least 2"):
        BatchSubject(planted.model, {"tiny": [one]})


@pytest.fixture(scope="module")
def classifier(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    torch.manual_seed(0)
    labels = {0: "bad", 1: "good"}
    model = BertForSequenceClassification.from_pretrained(
        encoder, id2label=labels, label2id={name: number for number, name in labels.items()}
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return folder


def settings_of(model: Path, tables: Path, **examples: Any) -> RunSettings:
    return RunSettings(
        str(model), "classification", str(tables),
        training=TrainingSettings(eval_batch_size=16, limit_train=32),
        examples=ExampleSettings(**examples),
    )  # fmt: skip


def test_a_task_is_evaluated_as_the_trainer_does(classifier: Path, tables: Path) -> None:
    from headcount.runs.evaluate import evaluate_model
    from headcount.runs.progress import Silent

    subject = TaskSubject(settings_of(classifier, tables))
    mask = HeadMask.random(subject.heads, 2, seed=0)
    (found,) = subject.evaluate("validation", [mask])
    _, expected = evaluate_model(subject.settings, mask, Silent())
    assert found == expected["validation"]


def test_a_model_that_is_not_fine_tuned_is_refused(encoder: Path, tables: Path) -> None:
    with pytest.raises(HeadcountError, match="not fine-tuned"):
        ablate_one(settings_of(encoder, tables))


def test_the_commands_write_what_can_be_read_again(
    classifier: Path, tables: Path, tmp_path: Path
) -> None:
    data = ["--task", "classification", "--data", str(tables), "--limit-eval", "20"]
    output = tmp_path / "one"
    done = CliRunner().invoke(
        app, ["ablate", "one", str(classifier), *data, "--output", str(output), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["effects"]) == 6
    assert {path.name for path in output.glob("*.png")} == {"heads.png", "histogram.png"}
    again = CliRunner().invoke(
        app, ["ablate", "one", str(classifier), *data, "--output", str(output)]
    )
    assert isinstance(again.exception, HeadcountError)
    along = ["ablate", "checkpoints", str(classifier), str(classifier), *data, "--step", "0.5"]
    done = CliRunner().invoke(app, [*along, "--output", str(tmp_path / "along")])
    assert done.exit_code == 0, done.output
    assert load_analysis(tmp_path / "along").kind == "ablate-checkpoints"


def test_sets_with_different_labels_are_refused(
    classifier: Path, tables: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("train", "validation"):
        text = (tables / f"{name}.csv").read_text().replace(",good\n", ",fine\n")
        (other / f"{name}.csv").write_text(text)
    done = CliRunner().invoke(
        app,
        ["ablate", "transfer", str(classifier), "--task", "classification", "--data", str(tables),
         "--other-data", str(other), "--output", str(tmp_path / "out")],
    )  # fmt: skip
    assert isinstance(done.exception, HeadcountError)
    assert "the same labels" in str(done.exception)


def test_files_alone_are_compared_with_one_another(
    classifier: Path, tables: Path, tmp_path: Path
) -> None:
    files = [str(tables / f"{name}.csv") for name in ("train", "validation")]
    head, *rows = (tables / "validation.csv").read_text().splitlines()
    (tmp_path / "others.csv").write_text("\n".join([head, *reversed(rows[:21])]))
    done = CliRunner().invoke(
        app,
        ["ablate", "transfer", str(classifier), "--task", "classification", "--train", files[0],
         "--evaluate", files[1], "--other-evaluate", str(tmp_path / "others.csv"),
         "--output", str(tmp_path / "out")],
    )  # fmt: skip
    # Heads of so small a model may make no difference. That is known once both sets are answered.
    assert done.exit_code == 0 or "no head makes a difference" in str(done.exception)
