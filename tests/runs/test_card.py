"""The model card: the hub can read it, and it says nothing that is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from headcount.loading import origin
from headcount.loading.origin import origin_of
from headcount.runs.card import metadata, write_card
from headcount.runs.result import RunResult, Sides
from headcount.runs.settings import ExampleSettings, RunSettings

AUTO = "AutoModelForSequenceClassification"


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> str:
        raise OSError("no connection")

    monkeypatch.setattr(origin, "snapshot_download", refuse)


@pytest.fixture
def result() -> RunResult:
    scores = {"accuracy": 0.9, "f1": 0.8, "combined": 0.85}
    return RunResult(
        method="ste", metric="accuracy", greater_is_better=True,
        scores={"validation": scores, "test": {"accuracy": float("nan")}}, before=None,
        signatures={"validation": "a|b", "test": "a|c"}, heads=Sides(6, 3), parameters=Sides(9, 8),
        bytes=Sides(9, 8), examples_per_second=None, generated_per_second=None, difference=0.0,
        seconds={},
    )  # fmt: skip


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return folder


def card_of(folder: Path, **fields: Any) -> None:
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump(fields)}---\n# A model\n")


def written(
    folder: Path, settings: RunSettings, result: RunResult, auto: str = AUTO
) -> dict[str, Any]:
    """The metadata of a card that was written, as the hub's own library reads it."""
    folder.mkdir()
    write_card(folder, "small", auto, settings, result)
    card = ModelCard.load(folder / "README.md")
    made = metadata("small", auto, settings, result, origin_of(settings.model))
    assert card.data.to_dict() == made.to_dict()
    found: dict[str, Any] = card.data.to_dict()
    return found


def test_the_hub_reads_what_is_known(result: RunResult, tmp_path: Path) -> None:
    settings = RunSettings("google-bert/bert-base-uncased", "mrpc", "nyu-mll/glue")
    found = written(tmp_path / "small", settings, result)
    assert found["base_model"] == "google-bert/bert-base-uncased"
    assert found["base_model_relation"] == "finetune"
    assert found["library_name"] == "transformers"
    assert found["pipeline_tag"] == "text-classification"
    assert found["datasets"] == ["nyu-mll/glue"]
    assert found["metrics"] == ["accuracy", "f1"]
    assert found["tags"] == ["headcount", "pruning", "attention-heads"]
    assert "license" not in found and "language" not in found
    (index,) = found["model-index"]
    (only,) = index["results"]  # NaN is no figure
    assert index["name"] == "small"
    assert only["task"] == {"type": "text-classification"}
    assert only["dataset"] == {
        "name": "GLUE mrpc", "type": "nyu-mll/glue", "config": "mrpc", "split": "validation",
    }  # fmt: skip
    assert [(m["type"], m["value"]) for m in only["metrics"]] == [
        ("accuracy", 0.9), ("f1", 0.8), ("combined", 0.85),
    ]  # fmt: skip


def test_nothing_is_said_about_own_files_and_an_unknown_model(
    result: RunResult, base: Path, tmp_path: Path
) -> None:
    settings = RunSettings(str(base), "classification", str(tmp_path))
    found = written(tmp_path / "small", settings, result)
    assert not {"base_model", "base_model_relation", "license", "datasets"} & found.keys()
    assert found["model-index"][0]["results"][0]["dataset"]["type"] == "custom"
    assert str(tmp_path) not in (tmp_path / "small" / "README.md").read_text()


@pytest.mark.parametrize(
    ("files", "data"), [({}, ["nyu-mll/glue"]), ({"evaluate": ("mine.tsv",)}, None)]
)
def test_a_folder_of_glue_is_glue(
    files: dict[str, Any], data: Any, result: RunResult, base: Path, tmp_path: Path
) -> None:
    settings = RunSettings(str(base), "sst2", str(tmp_path), examples=ExampleSettings(**files))
    assert written(tmp_path / "small", settings, result).get("datasets") == data


@pytest.mark.parametrize(
    ("auto", "tag"),
    [("AutoModelForCausalLM", "text-generation"), ("AutoModelForSeq2SeqLM", "translation")],
)
def test_the_class_says_what_the_model_does(
    auto: str, tag: str, result: RunResult, tmp_path: Path
) -> None:
    found = written(tmp_path / "small", RunSettings("a/b", "x", "c/d"), result, auto)
    assert found["pipeline_tag"] == found["model-index"][0]["results"][0]["task"]["type"] == tag


def test_the_licence_and_languages_of_the_base_go_on(
    result: RunResult, base: Path, tmp_path: Path
) -> None:
    card_of(
        base, license="other", license_name="mine", license_link="LICENSE", language=["en", "de"]
    )
    (base / "LICENSE").write_text("do as you like")
    (base / "NOTICE.txt").write_text("by me")
    outside = tmp_path / "secret"
    outside.write_text("secret")
    (base / "LICENSE.link").symlink_to(outside)
    settings = RunSettings(str(base), "classification", str(tmp_path))
    found = written(tmp_path / "small", settings, result)
    assert (found["license"], found["license_name"]) == ("other", "mine")
    assert (found["license_link"], found["language"]) == ("LICENSE", ["en", "de"])
    files = {file.name: file.read_text() for file in (tmp_path / "small").iterdir()}
    assert files.pop("README.md")
    assert files == {"LICENSE": "do as you like", "NOTICE.txt": "by me"}


@pytest.mark.parametrize(
    ("card", "recorded", "name"),
    [
        ({"base_model": "owner/model"}, "other/model", "owner/model"),
        ({"base_model": ["owner/model"]}, None, "owner/model"),
        ({"base_model": ["a/b", "c/d"]}, None, None),  # a merge
        ({"base_model": 7}, "owner/model", "owner/model"),
        ({"model-index": [{"name": "owner/model", "results": []}]}, None, "owner/model"),
        ({"model-index": [{"name": "a pretty name", "results": []}]}, None, None),
        ({}, "bert-base-uncased", "bert-base-uncased"),
        ({}, "my-bert", None),
        ({}, "/home/me/bert", None),
        ({}, "./bert", None),
        ({}, "checkpoints/bert", None),
        ({}, "../owner/model", None),
    ],
)
def test_a_folder_names_what_it_was_made_from(
    card: dict[str, Any], recorded: str | None, name: str | None, base: Path
) -> None:
    card_of(base, **card)
    if recorded is not None:
        (base / "config.json").write_text(json.dumps({"_name_or_path": recorded}))
    assert origin_of(str(base)).name == name


def test_a_folder_that_exists_here_is_no_name_on_the_hub(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner" / "model").mkdir(parents=True)
    card_of(base, base_model="owner/model")
    assert origin_of(str(base)).name == "owner/model"
    monkeypatch.chdir(tmp_path)
    assert origin_of(str(base)).name is None


def test_the_hubs_cache_has_the_name_in_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--owner--my-model" / "snapshots" / "0123"
    folder.mkdir(parents=True)
    assert origin_of(str(folder)).name == "owner/my-model"


@pytest.mark.parametrize(
    "text",
    ["---\n[\n---\n", "---\n- 1\n---\n", "no card", "---\nlicense: [1, {a: b}]\n---\n", "\x00"],
)
def test_a_damaged_card_says_nothing(text: str, base: Path) -> None:
    (base / "README.md").write_text(text)
    assert origin_of(str(base)) == origin.Origin(files=base)


def test_a_model_from_scratch_has_no_origin(result: RunResult) -> None:
    assert origin_of("scratch:marian") == origin.Origin()


def test_a_card_for_the_hub_names_only_files_that_are_there(
    result: RunResult, tmp_path: Path
) -> None:
    settings = replace(RunSettings("a/b", "mnli", "c/d"), method="ste")
    write_card(tmp_path, "me/small", AUTO, settings, result, on_hub=True)
    text = (tmp_path / "README.md").read_text()
    assert "settings.json" not in text and "mask.json" in text
    assert 'from_pretrained("me/small")' in text
