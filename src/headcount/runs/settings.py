"""Everything that decides a run, as data: what a recipe holds and what a result records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headcount.bench.heads_for import FIGURES, Goal
from headcount.errors import HeadcountError, SettingError
from headcount.pruners.methods import DEFAULT
from headcount.pruners.settings import LARGEST_FLOAT
from headcount.tasks.base import DataSettings
from headcount.tasks.registry import EMBEDDING
from headcount.training.teacher import Distillation

PRECISIONS = ("fp32", "bf16", "fp16")
# Those of transformers that need neither settings of their own nor an evaluation.
SCHEDULERS = (
    None, "linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
    "constant_with_warmup", "inverse_sqrt",
)  # fmt: skip
_COUNTS = (
    "batch_size", "eval_batch_size", "accumulation", "max_steps", "limit_train", "limit_eval",
    "max_length", "log_every", "evaluate_every",
)  # fmt: skip
_MOST = 10**9  # of what is counted; more is a slip


@dataclass(frozen=True)
class _Range:
    """The numbers that a setting may be.

    Attributes:
        most: the largest; more is a slip, or makes no sense.
        zero: whether it may be 0.
        top: whether it may be the largest itself.
    """

    most: float
    zero: bool = False
    top: bool = True

    def has(self, value: object) -> bool:
        """Whether a value is such a number; NaN and infinity are none."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        low = value >= 0 if self.zero else value > 0
        return low and (value <= self.most if self.top else value < self.most)

    def __str__(self) -> str:
        least = "from 0" if self.zero else "above 0 and"
        return f"a number {least} {'up to' if self.top else 'below'} {self.most:,}"


_EPOCHS = 1_000_000
_NUMBERS = {
    "epochs": _Range(_EPOCHS, zero=True), "pruning_epochs": _Range(_EPOCHS),
    "recovery_epochs": _Range(_EPOCHS), "distil": _Range(1), "distil_temperature": _Range(1000),
    "learning_rate": _Range(100), "pruning_learning_rate": _Range(100),
    "warmup": _Range(_MOST, zero=True), "weight_decay": _Range(100, zero=True),
    "max_grad_norm": _Range(LARGEST_FLOAT, zero=True), "label_smoothing": _Range(1, zero=True),
    "adam_beta2": _Range(1, top=False),
}  # fmt: skip
_WITHIN = _Range(1, top=False)
ASKS = (*FIGURES, "within")  # what may be asked for instead of a keep
NO_TRACKER = ("all", "none")  # what transformers takes beside the names of trackers


@dataclass(frozen=True)
class TrainingSettings:
    """How the model is trained. None leaves a choice to the task, unless it says otherwise here.

    Attributes:
        epochs: passes over the training data. 0 takes a fine-tuned model as it is.
        pruning_epochs: passes over the data while a model that is already fine-tuned is pruned:
            after a warm start, and by methods that train only gates. Give more if the selected
            heads still change at the end.
        warm_start: start from the fine-tuned model, as Voita et al. do. Without it, methods that
            train the model start from the pretrained one. Pipelined methods always start from the
            fine-tuned one.
        recovery_epochs: passes over the data after the cut, to win back what it cost. It is for
            methods that do not train the model before the cut; None trains no further.
        distil: weight of the teacher in the loss, above 0 and up to 1; the labels get the rest.
            The teacher is the fine-tuned, unpruned model, while pruning or recovering. With
            handover it is the model itself, as it was before the cut. None learns from labels
            alone.
        distil_temperature: softens the teacher's answers; a higher one shows more of the answers
            it finds unlikely. None for 2.
        distil_hidden: also learn from the teacher's hidden states. None does; False does not.
        max_steps: stop after this many steps, for any number of epochs. Use it to try a recipe.
        batch_size: examples per step and process. If memory runs out, lower it and raise
            `accumulation` by the same factor. None for 32; for language models, 8 blocks of text.
        eval_batch_size: examples per batch of an evaluation. It changes speed and memory only.
            None for 64; for language models, as many as have 2,048 tokens together.
        accumulation: batches whose gradients are added up for one step.
        learning_rate: the highest learning rate of the model's weights.
        pruning_learning_rate: the same for a model that was fine-tuned before: while it is pruned
            after a warm start, after a handover, and in `recovery_epochs`. Try a lower one if
            training after a cut is unstable. None for `learning_rate`.
        scheduler: how the learning rate changes: linear, constant, inverse_sqrt, cosine, …
        warmup: steps in which the learning rate rises; below 1, the share of the training.
        weight_decay: weight decay of the model's weights.
        max_grad_norm: clip the model's gradient to this norm; 0 never clips.
        label_smoothing: share of each label that is spread over the others.
        adam_beta2: Adam's β₂; 0.98 in the papers' translation, 0.999 elsewhere.
        precision: what the training computes in: fp32, bf16 or fp16. Weights stay in fp32.
        gradient_checkpointing: compute activations twice to keep fewer of them. It saves memory
            and costs time.
        limit_train: use this many training examples, the same for every seed; None for all.
        limit_eval: use this many examples of each evaluation set; None for all.
        max_length: cut longer inputs to this many tokens; None for 128. In language modelling it is
            the size of windows and blocks; None for 2,048 and 512.
        log_every: steps between two logs. The selection history has one entry for each log.
        evaluate_every: steps between two evaluations while pruning, for the selection history;
            None for none. Each evaluates the model with only the selected heads (before a handover
            operates, with all) on the first evaluation set. They change nothing else, but each
            takes as long as any evaluation.
        report_to: loggers of transformers that get the logs: tensorboard, wandb, …
    """

    epochs: float = 3.0
    pruning_epochs: float = 1.0
    warm_start: bool = False
    recovery_epochs: float | None = None
    distil: float | None = None
    distil_temperature: float | None = None
    distil_hidden: bool | None = None
    max_steps: int | None = None
    batch_size: int | None = None
    eval_batch_size: int | None = None
    accumulation: int = 1
    learning_rate: float | None = None
    pruning_learning_rate: float | None = None
    scheduler: str | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    max_grad_norm: float | None = None
    label_smoothing: float | None = None
    adam_beta2: float | None = None
    precision: str = "fp32"
    gradient_checkpointing: bool = False
    limit_train: int | None = None
    limit_eval: int | None = None
    max_length: int | None = None
    log_every: int = 10
    evaluate_every: int | None = None
    report_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and not (type(value) is int and 1 <= value <= _MOST):
                raise SettingError(name, value, f"a whole number from 1 to {_MOST:,}")
        for name, allowed in _NUMBERS.items():
            value = getattr(self, name)
            if value is not None and not allowed.has(value):
                raise SettingError(name, value, str(allowed))
        for name, known in (("precision", PRECISIONS), ("scheduler", SCHEDULERS)):
            if getattr(self, name) not in known:
                choices = ", ".join(one for one in known if one)
                raise SettingError(name, getattr(self, name), f"one of {choices}")
        _refuse_unknown_trackers(self.report_to)
        self.distillation()

    def after_fine_tuning(self) -> TrainingSettings:
        """These settings for training a model that was fine-tuned before."""
        rate = self.pruning_learning_rate or self.learning_rate
        return replace(self, learning_rate=rate)

    def distillation(self) -> Distillation | None:
        """How to learn from a teacher; None if `distil` is."""
        if self.distil is None:
            return None
        given = {"temperature": self.distil_temperature, "hidden": self.distil_hidden}
        said = {name: value for name, value in given.items() if value is not None}
        return Distillation(self.distil, **said)  # type: ignore[arg-type]


def _refuse_unknown_trackers(given: tuple[str, ...]) -> None:
    if not given:
        return
    # Its import takes seconds.
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    known = (*INTEGRATION_TO_CALLBACK, *NO_TRACKER)
    for name in given:
        if name not in known:
            raise SettingError("report_to", name, f"one of {', '.join(sorted(known))}")


@dataclass(frozen=True)
class ExampleSettings:
    """Where in the data the examples are. What is None or empty is found by its usual names.

    Attributes:
        train: the training file or split.
        evaluate: the evaluation files or splits. Use the first one to tune on.
        text: the columns with the text, one or two.
        label: the column with the label.
        labels: names of the labels in the order of their numbers. Empty takes those of the
            training data, sorted. Give them if that data lacks one.
        source: the language to translate from: a file's ending or a column.
        target: the language to translate into: a file's ending or a column.
        options: settings that only one task has, by name.
    """

    train: str | None = None
    evaluate: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label: str | None = None
    labels: tuple[str, ...] = ()
    source: str | None = None
    target: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides one run.

    Attributes:
        model: a model folder or a name on the hub.
        task: a name that `headcount prune --help` lists.
        data: a folder, a file, or a data set on the hub. Empty if `examples` has the paths of
            files to train and to evaluate on.
        method: how to choose the heads; `headcount methods` lists the methods.
        keep: K, the heads to keep: a count, or a fraction below 1. Give several for `prune_many`,
            and None for a method that finds its own count.
        seed: draws first weights, dropout, noise and the order of the examples. Repeat a run with
            other seeds to see how much is chance.
        training: how the model is trained.
        examples: where in the data the examples are.
        settings: settings of the method by name; `headcount methods NAME` lists them.
        harness: tasks of lm-evaluation-harness to evaluate the pruned model on, besides its own.
        harness_tasks: a folder with YAML files of such tasks of your own; None for none.
        harness_limit: how many examples of each of these tasks; None for the training's
            `limit_eval`.
        trained_for: every K of the training that this result comes from; None for K alone.
        variant: a study's name for this method with these settings; None for the method's name.
        cache: instead of a keep, the share of the key-value cache to keep; K is found before the
            pruning.
        parameters: instead of a keep, the share of the model's parameters to keep.
        speed_up: instead of a keep, times as fast, by the operations of matrix products of a
            forward pass over a batch of the task.
        within: instead of a keep, the part of the metric that may be lost: 0.01 finds the fewest
            heads that keep 99 % of it. For methods that only score.
    """

    model: str
    task: str
    data: str = ""
    method: str = DEFAULT
    keep: float | int | tuple[float | int, ...] | None = None
    seed: int = 0
    training: TrainingSettings = field(default_factory=TrainingSettings)
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    settings: dict[str, Any] = field(default_factory=dict)
    harness: tuple[str, ...] = ()
    harness_tasks: str | None = None
    harness_limit: int | None = None
    trained_for: tuple[float | int, ...] | None = None
    variant: str | None = None
    cache: float | None = None
    parameters: float | None = None
    speed_up: float | None = None
    within: float | None = None

    def __post_init__(self) -> None:
        refuse_several_asks({name: getattr(self, name) for name in ("keep", *ASKS)})
        _ = self.goal
        if self.within is not None and not _WITHIN.has(self.within):
            raise SettingError("within", self.within, f"{_WITHIN}, such as 0.01")
        if self.harness_limit is not None and not (
            type(self.harness_limit) is int and self.harness_limit > 0
        ):
            raise SettingError("harness_limit", self.harness_limit, "a whole number above 0")
        if not (type(self.seed) is int and 0 <= self.seed < 2**32):
            raise SettingError("seed", self.seed, "a whole number; give one from 0 to 2**32 - 1")

    @property
    def goal(self) -> Goal | None:
        """What the pruned model shall be, instead of a number of heads; None if not given."""
        asked = {name: getattr(self, name) for name in FIGURES}
        goals = [Goal(name, value) for name, value in asked.items() if value is not None]
        return goals[0] if goals else None

    @property
    def asks(self) -> str | None:
        """What is asked for instead of a keep, as `cache=0.5`; None for nothing."""
        asked = {name: getattr(self, name) for name in ASKS}
        return next((f"{name}={v:g}" for name, v in asked.items() if v is not None), None)

    @property
    def fine_tunes(self) -> bool:
        """Whether the model has something to learn before heads are cut.

        An encoder that is to keep its own vectors has not.
        """
        return self.task != EMBEDDING

    @property
    def starts_trained(self) -> bool:
        """Whether a method that trains starts from the fine-tuned model."""
        return self.training.warm_start or not self.fine_tunes

    @property
    def harness_examples(self) -> int | None:
        """How many examples of each task of lm-evaluation-harness; None for all."""
        return self.harness_limit or self.training.limit_eval

    @property
    def name(self) -> str:
        """What tables and figures call the method."""
        return self.variant or self.method

    def data_settings(self) -> DataSettings:
        """The part of the settings that the task needs."""
        return DataSettings(
            data=self.data,
            max_length=self.training.max_length,
            limit_train=self.training.limit_train,
            limit_eval=self.training.limit_eval,
            weights_seed=self.seed,
            **{name: getattr(self.examples, name) for name in asdict(self.examples)},
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON holds them; without what may be asked for instead of a keep."""
        said = asdict(self)
        return {k: value for k, value in said.items() if k not in ASKS or value is not None}


def refuse_several_asks(given: Mapping[str, Any]) -> None:
    """Refuse more than one way to say how many heads stay."""
    said = [name for name, value in given.items() if value not in (None, ())]
    if len(said) > 1:
        raise HeadcountError(
            f"{' and '.join(said)} each say how many heads stay; give one of "
            f"{', '.join(('keep', *ASKS))}"
        )
