"""Exports of sentence encoders: what sentence-transformers opens without headcount.

Its ONNX backend needs optimum, which needs an older transformers than headcount. The Python that
has it is named by HEADCOUNT_OPTIMUM.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st
from transformers import (
    AutoTokenizer,
    Qwen3Config,
    Qwen3Model,
    T5Config,
    T5EncoderModel,
)

import headcount as hc
from headcount.deploy.targets import fill, find_target
from headcount.loading.folder import load_model
from headcount.runs.evaluate import open_trained
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.settings import ExampleSettings
from tests.deploy import run_optimum
from tests.deploy.conftest import needs_onnx
from tests.small_task import save_encoder
from tests.tasks.test_embedding import sentences, settings_of, vectors_of
from tests.tasks.test_sentence_folder import WIDTH, names_in, save

PYTHON = os.environ.get("HEADCOUNT_OPTIMUM")
TEXTS = sentences(9, seed=11)
# What an encoder of each layout has after its Transformer.
LATER = {
    "mean": lambda: [st.Pooling(WIDTH), st.Normalize()],
    "dense": lambda: [st.Pooling(WIDTH, "weightedmean"), st.Dense(WIDTH, 6), st.LayerNorm(6)],
}


def data_of(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("\n".join(sentences(60)))
    (folder / "dev.txt").write_text("\n".join(sentences(12, seed=9)))
    return folder


def pruned(whole: Path, **others: Any) -> Path:
    """An encoder with three heads less, beside the whole one."""
    small = whole.with_name(f"{whole.name}-small")
    data = data_of(whole.with_name(f"{whole.name}-data"))
    prune(settings_of(str(whole), data, "random", **others), small, speed=False)
    return small


def save_decoder(folder: Path) -> Path:
    """An encoder whose Transformer reads from left to right, and whose last token counts."""
    bare = save_encoder(folder.with_name("decoder-bare"))
    tokenizer = AutoTokenizer.from_pretrained(bare, padding_side="left")
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, intermediate_size=20, max_position_embeddings=64,
        initializer_range=0.4, pad_token_id=0,
    )  # fmt: skip
    Qwen3Model(config).save_pretrained(bare)
    tokenizer.save_pretrained(bare)
    first = st.Transformer(str(bare), max_seq_length=12)
    modules = [first, st.Pooling(WIDTH, "lasttoken")]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    return folder


@needs_onnx
def test_an_onnx_folder_has_names_that_older_versions_know(tmp_path: Path) -> None:
    small, out = pruned(save(tmp_path / "encoder", *LATER["dense"]())), tmp_path / "out"
    said = json.loads((small / "tokenizer_config.json").read_text())
    assert said["tokenizer_class"] == "TokenizersBackend"
    record = hc.export(load_model(str(small)), "onnx", out, source=str(small))
    assert 'SentenceTransformer("FOLDER", backend="onnx")' in record["load"]
    found = json.loads((out / "tokenizer_config.json").read_text())
    assert found == said | {"tokenizer_class": "PreTrainedTokenizerFast"}
    assert AutoTokenizer.from_pretrained(out)(TEXTS) == AutoTokenizer.from_pretrained(small)(TEXTS)
    rows = json.loads((out / "modules.json").read_text())
    assert [row["type"] for row in rows] == [
        f"sentence_transformers.models.{name}"
        for name in ("Transformer", "Pooling", "Dense", "LayerNorm")
    ]
    weights = {"model.safetensors", "README.md", "mask.json", "importance.json", "metrics.json"}
    weights |= {"settings.json", "heads.png", "predictions", "predictions/dev.json"}
    assert names_in(small) - names_in(out) == weights - {"README.md"}


@needs_onnx
def test_an_export_with_its_metric_can_be_opened_too(tmp_path: Path) -> None:
    small = pruned(save(tmp_path / "encoder", *LATER["mean"]()))
    options = ExampleSettings(options={"reference": str(tmp_path / "encoder")})
    settings = settings_of(str(small), tmp_path / "encoder-data", examples=options)
    _, loaded = open_trained(settings, tmp_path, Silent())
    (tmp_path / "out").mkdir()
    onnxruntime = pytest.importorskip("onnxruntime")
    fill(tmp_path / "out", loaded, str(small), find_target("onnx"))
    session = onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["logits", "last_hidden_state"]
    batch = AutoTokenizer.from_pretrained(small)(TEXTS, padding=True, return_tensors="np")
    given = {one.name: batch[one.name] for one in session.get_inputs()}
    vectors, states = session.run(None, given)
    np.testing.assert_allclose(vectors, vectors_of(small, TEXTS), atol=1e-5)
    with torch.no_grad():
        right = load_model(str(small))(**{k: torch.tensor(v) for k, v in given.items()})[0]
    seen = batch["attention_mask"][..., None]
    np.testing.assert_allclose(states * seen, right.numpy() * seen, atol=1e-5)


def test_a_t5_with_a_modelling_file_is_for_transformers_alone(tmp_path: Path) -> None:
    bare = save_encoder(tmp_path / "bare")
    vocabulary = len(AutoTokenizer.from_pretrained(bare))
    config = T5Config(
        vocab_size=vocabulary, d_model=WIDTH, d_kv=8, d_ff=20, num_layers=3, num_heads=2
    )
    T5EncoderModel(config).save_pretrained(bare)
    modules = [st.Transformer(str(bare)), st.Pooling(WIDTH)]
    whole = tmp_path / "encoder"
    SentenceTransformer(modules=modules, device="cpu").save(str(whole))
    small = pruned(whole)
    assert vectors_of(small, TEXTS).shape == (9, WIDTH)
    record = hc.export(load_model(str(small)), "remote-code", tmp_path / "out", source=str(small))
    assert "AutoModelForTextEncoding" in record["load"]
    assert "sentence-transformers does not open this folder" in record["flag"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported encoders with the vectors that the backend gives, and those that it should."""
    work, root = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("exported")
    wholes = [save(work / name, *later()) for name, later in LATER.items()]
    wholes += [save(work / "nested", *LATER["mean"](), inner=True), save_decoder(work / "decoder")]
    for whole in wholes:
        small, out = pruned(whole), root / whole.name
        hc.export(load_model(str(small)), "onnx", out, source=str(small), precision="int8")
        np.save(out / "right.npy", vectors_of(small, TEXTS))
    (root / "texts.json").write_text(json.dumps(TEXTS))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(PYTHON), run_optimum.__file__, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return root


@pytest.mark.slow
@needs_onnx
@pytest.mark.skipif(not PYTHON, reason="HEADCOUNT_OPTIMUM names no Python that has optimum")
@pytest.mark.parametrize("name", [*LATER, "nested", "decoder"])
def test_the_onnx_backend_gives_the_same_vectors(opened: Path, name: str) -> None:
    found, right = np.load(opened / name / "model.npy"), np.load(opened / name / "right.npy")
    np.testing.assert_allclose(found, right, atol=1e-5)
    assert np.abs(right - right[0]).max() > 0.01
    rounded = np.load(opened / name / "int8.npy")
    assert 1e-5 < np.abs(rounded - right).max() < 1.0
