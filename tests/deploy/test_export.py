"""What is exported answers as the model does, and generates the same tokens."""

from __future__ import annotations

import copy
import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from headcount import HeadcountError, HeadMask, export, find_heads, remove_heads
from headcount.deploy.run import Exported
from headcount.deploy.targets import Record, fill, find_target
from tests.deploy.conftest import needs_onnx
from tests.tiny import Family, build, families, family_named, mask_for

NEW_TOKENS = 12
pytestmark = needs_onnx


def small(name: str, layers: int = 2) -> PreTrainedModel:
    """A model whose first block is empty, and whose others keep three heads of four."""
    family = family_named(name)
    config = getattr(transformers, family.config)(**family.settings)
    config.num_hidden_layers = layers
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = getattr(transformers, family.architecture)(config)
        for parameter in model.parameters():  # no head must be without effect
            parameter.data += 0.15 * torch.randn(parameter.shape)
    heads = find_heads(model)
    kept = (head for block in heads.blocks[1:] for head in block.indices[:3])
    remove_heads(model, HeadMask.from_indices(heads, kept))
    return model.eval()


def exported(
    model: PreTrainedModel, folder: Path, to: str = "onnx", precision: str | None = None
) -> tuple[Path, Record]:
    source, target = folder / "source", folder / "target"
    source.mkdir()
    (source / "vocab.txt").write_text("word\n")
    target.mkdir()
    return target, fill(target, model, str(source), find_target(to), precision)


def check(record: Record) -> None:
    assert record["graphs"]
    for graph in record["graphs"].values():
        assert 0 <= graph["difference"] < 1e-4
        assert {sizes["batch"] for sizes in graph["checked_on"]} >= {1, 2, 3}


def assert_generates_the_same(model: PreTrainedModel, folder: Path, family: Family) -> None:
    prompt = family.prompt()
    assert not prompt["attention_mask"].all()  # there is padding
    expected = model.generate(**prompt, max_new_tokens=NEW_TOKENS, do_sample=False, num_beams=1)
    made = Exported(folder).generate(**prompt, max_new_tokens=NEW_TOKENS)
    assert made.tolist() == expected.tolist()


@pytest.mark.slow
def test_encoder_with_an_empty_and_an_uneven_block(tmp_path: Path) -> None:
    model = small("bert")
    folder, record = exported(model, tmp_path, precision="int8")
    check(record)
    assert {file.name for file in folder.rglob("*") if file.is_file()} == {
        "model.onnx", "model_int8.onnx", "config.json", "export.json", "vocab.txt", "README.md",
    }  # fmt: skip
    assert json.loads((folder / "export.json").read_text()) == record
    for name in ("model.onnx", "model_int8.onnx"):  # nobody's folders are written into it
        assert b"site-packages" not in (folder / "onnx" / name).read_bytes()
    assert model.config._attn_implementation == "sdpa"  # as it was
    quantised = record["graphs"]["model"]["int8"]
    assert 1e-4 < quantised["difference"] < 0.5  # it computes something else, but not anything
    batch = family_named("bert").inputs() | {"token_type_ids": torch.zeros(2, 7, dtype=torch.long)}
    answers = [Exported(folder, int8).logits(batch) for int8 in (False, True)]
    with torch.no_grad():
        expected = model(**batch).logits
    assert (expected - answers[0]).abs().max() < 1e-4
    assert (expected - answers[1]).abs().max() > 1e-4


def test_decoder_with_an_empty_block_and_uneven_groups(tmp_path: Path) -> None:
    model = small("llama")
    folder, record = exported(model, tmp_path)
    check(record)
    shapes = record["graphs"]["model"]["inputs"]
    assert shapes["past_key_values.0.key"] == ["batch_size", 1, "past_sequence_length", 1]
    assert shapes["past_key_values.1.key"] == ["batch_size", 2, "past_sequence_length", 8]
    assert_generates_the_same(model, folder, family_named("llama"))


def test_torch_program(tmp_path: Path) -> None:
    folder, record = exported(small("bert"), tmp_path, "torch")
    check(record)
    assert (folder / "model.pt2").is_file()


@pytest.mark.slow
@families(generates=True)
def test_generation(family: Family, tmp_path: Path) -> None:
    if family.name == "whisper":
        pytest.skip("speech is not exported")
    model = build(family)
    name = "empty_first_decoder_block" if family.is_seq2seq else "three_heads_each"
    remove_heads(model, mask_for(model, name))
    folder, record = exported(model, tmp_path)
    check(record)
    assert_generates_the_same(model, folder, family)


@pytest.mark.slow
@families("gpt2", "llama", "marian", "t5")
def test_generation_with_torch_programs(family: Family, tmp_path: Path) -> None:
    model = build(family)
    remove_heads(model, mask_for(model, "uneven"))
    folder, record = exported(model, tmp_path, "torch")
    for graph in record["graphs"].values():
        assert graph["difference"] < 1e-4
    assert_generates_the_same(model, folder, family)


@pytest.mark.slow
@families("roberta", "distilbert", "deberta-v2", "modernbert", "albert", "mpnet", "vit", "deit")
def test_one_pass(family: Family, tmp_path: Path) -> None:
    model = build(family)
    remove_heads(model, mask_for(model, "uneven"))
    _, record = exported(model, tmp_path)
    check(record)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    for name, why in (
        ("wav2vec2", "its input is input_values, expected input_ids or pixel_values"),
        ("whisper", "its input is input_features, and of the models that generate"),
        ("clip", "CLIPModel does not answer to"),
    ):
        with pytest.raises(
            HeadcountError, match=f"onnx cannot hold this model: {why}.*; give --to"
        ):
            export(build(name), "onnx", tmp_path / name, source=str(tmp_path))
    assert not list(tmp_path.iterdir())
    with pytest.raises(HeadcountError, match="'int8', expected nothing, because weights stay"):
        find_target("torch", "int8")
    with pytest.raises(HeadcountError, match="'coreml', expected one of plain, remote-code"):
        find_target("coreml")
    with pytest.raises(HeadcountError, match="is not an exported model"):
        Exported(tmp_path)


def test_an_export_that_answers_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.deploy import torch_file

    model = small("bert", layers=1)
    other = copy.deepcopy(model)
    other.get_input_embeddings().weight.data += 0.1  # type: ignore[operator]
    write = torch_file.write_torch

    def write_other(graph: Any, file: Path) -> None:
        kept, graph.step.model = graph.step.model, other
        write(graph, file)
        graph.step.model = kept

    monkeypatch.setattr(torch_file, "write_torch", write_other)
    with pytest.raises(HeadcountError, match="differs from the model by"):
        exported(model, tmp_path, "torch")


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headcount.deploy import torch_file

    def write(graph: Any, file: Path) -> None:
        file.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch_file, "write_torch", write)
    with pytest.raises(HeadcountError, match="out cannot be written: No space left on device"):
        export(small("bert", layers=1), "torch", tmp_path / "out", source="")
    assert not list(tmp_path.iterdir())
