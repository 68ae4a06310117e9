"""A teacher's answers and hidden states beside the labels."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount import HeadcountError, JointDSP
from headcount.pruners.fixed import Unpruned
from headcount.training import Distillation
from tests.tiny import build, family_named
from tests.training.test_trainer import KEEP, assert_same, bert, examples, make_trainer, state


def batch() -> dict[str, Tensor]:
    rows = examples(8)
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def other_bert() -> PreTrainedModel:
    model = bert()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


@pytest.mark.parametrize("hidden", [True, False])
def test_a_model_is_not_far_from_itself(hidden: bool, tmp_path: Path) -> None:
    model = bert()
    distillation = Distillation(weight=1.0, hidden=hidden)
    trainer = make_trainer(
        tmp_path, Unpruned(), model, teacher=copy.deepcopy(model), distillation=distillation
    )
    model.train()
    assert float(trainer.compute_loss(model, batch()).detach()) == pytest.approx(0.0, abs=1e-6)
    trainer.teacher.model = other_bert().eval()
    assert float(trainer.compute_loss(model, batch()).detach()) > 1e-3


def test_labels_have_the_rest_of_the_loss(tmp_path: Path) -> None:
    model, teacher = bert(), other_bert()
    losses = {}
    for weight in (0.25, 0.5, 1.0):
        trainer = make_trainer(
            tmp_path, Unpruned(), model, teacher=teacher, distillation=Distillation(weight)
        )
        model.train()
        losses[weight] = float(trainer.compute_loss(model, batch()).detach())
    alone = float(model(**batch()).loss.detach())
    for weight in (0.25, 0.5):
        mixed = (1 - weight) * alone + weight * losses[1.0]
        assert losses[weight] == pytest.approx(mixed, rel=1e-5)


def test_what_has_no_label_teaches_nothing(tmp_path: Path) -> None:
    family = family_named("gpt2")
    model, inputs = build(family), family.inputs()
    inputs["labels"] = torch.full_like(inputs["input_ids"], -100)
    trainer = make_trainer(tmp_path, Unpruned(), model, teacher=build(family))
    model.train()
    items = torch.tensor(5)  # of other micro-batches
    loss = trainer.compute_loss(model, inputs, num_items_in_batch=items)
    assert float(loss.detach()) == 0.0


def test_the_teacher_counts_as_the_labels_do(tmp_path: Path) -> None:
    family = family_named("gpt2")
    model, inputs = build(family), family.inputs()
    inputs["labels"] = inputs["input_ids"].clone()
    trainer = make_trainer(
        tmp_path, Unpruned(), model, teacher=build(family), distillation=Distillation(1.0)
    )
    trainer.teacher.model.transformer.wte.weight.data += 0.1
    model.train()
    answers = inputs["labels"][:, 1:].numel()
    alone = trainer.compute_loss(model, inputs).detach()
    for times in (1, 2):
        items = torch.tensor(times * answers)
        loss = trainer.compute_loss(model, inputs, num_items_in_batch=items).detach()
        torch.testing.assert_close(loss, alone / times)


def test_a_model_does_not_teach_itself(tmp_path: Path) -> None:
    model = bert()
    with pytest.raises(HeadcountError, match="its own teacher"):
        make_trainer(tmp_path, Unpruned(), model, teacher=model)


def test_evaluation_knows_no_teacher(tmp_path: Path) -> None:
    plain = make_trainer(tmp_path / "a", Unpruned()).evaluate()["eval_loss"]
    taught = make_trainer(tmp_path / "b", Unpruned(), teacher=other_bert()).evaluate()["eval_loss"]
    assert taught == plain


def test_teaching_resumes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    teacher = other_bert()
    runs = []
    for folder, changes in (("a", {}), ("b", {"save_strategy": "steps", "save_steps": 2})):
        trainer = make_trainer(
            tmp_path / folder, JointDSP(KEEP, commit_at=0.5), teacher=teacher, **changes
        )
        trainer.train()
        runs.append(state(trainer))
    again = make_trainer(tmp_path / "b", JointDSP(KEEP, commit_at=0.5), teacher=teacher)
    again.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-4"))
    assert_same(runs[0], runs[1])
    assert_same(runs[0], state(again))


@pytest.mark.parametrize("name", ["gpt2", "t5", "vit"])
def test_other_families_are_taught(name: str, tmp_path: Path) -> None:
    family = family_named(name)
    model, inputs = build(family), family.inputs()
    if name == "gpt2":
        inputs["labels"] = inputs["input_ids"]
    elif name == "t5":
        inputs["labels"] = inputs.pop("decoder_input_ids")
    else:
        inputs["labels"] = torch.zeros(len(inputs["pixel_values"]), dtype=torch.long)
    trainer = make_trainer(
        tmp_path, Unpruned(), model, teacher=copy.deepcopy(model), distillation=Distillation(1.0)
    )
    model.train()
    assert float(trainer.compute_loss(model, inputs).detach()) == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("said", [{"weight": 0.0}, {"weight": 1.5}, {"temperature": 0.0}])
def test_a_teacher_that_says_nothing_is_refused(said: dict[str, float]) -> None:
    with pytest.raises(HeadcountError, match="teacher"):
        Distillation(**said)  # type: ignore[arg-type]
