import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from headcount import HeadcountError
from headcount.tasks.base import DataSettings
from headcount.tasks.from_scratch import train_tokenizer
from headcount.tasks.language_modelling import LanguageModelling, _pieces
from tests.tasks.text_data import captions, write

TRAIN, VALID = captions(200)[1], captions(33, seed=1)[1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.txt.gz", TRAIN)
    write(folder / "valid.txt", VALID)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> str:
    tokenizer = train_tokenizer(TRAIN, 60)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            n_layer=1, n_head=2, n_embd=16, n_positions=32, vocab_size=len(tokenizer),
            bos_token_id=1, eos_token_id=2, initializer_range=0.5,
        )
    )  # fmt: skip
    folder = str(tmp_path / "gpt2")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make(data: Path, **others: Any) -> LanguageModelling:
    return LanguageModelling(DataSettings(str(data), cache=data.parent / "cache", **others))


def evaluate(task: LanguageModelling, model: str, tmp_path: Path, batch: int) -> Any:
    tokenizer = task.load_processor(model)
    loaded = task.load_model(model, tokenizer)
    args = TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_eval_batch_size=batch, report_to=[],
        disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = Trainer(
        model=loaded, args=args, data_collator=task.collator(tokenizer, loaded),
        preprocess_logits_for_metrics=task.reduce,
    )  # fmt: skip
    return trainer.predict(task.evaluation_data(tokenizer)["validation"]), tokenizer, loaded


@pytest.mark.parametrize("batch", [1, 5])
def test_perplexity_is_that_of_the_whole_text(
    data: Path, model: str, tmp_path: Path, batch: int
) -> None:
    task = make(data, options={"block_size": 16})
    output, tokenizer, loaded = evaluate(task, model, tmp_path, batch)
    assert output.predictions.shape[1] == 2  # no logits were gathered
    scores = task.scores(output, tokenizer, "validation")
    text = "".join(line + "\n" for line in VALID)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    losses = []
    loaded.eval()
    with torch.no_grad():
        for start in range(0, ids.shape[1] - 1, 15):
            block = ids[:, start : start + 16]
            logs = loaded(input_ids=block).logits[0, :-1].log_softmax(-1)
            losses += [-logs[i, token].item() for i, token in enumerate(block[0, 1:])]
    assert len(losses) == ids.shape[1] - 1 == scores["tokens"]
    assert scores["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-4)
    blocks = task.predictions(output, tokenizer, "validation")
    assert sum(blocks) == pytest.approx(sum(losses), rel=1e-5)
    assert len(blocks) == math.ceil((ids.shape[1] - 1) / 15)


def test_training_blocks_are_whole_and_follow_each_other(data: Path, model: str) -> None:
    task = make(data, options={"block_size": 16})
    tokenizer = task.load_processor(model)
    train = task.train_data(tokenizer)
    assert set(train["length"]) == {16}
    text = "".join(line + "\n" for line in TRAIN)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert [token for block in train["input_ids"] for token in block] == ids[: 16 * len(train)]
    assert len(train) == len(ids) // 16
    drawn = make(data, options={"block_size": 16}, limit_train=5, limit_eval=2)
    assert len(drawn.train_data(tokenizer)) == 5
    assert len(drawn.evaluation_data(tokenizer)["validation"]) == 2


def test_the_block_is_no_longer_than_the_model_can_read(data: Path, model: str) -> None:
    assert make(data, max_length=24).block_size(make(data).load_processor(model)) == 24
    task = make(data)
    with pytest.raises(HeadcountError, match="reads at most 32 tokens, but blocks have 128"):
        task.load_model(model, task.load_processor(model))


def test_an_infinite_perplexity(data: Path, model: str) -> None:
    task = make(data)
    output: Any = type("Output", (), {"predictions": np.array([[1e6, 2.0]])})
    assert task.scores(output, None, "validation")["perplexity"] == math.inf
    assert not task.greater_is_better


def test_pieces_are_the_text() -> None:
    text = "a b\n\n c\nd\n" * 3000
    pieces = list(_pieces(text))
    assert "".join(pieces) == text and len(pieces) > 1
    assert all(piece[0] in "ad" and piece[-1] == "\n" for piece in pieces)


def test_files_by_name(tmp_path: Path) -> None:
    write(tmp_path / "wiki.train.tokens", TRAIN)
    write(tmp_path / "wiki.test.tokens", VALID)
    assert list(make(tmp_path)._texts) == ["train", "validation"]
    named = make(tmp_path / "wiki.train.tokens", evaluate=("wiki.test.tokens",))
    assert list(named._texts) == ["train", "wiki.test.tokens"]


def test_bad_input(tmp_path: Path, model: str) -> None:
    data = tmp_path / "bad"
    with pytest.raises(HeadcountError, match="there is no file or folder"):
        make(data)
    data.mkdir()
    with pytest.raises(HeadcountError, match=r"has no text train\.txt .* it has no files"):
        make(data)
    write(data / "train.txt", ["a"])
    with pytest.raises(HeadcountError, match=r"has no text validation\.txt"):
        make(data)
    write(data / "dev.txt", [""])
    with pytest.raises(HeadcountError, match=r"dev\.txt is empty"):
        make(data)
    write(data / "dev.txt", ["A"])
    task = make(data)
    with pytest.raises(HeadcountError, match="less than one block of 128"):
        task.train_data(task.load_processor(model))
    write(data / "train_2.txt", ["a"])
    with pytest.raises(HeadcountError, match="several files for train"):
        make(data)
    with pytest.raises(HeadcountError, match="nothing to predict"):
        make(data, options={"block_size": 1})


def test_a_model_that_sees_what_comes_is_refused(data: Path, model: str, tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
    torch.manual_seed(0)
    both_ways = BertForMaskedLM(
        BertConfig(vocab_size=60, intermediate_size=16, initializer_range=0.5, **sizes)
    )
    folder = str(tmp_path / "bert")
    both_ways.save_pretrained(folder)
    task = make(data, max_length=8)
    tokenizer = task.load_processor(model)
    with pytest.raises(HeadcountError, match="sees the words it has to predict"):
        task.load_model(folder, tokenizer)
