"""After a cut, a classifier's last map is fitted to its old answers."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BlipConfig,
    BlipForConditionalGeneration,
    PreTrainedModel,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
)

import headcount as hc
from headcount.surgery.answers import find_answers
from headcount.surgery.least_squares import LeastSquares
from tests.tiny import build, families

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
}


def classifier(cls: type[PreTrainedModel]) -> PreTrainedModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        num_labels=3,
        initializer_range=0.4,
    )
    return cls(config).eval()


def texts(number: int, seed: int = 0) -> list[dict[str, Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 40, (number, 4, 7), generator=draw)
    mask = (torch.arange(7) < 5).long().repeat(4, 1)
    return [{"input_ids": batch, "attention_mask": mask} for batch in ids]


def logits(model: PreTrainedModel, batches: list[dict[str, Tensor]]) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(**batch).logits[:, :5] for batch in batches])


@pytest.mark.parametrize("cls", [BertForSequenceClassification, BertForTokenClassification])
def test_answers_to_other_texts_come_closer(cls: type[PreTrainedModel]) -> None:
    model, sample, others = classifier(cls), texts(60), texts(30, seed=1)
    mask = hc.HeadMask.random(hc.find_heads(model), keep=2, seed=0)
    wanted, missed = logits(model, others), []
    for answers in (False, True):
        fitted = copy.deepcopy(model)
        hc.compensate(fitted, mask, sample, answers=answers)
        hc.remove_heads(fitted, mask)
        missed.append(float((logits(fitted, others) - wanted).square().mean()))
        same = torch.equal(fitted.classifier.weight, model.classifier.weight)
        assert same != answers
    assert missed[1] < 0.9 * missed[0]


def test_it_is_the_map_of_least_squares_with_the_ridge_that_is_found() -> None:
    """Written again in plain words: states of the cut model, and the answers of the whole one."""
    model, sample = classifier(BertForSequenceClassification), texts(40)
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    cut = copy.deepcopy(model)
    hc.compensate(cut, mask, sample, answers=False)
    hc.remove_heads(cut, mask)
    with torch.no_grad():
        states = torch.cat([cut.bert(**batch).pooler_output for batch in sample]).double()
    missing = (logits(model, sample) - logits(cut, sample)).double()
    centred, wanted = states - states.mean(0), missing - missing.mean(0)
    sums = LeastSquares(constant=True)
    sums.add(states, missing)
    ridge = sums.best_ridge()
    penalty = ridge * centred.square().sum(0).mean() * torch.eye(16)
    change = torch.linalg.solve(centred.T @ centred + penalty, centred.T @ wanted).T
    fitted = copy.deepcopy(model)
    hc.compensate(fitted, mask, sample)
    expected = cut.classifier.weight + change.float()
    assert torch.allclose(fitted.classifier.weight, expected, atol=1e-5)


def test_the_ridge_is_the_one_with_the_least_error_of_rows_left_out() -> None:
    """Generalised cross-validation comes close to leaving each row out in turn."""
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(60, 20, generator=draw, dtype=torch.float64)
    truth = torch.randn(20, 3, generator=draw, dtype=torch.float64)
    missing = values @ truth + 5 * torch.randn(60, 3, generator=draw, dtype=torch.float64)

    def left_out(ridge: float) -> float:
        error = 0.0
        for row in range(60):
            sums = LeastSquares(constant=True)
            others = torch.arange(60) != row
            sums.add(values[others], missing[others])
            change, constant = sums.solve(ridge)
            error += float((missing[row] - change @ values[row] - constant).square().sum())
        return error

    sums = LeastSquares(constant=True)
    sums.add(values, missing)
    ridges = [10.0**power for power in range(-4, 3)]
    assert sums.best_ridge() == min(ridges, key=left_out)
    noise = LeastSquares(constant=True)
    noise.add(values[:10], torch.randn(10, 3, generator=draw, dtype=torch.float64))
    change, _ = noise.solve(noise.best_ridge())  # fewer rows than values: nothing to learn
    assert float(change.abs().max()) < 0.1


def test_from_one_example_again_and_again_only_the_constant_is_learned() -> None:
    """It differs from its mean by rounding, which is nothing to learn from."""
    draw = torch.Generator().manual_seed(0)
    values, missing = torch.randn(1, 20, generator=draw), torch.randn(1, 3, generator=draw)
    for times in range(1, 30):
        sums = LeastSquares(constant=True)
        for _ in range(times):
            sums.add(values, missing)
        assert sums.best_ridge() == math.inf
        change, constant = sums.solve(math.inf)
        assert not change.any()
        assert torch.allclose(constant, missing.double())


def test_padding_and_places_without_a_label_do_not_count() -> None:
    model, sample = classifier(BertForTokenClassification), texts(20)
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    weights = []
    for padding in (1, 2):
        fitted = copy.deepcopy(model)
        batches = [
            {**batch, "input_ids": batch["input_ids"].where(batch["attention_mask"] == 1, padding)}
            for batch in sample
        ]
        hc.compensate(fitted, mask, batches)
        weights.append(fitted.classifier.weight)
    assert torch.allclose(*weights, atol=1e-6)


@families("bert", "llama", "t5", "vit", "gpt2")
def test_a_language_model_has_no_such_map(family: Any) -> None:
    model = build(family)
    found = find_answers(model, family.inputs(), ())
    assert (found is not None) == (family.name == "vit")


def test_what_is_frozen_stays() -> None:
    model, batch = classifier(BertForSequenceClassification), texts(1)[0]
    assert find_answers(model, batch, ()) is not None
    assert find_answers(model, batch, ("classifier.weight",)) is None


def test_a_map_that_is_used_elsewhere_too_stays() -> None:
    """Blip writes with its embeddings; its class does not say so."""
    config = BlipConfig(
        text_config=TINY | {"vocab_size": 40, "encoder_hidden_size": 16},
        vision_config=TINY | {"image_size": 8, "patch_size": 4},
        tie_word_embeddings=True,
    )
    writer = BlipForConditionalGeneration(config).eval()
    shown = {"pixel_values": torch.randn(4, 3, 8, 8), **texts(1)[0]}
    with torch.no_grad():
        assert find_answers(writer, shown, ()) is None
    model, batch = classifier(BertForTokenClassification), texts(1)[0]
    assert find_answers(model, batch, ()) is not None
    model.second = torch.nn.Linear(16, 3)
    model.second.weight = model.classifier.weight
    assert find_answers(model, batch, ()) is None


def test_frames_of_a_shorter_recording_do_not_count() -> None:
    """A waveform has many samples for each answer."""
    torch.manual_seed(0)
    config = Wav2Vec2Config(
        **TINY
        | {"vocab_size": 6, "conv_dim": (8, 8), "conv_kernel": (4, 4), "conv_stride": (2, 2)},
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=2,
        num_conv_pos_embedding_groups=1,
        feat_extract_norm="layer",
    )
    model = Wav2Vec2ForCTC(config).eval()
    found = find_answers(model, {"input_values": torch.randn(2, 80)}, ())
    assert found is not None
    heard = torch.randn(2, 18, 16), torch.randn(2, 18, 6)
    mask = torch.ones(2, 80).long()
    mask[1, 40:] = 0
    found.add(heard, heard, model, {"attention_mask": mask})
    frames = int(model._get_feat_extract_output_lengths(torch.tensor(40)))
    assert found._sums.count == 18 + frames
