"""Everything that decides a run, as data: what a recipe holds and what a result records."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.base import DataSettings
from headcount.training.distil import Distillation

PRECISIONS = ("fp32", "bf16", "fp16")
# Those that need neither settings of their own nor an evaluation.
SCHEDULERS = (
    None, "linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
    "constant_with_warmup", "inverse_sqrt",
)  # fmt: skip
_COUNTS = (
    "batch_size", "eval_batch_size", "accumulation", "max_steps", "limit_train", "limit_eval",
    "max_length", "log_every", "evaluate_every",
)  # fmt: skip
_NUMBERS = {  # the least that each may be besides numbers above 0
    "epochs": 0, "pruning_epochs": None, "recovery_epochs": None, "learning_rate": None,
    "pruning_learning_rate": None, "warmup": 0, "weight_decay": 0, "max_grad_norm": 0,
    "label_smoothing": 0, "adam_beta2": None,
}  # fmt: skip


@dataclass(frozen=True)
class TrainingSettings:
    """How the model is trained. None leaves a choice to the task.

    Attributes:
        epochs: passes over the training data; 0 takes a model that is fine-tuned already as it is.
        pruning_epochs: passes of a pruning that starts from a fine-tuned model.
        warm_start: methods that train the model start from the fine-tuned one, as Voita et al. do,
            instead of the pretrained one; pipelined methods always do.
        recovery_epochs: passes after the cut, of methods that do not train the model before it;
            None for none.
        distil: learn from the fine-tuned, unpruned model while pruning or recovering, with this
            weight; labels have the rest. With handover it is the model itself, as it was before the
            cut. None learns from labels alone.
        distil_temperature: that softens its answers; None for 2.
        distil_hidden: compare hidden states too; None does.
        max_steps: stop after so many steps, whatever the epochs say.
        batch_size: examples per step and process.
        eval_batch_size: examples per batch of an evaluation.
        accumulation: micro-batches per step.
        learning_rate: of the model.
        pruning_learning_rate: of a model that was fine-tuned before: while it is pruned after a
            warm start, after a handover, and after a cut that nothing else follows; None for the
            same. What was just cut may need a lower one.
        scheduler: course of the learning rate: linear, constant, inverse_sqrt, cosine, …
        warmup: steps in which the learning rate rises, or a fraction of the training below 1.
        weight_decay: of the model's weights.
        max_grad_norm: longest gradient of the model; 0 never clips.
        label_smoothing: share of each label that is spread over the others.
        adam_beta2: of Adam; 0.98 in the papers' translation, 0.999 elsewhere.
        precision: fp32, bf16 or fp16.
        gradient_checkpointing: compute activations twice and keep fewer.
        limit_train: use so many training examples, the same whatever the seed.
        limit_eval: use so many examples of each evaluation set.
        max_length: longer inputs are cut, in tokens.
        log_every: steps between two logs; the selection history has one entry each.
        evaluate_every: steps between two evaluations, during a pruning, of the model with the
            selected heads alone (before a handover operates, with all), on the first evaluation
            set; for the selection history. They change nothing else, but each takes as long as any
            evaluation. None does none.
        report_to: loggers of transformers (tensorboard, wandb, …).
    """

    epochs: float = 3.0
    pruning_epochs: float = 1.0
    warm_start: bool = False
    recovery_epochs: float | None = None
    distil: float | None = None
    distil_temperature: float | None = None
    distil_hidden: bool | None = None
    max_steps: int | None = None
    batch_size: int = 32
    eval_batch_size: int = 64
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
    max_length: int = 128
    log_every: int = 10
    evaluate_every: int | None = None
    report_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and not (whole and value >= 1):
                raise HeadcountError(f"{name} is {value!r}, expected a whole number from 1")
        for name, least in _NUMBERS.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and (value > 0 or value == least)):
                said = "from 0" if least == 0 else "above 0"
                raise HeadcountError(f"{name} is {value!r}, expected a number {said}")
        for name, known in (("precision", PRECISIONS), ("scheduler", SCHEDULERS)):
            if getattr(self, name) not in known:
                raise HeadcountError(
                    f"there is no {name} {getattr(self, name)!r}; choose one of "
                    f"{', '.join(one for one in known if one)}"
                )
        self.distillation()

    def after_fine_tuning(self) -> TrainingSettings:
        """The same for a model that was fine-tuned before."""
        rate = self.pruning_learning_rate or self.learning_rate
        return replace(self, learning_rate=rate)

    def distillation(self) -> Distillation | None:
        """What is learned from a teacher, if there is one."""
        if self.distil is None:
            return None
        given = {"temperature": self.distil_temperature, "hidden": self.distil_hidden}
        said = {name: value for name, value in given.items() if value is not None}
        return Distillation(self.distil, **said)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ExampleSettings:
    """Where in the data the examples are. None and empty are found by name.

    Attributes:
        train: the training file.
        evaluate: the evaluation files; the first is the one to tune on.
        text: columns with the text, one or two.
        label: the column with the label.
        labels: names of the labels in the order of their numbers.
        source: language to translate from.
        target: language to translate into.
        options: what only one task knows.
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
    """One run.

    Attributes:
        model: a model folder or a name on the hub.
        task: see `headcount prune --help`.
        data: a folder, a file, or a data set on the hub.
        method: how to choose the heads.
        keep: K, a count, or a fraction below 1; None for methods that find their own count; several
            for `prune_many`.
        seed: of everything that is drawn.
        training: how the model is trained.
        examples: where in the data the examples are.
        settings: of the method: see `headcount.runs.methods`.
        trained_for: every K of the training that this one is from; None for K alone.
        variant: what a study calls this method with these settings; None for the method's name.
    """

    model: str
    task: str
    data: str
    method: str = "handover"
    keep: float | int | tuple[float | int, ...] | None = None
    seed: int = 0
    training: TrainingSettings = field(default_factory=TrainingSettings)
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    settings: dict[str, Any] = field(default_factory=dict)
    trained_for: tuple[float | int, ...] | None = None
    variant: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.seed, int) and 0 <= self.seed < 2**32):
            raise HeadcountError(
                f"the seed is {self.seed!r}, expected a whole number; give one from 0 to 2**32 - 1"
            )

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        return self.variant or self.method

    def data_settings(self) -> DataSettings:
        """What the task needs to know."""
        return DataSettings(
            data=self.data,
            max_length=self.training.max_length,
            limit_train=self.training.limit_train,
            limit_eval=self.training.limit_eval,
            weights_seed=self.seed,
            **{name: getattr(self.examples, name) for name in asdict(self.examples)},
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)
