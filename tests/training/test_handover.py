"""Heads hand over in the middle of the training: exactly K at its end, whenever that is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback, TrainerControl

from headcount import (
    Countdown,
    Handover,
    HeadcountError,
    HeadMask,
    Surgeon,
    find_heads,
    remove_heads,
)
from headcount.pruners.handover import AT_ONCE, OPERATING
from headcount.surgery.compensate import compensate
from headcount.training import Distillation
from headcount.training.checkpoint_files import TEACHER
from headcount.training.cutting import sampled
from tests.training.test_cutting import Sizes
from tests.training.test_trainer import (
    KEEP,
    STEPS,
    assert_same,
    bert,
    examples,
    logits,
    make_trainer,
    state,
)

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")


def twice() -> Handover:
    return Handover(KEEP, countdown=Countdown(0.0, 0.6, 1.0), operations=2)


def test_heads_go_in_operations_and_k_are_left(tmp_path: Path) -> None:
    sizes = Sizes()
    trainer = make_trainer(tmp_path, twice(), callbacks=[sizes])
    trainer.train()
    # From 8 heads half of the way to 3 after 30 % of the steps, and the rest after 60 %.
    assert sizes.seen == [8, 5, 5, 3, 3, 3] and STEPS == 6
    assert trainer.mask() == HeadMask.all(find_heads(trainer.model))
    assert len(trainer.mask()) == KEEP
    small = logits(trainer.model)
    assert torch.equal(logits(trainer.pruned_model()), small)


def test_before_the_last_operation_it_is_evaluated_with_all_heads_there_are(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, twice(), logging_steps=1)
    assert trainer.mask() == HeadMask.all(find_heads(trainer.model))
    assert torch.equal(logits(trainer.model), logits(bert()))
    trainer.train()
    assert [len(s.heads) for s in trainer.history.selections] == [8, 8, 5, 5, 3, 3, 3]


@pytest.mark.parametrize("fit", [True, False])
@pytest.mark.parametrize("total", [1, 2])
def test_what_goes_is_passed_on(total: int, fit: bool) -> None:
    """Cut right after an operation, it is closer to what it was than cut plainly.

    If it is not to be fitted, that is so where no step follows alone.
    """
    batch = {key: torch.stack([e[key] for e in examples()]) for key in ("input_ids", "labels")}
    model, plain = bert(), bert()
    before = logits(model)
    mask = Handover(5, fit=fit).operate(model, [batch], 1, total)
    remove_heads(model, mask)
    remove_heads(plain, mask)
    if fit or total == 1:
        given, missed = logits(model) - before, logits(plain) - before
        assert given.square().mean() < 0.5 * missed.square().mean()
    else:
        assert torch.equal(logits(model), logits(plain))


def test_weights_are_fitted_for_the_heads_that_all_processes_agree_on() -> None:
    """The choice of another process is taken, and not only cut: the fit is that of its heads."""
    batch = {key: torch.stack([e[key] for e in examples()]) for key in ("input_ids", "labels")}
    own = Handover(4).operate(bert(), [batch], 1, 2)
    others = HeadMask.all(find_heads(bert())) - own
    agreed, fitted = bert(), bert()
    assert Handover(4).operate(agreed, [batch], 1, 2, lambda mask: others) == others
    compensate(fitted, others, [batch], answers=False)  # which are trained on
    assert_same(agreed.state_dict(), fitted.state_dict())


def test_what_is_frozen_is_not_fitted() -> None:
    batch = {key: torch.stack([e[key] for e in examples()]) for key in ("input_ids", "labels")}
    model, before = bert(), bert().state_dict()
    pruner = Handover(2, layers=[0], freeze=["bert.encoder.layer.1.*"])
    pruner.operate(model, [batch], 1, 2)
    changed = {name for name, value in model.state_dict().items() if not value.equal(before[name])}
    output = "bert.encoder.layer.0.attention.output.dense"
    assert changed == {f"{output}.weight", f"{output}.bias"}


def test_ranked_anew_at_each_half_it_keeps_the_heads_of_the_surgeon() -> None:
    batch = {key: torch.stack([e[key] for e in examples()]) for key in ("input_ids", "labels")}
    mask = Handover(1, measured=True).operate(bert(), [batch], 1, 2)
    assert mask == Surgeon(1, measured=True).fit(bert(), [batch])


def test_handover_resumes_exactly(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 1}
    straight = make_trainer(tmp_path / "a", twice(), **options)
    straight.train()
    for step in range(1, STEPS):
        begun, checkpoint = tmp_path / f"from-{step}", f"checkpoint-{step}"
        shutil.copytree(tmp_path / "a" / checkpoint, begun / checkpoint)
        resumed = make_trainer(begun, twice(), **options)
        resumed.train(resume_from_checkpoint=str(begun / checkpoint))
        assert_same(state(straight), state(resumed))
        assert resumed.history == straight.history


@pytest.mark.parametrize("keep", [KEEP, 8])
def test_a_model_taught_by_itself_from_the_first_step_resumes(tmp_path: Path, keep: int) -> None:
    """Also if no head goes."""
    options = {"save_strategy": "steps", "save_steps": 2, "distillation": Distillation(0.7)}
    straight = make_trainer(tmp_path / "a", Handover(keep, countdown=AT_ONCE), **options)
    straight.train()
    assert straight.teacher.model is not None
    resumed = make_trainer(tmp_path / "a", Handover(keep, countdown=AT_ONCE), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    assert_same(state(straight), state(resumed))


def test_a_pruner_that_saw_no_model_is_told() -> None:
    with pytest.raises(HeadcountError, match="has seen no model yet"):
        Handover(KEEP).is_due(0, 1)


def test_a_model_that_knows_its_task_is_operated_on_before_the_first_step(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 2}
    sizes, rates = Sizes(), Rates()
    straight = make_trainer(
        tmp_path / "a", Handover(KEEP, countdown=AT_ONCE), callbacks=[sizes, rates], **options
    )
    straight.train()
    assert sizes.seen == [KEEP] * STEPS
    assert rates.seen == sorted(rates.seen, reverse=True)  # one course
    resumed = make_trainer(tmp_path / "a", Handover(KEEP, countdown=AT_ONCE), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2"))
    assert_same(state(straight), state(resumed))


class Stop(TrainerCallback):
    """Ends a training after its first step, as one that stops early does."""

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        control.should_training_stop = True


@pytest.mark.parametrize("stopped", [False, True])
def test_a_training_that_ends_too_early_leaves_k_scored_heads(
    tmp_path: Path, stopped: bool
) -> None:
    pruner = Handover(KEEP, countdown=Countdown(0.0, 1.0), operations=3)
    changes: dict[str, Any] = {"callbacks": [Stop()]} if stopped else {"max_steps": 1}
    trainer = make_trainer(tmp_path, pruner, **changes)
    trainer.train()
    assert trainer.state.global_step == 1
    assert len(find_heads(trainer.pruned_model())) == len(trainer.mask()) == KEEP
    assert set(trainer.mask().indices) == set(pruner.scores.topk(KEEP).indices.tolist())
    assert (pruner.scores > 0).all()
    assert not pruner.is_due(STEPS, STEPS)
    weights = {name: p.clone() for name, p in trainer.model.named_parameters()}
    assert_same(weights, dict(trainer.pruned_model().named_parameters()))  # not once more


def test_a_training_that_ends_too_early_has_its_weights_fitted(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, Handover(KEEP), callbacks=[Stop()])
    trainer.train()
    plain = bert()
    plain.load_state_dict(trainer.model.state_dict())
    before = logits(plain)
    fitted = (logits(trainer.pruned_model()) - before).square().mean()
    remove_heads(plain, trainer.mask())
    assert fitted < (logits(plain) - before).square().mean()


def test_all_heads_may_stay(tmp_path: Path) -> None:
    for name, when in (("later", OPERATING), ("at once", AT_ONCE)):
        trainer = make_trainer(tmp_path / name, Handover(8, countdown=when))
        trainer.train()
        assert len(find_heads(trainer.pruned_model())) == 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"operations": 0}, "operations of handover is 0, expected a whole number"),
        ({"sample": 0.5}, "sample of handover is 0.5, expected a whole number"),
        ({"ridge": 0.0}, "ridge of handover is 0.0, expected a number above 0"),
        ({"rate": 0.0}, "rate of handover is 0.0, expected a number above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        Handover(KEEP, **given)


class Endless(torch.utils.data.IterableDataset[dict[str, Any]]):
    def __iter__(self) -> Any:
        while True:
            yield from examples()


def test_data_without_a_length_cannot_be_sampled(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, Handover(KEEP))
    trainer.train_dataset = Endless()
    with pytest.raises(HeadcountError, match="this Endless has no known length"):
        trainer.train()


def test_a_sample_has_examples_of_one_length_together(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, Handover(KEEP), per_device_eval_batch_size=4)
    texts = [{"input_ids": torch.arange(3, 4 + (7 * n) % 12), "labels": n % 2} for n in range(24)]
    trainer.train_dataset = texts

    def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        ids = [row["input_ids"] for row in rows]
        labels = torch.tensor([row["labels"] for row in rows])
        ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        return {"input_ids": ids, "labels": labels}

    trainer.data_collator = padded
    widths = [batch["input_ids"].shape[1] for batch in sampled(trainer, 16)]
    assert widths == sorted(widths, reverse=True) and len(widths) == 4
    kept = [len(text["input_ids"]) for text in random.Random(3).sample(texts, 16)]
    assert widths == sorted(kept, reverse=True)[::4]
    trainer.train_dataset = [(text["input_ids"], text["labels"]) for text in texts]
    trainer.data_collator = lambda rows: padded(
        [{"input_ids": ids, "labels": label} for ids, label in rows]
    )
    assert len(sampled(trainer, 16)) == 4  # of whatever the collator takes


def test_the_model_before_the_cut_teaches_what_is_left(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 1, "distillation": Distillation(0.7)}
    taught = make_trainer(tmp_path / "a", twice(), **options)
    taught.train()
    teacher = taught.teacher.model
    assert teacher is not None and len(find_heads(teacher)) == 8
    alone = make_trainer(tmp_path / "b", twice())
    alone.train()
    assert (logits(taught.model) - logits(alone.model)).abs().max() > 1e-4
    for step in range(1, STEPS):  # before, between and after the operations
        begun, checkpoint = tmp_path / f"from-{step}", f"checkpoint-{step}"
        shutil.copytree(tmp_path / "a" / checkpoint, begun / checkpoint)
        shutil.copy(tmp_path / "a" / TEACHER, begun)
        resumed = make_trainer(begun, twice(), **options)
        resumed.train(resume_from_checkpoint=str(begun / checkpoint))
        assert_same(state(taught), state(resumed))
    (begun / TEACHER).unlink()
    with pytest.raises(HeadcountError, match=f"has no {TEACHER}"):
        lost = make_trainer(begun, twice(), **options)
        lost.train(resume_from_checkpoint=str(begun / checkpoint))


class Rates(TrainerCallback):
    """The learning rate of each step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seen.append(kwargs["optimizer"].param_groups[0]["lr"])


def test_the_learning_rate_begins_anew_after_the_last_operation(tmp_path: Path) -> None:
    seen = {}
    for anew in (True, False):
        rates = Rates()
        pruner = Handover(KEEP, countdown=Countdown(0.0, 0.5, 1.0), operations=2, anew=anew)
        changes = {"max_steps": 12, "warmup_steps": 4, "callbacks": [rates]}
        make_trainer(tmp_path / str(anew), pruner, **changes).train()
        seen[anew] = [rate / 1e-2 for rate in rates.seen]
    part = [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    assert seen[True] == pytest.approx(part * 2)
    assert seen[False] == pytest.approx([0, 0.25, 0.5, 0.75, *(1 - i / 8 for i in range(8))])


def test_what_was_cut_may_have_a_learning_rate_of_its_own(tmp_path: Path) -> None:
    rates = Rates()
    pruner = Handover(KEEP, countdown=Countdown(0.0, 0.5, 1.0), rate=2e-3)
    changes = {"max_steps": 12, "warmup_steps": 4, "callbacks": [rates]}
    make_trainer(tmp_path, pruner, **changes).train()
    part = [0.0, 0.5, 1.0, 0.75, 0.5, 0.25]
    assert rates.seen == pytest.approx([1e-2 * x for x in part] + [2e-3 * x for x in part])


class Remembered(TrainerCallback):
    """How many steps Adam remembers before each of its own."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        steps = {int(own["step"]) for own in kwargs["optimizer"].state.values()}
        self.seen.append(max(steps, default=0))


def test_the_optimizer_begins_anew_after_the_last_operation(tmp_path: Path) -> None:
    for anew, seen in ((True, [0, 1, 2, 0, 1, 2]), (False, [0, 1, 2, 3, 4, 5])):
        remembered = Remembered()
        pruner = Handover(KEEP, countdown=Countdown(0.0, 0.6, 1.0), operations=2, anew=anew)
        make_trainer(tmp_path / str(anew), pruner, callbacks=[remembered]).train()
        assert remembered.seen == seen


def test_a_scheduler_that_cannot_begin_anew_is_told(tmp_path: Path) -> None:
    changes = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps"}
    trainer = make_trainer(tmp_path, Handover(KEEP), **changes)
    with pytest.raises(HeadcountError, match="cannot start again with the scheduler"):
        trainer.train()


@pytest.mark.parametrize("last", [None, 4e-3])
def test_a_course_that_ends_at_a_rate_of_its_own_ends_there_in_each_part(
    tmp_path: Path, last: float | None
) -> None:
    rates = Rates()
    changes = {
        "max_steps": 40, "callbacks": [rates], "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr": 2e-3},
    }  # fmt: skip
    pruner = Handover(KEEP, countdown=Countdown(0.0, 0.5, 1.0), rate=last)
    make_trainer(tmp_path, pruner, **changes).train()
    for part, start in ((rates.seen[:20], 1e-2), (rates.seen[20:], last or 1e-2)):
        assert part == sorted(part, reverse=True)
        assert part[0] == pytest.approx(start) and part[-1] == pytest.approx(2e-3, rel=0.05)


class Noted(TrainerCallback):
    """Steps after which there was an evaluation, and after which a checkpoint was written."""

    def __init__(self) -> None:
        self.evaluated: list[int] = []
        self.saved: list[int] = []

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.evaluated.append(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.saved.append(state.global_step)


class Ask(TrainerCallback):
    """Asks for a checkpoint after every step, and after all other callbacks."""

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        control.should_save = True


@pytest.mark.parametrize("end", [0.25, 0.5])
def test_a_pause_is_not_the_end_of_an_epoch(tmp_path: Path, end: float) -> None:
    """An epoch has six steps; the cut is after three, or where the first epoch ends."""
    noted = Noted()
    pruner = Handover(KEEP, countdown=Countdown(0.0, end, 1.0))
    changes = {"max_steps": 12, "eval_strategy": "epoch", "save_strategy": "epoch"}
    make_trainer(tmp_path, pruner, callbacks=[noted], **changes).train()
    assert noted.evaluated == [6, 12]
    assert noted.saved == sorted({int(12 * end), 6, 12})


def test_a_checkpoint_of_the_step_before_a_cut_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(tmp_path, Handover(KEEP, countdown=Countdown(0.0, 0.5, 1.0)))
    trainer.add_callback(Ask())
    written: list[tuple[int, int]] = []
    save = trainer._save_checkpoint

    def noting(model: Any, *args: Any, **kwargs: Any) -> None:
        written.append((trainer.state.global_step, len(find_heads(trainer.model))))
        save(model, *args, **kwargs)

    monkeypatch.setattr(trainer, "_save_checkpoint", noting)
    trainer.train()
    assert written == [(1, 8), (2, 8), (3, KEEP), (4, KEEP), (5, KEEP), (6, KEEP)]


def test_a_model_that_no_operation_is_possible_on_is_told_before_the_training(
    tmp_path: Path,
) -> None:
    model = bert()
    dense = model.bert.encoder.layer[0].attention.output.dense
    dense.weight = torch.nn.Parameter(dense.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(HeadcountError, match=r"is a Linear of torch.int8, expected a plain"):
        make_trainer(tmp_path, Handover(KEEP), model)


def test_a_teacher_is_taken_out_of_its_mixed_precision() -> None:
    """A copy of a model that accelerate has prepared brings the wrapper of its forward with it."""
    model, teacher = bert(), bert()
    teacher._original_forward = teacher.forward
    teacher.forward = lambda **inputs: None
    trainer = make_trainer(Path("unused"), Handover(KEEP), model, teacher=teacher)
    assert trainer.teacher.model is not None
    assert torch.equal(logits(trainer.teacher.model), logits(bert()))
