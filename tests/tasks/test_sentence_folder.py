"""Folders of sentence-transformers of every age: their layouts, modules, prompts and faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from torch import nn

import headcount as hc
from headcount import HeadcountError
from headcount.loading.folder import load_model
from headcount.runs.evaluate import evaluate_model
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.settings import ExampleSettings
from headcount.tasks.base import DataSettings
from headcount.tasks.embedding import Embedding
from tests.small_task import BAD, GOOD, save_encoder
from tests.tasks.test_embedding import sentences, settings_of, vectors_of

INNER = "0_Transformer"
WIDTH = 16


def save(folder: Path, *later: nn.Module, inner: bool = False) -> Path:
    """Write an encoder with these modules after its Transformer, which may have its own folder."""
    bare = save_encoder(folder.parent / f"{folder.name}-bare", spread=0.4)
    first = st.Transformer(str(bare), max_seq_length=12)
    first.save_in_root = not inner
    SentenceTransformer(modules=[first, *later], device="cpu").save(str(folder))
    shutil.rmtree(bare)
    return folder


def rewrite(file: Path, change: Callable[[Any], Any]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def names_in(folder: str | Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*")}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.txt").write_text("\n".join(sentences(60)))
    (tmp_path / "data" / "dev.txt").write_text("\n".join(sentences(12, seed=9)))
    return tmp_path / "data"


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """As versions before 1 wrote it: names without a file, weights in a pickle."""
    torch.manual_seed(1)
    folder = save(
        tmp_path / "old", st.Pooling(WIDTH), st.Dense(WIDTH, 6), st.Normalize(), inner=True
    )
    inner = folder / INNER
    torch.save(load_file(inner / "model.safetensors"), inner / "pytorch_model.bin")
    (inner / "model.safetensors").unlink()
    (inner / "vocab.txt").write_text("kept")
    (inner / "onnx").mkdir()
    (inner / "onnx" / "model.onnx").write_bytes(b"of the unpruned")
    rewrite(
        folder / "modules.json",
        lambda rows: [
            row | {"type": f"sentence_transformers.models.{row['type'].rpartition('.')[2]}"}
            for row in rows
        ],
    )
    return folder


def embedded(model: Path, texts: list[str], tmp_path: Path, **options: str) -> Any:
    """The vectors that headcount keeps."""
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    settings = DataSettings(str(tmp_path / "texts.txt"), evaluate_only=True, options=options)
    task = Embedding(settings)
    processor = task.load_processor(task.model_folder(str(model)))
    collate = task.collator(processor, task.load_model(str(model), processor))
    (found,) = task.evaluation_data(processor).values()
    rows = [dict(row) for row in found.remove_columns("length")]
    batch = collate(rows)
    order = np.argsort([row["labels"] for row in rows])
    wanted = batch["labels"].numpy()[order]
    own = task.load_model(str(model), processor).eval()(**batch).logits.detach().numpy()[order]
    np.testing.assert_allclose(own, wanted, atol=1e-6)
    return own


def test_a_transformer_in_a_folder_of_its_own(nested: Path, data: Path, tmp_path: Path) -> None:
    texts = sentences(9, seed=3)
    np.testing.assert_allclose(
        embedded(nested, texts, tmp_path), vectors_of(nested, texts), atol=1e-6
    )
    out = tmp_path / "out"
    result = prune(settings_of(str(nested), data), out, speed=False)
    assert result.heads.after == 3
    weights = {f"{INNER}/pytorch_model.bin", f"{INNER}/onnx", f"{INNER}/onnx/model.onnx"}
    assert names_in(nested) - names_in(out) == weights
    assert f"{INNER}/model.safetensors" in names_in(out) and "config.json" not in names_in(out)
    assert len(hc.find_heads(load_model(str(out)))) == 3
    small = vectors_of(out, texts)
    np.testing.assert_allclose(embedded(out, texts, tmp_path, reference=str(out)), small, atol=1e-6)
    settings = settings_of(
        str(out), data, examples=ExampleSettings(options={"reference": str(nested)})
    )
    _, again = evaluate_model(settings, None, Silent())
    assert again["dev"].metrics == pytest.approx(result.scores["dev"], abs=1e-6)
    prune(replace(settings, keep=2), tmp_path / "again", speed=False)
    assert names_in(tmp_path / "again") == names_in(out)


def test_exports_have_the_transformer_beside_the_rest(
    nested: Path, data: Path, tmp_path: Path
) -> None:
    out, served, texts = tmp_path / "out", tmp_path / "served", sentences(6, seed=4)
    prune(settings_of(str(nested), data, "magnitude"), out, speed=False)
    hc.export(load_model(str(out)), "remote-code", served, source=str(out))
    assert INNER not in names_in(served) and "vocab.txt" in names_in(served)
    opened = SentenceTransformer(str(served), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(opened.encode(texts), vectors_of(out, texts), atol=1e-6)
    assert embedded(out, texts, tmp_path, reference=str(out)).shape == (6, 6)


@pytest.mark.parametrize(
    "later",
    [
        [st.Pooling(WIDTH, "mean_sqrt_len_tokens"), st.Normalize()],
        [st.Pooling(WIDTH, "weightedmean")],
        [st.Pooling(WIDTH, "lasttoken"), st.LayerNorm(WIDTH)],
        [st.Pooling(WIDTH, ("cls", "max", "mean")), st.Dense(3 * WIDTH, 7), st.Dense(7, 5)],
        [st.CNN(WIDTH, 6), st.Pooling(18), st.Dropout(0.5)],
    ],
    ids=["square root", "weighted", "last", "several", "convolution"],
)  # fmt: skip
def test_modules_after_the_transformer_are_all_kept(
    later: list[nn.Module], data: Path, tmp_path: Path
) -> None:
    folder, texts = save(tmp_path / "encoder", *later), sentences(9, seed=5)
    whole = vectors_of(folder, texts)
    assert np.std(whole) > 0.01
    np.testing.assert_allclose(embedded(folder, texts, tmp_path), whole, atol=1e-6)
    prune(settings_of(str(folder), data, "magnitude"), tmp_path / "out", speed=False)
    assert names_in(folder) <= names_in(tmp_path / "out")
    small = vectors_of(tmp_path / "out", texts)
    again = embedded(tmp_path / "out", texts, tmp_path, reference=str(tmp_path / "out"))
    np.testing.assert_allclose(again, small, atol=1e-6)


def test_prompts_may_be_left_out_of_the_pooling(tmp_path: Path) -> None:
    folder = save(tmp_path / "encoder", st.Pooling(WIDTH, include_prompt=False))
    prompts = {"prompts": {"query": f"{GOOD[0]} {BAD[0]} "}, "default_prompt_name": "query"}
    rewrite(folder / "config_sentence_transformers.json", lambda said: said | prompts)
    texts = sentences(9, seed=6)
    found = embedded(folder, texts, tmp_path)
    np.testing.assert_allclose(found, vectors_of(folder, texts), atol=1e-6)
    other = SentenceTransformer(str(folder), device="cpu").encode(texts, prompt="bad ")
    np.testing.assert_allclose(embedded(folder, texts, tmp_path, prompt="bad "), other, atol=1e-6)
    assert np.abs(found - other).max() > 0.01


def test_vectors_are_as_short_as_the_folder_says(tmp_path: Path) -> None:
    folder, texts = save(tmp_path / "encoder", st.Pooling(WIDTH)), sentences(9, seed=7)
    rewrite(folder / "config_sentence_transformers.json", lambda said: said | {"truncate_dim": 5})
    found = embedded(folder, texts, tmp_path)
    assert found.shape == (9, 5)
    np.testing.assert_allclose(found, vectors_of(folder, texts), atol=1e-6)


def drop(*rows: int) -> Callable[[Any], Any]:
    return lambda listed: [row for place, row in enumerate(listed) if place not in rows]


LIST, TEXTS = "modules.json", "sentence_bert_config.json"
ENCODING = "config_sentence_transformers.json"
POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
OF_A_LANGUAGE_MODEL = {"transformer_task": "fill-mask"}
OTHER_STATES = {"modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}}


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        (LIST, None, r"modules\.json does not list the modules of an encoder: Expecting value"),
        (LIST, lambda _: {"a": 1}, "its content is .*, expected a list; restore the file"),
        (LIST, lambda rows: [{"path": ""}, *rows], "an encoder: it has no 'type'"),
        (LIST, drop(0, 1, 2), r"has nothing in modules\.json, expected one Transformer"),
        (LIST, drop(0), r"has Pooling, Dense in modules\.json, expected one Transformer"),
        (LIST, lambda rows: [rows[0], *rows], "has Transformer, Transformer, Pooling, Dense"),
        (LIST, drop(1, 2), "that make no vector of a text: there is no 'sentence_embedding'"),
        (LIST, drop(1), "that make no vector of a text: there is no 'sentence_embedding'"),
        (LIST, lambda rows: [rows[0] | {"path": "gone"}, *rows[1:]], "module in gone, which is no"),
        (LIST, lambda rows: [rows[0] | {"path": ".."}, *rows[1:]], "module in .., which is no"),
        (POOLING, lambda _: {}, "a module Pooling that cannot be loaded: .* its folder 1_Pooling"),
        (POOLING, lambda said: said | {"pooling_mode": "sum"}, "Invalid pooling mode: 'sum'"),
        (POOLING, lambda said: said | {"pooling_mode": ["cls", "mean"]}, "make no vector of a"),
        (DENSE, lambda _: {}, "has a module Dense that cannot be loaded: .* its folder 2_Dense"),
        ("2_Dense/model.safetensors", "gone", "Dense that cannot be loaded: Could not find"),
        (TEXTS, None, "does not say how texts are encoded: Expecting value"),
        (TEXTS, lambda said: said | OF_A_LANGUAGE_MODEL, "fill-mask, forward, last_hidden_state"),
        (TEXTS, lambda said: said | OTHER_STATES, "forward, logits for texts, expected"),
        (ENCODING, None, "does not say how texts are encoded: Expecting value"),
        (ENCODING, lambda said: said | {"default_prompt_name": "q"}, "None as its default prompt"),
    ],
)  # fmt: skip
def test_damaged_folders_are_refused(
    file: str, change: Any, says: str, data: Path, tmp_path: Path
) -> None:
    folder = save(tmp_path / "encoder", st.Pooling(WIDTH), st.Dense(WIDTH, 6))
    if change is None:
        (folder / file).write_text("no JSON")
    elif change == "gone":
        (folder / file).unlink()
    else:
        rewrite(folder / file, change)
    with pytest.raises(HeadcountError, match=says):
        prune(settings_of(str(folder), data, "random"), tmp_path / "out", speed=False)
    assert not (tmp_path / "out").exists()


def test_a_mean_over_layers(tmp_path: Path) -> None:
    mean = st.WeightedLayerPooling(WIDTH, num_hidden_layers=3, layer_start=1)
    folder, texts = save(tmp_path / "encoder", mean, st.Pooling(WIDTH)), sentences(9, seed=8)
    last = vectors_of(folder, texts)  # without its layers, the module does nothing
    rewrite(folder / "config.json", lambda said: said | {"output_hidden_states": True})
    found = embedded(folder, texts, tmp_path)
    np.testing.assert_allclose(found, vectors_of(folder, texts), atol=1e-6)
    assert np.abs(found - last).max() > 0.01
