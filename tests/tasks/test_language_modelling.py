import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from tokenizers.processors import TemplateProcessing
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
from headcount.tasks.language_modelling import LanguageModelling
from headcount.tasks.texts import hold_out
from headcount.tasks.windows import opening, pieces_of, tokens_and_bytes, windows_of
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


def text_of(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


def transcribed(model: Any, ids: list[int], size: int, stride: int) -> list[float]:
    """The protocol as transformers' page on perplexity has it, one token at a time."""
    losses, seen = [], 0
    model.eval()
    with torch.no_grad():
        for begin in range(0, len(ids), stride):
            end = min(begin + size, len(ids))
            window = torch.tensor([ids[begin:end]])
            logs = model(input_ids=window).logits[0].double().log_softmax(-1)
            for place in range(1, end - begin):
                if begin + place >= seen:
                    losses.append(-logs[place - 1, window[0, place]].item())
            seen = end
            if end == len(ids):
                break
    return losses


@pytest.mark.parametrize(("batch", "stride"), [(1, 0), (5, 0), (1, 4), (3, 15), (2, 1)])
def test_perplexity_is_the_fields(
    data: Path, model: str, tmp_path: Path, batch: int, stride: int
) -> None:
    task = make(data, options={"block_size": 16, "stride": stride})
    output, tokenizer, loaded = evaluate(task, model, tmp_path, batch)
    assert output.predictions.shape[1] == 2  # no logits were gathered
    scores = task.scores(output, tokenizer, "validation")
    text = text_of(VALID)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    losses = transcribed(loaded, ids, 16, stride or 16)
    windows = math.ceil(len(ids) / 16)
    assert len(losses) == scores["tokens"] == len(ids) - (1 if stride else windows)
    assert scores["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert scores["perplexity"] == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-6)
    assert sum(task.predictions(output, tokenizer, "validation")) == pytest.approx(
        sum(losses), rel=1e-6
    )
    if stride == 1:  # all but the first token are counted, and with them all but its bytes
        size = len(text.encode()) - len(tokenizer.decode(ids[:1]).encode())
        assert scores["bits_per_byte"] == pytest.approx(sum(losses) / math.log(2) / size, rel=1e-6)


def test_windows_count_each_token_once() -> None:
    for length in range(2, 40):
        for size in range(2, 12):
            for stride in range(1, size + 1):
                counted = [
                    token
                    for window in windows_of(length, size, stride)
                    for token in range(window.counted, window.end)
                ]
                firsts = range(0, length, size) if stride == size else (0,)
                assert counted == [token for token in range(length) if token not in firsts]
    assert [(w.begin, w.end) for w in windows_of(10, 4, 4, whole=True)] == [(0, 4), (4, 8)]


def test_beginning_of_text_comes_once_as_the_tokenizer_has_it(data: Path, model: str) -> None:
    task = make(data, options={"block_size": 16})
    tokenizer = task.load_processor(model)
    (plain,) = task.evaluation_data(tokenizer).values()
    tokenizer.add_tokens(["<bos>"])
    backend = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single="<bos> $A </s>",
        special_tokens=[(one, backend.token_to_id(one)) for one in ("<bos>", "</s>")],
    )
    (begun,) = task.evaluation_data(tokenizer).values()
    first = backend.token_to_id("<bos>")
    assert opening(tokenizer) == [first]
    tokens, without = ([t for row in rows["input_ids"] for t in row] for rows in (begun, plain))
    assert tokens == [first, *without]


@pytest.mark.parametrize("text", ["a b\n\n c", " ä€😀 x\n", "  "])
def test_bytes_of_tokens_are_those_of_the_text(model: str, data: Path, text: str) -> None:
    tokenizer = make(data).load_processor(model)
    ids, sizes = tokens_and_bytes(text, tokenizer)
    assert len(ids) == len(sizes) and min(sizes, default=0) >= 0
    assert not ids or sum(sizes) == len(text.encode())


def test_sizes_unless_they_are_given(data: Path, model: str) -> None:
    task = make(data)
    assert (task.window, task.block) == (2048, 512)
    task.load_processor(model)  # the model reads 32 tokens
    assert (task.window, task.block, task.examples_at_once()) == (32, 32, 64)
    given = make(data, max_length=24)
    given.load_processor(model)
    assert (given.window, given.block) == (24, 24)
    own = make(data, options={"block_size": 8})
    assert (own.window, own.block) == (8, 8)
    assert task.signature("validation").endswith("|window:32|stride:32")


def test_a_long_text_is_not_scored_whole(data: Path) -> None:
    assert make(data).calibrated_on == 64
    assert make(data, options={"block_size": 2048}).calibrated_on == 16
    assert make(data, options={"block_size": 65536}).calibrated_on == 1
    assert make(data, limit_train=500).calibrated_on is None


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
    task = make(data, options={"block_size": 128})
    with pytest.raises(HeadcountError, match="reads at most 32 tokens, but blocks have 128"):
        task.load_model(model, task.load_processor(model))


def test_an_infinite_perplexity(data: Path, model: str) -> None:
    task = make(data)
    output: Any = type("Output", (), {"predictions": np.array([[1e6, 2.0]])})
    assert task.scores(output, None, "validation")["perplexity"] == math.inf
    assert not task.greater_is_better


def test_pieces_are_the_text() -> None:
    text = "a b\n\n c\nd\n" * 3000
    pieces = list(pieces_of(text))
    assert "".join(pieces) == text and len(pieces) > 1
    assert all(piece[0] in "ad" and piece[-1] == "\n" for piece in pieces)


def test_files_by_name(tmp_path: Path) -> None:
    write(tmp_path / "wiki.train.tokens", TRAIN)
    write(tmp_path / "wiki.test.tokens", VALID)
    assert list(make(tmp_path)._texts) == ["train", "test"]
    assert list(make(tmp_path, evaluate_only=True)._texts) == ["test"]
    write(tmp_path / "wiki.valid.tokens", VALID)
    assert list(make(tmp_path)._texts) == ["train", "validation"]
    assert list(make(tmp_path, evaluate_only=True)._texts) == ["test"]  # as papers report it
    named = make(tmp_path / "wiki.train.tokens", evaluate=("wiki.test.tokens",))
    assert list(named._texts) == ["train", "wiki.test.tokens"]


def test_text_to_evaluate_on_alone(tmp_path: Path, model: str) -> None:
    write(tmp_path / "wiki.test.tokens.gz", VALID)
    for task in (make(tmp_path), make(tmp_path / "wiki.test.tokens.gz", evaluate_only=True)):
        assert list(task._texts.values()) == [text_of(VALID)] and not task.remarks
        with pytest.raises(HeadcountError, match="has no training text, only text to evaluate"):
            task.train_data(task.load_processor(model))
    assert list(task._texts) == ["wiki.test.tokens"]


def test_a_training_text_is_evaluated_whole_if_there_is_no_other(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", TRAIN)
    task = make(tmp_path, evaluate_only=True)
    assert task._texts == {"text": text_of(TRAIN)} and not task.remarks


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_tables_with_a_column_of_text(tmp_path: Path, ending: str) -> None:
    rows = Dataset.from_dict({"text": [" = A = \n", "", "b, c"], "title": ["1", "2", "3"]})
    write_as = {"jsonl": rows.to_json, "csv": rows.to_csv, "parquet": rows.to_parquet}
    path = tmp_path / f"test.{ending}"
    write_as[ending](path)
    assert make(path, evaluate_only=True)._texts == {path.name: " = A = \n\n\n\n\nb, c"}
    other = make(path, evaluate_only=True, text=("title",), options={"join": " "})
    assert other._texts == {path.name: "1 2 3"}
    with pytest.raises(HeadcountError, match="has no column 'body', it has text, title"):
        make(path, evaluate_only=True, text=("body",))


def test_a_saved_data_set(tmp_path: Path) -> None:
    parts = {"train": Dataset.from_dict({"text": ["a", "b"]})}
    DatasetDict(**parts, test=Dataset.from_dict({"text": ["c"]})).save_to_disk(tmp_path / "data")
    assert make(tmp_path / "data")._texts == {"train": "a\n\nb", "test": "c"}
    assert make(tmp_path / "data", evaluate_only=True)._texts == {"test": "c"}
    with pytest.raises(HeadcountError, match="has no part dev; it has train, test"):
        make(tmp_path / "data", evaluate=("dev",))


def test_what_is_held_out_where_there_is_no_evaluation_text(tmp_path: Path, model: str) -> None:
    path = tmp_path / "text.txt"
    write(path, TRAIN * 20)
    for data in (path, tmp_path):
        task = make(data, train="text.txt")
        assert list(task._texts) == ["train", "held-out"]
        assert "".join(task._texts.values()) == text_of(TRAIN * 20)
        assert 12_000 <= len(task._texts["held-out"]) < 13_000  # a tenth would be less
        (said,) = task.remarks
        assert "characters of the training text are held out" in said
    write(tmp_path / "more.jsonl", ['{"text": "one"}', '{"text": "two"}'])
    both = make(tmp_path)._texts  # no usual names: all files
    assert "".join(both.values()) == "one\n\ntwo\n\n" + text_of(TRAIN * 20)
    assert len(hold_out("x y\n" * 100_000)[1]) == 40_000
    first, last = hold_out("one two three four")
    assert (first, last) == ("one two ", "three four")
    with pytest.raises(HeadcountError, match="too few to hold some out"):
        hold_out("a")


def test_bad_input(tmp_path: Path, model: str) -> None:
    data = tmp_path / "bad"
    with pytest.raises(HeadcountError, match="there is no file or folder"):
        make(data)
    data.mkdir()
    with pytest.raises(HeadcountError, match=r"has no text train\.txt .* it has no files"):
        make(data)
    write(data / "train.txt", ["a"])
    with pytest.raises(HeadcountError, match="too few to hold some out"):
        make(data)
    write(data / "dev.txt", [""])
    with pytest.raises(HeadcountError, match=r"dev\.txt is empty"):
        make(data)
    write(data / "dev.txt", ["A"])
    task = make(data, options={"whole_windows": True})
    with pytest.raises(HeadcountError, match="less than one block of 32"):
        task.train_data(task.load_processor(model))
    with pytest.raises(HeadcountError, match=r"the text of validation has . tokens, expected at"):
        task.evaluation_data(task.load_processor(model))
    write(data / "train_2.txt", ["a"])
    with pytest.raises(HeadcountError, match="several files for train"):
        make(data)
    with pytest.raises(HeadcountError, match="nothing to predict"):
        make(data, options={"block_size": 1})
    with pytest.raises(HeadcountError, match="stride is -1, expected tokens"):
        make(data, options={"stride": -1})
    long = make(data, options={"stride": 64}, evaluate_only=True)
    with pytest.raises(HeadcountError, match="stride is 64, which leaves out tokens between"):
        long.evaluation_data(long.load_processor(model))


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
