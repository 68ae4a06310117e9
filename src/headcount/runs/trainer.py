"""The `Trainer` of a run: its arguments, the order of its examples, and evaluation with it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate import PartialState
from datasets import Dataset
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from headcount import seams
from headcount.pruners.base import Pruner
from headcount.runs.progress import Progress, TrainerProgress
from headcount.runs.settings import TrainingSettings
from headcount.tasks.base import Prediction, Processor, Task
from headcount.training.step import AveragingTrainer
from headcount.training.trainer import PruningTrainer, Seq2SeqPruningTrainer

if TYPE_CHECKING:
    from headcount.runs.run import Run

POOL = 50  # batches sorted by length together: fewer pad more, more shuffle less
SAVES = 0.2  # share of the training between two checkpoints: what a kill may cost

# Our names and those of `TrainingArguments`, for settings whose default may be the task's.
_ARGUMENTS = {
    "learning_rate": "learning_rate",
    "scheduler": "lr_scheduler_type",
    "warmup": "warmup_steps",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
    "label_smoothing": "label_smoothing_factor",
    "adam_beta2": "adam_beta2",
}


def make_trainer(
    run: Run,
    model: PreTrainedModel,
    data: Dataset | None,
    epochs: float,
    training: TrainingSettings,
    folder: Path,
    pruner: Pruner | None,
    teacher: PreTrainedModel | None,
    progress: Progress,
) -> Trainer:
    """A trainer for fine-tuning, pruning or evaluating; `Run.trainer` explains the arguments."""
    seams.require(*seams.TRAINER)
    task, seed = run.task, run.settings.seed
    examples = 1 if data is None else len(data)
    options: dict[str, Any] = {
        "model": model,
        "args": training_arguments(training, task, folder, epochs, seed, examples),
        "train_dataset": data,
        "data_collator": task.collator(run.processor, model),
        "processing_class": run.processor,
        "preprocess_logits_for_metrics": None if task.generates else task.reduce,
        "callbacks": [TrainerProgress(progress)],
    }
    trainer: Trainer
    if pruner is not None:
        taught: dict[str, Any] = {"teacher": teacher, "distillation": training.distillation()}
        trainer = _PRUNING[task.generates](pruner=pruner, **taught, **options)
    else:
        trainer = _PLAIN[task.generates](**options)
    if isinstance(trainer, _Reducing):
        trainer.scores_logits = task.scores_logits
    for talkative in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(talkative)
    return trainer


def training_arguments(
    settings: TrainingSettings, task: Task, folder: Path, epochs: float, seed: int, examples: int
) -> TrainingArguments:
    """The arguments of a training: what the settings say, else the task, else transformers.

    The number of examples turns a warm-up that is a share of the training into steps.
    """
    chosen = {
        name: getattr(settings, ours)
        for ours, name in _ARGUMENTS.items()
        if getattr(settings, ours) is not None
    }
    arguments = {"learning_rate": 5e-5, **task.training, **chosen}
    size = settings.batch_size or task.trained_at_once
    warmup = arguments.get("warmup_steps", 0)
    if 0 < warmup < 1:
        batch = size * settings.accumulation * PartialState().num_processes
        warmup *= settings.max_steps or epochs * examples / batch
    arguments["warmup_steps"] = round(warmup)
    cls = Seq2SeqTrainingArguments if task.generates else TrainingArguments
    return cls(
        output_dir=str(folder),
        num_train_epochs=epochs,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=size,
        per_device_eval_batch_size=settings.eval_batch_size or task.examples_at_once(),
        gradient_accumulation_steps=settings.accumulation,
        gradient_checkpointing=settings.gradient_checkpointing,
        bf16=settings.precision == "bf16",
        fp16=settings.precision == "fp16",
        seed=seed,
        data_seed=seed,
        save_steps=SAVES,
        save_total_limit=1,
        logging_steps=settings.log_every,
        report_to=list(settings.report_to) or "none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **arguments,
    )


class _Bucketed(AveragingTrainer):
    """Trains on batches of examples that are about equally long."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        data: Any = self.train_dataset  # the one given may have lost its column of lengths
        size = self.args.train_batch_size * self.args.world_size
        buckets = LengthBuckets(list(data["length"]), size, self.args.seed)
        self.remove_callback(_BeginEpoch)  # a training that cuts heads on its way asks again
        self.add_callback(_BeginEpoch(buckets))
        return buckets


class _BeginEpoch(TrainerCallback):
    """Tells the sampler which epoch begins, also in a resumed training."""

    def __init__(self, buckets: LengthBuckets) -> None:
        self.buckets = buckets

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.buckets.begin_epoch(int((state.epoch or 0.0) + 1e-6))


class _Reducing(Trainer):
    """Computes no loss in an evaluation where the task computes it from the logits.

    Attributes:
        scores_logits: see `Task`.
    """

    scores_logits = False

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor | None, Any, Any]:
        """A batch of an evaluation; without labels, a model computes no loss that nobody needs.

        The loss of a language model takes a copy of all logits.
        """
        if not self.scores_logits:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        given = {name: value for name, value in inputs.items() if name != "labels"}
        _, logits, _ = super().prediction_step(model, given, False, ignore_keys)
        return None, logits, self._prepare_inputs({"labels": inputs["labels"]})["labels"]


class _Plain(_Reducing, _Bucketed):
    pass


class _PlainSeq2Seq(_Bucketed, Seq2SeqTrainer):
    pass


class _Pruning(_Reducing, _Bucketed, PruningTrainer):
    pass


class _PruningSeq2Seq(_Bucketed, Seq2SeqPruningTrainer):
    pass


# By whether the task generates.
_PLAIN: dict[bool, type[Trainer]] = {False: _Plain, True: _PlainSeq2Seq}
_PRUNING: dict[bool, type[PruningTrainer]] = {False: _Pruning, True: _PruningSeq2Seq}


class LengthBuckets(Sampler[int]):
    """Shuffles examples so that those of a batch are about equally long.

    The order depends only on the seed and the epoch, so a resumed run keeps it. (The similar
    sampler of transformers draws from the global generator. Its state at the start of an epoch is
    lost when a run is resumed in the middle.)

    Args:
        lengths: the length of every example.
        batch_size: examples per step of all processes together.
        seed: another seed gives another order.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self.epoch = 0

    def begin_epoch(self, epoch: int) -> None:
        """Change to the order of this epoch.

        (Not named `set_epoch`: accelerate calls that with its own count, which starts again when a
        run is resumed.)
        """
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        draw = random.Random(f"{self.seed} {self.epoch}")
        order = draw.sample(range(len(self.lengths)), len(self.lengths))
        pool = POOL * self.batch_size
        batches: list[list[int]] = []
        for start in range(0, len(order), pool):
            near = sorted(order[start : start + pool], key=lambda i: -self.lengths[i])
            batches += [near[i : i + self.batch_size] for i in range(0, len(near), self.batch_size)]
        # A short batch must stay the last: elsewhere it would shift the borders of all after it.
        last = batches.pop() if len(batches[-1]) < self.batch_size else []
        draw.shuffle(batches)
        for batch in (*batches, last):
            yield from batch


@dataclass(frozen=True)
class Evaluation:
    """What a model reached on one evaluation set.

    Attributes:
        metrics: all metrics of the task, by name.
        predictions: the model's answer to each example, in the order of the set.
        gold: the right answers; None for a task that has none.
    """

    metrics: dict[str, float]
    predictions: Sequence[Prediction]
    gold: Sequence[Prediction] | None


def evaluate(
    trainer: Trainer,
    task: Task,
    processor: Processor,
    sets: Mapping[str, Dataset],
    progress: Progress,
) -> dict[str, Evaluation]:
    """Evaluate the trainer's model on every set, as it is now: with gates if it has them."""
    results = {}
    for split, data in sets.items():
        progress.begin(f"evaluating on {split}")
        output = trainer.predict(data)
        prediction = EvalPrediction(output.predictions, output.label_ids)  # type: ignore[arg-type]
        results[split] = Evaluation(
            task.scores(prediction, processor, split),
            task.predictions(prediction, processor, split),
            task.gold(prediction, split),
        )
    return results
