"""The main job beyond classifying text: translation, language modelling and images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    ViTConfig,
    ViTForImageClassification,
)

import headcount as hc
from headcount import HeadcountError
from headcount.bench.size import peak_memory
from headcount.runs.evaluate import evaluate_model
from headcount.runs.progress import Silent
from headcount.runs.prune import prune
from headcount.runs.result import RunResult, Sides
from headcount.runs.run import Run
from headcount.runs.settings import ExampleSettings, RunSettings, TrainingSettings
from headcount.runs.trainer import evaluate
from headcount.tasks.from_scratch import train_tokenizer
from tests.tasks.test_images import PROCESSOR
from tests.tasks.text_data import captions, write, write_pairs

BRIEF = TrainingSettings(epochs=1.0, batch_size=16, eval_batch_size=8, max_length=32)
SIZE = {"vocabulary": 100, "layers": 2, "heads": 2, "width": 16, "feed_forward": 16, "num_beams": 2}


def translation(folder: Path) -> RunSettings:
    data = folder / "data"
    data.mkdir()
    write_pairs(data, "train", 64)
    write_pairs(data, "val", 12, seed=1)
    examples = ExampleSettings(source="de", target="en", options=SIZE)
    return RunSettings("scratch:marian", "translation", str(data), examples=examples)


def language_modelling(folder: Path, vocabulary: int = 0) -> RunSettings:
    train, valid = captions(200)[1], captions(33, seed=1)[1]
    (folder / "data").mkdir()
    write(folder / "data" / "train.txt", train)
    write(folder / "data" / "valid.txt", valid)
    tokenizer = train_tokenizer(train, 60)
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=16, n_positions=32, vocab_size=vocabulary or len(tokenizer),
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder / "gpt2")
    tokenizer.save_pretrained(folder / "gpt2")
    return RunSettings(str(folder / "gpt2"), "language-modelling", str(folder / "data"))


def images(folder: Path) -> RunSettings:
    draw = np.random.default_rng(0)
    for split, count in (("train", 24), ("val", 8)):
        for number, label in enumerate(("dark", "light")):
            place = folder / "data" / split / label
            place.mkdir(parents=True)
            for one in range(count):
                pixels = draw.integers(0, 60, (8, 8, 3)) + 180 * number
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{one}.png")
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=8, patch_size=4,
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder / "vit")
    (folder / "vit" / "preprocessor_config.json").write_text(PROCESSOR)
    return RunSettings(str(folder / "vit"), "image-classification", str(folder / "data"))


TASKS = {
    "translation": (translation, AutoModelForSeq2SeqLM, "bleu"),
    "language-modelling": (language_modelling, AutoModelForCausalLM, "perplexity"),
    "image-classification": (images, AutoModelForImageClassification, "accuracy"),
}


@pytest.mark.parametrize("method", ["handover", "joint-dsp", "michel"])
@pytest.mark.parametrize("task", TASKS)
def test_any_task_is_pruned_and_reloads(task: str, method: str, tmp_path: Path) -> None:
    make, auto, metric = TASKS[task]
    settings = replace(make(tmp_path), method=method, keep=3, training=BRIEF, seed=2)
    out, base = tmp_path / "out", tmp_path / "base"
    result = prune(settings, out, base=base, speed=method == "michel")
    model: Any = auto.from_pretrained(out)
    assert len(hc.find_heads(model)) == 3
    assert result.metric == metric
    (split,) = result.scores
    _, again = evaluate_model(replace(settings, model=str(out)), None, Silent())
    assert again[split].metrics == pytest.approx(result.scores[split], rel=1e-4)
    assert len(json.loads((out / "predictions" / f"{split}.json").read_text())) > 4
    assert (result.generated_per_second is not None) == (
        task == "translation" and method == "michel"
    )
    reads = task == "language-modelling"
    assert (result.cache_per_token is not None) == reads
    assert (result.tokens_per_second is not None) == (reads and method == "michel")
    if reads:
        assert result.cache_per_token == Sides(2 * 4 * 16 * 2, 2 * 4 * 16 * 3 / 2)
        assert RunResult.load(out) == result
    if task == "translation":
        assert "|bleu" in result.signatures[split].lower() or "tok:13a" in result.signatures[split]


def test_a_decoder_without_a_cache_is_measured_without_it(tmp_path: Path) -> None:
    settings = language_modelling(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    config = OpenAIGPTConfig(
        n_layer=2, n_head=2, n_embd=16, n_positions=32, vocab_size=len(tokenizer)
    )
    OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path / "gpt")
    tokenizer.save_pretrained(tmp_path / "gpt")
    settings = replace(settings, model=str(tmp_path / "gpt"), method="random", keep=3)
    result = prune(replace(settings, training=BRIEF), tmp_path / "out")
    assert result.cache_per_token is None and result.tokens_per_second is not None


def test_a_new_encoder_decoder_is_no_fine_tuned_model(tmp_path: Path) -> None:
    settings = replace(translation(tmp_path), method="michel", keep=3, training=BRIEF)
    with pytest.raises(HeadcountError, match="needs a model that is fine-tuned for translation"):
        prune(settings, tmp_path / "out")


def test_scores_of_an_encoder_decoder_may_be_of_one_kind(tmp_path: Path) -> None:
    cross = {"kinds": ["cross"]}
    settings = replace(translation(tmp_path), keep=1, training=BRIEF, settings=cross)
    prune(settings, tmp_path / "out", speed=False)
    mask = hc.HeadMask.load(tmp_path / "out" / "mask.json")
    kept = {kind: sum(name.startswith(kind) for name in mask.names) for kind in
            ("encoder", "decoder", "cross")}  # fmt: skip
    assert kept == {"encoder": 4, "decoder": 4, "cross": 1}


def test_an_evaluation_holds_the_logits_of_one_batch(tmp_path: Path) -> None:
    vocabulary, batch = 20_000, 4
    settings = replace(
        language_modelling(tmp_path, vocabulary), training=replace(BRIEF, eval_batch_size=batch)
    )
    run = Run.open(settings, tmp_path / "out", Silent())
    trainer, sets = run.trainer(run.load()), run.sets
    (data,) = sets.values()
    assert len(data) > 2 * batch
    logits = batch * max(data["length"]) * vocabulary * 4
    peak = peak_memory(lambda: evaluate(trainer, run.task, run.processor, sets, Silent()))
    assert logits < peak < 1.5 * logits
