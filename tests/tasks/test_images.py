import os
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

from headcount import HeadcountError
from headcount.tasks.base import DataSettings
from headcount.tasks.image_classification import ImageClassification
from headcount.tasks.images import images_of, open_image
from headcount.tasks.models import is_fine_tuned

COLOURS = {"blue": (20, 20, 230), "red": (230, 20, 20)}
PROCESSOR = """{"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8},
"do_resize": true, "do_rescale": true, "do_normalize": true, "resample": 2,
"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "rescale_factor": 0.00392156862}"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    draw = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 4)):
        for label, colour in COLOURS.items():
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = np.full((10, 12, 3), colour) + draw.integers(0, 20, (10, 12, 3))
                ending = "jpg" if number % 2 else "png"
                file = folder / split / label / f"{number}.{ending}"
                Image.fromarray(pixels.astype(np.uint8)).save(file)
    return folder


def save_model(folder: Path, labels: list[str]) -> str:
    torch.manual_seed(0)
    names = dict(enumerate(labels))
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=8, patch_size=4, id2label=names, label2id={v: k for k, v in names.items()},
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(PROCESSOR)
    return str(folder)


def make(data: Path, **others: Any) -> ImageClassification:
    return ImageClassification(DataSettings(str(data), **others))


@pytest.mark.parametrize("keep", [0, 1000])
def test_a_model_learns_colours(data: Path, tmp_path: Path, keep: int) -> None:
    task = make(data, options={"keep_megabytes": keep})
    model = save_model(tmp_path / "vit", ["a", "b", "c"])
    processor = task.load_processor(model)
    loaded = task.load_model(model, processor)
    assert not is_fine_tuned(loaded)
    assert loaded.config.id2label == {0: "blue", 1: "red"}
    args = TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=8, max_steps=20,
        learning_rate=1e-2, report_to=[], logging_strategy="no", save_strategy="no",
        disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = Trainer(
        model=loaded, args=args, train_dataset=task.train_data(processor),
        data_collator=task.collator(processor, loaded),
    )  # fmt: skip
    trainer.train()
    output: Any = trainer.predict(task.evaluation_data(processor)["val"])
    assert task.scores(output, processor, "val") == {"accuracy": 1.0}
    assert task.predictions(output, processor, "val") == ["blue"] * 4 + ["red"] * 4
    assert task.signature("val") == "data:data-val"


def test_pixels_kept_and_made_anew_are_the_same(data: Path, tmp_path: Path) -> None:
    model = save_model(tmp_path / "vit", ["blue", "red"])
    sets = []
    for keep in (0, 1000):
        task = make(data, options={"keep_megabytes": keep}, limit_train=5, seed=3)
        sets.append(task.train_data(task.load_processor(model)))
    for one, other in zip(*sets, strict=True):
        assert np.array_equal(one["pixel_values"], other["pixel_values"])
        assert one["labels"] == other["labels"]
    assert len(sets[0]) == 5
    assert list(sets[0]["length"]) == [1] * 5
    assert sets[0]["row"][:] == sorted(sets[0]["row"])


def test_a_model_keeps_the_order_of_its_labels(data: Path, tmp_path: Path) -> None:
    task = make(data)
    model = save_model(tmp_path / "vit", ["red", "blue"])
    processor = task.load_processor(model)
    loaded = task.load_model(model, processor)
    assert is_fine_tuned(loaded)
    rows = [task.evaluation_data(processor)["val"][place] for place in (0, 7)]
    assert [task.labels[row["labels"]] for row in rows] == ["blue", "red"]
    batch = task.collator(processor, loaded)(rows)
    assert batch["labels"].tolist() == [1, 0]
    assert batch["pixel_values"].shape == (2, 3, 8, 8)
    output: Any = type("Output", (), {"predictions": np.eye(2), "label_ids": np.array([0, 1])})
    assert task.predictions(output, processor, "val") == ["red", "blue"]


def test_a_data_set_of_the_hub(data: Path) -> None:
    features = datasets.Features(
        {"img": datasets.Image(), "label": datasets.ClassLabel(names=["blue", "red"])}
    )
    paths = [str(data / "train" / "blue" / "0.png"), str(data / "train" / "red" / "1.jpg")]
    part = datasets.Dataset.from_dict({"img": paths, "label": [0, 1]}, features=features)
    found = images_of({"train": part, "test": part}, DataSettings("somewhere"))
    assert found["test"].labels == ["blue", "red"]
    assert open_image(found["train"].images[1]).size == (12, 10)
    with pytest.raises(HeadcountError, match="no part val; it has train"):
        images_of({"train": part}, DataSettings("somewhere", evaluate=("val",)))


def test_bad_input(data: Path, tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="there is no file or folder"):
        make(tmp_path / "absent")
    with pytest.raises(HeadcountError, match=r"no folder .*data/dev with"):
        make(data, evaluate=("dev",))
    with pytest.raises(HeadcountError, match="'red', which is none of the labels blue"):
        make(data, labels=("blue",))
    model = save_model(tmp_path / "vit", ["blue", "red"])
    (data / "val" / "red" / "3.jpg").write_bytes(b"no image")
    task = make(data)
    with pytest.raises(HeadcountError, match=r"3\.jpg is not a whole image"):
        task.evaluation_data(task.load_processor(model))
    whole = (data / "train" / "red" / "0.png").read_bytes()
    (data / "train" / "red" / "0.png").write_bytes(whole[:-60])
    with pytest.raises(HeadcountError, match=r"0\.png is not a whole image"):
        task.train_data(task.load_processor(model))
    (tmp_path / "vit" / "preprocessor_config.json").unlink()
    with pytest.raises(HeadcountError, match="has no image processor"):
        task.load_processor(model)
    for file in (data / "val").rglob("*.*"):
        file.unlink()
    with pytest.raises(HeadcountError, match="has no images"):
        make(data)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
def test_pipes_are_no_images(data: Path) -> None:
    count = len(make(data).read_columns()["train label"])
    os.mkfifo(data / "train" / "red" / "pipe.png")
    assert len(make(data).read_columns()["train label"]) == count


@pytest.mark.skipif(sys.platform != "linux", reason="others have no such names")
def test_a_folder_whose_name_is_no_text_is_no_label(data: Path) -> None:
    (data / "train" / "red").rename(data / "train" / os.fsdecode(b"r\xffd"))
    with pytest.raises(HeadcountError, match="has a name that is not UTF-8, so it is no label"):
        make(data)
