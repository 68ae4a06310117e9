"""Image classification: images in, accuracy out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    EvalPrediction,
    PreTrainedModel,
)

# Some versions of transformers ask for torchvision at the front door, although this needs none.
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from headcount.errors import HeadcountError
from headcount.loading.folder import (
    NO_CODE,
    first_line,
    loading,
    place_of,
    refuse_quantised,
)
from headcount.tasks.base import (
    FEWEST_FITTED,
    Collator,
    DataSettings,
    Prediction,
    Processor,
    Task,
    read_options,
)
from headcount.tasks.images import LabelledImages, image_content, open_image, read_images
from headcount.tasks.models import FRESH, WEIGHTS, is_fine_tuned
from headcount.tasks.prepared import draw


@dataclass(frozen=True)
class ImageOptions:
    """The options of image classification.

    Attributes:
        keep_megabytes: a set whose pixels need at most this much memory is decoded once and kept.
            A larger set is decoded again for each batch. Lower it if memory is short.
        config: the configuration of a data set on the hub; None for its only one.
    """

    keep_megabytes: int = 1000
    config: str | None = None


class ImageClassification(Task):
    """Images in folders named after their labels, or from the hub; accuracy.

    Data is a folder with `train/<label>/*.png` and `validation/<label>/…` (or `val`, or `test`), or
    a data set on the hub with images and labels. If the settings name no labels, they are those of
    the training data, sorted. Pillow decodes images, so that pixels are the same on every computer.

    Args:
        settings: which data, and how much of it; for `options` see `ImageOptions`.
    """

    name = "image-classification"
    auto_class: ClassVar[str] = "AutoModelForImageClassification"
    metric = "accuracy"

    def __init__(self, settings: DataSettings) -> None:
        super().__init__(settings)
        self.options = read_options(ImageOptions(), settings.options, self.name)
        self._sets = read_images(settings, self.options.config)
        self.labels = list(settings.labels) or sorted(set(self._sets["train"].labels))
        for split, images in self._sets.items():
            unknown = sorted(set(images.labels) - set(self.labels))
            if unknown:
                raise HeadcountError(
                    f"{split} has images of {unknown[0]!r}, which is none of the labels "
                    f"{', '.join(self.labels[:8])}; remove them or name all labels"
                )

    def load_processor(self, model: str) -> Processor:
        """The model's image processor, in the version that needs no torchvision."""
        model = place_of(model)
        # Versions of transformers that name the backend warn about the older switch.
        named = find_spec("transformers.image_processing_backends")
        how: dict[str, Any] = {"backend": "pil"} if named else {"use_fast": False}
        try:
            return AutoImageProcessor.from_pretrained(model, **how, **NO_CODE)
        except Exception as error:  # a folder can hold anything
            raise HeadcountError(
                f"{model} has no image processor that can be loaded: {first_line(error)}; save "
                "the image processor into the model's folder"
            ) from error

    def load_model(self, model: str, processor: Processor) -> PreTrainedModel:
        """The model; its classifier is kept if it has the task's labels, in any order."""
        model = place_of(model)
        with loading(model):
            config = AutoConfig.from_pretrained(model, **NO_CODE)
            refuse_quantised(config)
            own = [str(config.id2label[place]) for place in range(config.num_labels)]
            foreign = sorted(own) != sorted(self.labels)
            if foreign:
                config.id2label = dict(enumerate(self.labels))
                config.label2id = {name: place for place, name in enumerate(self.labels)}
            loaded, info = AutoModelForImageClassification.from_pretrained(
                model,
                config=config,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                dtype=WEIGHTS,
                **NO_CODE,
            )
        made = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
        lost = sorted(k for k in made if k.startswith(f"{loaded.base_model_prefix}."))
        if lost:
            raise HeadcountError(
                f"{model} has no weights for {lost[0]} and {len(lost) - 1} other tensors of "
                f"{type(loaded).__name__}; the folder is incomplete or damaged"
            )
        fresh = tuple(sorted(made)) or (("classifier of other labels",) if foreign else ())
        setattr(loaded, FRESH, fresh)
        return loaded  # type: ignore[no-any-return]

    def is_trained(self, model: PreTrainedModel) -> bool:
        """Whether the model came with a classifier for these labels."""
        return is_fine_tuned(model)

    def train_data(self, processor: Processor) -> Dataset:
        """Pixels of the training images within the limit."""
        return self._prepared("train", self.settings.limit_train, processor)

    def evaluation_data(self, processor: Processor) -> dict[str, Dataset]:
        """Pixels of every evaluation set in its order, since all have the same length."""
        limit = self.settings.limit_eval
        names = list(self._sets)[1:]
        return {name: self._prepared(name, limit, processor) for name in names}

    def collator(self, processor: Processor, model: PreTrainedModel) -> Collator:
        """A function that stacks pixels and numbers labels in the model's own order."""
        own: Any = model.config.id2label
        places = {str(name): int(place) for place, name in own.items()}
        outputs = [places[label] for label in self.labels]

        def stack(rows: list[dict[str, Any]]) -> dict[str, Any]:
            pixels = np.stack([np.asarray(row["pixel_values"], np.float32) for row in rows])
            labels = torch.tensor([outputs[int(row["labels"])] for row in rows])
            return {"pixel_values": torch.from_numpy(pixels), "labels": labels}

        self._names = {place: name for name, place in places.items()}
        return stack

    def fitted_on(self, data: Dataset) -> int:
        """A few hundred images: each has as many tokens as a long text."""
        return FEWEST_FITTED

    def predictions(
        self, output: EvalPrediction, processor: Processor, split: str
    ) -> Sequence[Prediction]:
        """The names of the predicted labels."""
        return [self._names[int(place)] for place in self._predicted(output)]

    def gold(self, output: EvalPrediction, split: str) -> Sequence[Prediction]:
        """The names of the labels."""
        return [self._names[int(place)] for place in np.asarray(output.label_ids)]

    def scores(self, output: EvalPrediction, processor: Processor, split: str) -> dict[str, float]:
        """The share of images with the right label."""
        right = self._predicted(output) == np.asarray(output.label_ids)
        return {"accuracy": float(np.mean(right))}

    def signature(self, split: str) -> str:
        """The name of the data's folder, and the evaluation set."""
        return f"data:{self.settings.data_name}-{split}"

    def read_columns(self) -> dict[str, Sequence[str | bytes]]:
        """The images and labels of every set; not their names."""
        columns: dict[str, Sequence[str | bytes]] = {}
        for name, images in self._sets.items():
            columns[f"{name} image"] = [image_content(image) for image in images.images]
            columns[f"{name} label"] = images.labels
        return columns

    def _predicted(self, output: EvalPrediction) -> Any:
        logits = output.predictions
        return np.asarray(logits[0] if isinstance(logits, tuple) else logits).argmax(-1)

    def _prepared(self, split: str, limit: int | None, processor: Processor) -> Dataset:
        images = self._sets[split]
        rows = draw(len(images), limit, self.settings.seed)
        images = images.select(rows)
        numbers = {label: number for number, label in enumerate(self.labels)}
        first = _pixels(processor, images.images[:1])[0]
        kept = first.nbytes * len(images) <= self.options.keep_megabytes * 1_000_000
        data = Dataset.from_dict(
            {
                # The name that the model takes: the trainer drops all other columns.
                "pixel_values": images.images,
                "labels": [numbers[label] for label in images.labels],
                "length": [1] * len(images),
                "row": rows,
            }
        )
        store = _all_pixels(processor, images) if kept else None

        def fill(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
            if "pixel_values" not in batch:  # only another column is read
                return batch
            found = batch["pixel_values"]
            if store is None:
                return {**batch, "pixel_values": _pixels(processor, found)}
            return {**batch, "pixel_values": [store[place["place"]] for place in found]}

        if store is not None:
            places = [{"place": place} for place in range(len(images))]
            data = data.remove_columns("pixel_values").add_column("pixel_values", places)
        return data.with_transform(fill)


def _all_pixels(processor: Processor, images: LabelledImages) -> list[Any]:
    return [pixels for image in images.images for pixels in _pixels(processor, [image])]


def _pixels(processor: Processor, images: list[dict[str, Any]]) -> list[Any]:
    opened = [open_image(image) for image in images]
    return list(np.asarray(processor(opened, return_tensors="np")["pixel_values"], np.float32))
