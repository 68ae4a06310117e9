"""Training with a pruner inside, on tiny real models: counts, accumulation, resume, processes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedModel,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainingArguments,
)

from headcount import HeadcountError, HeadMask, find_heads, masked, remove_heads
from headcount.pruners.attrition import Attrition
from headcount.pruners.base import Pruner
from headcount.pruners.dsp import DSPSettings, JointDSP, PipelinedDSP
from headcount.pruners.fixed import Random, Unpruned
from headcount.pruners.hard_concrete import HardConcrete
from headcount.pruners.michel import Michel
from headcount.pruners.schedule import Annealing, Countdown
from headcount.pruners.ste import STE
from headcount.training import PruningTrainer, SelectionHistory, Seq2SeqPruningTrainer
from headcount.training.trainer import home_of
from tests.training.processes import run_two_processes

KEEP, HEADS, STEPS = 3, 8, 6

# Sums in another order differ by 1e-8; gates at low temperatures would make much of it.
MILD = DSPSettings(Annealing(1.0, 0.3, 0.7))

PRUNERS: dict[str, Callable[[], Pruner]] = {
    "joint": lambda: JointDSP(KEEP),
    "many": lambda: JointDSP([6, KEEP]),
    "pipelined": lambda: PipelinedDSP(KEEP),
    "poisson": lambda: JointDSP(
        KEEP, DSPSettings(relaxation="poisson", hard=True, countdown=Countdown())
    ),
    "from_michel": lambda: JointDSP(KEEP, DSPSettings(first="michel")),
    "ste": lambda: STE(KEEP, countdown=Countdown()),
    "attrition": lambda: Attrition(KEEP, shed=False),
    "hard_concrete": lambda: HardConcrete(KEEP),
    "steered": lambda: HardConcrete(KEEP, steer=True),
    "random": lambda: Random(KEEP),
}
each_pruner = pytest.mark.parametrize("name", PRUNERS)

pytestmark = [
    # torch's DataLoader and accelerate's, on machines without an accelerator.
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning"),
]


def bert(dropout: float = 0.0) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=16, max_position_embeddings=16, num_labels=2, initializer_range=0.3,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def examples(number: int = 48) -> list[dict[str, Tensor]]:
    """Whether the first token is among the larger ones."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 30, (number, 6), generator=generator)
    return [{"input_ids": row, "labels": (row[0] > 16).long()} for row in ids]


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    defaults = {
        "output_dir": str(folder), "max_steps": STEPS, "per_device_train_batch_size": 8,
        "learning_rate": 1e-2, "logging_steps": 2, "save_strategy": "no", "report_to": [],
        "use_cpu": True, "disable_tqdm": True, "seed": 3,
    }  # fmt: skip
    return {**defaults, **changes}


def make_trainer(
    folder: Path, pruner: Pruner, model: PreTrainedModel | None = None, **changes: Any
) -> PruningTrainer:
    model = bert() if model is None else model
    options = {
        key: changes.pop(key)
        for key in ("callbacks", "optimizers", "teacher", "distillation")
        if key in changes
    }
    args = TrainingArguments(**settings(folder, **changes))
    return PruningTrainer(
        model=model, pruner=pruner, args=args, train_dataset=examples(),
        eval_dataset=examples(16), **options,
    )  # fmt: skip


def state(trainer: PruningTrainer) -> dict[str, Tensor]:
    """All that is learned."""
    model = {f"model.{k}": v.clone() for k, v in trainer.model.state_dict().items()}
    return {**model, **{k: v.clone() for k, v in trainer.pruner.state_dict().items()}}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=tolerance, msg=name)


def logits(model: PreTrainedModel) -> Tensor:
    batch = torch.stack([example["input_ids"] for example in examples(16)])
    model.eval()
    with torch.no_grad():
        return model(input_ids=batch).logits


@each_pruner
def test_leaves_exactly_k_heads_that_give_what_the_masked_model_gave(
    name: str, tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, PRUNERS[name]())
    trainer.train()
    gated, mask = logits(trainer.model), trainer.mask()
    small = trainer.pruned_model()
    assert len(find_heads(small)) == len(mask) == KEEP
    torch.testing.assert_close(logits(small), gated, rtol=0, atol=1e-5)
    assert trainer.pruned_model() is small
    assert "eval_loss" in trainer.evaluate()
    with pytest.raises(HeadcountError, match="removed"):
        trainer.train()


def test_w_may_start_from_michels_scores_of_the_model_as_it_is(tmp_path: Path) -> None:
    pruner = JointDSP(KEEP, DSPSettings(first="michel", learning_rate=0.0))
    trainer = make_trainer(tmp_path, pruner)
    trainer.train()
    batch = {key: torch.stack([e[key] for e in examples()]) for key in ("input_ids", "labels")}
    assert trainer.history.selections[0].heads == trainer.mask().indices
    assert trainer.mask() == Michel(KEEP).fit(bert(), [batch])


def test_heads_that_no_loss_feels_start_alike() -> None:
    model, pruner = bert(), JointDSP(KEEP, DSPSettings(first="michel"))
    torch.nn.init.zeros_(model.classifier.weight)
    batch = {key: torch.stack([e[key] for e in examples()]) for key in ("input_ids", "labels")}
    pruner.look(model, [batch])
    assert torch.equal(pruner.w, torch.zeros(HEADS, dtype=torch.float64))


def test_one_training_gives_a_model_of_every_size(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, JointDSP([6, 4, KEEP]))
    trainer.train()
    with masked(trainer.detach(), trainer.mask(keep=4)):
        expected = logits(trainer.model)
    assert len(find_heads(trainer.pruned_model(keep=6))) == 6
    small = trainer.pruned_model(keep=4)
    torch.testing.assert_close(logits(small), expected, rtol=0, atol=1e-5)
    assert len(find_heads(trainer.pruned_model())) == len(find_heads(small)) == 4
    with pytest.raises(HeadcountError, match="was removed from the model"):
        trainer.pruned_model(keep=6)


@pytest.mark.parametrize("name", [name for name in PRUNERS if name != "random"])
def test_learns_the_pruner(name: str, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, PRUNERS[name]())
    before = {k: v.clone() for k, v in trainer.pruner.state_dict().items()}
    trainer.train()
    after = trainer.pruner.state_dict()
    # The ones of attrition are there for their gradient alone.
    assert all((after[key] != value).any() for key, value in before.items() if key != "open")


def test_joint_training_learns_the_model_too(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, JointDSP(KEEP))
    before = state(trainer)["model.classifier.weight"]
    trainer.train()
    assert (state(trainer)["model.classifier.weight"] != before).any()


def test_pipelined_leaves_the_weights_as_they_are(tmp_path: Path) -> None:
    model = bert()
    before = copy.deepcopy(model.state_dict())
    trainer = make_trainer(tmp_path, PipelinedDSP(KEEP), model)
    trainer.train()
    assert [len(group["params"]) for group in trainer.optimizer.param_groups] == [1]
    assert_same(model.state_dict(), before)
    assert not any(p.requires_grad for p in model.parameters())
    trainer.pruned_model()
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("optim", ["sgd", "adamw_torch"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: JointDSP(KEEP, MILD),
        lambda: PipelinedDSP(KEEP, MILD),
        lambda: STE(KEEP),
        lambda: HardConcrete(KEEP, 0.5, steer=True),
    ],
    ids=["joint", "pipelined", "ste", "steered"],
)
def test_two_micro_batches_of_4_equal_one_batch_of_8(
    make: Callable[[], Pruner], optim: str, tmp_path: Path
) -> None:
    # Adam makes full steps of rounding errors where the gradient is zero, as at the keys' biases.
    changes = {"optim": optim, "adam_epsilon": 1e-3}
    whole = make_trainer(tmp_path, make(), **changes)
    parts = make_trainer(
        tmp_path, make(), per_device_train_batch_size=4, gradient_accumulation_steps=2, **changes
    )
    whole.train()
    parts.train()
    assert_same(state(whole), state(parts), 1e-5)


def test_the_penalty_counts_once_whatever_the_accumulation(tmp_path: Path) -> None:
    def log_alpha(accumulation: int) -> Tensor:
        pruner = HardConcrete(KEEP, penalty_weight=10.0)
        trainer = make_trainer(
            tmp_path, pruner, optim="sgd", max_steps=1, lr_scheduler_type="constant",
            per_device_train_batch_size=8 // accumulation,
            gradient_accumulation_steps=accumulation,
        )  # fmt: skip
        trainer.prepare_update = lambda: None  # type: ignore[method-assign]
        trainer.train()
        return pruner.log_alpha.detach()

    torch.testing.assert_close(log_alpha(4), log_alpha(1), rtol=0, atol=1e-6)
    assert (log_alpha(1) < 1.99).all()


class _EvaluateTwice(TrainerCallback):
    """In the middle of training: the gates that evaluation uses are the mask's."""

    def __init__(self) -> None:
        self.trainer: PruningTrainer | None = None
        self.compared = 0

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        assert self.trainer is not None
        model = self.trainer.model
        first, second = logits(model), logits(model)
        plain = copy.deepcopy(model)
        for module in plain.modules():
            module._forward_pre_hooks.clear()
        with masked(plain, self.trainer.mask()):
            expected = logits(plain)
        assert torch.equal(first, second)
        torch.testing.assert_close(first, expected, rtol=0, atol=1e-6)
        self.compared += 1


def test_evaluation_in_the_middle_is_the_masked_model(tmp_path: Path) -> None:
    watcher = _EvaluateTwice()
    trainer = make_trainer(tmp_path, JointDSP(KEEP), callbacks=[watcher])
    watcher.trainer = trainer
    trainer.train()
    assert watcher.compared == STEPS
    assert trainer.evaluate()["eval_loss"] == trainer.evaluate()["eval_loss"]


@pytest.mark.parametrize("name", ["joint", "pipelined"])
def test_gradient_checkpointing_changes_nothing(name: str, tmp_path: Path) -> None:
    plain = make_trainer(tmp_path, PRUNERS[name]())
    twice = make_trainer(tmp_path, PRUNERS[name](), gradient_checkpointing=True)
    plain.train()
    twice.train()
    assert_same(state(plain), state(twice), 1e-7)


def test_evaluation_during_training_changes_nothing(tmp_path: Path) -> None:
    plain = make_trainer(tmp_path, JointDSP(KEEP))
    evaluated = make_trainer(tmp_path, JointDSP(KEEP), eval_strategy="steps", eval_steps=1)
    plain.train()
    evaluated.train()
    assert_same(state(plain), state(evaluated))


@each_pruner
def test_resumed_training_equals_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    changes = {"save_strategy": "steps", "save_steps": 3, "logging_steps": 1}
    # Dropout: the global generator has to go on as well.
    whole = make_trainer(tmp_path / "whole", PRUNERS[name](), bert(0.1), **changes)
    whole.train()
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    assert {"pruner.safetensors", "pruner.json", "selection_history.json"} <= {
        file.name for file in checkpoint.iterdir()
    }
    again = make_trainer(tmp_path / "again", PRUNERS[name](), bert(0.1), **changes)
    again.train(resume_from_checkpoint=str(checkpoint))
    assert_same(state(whole), state(again))
    assert whole.mask() == again.mask()
    assert whole.history == again.history
    if isinstance(whole.pruner, HardConcrete):
        assert whole.pruner.penalty_weight == again.pruner.penalty_weight


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    changes = {"save_strategy": "steps", "save_steps": 3}
    make_trainer(tmp_path, JointDSP(KEEP), **changes).train()
    checkpoint = tmp_path / "checkpoint-3"
    with pytest.raises(HeadcountError, match="joint-dsp"):
        make_trainer(tmp_path, STE(KEEP)).train(resume_from_checkpoint=str(checkpoint))
    (checkpoint / "pruner.json").unlink()
    with pytest.raises(HeadcountError, match=r"has no pruner\.json"):
        make_trainer(tmp_path, JointDSP(KEEP)).train(resume_from_checkpoint=str(checkpoint))


def test_the_best_model_comes_with_its_own_choice(tmp_path: Path) -> None:
    trainer = make_trainer(
        tmp_path, JointDSP(KEEP), save_strategy="steps", save_steps=1, eval_strategy="steps",
        eval_steps=1, load_best_model_at_end=True, metric_for_best_model="eval_loss",
        greater_is_better=True,
    )  # fmt: skip
    trainer.train()
    best = max(entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(best, abs=1e-6)
    saved = load_file(Path(str(trainer.state.best_model_checkpoint)) / "pruner.safetensors")
    last = load_file(tmp_path / f"checkpoint-{STEPS}" / "pruner.safetensors")
    assert_same(dict(trainer.pruner.state_dict()), saved)
    assert (saved["w"] != last["w"]).any()


def test_training_logs_tell_about_the_heads(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, JointDSP(KEEP), eval_strategy="steps", eval_steps=2)
    trainer.train()
    training = [entry for entry in trainer.state.log_history if "loss" in entry]
    others = [entry for entry in trainer.state.log_history if "loss" not in entry]
    assert [entry["step"] for entry in training] == [2, 4, 6]
    assert all(entry["heads_selected"] == KEEP for entry in training)
    assert all(0 <= entry["heads_changed"] <= KEEP for entry in training)
    temperatures = [entry["temperature"] for entry in training]
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[0] > temperatures[-1]
    assert others
    assert not any("heads_selected" in entry for entry in others)


def test_hard_concrete_logs_its_expected_count_and_penalty(tmp_path: Path) -> None:
    pruner = HardConcrete(KEEP, steer=True)
    trainer = make_trainer(tmp_path, pruner)
    trainer.train()
    first, last = trainer.state.log_history[0], trainer.state.log_history[-2]
    assert KEEP < first["heads_expected"] < HEADS
    assert first["penalty_weight"] != last["penalty_weight"] == pruner.penalty_weight


def test_the_history_is_written_at_the_end(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, STE(KEEP, learning_rate=1.0), max_steps=5)
    trainer.train()
    path = tmp_path / "selection_history.json"
    assert [row["step"] for row in json.loads(path.read_text())["selections"]] == [0, 2, 4, 5]
    history = SelectionHistory.load(path)
    assert history == trainer.history
    assert history.selections[-1][1] == trainer.mask().indices
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


LEARNING = pytest.mark.parametrize("learning", [JointDSP, STE, HardConcrete], ids=lambda c: c.name)


@LEARNING
@pytest.mark.parametrize("decay", [True, False])
def test_the_learning_rate_follows_the_schedule_only_with_decay(
    learning: Any, decay: bool, tmp_path: Path
) -> None:
    seen: list[list[float]] = []

    class Watch(TrainerCallback):
        def on_optimizer_step(self, *args: Any, optimizer: Any = None, **kwargs: Any) -> None:
            seen.append([optimizer.param_groups[0]["lr"], optimizer.param_groups[-1]["lr"]])

    pruner = learning(KEEP, decay=decay, learning_rate=0.2)
    make_trainer(tmp_path, pruner, callbacks=[Watch()], warmup_steps=2).train()
    model = [row[0] / 1e-2 for row in seen]
    assert model == pytest.approx([0, 0.5, 1, 0.75, 0.5, 0.25])
    own = [row[1] / 0.2 for row in seen]
    assert own == pytest.approx(model if decay else [1.0] * STEPS)


@LEARNING
@pytest.mark.parametrize("clip", [1e-3, None])
def test_the_pruner_is_clipped_apart(learning: Any, clip: float | None, tmp_path: Path) -> None:
    pruner = learning(KEEP, clip=clip)
    norms: list[float] = []

    class Watch(TrainerCallback):
        def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            (parameter,) = pruner.parameters()
            norms.append(float(parameter.grad.norm()))

    make_trainer(tmp_path, pruner, callbacks=[Watch()]).train()
    assert max(norms) == pytest.approx(1e-3, rel=1e-2) if clip else max(norms) > 1e-2


def test_an_optimizer_of_ones_own_gets_the_pruners_group(tmp_path: Path) -> None:
    model = bert()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = JointDSP(KEEP)
    trainer = make_trainer(tmp_path, pruner, model, optimizers=(optimizer, None))
    before = pruner.w.detach().clone()
    trainer.train()
    assert (pruner.w != before).any()
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        torch.optim.SGD(bert().parameters(), lr=0.1), lambda step: 1.0
    )
    late = make_trainer(tmp_path, JointDSP(KEEP), optimizers=(scheduler.optimizer, scheduler))
    with pytest.raises(HeadcountError, match="scheduler"):
        late.train()


def test_model_init_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="model_init"):
        PruningTrainer(
            model_init=bert, pruner=JointDSP(KEEP), args=TrainingArguments(**settings(tmp_path))
        )


def test_translation_generates_with_the_mask(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=16, decoder_ffn_dim=16,
        max_position_embeddings=32, init_std=0.5, forced_eos_token_id=None,
    )  # fmt: skip
    ids = torch.randint(5, 30, (16, 6), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row.flip(0)} for row in ids]
    args = Seq2SeqTrainingArguments(
        **settings(tmp_path), predict_with_generate=True, generation_max_length=8
    )
    trainer = Seq2SeqPruningTrainer(
        model=BartForConditionalGeneration(config), pruner=JointDSP(5), args=args,
        train_dataset=data, eval_dataset=data,
    )  # fmt: skip
    trainer.train()
    gated = trainer.predict(data).predictions
    small = trainer.pruned_model()
    assert len(find_heads(small)) == 5
    assert (trainer.predict(data).predictions == gated).all()


SCRIPT = """
import os, sys
from pathlib import Path
import torch
from tests.training.test_trainer import distributed_run, state
folder = Path(sys.argv[1])
trainer = distributed_run(folder, sys.argv[2], 4)
torch.save(state(trainer), folder / f"{sys.argv[2]}-{os.environ['RANK']}.pt")
torch.distributed.destroy_process_group()
"""


def distributed_run(folder: Path, name: str, batch: int) -> PruningTrainer:
    pruner = JointDSP(KEEP, MILD) if name == "joint" else PipelinedDSP(KEEP, MILD)
    trainer = make_trainer(
        folder, pruner, max_steps=10, per_device_train_batch_size=batch, adam_epsilon=1e-3
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("name", ["joint", pytest.param("pipelined", marks=pytest.mark.slow)])
def test_two_processes_equal_one_with_the_same_batch(name: str, tmp_path: Path) -> None:
    run_two_processes(SCRIPT, tmp_path, name)
    first, second = (torch.load(tmp_path / f"{name}-{rank}.pt") for rank in (0, 1))
    assert_same(first, second)
    assert_same(first, state(distributed_run(tmp_path, name, 8)), 1e-5)


def test_a_choice_before_the_first_step_is_that_of_what_was_looked_at(tmp_path: Path) -> None:
    def kept(settings: DSPSettings, **changes: Any) -> HeadMask:
        trainer = make_trainer(tmp_path, JointDSP(KEEP, settings, commit_at=0.0), **changes)
        trainer.train()
        return trainer.mask()

    looked = JointDSP(KEEP, DSPSettings(first="michel"))
    looked.look(bert(), [torch.utils.data.default_collate(examples())])
    assert kept(DSPSettings(first="michel")) == looked.mask()
    assert kept(DSPSettings()) != looked.mask()


@pytest.mark.parametrize("first", ["random", "michel"])
def test_what_was_cut_before_the_first_step_is_cut_when_resumed(tmp_path: Path, first: str) -> None:
    def trainer() -> PruningTrainer:
        pruner = JointDSP(KEEP, DSPSettings(first=first), commit_at=0.0)
        return make_trainer(tmp_path, pruner, save_strategy="steps", save_steps=2)

    straight, resumed = trainer(), trainer()
    straight.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert_same(state(straight), state(resumed))
    assert resumed.mask() == straight.mask()


def test_weights_without_elements_do_not_train(tmp_path: Path) -> None:
    """Several processes would wait for their gradients."""
    model = bert()
    heads = find_heads(model)
    remove_heads(model, HeadMask.from_names(heads, ["encoder.1.0"]))
    trainer = make_trainer(tmp_path, Unpruned(), model)
    empty = [p for p in trainer.model.parameters() if not p.numel()]
    assert empty and not any(p.requires_grad for p in empty)
    trainer.train()


def test_a_pruner_stays_where_float64_is() -> None:
    assert home_of(torch.device("mps")) == torch.device("cpu")
    assert home_of(torch.device("cuda", 1)) == torch.device("cuda", 1)
