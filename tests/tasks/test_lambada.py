"""LAMBADA, beside a plain transcription of what lm-evaluation-harness does."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headcount import HeadcountError
from headcount.runs.evaluate import evaluate_model
from headcount.runs.progress import Silent
from headcount.runs.settings import RunSettings, TrainingSettings
from headcount.tasks.base import DataSettings
from headcount.tasks.lambada import Lambada
from tests.runs.test_other_tasks import language_modelling
from tests.tasks.text_data import captions

PASSAGES = [*captions(20, seed=3)[1], "a man  sleeps", 'a "dog"\n\nruns']
MODELS, DATA = os.environ.get("HEADCOUNT_MODELS"), os.environ.get("HEADCOUNT_DATA")


def write_passages(path: Path, passages: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in passages))
    return path


def transcribed(folder: str, passages: list[str]) -> tuple[float, float]:
    """Accuracy and perplexity as lambada_openai has them, passage by passage."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    limit = model.config.max_position_embeddings
    losses, right = [], []
    for text in passages:
        context = " ".join(text.split(" ")[:-1])
        target = " " + text.split(" ")[-1]
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, target = context[:-spaces], context[-spaces:] + target
        # The tiny model's tokenizer ends a text with </s>, which no language model's does.
        whole, before = (
            [token for token in tokenizer.encode(part) if token != tokenizer.eos_token_id]
            for part in (context + target, context)
        )
        known = len(before)
        last = whole[known:]
        read = whole[-(limit + 1) :][:-1]
        with torch.no_grad():
            logs = model(torch.tensor([read])).logits[0, -len(last) :].double().log_softmax(-1)
        right.append(logs.argmax(-1).tolist() == last)
        losses.append(-sum(logs[place, token].item() for place, token in enumerate(last)))
    return sum(right) / len(right), math.exp(sum(losses) / len(losses))


def evaluated(model: str, data: Path, **training: Any) -> dict[str, float]:
    settings = RunSettings(model, "lambada", str(data), training=TrainingSettings(**training))
    _, results = evaluate_model(settings, None, Silent())
    (result,) = results.values()
    assert sum(result.predictions) == round(result.metrics["accuracy"] * len(result.predictions))
    assert result.gold is not None and set(result.gold) == {1}
    return result.metrics


@pytest.mark.parametrize("batch", [1, 7, None])
def test_last_words_are_scored_as_the_harness_does(tmp_path: Path, batch: int | None) -> None:
    model = language_modelling(tmp_path).model
    long = [" ".join([*PASSAGES[:6], "a dog"])]  # loses its beginning: the model reads 32 tokens
    data = write_passages(tmp_path / "test.jsonl", PASSAGES + long)
    accuracy, perplexity = transcribed(model, PASSAGES + long)
    metrics = evaluated(model, data, eval_batch_size=batch)
    assert metrics["accuracy"] == accuracy
    assert metrics["perplexity"] == pytest.approx(perplexity, rel=1e-5)


def test_a_word_that_is_right(tmp_path: Path) -> None:
    """A model that was taught the passages by heart gets their last words right."""
    model = language_modelling(tmp_path).model
    loaded, tokenizer = (
        auto.from_pretrained(model) for auto in (AutoModelForCausalLM, AutoTokenizer)
    )
    ids = torch.tensor([tokenizer.encode("a man sleeps", add_special_tokens=False)])
    step = torch.optim.Adam(loaded.parameters(), 0.01)
    for _ in range(60):
        step.zero_grad()
        loaded(ids, labels=ids).loss.backward()
        step.step()
    loaded.save_pretrained(model)
    data = write_passages(tmp_path / "test.jsonl", ["a man sleeps", "a man jumps"])
    assert evaluated(model, data)["accuracy"] == 0.5


@pytest.mark.skipif(not (MODELS and DATA), reason="needs HEADCOUNT_MODELS and HEADCOUNT_DATA")
def test_a_real_model(tmp_path: Path) -> None:
    import gzip

    assert MODELS and DATA
    with gzip.open(f"{DATA}/lm/lambada_test.jsonl.gz", "rt", encoding="utf-8") as file:
        passages = [json.loads(line)["text"] for line in file][:40]
    data = write_passages(tmp_path / "test.jsonl", passages)
    accuracy, perplexity = transcribed(f"{MODELS}/stories", passages)
    metrics = evaluated(f"{MODELS}/stories", data)
    assert metrics["accuracy"] == accuracy
    assert metrics["perplexity"] == pytest.approx(perplexity, rel=1e-4)


def test_bad_input(tmp_path: Path) -> None:
    model = language_modelling(tmp_path).model

    def make(passages: list[str], **others: Any) -> Lambada:
        data = str(write_passages(tmp_path / "x.jsonl", passages))
        return Lambada(DataSettings(data, cache=tmp_path / "cache", **others))

    for wrong in ("word", "ends with a space ", ""):
        with pytest.raises(HeadcountError, match=r"row 2 of .* has no last word after a space"):
            make(["a man sleeps", wrong])
    with pytest.raises(HeadcountError, match="has no column 'body', it has text"):
        make(["a man sleeps"], text=("body",))
    with pytest.raises(HeadcountError, match="has no option 'block_size'; it has config"):
        make(["a man sleeps"], options={"block_size": 2})
    task = make(["a man sleeps"])
    with pytest.raises(HeadcountError, match="lambada has passages to evaluate on and none to"):
        task.train_data(task.load_processor(model))
    for name in ("a", "b"):
        write_passages(tmp_path / "data" / f"{name}.jsonl", PASSAGES)
    with pytest.raises(HeadcountError, match="has no part called test; it has a, b: name one"):
        Lambada(DataSettings(str(tmp_path / "data")))
