"""Labels that a model draws itself: right in distribution, and good enough to score heads with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering, BertForSequenceClassification

import headcount as hc
from headcount import HeadcountError
from headcount.batch import IGNORED
from headcount.pruners.own_answers import own_answers
from tests.tiny import build, family_named

SIZES: dict[str, Any] = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 16, "num_labels": 3, "initializer_range": 0.5,
}  # fmt: skip


def classifier() -> Any:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZES)).eval()


def test_classes_are_drawn_as_often_as_the_model_says() -> None:
    model, batch = classifier(), family_named("bert").inputs()
    many = {name: value[:1].expand(4000, -1) for name, value in batch.items()}
    (found,) = own_answers(model, [many], seed=3)
    with torch.no_grad():
        said = model(**batch).logits[0].softmax(-1)
    drawn = found["labels"].bincount(minlength=len(said)) / 4000
    torch.testing.assert_close(drawn, said, atol=0.03, rtol=0)


def test_next_tokens_are_drawn_for_every_place_but_the_first_and_padding() -> None:
    model = build("llama").eval()
    batch = dict(family_named("llama").inputs())
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    batch["attention_mask"][0, -2:] = 0
    (found,) = own_answers(model, [{**batch, "labels": batch["input_ids"]}])
    labels = found["labels"]
    assert labels.shape == batch["input_ids"].shape
    assert (labels[:, 0] == IGNORED).all() and (labels[0, -2:] == IGNORED).all()
    assert (labels[1, 1:] != IGNORED).all()
    assert torch.isfinite(model(**found).loss)


def test_the_same_seed_draws_the_same() -> None:
    model, batch = build("llama").eval(), family_named("llama").inputs()
    one, again, other = (own_answers(model, [batch], seed)[0]["labels"] for seed in (0, 0, 1))
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_scores_without_labels_are_those_with_the_model_s_own() -> None:
    """The labels of the data are not read: wrong ones give the same heads."""
    model, batch = classifier(), dict(family_named("bert").inputs())
    size = len(batch["input_ids"])
    for method in (hc.Michel, hc.Surgeon):
        masks = []
        for label in (0, 1):
            data: list[Any] = [{**batch, "labels": torch.full((size,), label)}]
            masks.append(method(3).fit(model, own_answers(model, data)))
        assert masks[0] == masks[1]


def test_answers_that_come_word_by_word_are_refused() -> None:
    with pytest.raises(HeadcountError, match="writes its answers word by word"):
        own_answers(build("t5"), [family_named("t5").inputs()])


def test_several_labels_and_several_numbers_are_drawn() -> None:
    model, batch = classifier(), family_named("bert").inputs()
    for problem, kind in (("multi_label_classification", {0.0, 1.0}), ("regression", None)):
        model.config.problem_type = problem
        (found,) = own_answers(model, [batch])
        assert found["labels"].shape == (len(batch["input_ids"]), 3)
        assert kind is None or set(found["labels"].flatten().tolist()) <= kind
        assert torch.isfinite(model(**found).loss)


def test_answers_that_are_no_logits_are_refused() -> None:
    model = BertForQuestionAnswering(BertConfig(**{**SIZES, "num_labels": 2}))
    with pytest.raises(HeadcountError, match="gives no logits to draw an answer from"):
        own_answers(model, [family_named("bert").inputs()])
