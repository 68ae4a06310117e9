"""What every task is: data for training and evaluation, a model for it, and a score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import Tensor
from transformers import EvalPrediction, PreTrainedModel

from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from datasets import Dataset

# A tokenizer or an image processor: what is saved beside the model.
Processor = Any
Collator = Callable[[list[dict[str, Any]]], dict[str, Any]]
Prediction = int | float | str


@dataclass(frozen=True)
class DataSettings:
    """Which data, and how much of it.

    Attributes:
        data: a folder, a file, or the name of a data set on the hub.
        train: the training file inside `data`, or a path of its own; found by name if None.
        evaluate: files for evaluation, likewise; the first is the one to tune on.
        text: columns with the text, one or two; found by name if empty.
        label: the column with the label; found by name if None.
        labels: names of the labels in the order of their numbers; found in the training data
            if empty.
        source: for translation, the language (the file's ending, or the column) to translate from.
        target: likewise, the language to translate into.
        max_length: longer inputs are cut, in tokens.
        limit_train: use so many training examples, drawn with the seed; None for all.
        limit_eval: use so many examples of every evaluation set, drawn with the seed.
        seed: of these draws. Runs that are compared share it, whatever their own seeds are.
        weights_seed: of the first weights of a model that is made from scratch.
        cache: where prepared data is kept from run to run.
        options: what only some tasks know: see each task.
    """

    data: str
    train: str | None = None
    evaluate: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    label: str | None = None
    labels: tuple[str, ...] = ()
    source: str | None = None
    target: str | None = None
    max_length: int = 128
    limit_train: int | None = None
    limit_eval: int | None = None
    seed: int = 0
    weights_seed: int = 0
    cache: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)


class Task(ABC):
    """A kind of data with its model class and its metric.

    A task is made from `DataSettings` and checks at once that the data can be read; nothing is
    tokenised before it is asked for.

    Attributes:
        name: as on the command line.
        metric: the metric that decides.
        greater_is_better: False for perplexity.
        generates: whether predictions are generated text; the trainer is then a sequence-to-
            sequence one.
        auto_class: the class of transformers that loads its models.
        training: what this task changes in the training arguments, for example label smoothing.
    """

    name: str
    auto_class: ClassVar[str]
    metric: str
    greater_is_better: ClassVar[bool] = True
    generates: ClassVar[bool] = False

    def __init__(self, settings: DataSettings) -> None:
        self.settings = settings
        self.training: dict[str, Any] = {}

    @property
    def dropped(self) -> dict[str, int]:
        """How many examples of each part were left out, because they are broken or undecided."""
        return {}

    def model_folder(self, model: str) -> str:
        """The model as a folder or hub name; a task that can make new ones writes it there."""
        return model

    @abstractmethod
    def load_processor(self, model: str) -> Processor:
        """The tokenizer or image processor that belongs to a model folder or hub name."""

    @abstractmethod
    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model, with a fresh output layer where its own does not fit the task's labels."""

    def is_trained(self, model: PreTrainedModel) -> bool:
        """Whether a loaded model answers this task already, before any training."""
        return True

    @abstractmethod
    def train_data(self, processor: Processor) -> Dataset:
        """Prepared training examples with a column `length`, drawn and limited."""

    @abstractmethod
    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Prepared examples of every evaluation set, longest first; the first is to tune on."""

    @abstractmethod
    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """Makes a batch, padded to its own longest example."""

    @abstractmethod
    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[Prediction]:
        """What the model says of each example of an evaluation set, in its order."""

    @abstractmethod
    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """All metrics of an evaluation set, by name; the deciding one is among them."""

    def gold(self, output: EvalPrediction, split: str) -> Sequence[Prediction] | None:
        """What a prediction of each example should be, where such a thing exists."""
        return None

    def reduce(self, logits: Any, labels: Tensor) -> Tensor:
        """Make of a batch's logits what `scores` needs, before they are gathered."""
        reduced: Tensor = logits[0] if isinstance(logits, tuple) else logits
        return reduced

    def signature(self, split: str) -> str:
        """What a published score must say about its data and metric."""
        return f"data:{self.name}-{split}"


_Options = TypeVar("_Options")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def read_options(start: _Options, given: Mapping[str, Any], task: str) -> _Options:
    """Change the options of a data class, which may come as text from a command line.

    Args:
        start: the options that hold where none is given. A field that is None there takes what is
            given, a tuple takes text with commas, and any other a value of its own type.
        given: values by name.
        task: for the error.

    Raises:
        HeadcountError: an option is not known, or its value does not fit.
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
    if default is None or value is None:
        return value
    if isinstance(default, tuple):
        return tuple(value.split(",") if isinstance(value, str) else value)
    if isinstance(default, bool) and not isinstance(value, bool):
        value = _TRUTH.get(str(value).lower(), value)
        if isinstance(value, bool):
            return value
    elif isinstance(default, str):
        return str(value)
    elif isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, str):
        try:
            return type(default)(value)
        except ValueError:
            pass
    if type(value) is type(default):
        return value
    raise HeadcountError(
        f"option {name} is {value!r}, expected {_EXPECTED[type(default)]} such as {default}"
    )


_EXPECTED = {int: "a whole number", float: "a number", bool: "true or false"}
