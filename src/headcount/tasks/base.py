"""What every task offers: data for training and evaluation, a model for it, and a score.

A task is made from `DataSettings`. What only some tasks know comes as options, which `read_options`
checks.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor
from transformers import EvalPrediction, PreTrainedModel

from headcount.errors import HeadcountError
from headcount.tasks.digest import digest_of

if TYPE_CHECKING:
    from datasets import Dataset

# A tokenizer or an image processor; it is saved with the model.
Processor = Any
Collator = Callable[[list[dict[str, Any]]], dict[str, Any]]
Prediction = int | float | str
_MAX_LENGTH = 128  # tokens of an input, unless the task or the user says otherwise
_AT_ONCE = 64  # examples of a batch of an evaluation, also
# What output weights are fitted on. A few hundred examples are learned by heart.
FEWEST_FITTED, MOST_FITTED, TOKENS_FITTED = 512, 4096, 160_000


@dataclass(frozen=True)
class DataSettings:
    """Which data, and how much of it.

    Attributes:
        data: a folder, a file, or the name of a data set on the hub. Empty if `train` and
            `evaluate` have paths: then nothing else is looked for.
        train: the training file, inside `data` or as a path; None finds it by its usual names.
        evaluate: files for evaluation, inside `data` or as paths. Use the first one to tune on.
            Empty finds one by its usual names.
        text: the columns with the text, one or two; empty finds them by their usual names.
        label: the column with the label; None finds it by its usual names.
        labels: names of the labels in the order of their numbers; empty takes those of the
            training data.
        source: for translation, the language to translate from: a file's ending or a column.
        target: for translation, the language to translate into: a file's ending or a column.
        max_length: the longest input in tokens; longer ones are cut. None for the task's own.
        limit_train: how many training examples to use, drawn with `seed`; None for all.
        limit_eval: how many examples of every evaluation set to use, drawn with `seed`; None
            for all.
        seed: draws the examples when they are limited. Give runs that you compare the same one,
            even if their own seeds differ.
        weights_seed: draws the first weights of a model that is made from scratch.
        evaluate_only: no training data are needed, so they may be missing.
        cache: the folder that keeps prepared data for later runs; None for the usual one.
        options: what only this task knows; see the class of its options.
    """

    data: str
    train: str | None = None
    evaluate: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label: str | None = None
    labels: tuple[str, ...] = ()
    source: str | None = None
    target: str | None = None
    max_length: int | None = None
    limit_train: int | None = None
    limit_eval: int | None = None
    seed: int = 0
    weights_seed: int = 0
    evaluate_only: bool = False
    cache: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.data or self.train or self.evaluate):
            raise HeadcountError("no data are named; give data, or files as train and evaluate")

    @property
    def data_name(self) -> str:
        """What messages and signatures call the data: the folder or file without its path."""
        if self.data:
            return Path(self.data).name
        first = Path(os.path.expanduser((self.evaluate or (self.train or "",))[0]))
        return first.absolute().parent.name


class Task(ABC):
    """A kind of data with its model class and its metric.

    A new task checks right away that the data can be read. It tokenises nothing before it is
    asked to.

    Args:
        settings: which data, and how much of it.

    Attributes:
        name: the name on the command line.
        metric: the name of the metric that decides.
        greater_is_better: whether a higher value of that metric is better; not so for perplexity.
        generates: whether predictions are generated text, which needs a sequence-to-sequence
            trainer.
        scores_logits: whether `reduce` computes the loss itself, so that the model need not.
        also: metrics besides the one that decides that the table of a run shows.
        trained_at_once: how many examples a training step has, unless the settings say it.
        auto_class: the class of transformers that loads its models.
        training: training arguments that this task changes, for example label smoothing.
    """

    name: str
    auto_class: ClassVar[str]
    metric: str
    greater_is_better: ClassVar[bool] = True
    generates: ClassVar[bool] = False
    scores_logits: ClassVar[bool] = False
    also: ClassVar[tuple[str, ...]] = ()
    trained_at_once: ClassVar[int] = 32

    def __init__(self, settings: DataSettings) -> None:
        self.settings = settings
        self.training: dict[str, Any] = {}

    @abstractmethod
    def read_columns(self) -> Mapping[str, Sequence[str | bytes]]:
        """All that was read of the data, as columns by name."""

    def data_digest(self) -> str:
        """A short digest of the data that was read: the rows of all sets, in their order.

        It tells whether the data is still the same, wherever it is and however it is compressed.
        """
        return digest_of(self.read_columns())

    @property
    def dropped(self) -> dict[str, int]:
        """How many examples of each part were left out because they are broken or undecided."""
        return {}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences about the data that a user should see before a run."""
        return tuple(
            f"{number} examples of {part} are broken or undecided: left out"
            for part, number in self.dropped.items()
            if number
        )

    @property
    def max_length(self) -> int:
        """The longest input in tokens."""
        return self.settings.max_length or _MAX_LENGTH

    @property
    def calibrated_on(self) -> int | None:
        """How many training examples scores and fits read at most; None for all that there are."""
        return None

    def examples_at_once(self, data: Dataset | None = None) -> int:
        """How many examples a batch of an evaluation has, unless the settings say it.

        Args:
            data: the examples; None for those of the evaluation sets.
        """
        return _AT_ONCE

    def fitted_on(self, data: Dataset) -> int:
        """How many training examples output weights are fitted on, unless the settings say it.

        As many as have 160,000 tokens together, at least 512 and at most 4,096.

        Args:
            data: the training examples.
        """
        mean = sum(data["length"]) / max(len(data), 1)
        return min(max(int(TOKENS_FITTED / max(mean, 1)), FEWEST_FITTED), MOST_FITTED)

    def model_folder(self, model: str) -> str:
        """The model as a folder or hub name; a task that makes new models writes one first."""
        return model

    @abstractmethod
    def load_processor(self, model: str) -> Processor:
        """The tokenizer or image processor that belongs to a model folder or hub name."""

    @abstractmethod
    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model, with a fresh output layer if its own does not fit the task's labels."""

    def save(self, model: PreTrainedModel, processor: Processor, folder: Path) -> None:
        """Write a model and its processor into a folder that exists."""
        model.save_pretrained(folder)
        processor.save_pretrained(folder)

    def is_trained(self, model: PreTrainedModel) -> bool:
        """Whether a loaded model can already do this task, before any training."""
        return True

    @abstractmethod
    def train_data(self, processor: Processor) -> Dataset:
        """Prepared training examples within the limit, with a column `length`."""

    @abstractmethod
    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Prepared examples of every evaluation set, longest first; tune on the first set."""

    def half(self, split: str, data: Dataset, start: int, name: str) -> Dataset:
        """Every other example of an evaluation set, as a set with a name of its own.

        Args:
            split: the evaluation set.
            data: its examples, as `evaluation_data` gives them.
            start: the first example, 0 or 1.
            name: by which `scores` will know the half.
        """
        return data.select(range(start, len(data), 2))

    def get_ready(  # noqa: B027 - most tasks have nothing to do
        self, processor: Processor, tell: Callable[[int, int], None]
    ) -> None:
        """Do what takes long before the first batch.

        Args:
            processor: the model's tokenizer or image processor.
            tell: receives how many examples are done, and how many there are.
        """

    @abstractmethod
    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """A function that makes a batch, padded to its longest example."""

    @abstractmethod
    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[Prediction]:
        """The model's answer to each example of an evaluation set, in its order."""

    @abstractmethod
    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """All metrics of an evaluation set by name, including the one that decides."""

    def gold(self, output: EvalPrediction, split: str) -> Sequence[Prediction] | None:
        """The right answer to each example; None for a task that has none."""
        return None

    def reduce(self, logits: Any, labels: Tensor) -> Tensor:
        """Reduce a batch's logits to what `scores` needs, before they are gathered."""
        reduced: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return reduced

    def signature(self, split: str) -> str:
        """What a published score must say about its data and metric."""
        return f"data:{self.name}-{split}"


_Options = TypeVar("_Options")
_EXPECTED = {
    int: "a whole number", float: "a number", bool: "true or false", str: "a text",
    NoneType: "a text", tuple: "texts with commas between them",
}  # fmt: skip
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_options(start: _Options, given: Mapping[str, Any], task: str) -> _Options:
    """A copy of a data class of options with some values changed.

    Args:
        start: the defaults. A field that is None takes text, a tuple takes text with commas, and
            every other field takes a value of its own type.
        given: the new values by name; a command line gives them as text.
        task: the name of the task, for the error.

    Raises:
        HeadcountError: there is no such option, or its value has the wrong type.
    """
    known = [field.name for field in fields(start)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise HeadcountError(
                f"{task} has no option {name!r}; it has {', '.join(sorted(known))}"
            )
    values = {name: _convert(name, value, getattr(start, name)) for name, value in given.items()}
    return replace(start, **values)  # type: ignore[type-var]


def _convert(name: str, value: Any, default: Any) -> Any:
    if value is None:
        return value
    if isinstance(default, tuple):
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, (list, tuple)) and all(isinstance(part, str) for part in parts):
            return tuple(parts)
    elif isinstance(default, bool) and not isinstance(value, bool):
        value = _TRUTH.get(str(value).lower(), value)
    elif isinstance(default, (str, NoneType)):
        if type(value) in (str, int, float):
            return str(value)
    elif isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, str):
        with suppress(ValueError):
            return type(default)(value)
    if type(value) is type(default):
        return value
    example = f" such as {default}" if default not in (None, "", ()) else ""
    raise HeadcountError(
        f"option {name} is {value!r}, expected {_EXPECTED[type(default)]}{example}"
    )
