"""The command line as a person uses it: what it prints, what it leaves on disk, how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import headcount as hc
from headcount import HeadMask
from headcount.atomic import new_folder
from headcount.loading.folder import load_model
from tests.tiny import build


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    folder = tmp_path / "bert"
    build("bert").save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "head", "##s"]
    wordpiece = WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(wordpiece)).save_pretrained(folder)
    return folder


def test_heads_draws_the_map(bert: Path, headcount: Any) -> None:
    ended = headcount("heads", bert)
    assert ended.code == 0
    assert ended.out.count("■ ■ ■ ■") == 3
    assert "12 of 12 heads in 3 blocks" in ended.out


def test_heads_shows_removed_heads(bert: Path, headcount: Any, tmp_path: Path) -> None:
    headcount("remove", bert, "--heads", "encoder.1.0,encoder.1.2", "--output", tmp_path / "small")
    ended = headcount("heads", tmp_path / "small")
    assert "· ■ · ■" in ended.out
    assert "10 of 12 heads" in ended.out


def test_heads_speaks_json(bert: Path, headcount: Any) -> None:
    found = json.loads(headcount("heads", bert, "--json").out)
    assert (found["heads"], found["born"], found["model_type"]) == (12, 12, "bert")
    assert [block["name"] for block in found["blocks"]] == ["encoder.0", "encoder.1", "encoder.2"]
    assert found["blocks"][0]["parameters"] == 4 * 32 * 32 + 3 * 32


def test_remove_by_mask_writes_a_model_that_is_ready_to_use(
    bert: Path, headcount: Any, tmp_path: Path
) -> None:
    mask = HeadMask.random(hc.find_heads(load_model(str(bert))), keep=5, seed=3)
    mask.save(tmp_path / "mask.json")
    ended = headcount(
        "remove", bert, "--mask", tmp_path / "mask.json", "--output", tmp_path / "small"
    )
    assert ended.code == 0
    assert "removed 7 heads, kept 5" in ended.out
    small = load_model(str(tmp_path / "small"))
    assert hc.find_heads(small).names == mask.names
    assert HeadMask.load(tmp_path / "small" / "mask.json") == mask
    assert AutoTokenizer.from_pretrained(tmp_path / "small").vocab_size == 7


def test_remove_all_heads_by_mask(bert: Path, headcount: Any, tmp_path: Path) -> None:
    HeadMask.none(hc.find_heads(load_model(str(bert)))).save(tmp_path / "mask.json")
    headcount("remove", bert, "--mask", tmp_path / "mask.json", "--output", tmp_path / "small")
    assert len(hc.find_heads(load_model(str(tmp_path / "small")))) == 0


def other_model(bert: Path, tmp_path: Path) -> list[object]:
    HeadMask.all(hc.find_heads(build("roberta"))).save(tmp_path / "mask.json")
    return ["remove", bert, "--mask", tmp_path / "mask.json", "--output", tmp_path / "out"]


def unknown_head(bert: Path, tmp_path: Path) -> list[object]:
    return ["remove", bert, "--heads", "encoder.9.0", "--output", tmp_path / "out"]


def repeated_head(bert: Path, tmp_path: Path) -> list[object]:
    return ["remove", bert, "--heads", "encoder.0.0,encoder.0.0", "--output", tmp_path / "out"]


def mask_and_heads(bert: Path, tmp_path: Path) -> list[object]:
    return ["remove", bert, "--output", tmp_path / "out"]


def missing_mask(bert: Path, tmp_path: Path) -> list[object]:
    return ["remove", bert, "--mask", tmp_path / "no.json", "--output", tmp_path / "out"]


def broken_mask(bert: Path, tmp_path: Path) -> list[object]:
    (tmp_path / "mask.json").write_text('{"blocks": 3}')
    return ["remove", bert, "--mask", tmp_path / "mask.json", "--output", tmp_path / "out"]


def existing_output(bert: Path, tmp_path: Path) -> list[object]:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("mine")
    return ["remove", bert, "--heads", "encoder.0.0", "--output", tmp_path / "full"]


def output_nowhere(bert: Path, tmp_path: Path) -> list[object]:
    return ["remove", bert, "--heads", "encoder.0.0", "--output", tmp_path / "no" / "out"]


def no_model(bert: Path, tmp_path: Path) -> list[object]:
    (tmp_path / "empty").mkdir()
    return ["heads", tmp_path / "empty"]


def no_folder(bert: Path, tmp_path: Path) -> list[object]:
    return ["heads", tmp_path / "nothing"]


def damaged_json(bert: Path, tmp_path: Path) -> list[object]:
    (bert / "config.json").write_text('{"model_type": "bert",')
    return ["heads", bert]


def no_model_type(bert: Path, tmp_path: Path) -> list[object]:
    (bert / "config.json").write_text("{}")
    return ["heads", bert]


def quantised(bert: Path, tmp_path: Path) -> list[object]:
    config = json.loads((bert / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (bert / "config.json").write_text(json.dumps(config))
    return ["heads", bert]


def no_weights(bert: Path, tmp_path: Path) -> list[object]:
    (bert / "model.safetensors").unlink()
    return ["heads", bert]


def damaged_weights(bert: Path, tmp_path: Path) -> list[object]:
    (bert / "model.safetensors").write_bytes(b"not safetensors")
    return ["heads", bert]


def weights_missing(bert: Path, tmp_path: Path) -> list[object]:
    config = json.loads((bert / "config.json").read_text())
    config["num_hidden_layers"] = 4
    (bert / "config.json").write_text(json.dumps(config))
    return ["heads", bert]


def kept_heads_disagree(bert: Path, tmp_path: Path) -> list[object]:
    model = load_model(str(bert))
    hc.remove_heads(model, HeadMask.random(hc.find_heads(model), 5))
    shutil.rmtree(bert)
    model.save_pretrained(bert)
    config = json.loads((bert / "config.json").read_text())
    mask = config["quantization_config"]["mask"]
    mask["blocks"][0]["kept"] = [0, 1, 2, 3]
    mask["kept"] = sum(len(block["kept"]) for block in mask["blocks"])
    (bert / "config.json").write_text(json.dumps(config))
    return ["heads", bert]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (other_model, "this mask is for roberta"),
        (unknown_head, "there is no head 'encoder.9.0'"),
        (repeated_head, "named twice"),
        (mask_and_heads, "give either --mask"),
        (missing_mask, "cannot read the mask"),
        (broken_mask, "this is not a head mask"),
        (existing_output, "exists already"),
        (output_nowhere, "is not a folder"),
        (no_model, "it has no config.json"),
        (no_folder, "there is no folder"),
        (damaged_json, "is not valid JSON"),
        (no_model_type, "names no model_type"),
        (quantised, "quantised (gptq)"),
        (no_weights, "cannot load a model"),
        (damaged_weights, "cannot load a model"),
        (weights_missing, "has no weights for"),
        (kept_heads_disagree, "disagree with the weights"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    mistake: Any, says: str, bert: Path, headcount: Any, tmp_path: Path
) -> None:
    arguments = mistake(bert, tmp_path)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    ended = headcount(*arguments)
    assert ended.code == 2
    assert says in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    with (
        pytest.raises(hc.HeadcountError, match="No space left"),
        new_folder(tmp_path / "out") as folder,
    ):
        (folder / "half").write_text("written")
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []
