"""Read labelled images, from folders that are named after labels, or from the hub."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import ClassLabel, DatasetDict, Image, load_dataset
from PIL import Image as Pillow

from headcount.errors import HeadcountError
from headcount.loading.folder import first_line
from headcount.tasks import hub
from headcount.tasks.base import DataSettings
from headcount.tasks.digest import file_ends
from headcount.tasks.files import find_data, list_folder

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
VALIDATION = ("validation", "valid", "val", "dev", "test")


@dataclass(frozen=True)
class LabelledImages:
    """Images that are not opened yet.

    Attributes:
        images: each image as its `path`, or as `bytes` if it is not in its own file.
        labels: the name of each image's label.
    """

    images: list[dict[str, Any]]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.images)

    def select(self, rows: list[int]) -> LabelledImages:
        """Only these rows, in this order."""
        return LabelledImages([self.images[r] for r in rows], [self.labels[r] for r in rows])


def read_images(settings: DataSettings, config: str | None) -> dict[str, LabelledImages]:
    """The images of the training set, called `train`, and of every evaluation set.

    Raises:
        HeadcountError: a set is missing, or has no images.
    """
    folder = find_data(settings.data, ()) if settings.data else Path()
    if folder is None:
        return _read_hub(settings, config)
    if not folder.is_dir():
        raise HeadcountError(
            f"{folder} is a file; give a folder with train/<label>/*.png and validation/<label>/…"
        )
    if not settings.data and not (settings.train and settings.evaluate):
        raise HeadcountError(
            "images are in folders, one to train and one to evaluate on; name both with --train "
            "and --evaluate, or the folder around them with --data"
        )
    names = settings.evaluate or tuple(name for name in VALIDATION if (folder / name).is_dir())[:1]
    if not names:
        raise HeadcountError(
            f"{folder} has no folder {', '.join(VALIDATION)} to evaluate on; name one in evaluate"
        )
    sets = {"train": _read_folder(folder / (settings.train or "train"))}
    return sets | {Path(name).name: _read_folder(folder / name) for name in names}


def _read_folder(folder: Path) -> LabelledImages:
    if not folder.is_dir():
        raise HeadcountError(f"there is no folder {folder} with a folder of images for each label")
    found = [
        (path, label.name)
        for label in list_folder(folder) if label.is_dir()
        for path in sorted(label.rglob("*")) if path.suffix.lower() in ENDINGS and path.is_file()
    ]  # fmt: skip
    for label in {label for _, label in found}:
        try:
            label.encode("utf-8")
        except UnicodeEncodeError as error:
            raise HeadcountError(
                f"the folder {label!r} in {str(folder)!r} has a name that is not UTF-8, so it is "
                "no label; rename it"
            ) from error
    if not found:
        raise HeadcountError(
            f"{folder} has no images: expected <label>/*.png, or another of {', '.join(ENDINGS)}"
        )
    images = [{"bytes": None, "path": str(path)} for path, _ in found]
    return LabelledImages(images, [label for _, label in found])


def _read_hub(settings: DataSettings, config: str | None) -> dict[str, LabelledImages]:
    try:
        data = load_dataset(settings.data, config)
    except Exception as error:  # of any type: see `hub.load`
        raise HeadcountError(
            f"{settings.data} is no folder here, and as a data set it cannot be loaded from the "
            f"hub: {first_line(error)}"
        ) from error
    parts = dict(data) if isinstance(data, DatasetDict) else {"train": data}
    return images_of(parts, settings)


def images_of(parts: dict[str, Any], settings: DataSettings) -> dict[str, LabelledImages]:
    """The parts of a data set that the settings name, as `read_images` gives them."""
    wanted = hub.chosen(parts, settings, VALIDATION)
    sets = {name: _columns(part, settings) for name, part in wanted.items()}
    if len(sets) == 1:
        raise HeadcountError(f"{settings.data} has no part to evaluate on; name one in evaluate")
    return sets


def _columns(data: Any, settings: DataSettings) -> LabelledImages:
    images = [name for name, feature in data.features.items() if isinstance(feature, Image)]
    labels = [name for name, feature in data.features.items() if isinstance(feature, ClassLabel)]
    if settings.label:
        labels = [name for name in data.features if name == settings.label]
    if len(images) != 1 or len(labels) != 1:
        raise HeadcountError(
            f"the data set {settings.data} has the columns {', '.join(data.features)}, expected "
            "one with images and one with labels; name the one with the label"
        )
    feature, values = data.features[labels[0]], data[labels[0]]
    names = feature.names if isinstance(feature, ClassLabel) else None
    column = data.cast_column(images[0], Image(decode=False))[images[0]]
    return LabelledImages(list(column), [names[v] if names else str(v) for v in values])


def open_image(image: dict[str, Any]) -> Pillow.Image:
    """Decode an image in colour.

    Raises:
        HeadcountError: the file is not an image, or is incomplete.
    """
    try:
        with Pillow.open(io.BytesIO(image["bytes"]) if image["bytes"] else image["path"]) as opened:
            return opened.convert("RGB")
    # Pillow has a decoder for each format, and damage makes them raise errors of any type.
    except Exception as error:
        raise HeadcountError(
            f"{image['path'] or 'an image of the data set'} is not a whole image: "
            f"{first_line(error)}; remove it or fetch it again"
        ) from error


def image_content(image: dict[str, Any]) -> bytes:
    """What tells an image from others: its bytes, or the ends of its file.

    Raises:
        HeadcountError: the file cannot be read.
    """
    try:
        return image["bytes"] or file_ends(Path(image["path"]))
    except OSError as error:
        raise HeadcountError(
            f"{image['path']} cannot be read: {error.strerror or error}; check its rights"
        ) from error
