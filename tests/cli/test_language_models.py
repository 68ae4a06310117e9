"""Language models on the command line: no task to name, no epochs to set to 0."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headcount as hc
from headcount.tasks.windows import opening
from tests.runs.test_other_tasks import images, language_modelling
from tests.tasks.test_language_modelling import transcribed
from tests.tasks.text_data import captions, write

MODELS, DATA = os.environ.get("HEADCOUNT_MODELS"), os.environ.get("HEADCOUNT_DATA")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return language_modelling(tmp_path).model


@pytest.mark.parametrize("name", ["text.txt", "text.jsonl"])
@pytest.mark.parametrize("method", ["surgeon", "michel"])
def test_pruning_without_training_is_one_command(
    headcount: Any, model: str, tmp_path: Path, name: str, method: str
) -> None:
    lines = captions(300)[1]
    if name.endswith("jsonl"):
        lines = [json.dumps({"text": line}) for line in lines]
    write(tmp_path / name, lines)
    out = tmp_path / "small"
    call = ("prune", model, "--data", tmp_path / name, "--method", method, "--output", out)
    ran = headcount(*call, "--keep", 0.75, "--no-speed")
    assert ran.code == 0, ran.err
    assert "characters of the training text are held out for that" in ran.out + ran.err
    assert len(hc.find_heads(AutoModelForCausalLM.from_pretrained(out))) == 3
    metrics = json.loads((out / "metrics.json").read_text())
    before, after = (metrics[when]["held-out"] for when in ("before", "scores"))
    assert before["tokens"] == after["tokens"] and before["bits_per_byte"] > 0
    assert json.loads((out / "settings.json").read_text())["task"] == "language-modelling"
    again = headcount("evaluate", out, "--data", tmp_path / name, "--json")
    assert again.code == 0 and list(json.loads(again.out)) == [name.removesuffix(".txt")]


def test_those_who_train_on_still_can(headcount: Any, model: str, tmp_path: Path) -> None:
    out = tmp_path / "small"
    write(tmp_path / "text.txt", captions(300)[1])
    ran = headcount(
        "prune", model, "--data", tmp_path / "text.txt", "--method", "michel", "--keep", 3,
        "--recovery-epochs", 1, "--distil", 0.5, "--max-steps", 2, "--no-speed", "--output", out,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["scores"] != metrics["before"]


def test_a_stride_changes_the_perplexity(headcount: Any, model: str, tmp_path: Path) -> None:
    write(tmp_path / "text.txt", captions(33)[1])
    call = ("evaluate", model, "--data", tmp_path / "text.txt", "--json")
    plain, overlapping = (
        json.loads(headcount(*call, *more).out)["text"] for more in ((), ("--stride", 8))
    )
    assert overlapping["tokens"] > plain["tokens"]
    assert overlapping["perplexity"] != plain["perplexity"]


def test_mistakes(headcount: Any, model: str, tmp_path: Path, monkeypatch: Any) -> None:
    write(tmp_path / "text.txt", captions(33)[1])
    (tmp_path / "vision").mkdir()
    vision = images(tmp_path / "vision")

    def told(*call: object) -> str:
        ran = headcount(*call)
        assert ran.code == 2, ran.out
        return " ".join(ran.err.split())

    text = ("--data", tmp_path / "text.txt")
    assert "the task is missing; give --task" in told("evaluate", vision.model, *text)
    assert "the data is missing; give --data" in told("evaluate", model, "--task", "lambada")
    assert "the data is missing; give --data, or files as --train" in told("evaluate", model)
    assert "there is no folder ./nothing" in told("evaluate", "./nothing", *text)
    assert "stride is 64, which leaves out tokens" in told("evaluate", model, *text, "--stride", 64)
    assert "--harness is 'a,', expected tasks such as" in told("evaluate", model, "--harness", "a,")
    alone = told("evaluate", model, *text, "--harness-tasks", tmp_path)
    assert "but no task is named; give --harness NAME too" in alone
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    missing = told("evaluate", model, "--harness", "some_task")
    assert "run: pip install 'headcount[harness]'" in missing


@pytest.mark.skipif(not (MODELS and DATA), reason="needs HEADCOUNT_MODELS and HEADCOUNT_DATA")
@pytest.mark.parametrize("stride", [None, 100])
def test_a_real_model_on_wikitext(headcount: Any, tmp_path: Path, stride: int | None) -> None:
    import gzip

    assert MODELS and DATA
    model = f"{MODELS}/stories"
    with gzip.open(f"{DATA}/lm/wikitext2.test.tokens.gz", "rt", encoding="utf-8") as file:
        text = file.read(20_000)
    (tmp_path / "wiki.test.tokens").write_text(text, encoding="utf-8")
    more = () if stride is None else ("--stride", stride)
    got = headcount("evaluate", model, "--data", tmp_path, "--json", *more)
    (scores,) = json.loads(got.out).values()
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer(text)["input_ids"]
    assert opening(tokenizer) == [tokenizer.bos_token_id] == ids[:1]
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    losses = transcribed(loaded, ids, 256, stride or 256)
    assert scores["tokens"] == len(losses)
    loss = sum(losses) / len(losses)
    assert scores["perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)
    if stride:  # then all text is counted; without it, all but a token for each window
        bits = sum(losses) / math.log(2) / len(text.encode())
        assert scores["bits_per_byte"] == pytest.approx(bits, rel=1e-6)
