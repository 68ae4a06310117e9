"""A rehearsal measures what a cut would do, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForQuestionAnswering

import headcount as hc
from headcount.heads.mask import HeadMask
from headcount.pruners.curvature import curvatures
from headcount.pruners.distance import LIKELY, Answers, Distance
from headcount.pruners.recall import Recall
from headcount.pruners.rehearsal import (
    ANSWERS,
    TOKENS,
    Layer,
    Rehearsal,
    Spread,
    measured_course,
)
from headcount.surgery.outputs import outputs_of
from tests.pruners.test_surgeon import HEAD, labelled
from tests.tiny import Family, build, families, family_named


def rehearsal_of(model: Any, batches: list[Any], least: int = 0) -> Rehearsal:
    heads = hc.find_heads(model)
    found = curvatures(model, outputs_of(model, heads, HeadMask.all(heads)), batches)
    layers = [Layer(c, HEAD, c.removal_costs(HEAD, 1e-3), least) for c in found]
    return Rehearsal(model, layers, batches, 1e-3)


def ignored(done: int) -> None:
    """Nobody is told."""


@families("bert", "llama", "bart", "gpt2")
def test_what_is_rehearsed_is_what_the_cut_model_answers(family: Family) -> None:
    model, batches = build(family), labelled(family)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rehearsal = rehearsal_of(model, batches)
    assert rehearsal.distance() == pytest.approx(0.0, abs=1e-12)
    rehearsal.remove(0, 2)
    rehearsal.remove(1, 1)
    measured = rehearsal.distance()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    whole = Distance(model, batches)
    gone: list[int] = []
    for place, number in ((0, 2), (1, 1)):
        layer = rehearsal.layers[place]
        output = layer.curvature.output
        weight, bias = layer.fit(number, 1e-3)
        with torch.no_grad():
            output.projection.weight.copy_(output.by_rows(weight))
            if bias is not None:
                output.projection.bias.copy_(bias)
        gone += [output.block.indices[unit] for unit in layer.order[:number]]
    heads = hc.find_heads(model)
    hc.remove_heads(model, HeadMask.from_indices(heads, set(heads.indices) - set(gone)))
    assert whole.now() == pytest.approx(measured, rel=1e-4)


def test_the_course_is_what_measuring_every_layer_each_time_gives() -> None:
    """Layers that are not measured again are not the cheapest, on this model."""
    model, batches = build("bert"), labelled(family_named("bert"))
    lazy = measured_course(rehearsal_of(model, batches), 3, 1, ignored)
    thorough, found = rehearsal_of(model, batches), []
    for _ in lazy:
        some = [p for p, layer in enumerate(thorough.layers) if thorough.gone[p] < len(layer.order)]
        measured = {place: thorough.without(place, 1) for place in some}
        place = min(measured, key=measured.__getitem__)
        thorough.remove(place, 1)
        found.append((place, pytest.approx(measured[place], rel=1e-6)))
    assert lazy == found


@families("bert", "llama", "bart", "t5", "gpt2", "albert")
def test_what_is_recalled_is_what_would_be_computed(family: Family) -> None:
    model, batches = build(family), labelled(family)
    one = rehearsal_of(model, batches)
    last = len(one.layers) - 1
    for place, more in ((0, 1), (last, 1), (0, 1), (last, 1)):
        measured = [one.without(p, 1) for p in range(len(one.layers))]
        anew = rehearsal_of(model, batches)
        for p, gone in enumerate(one.gone):
            anew.remove(p, gone)
        with nothing_recalled():
            assert measured == pytest.approx([anew.without(p, 1) for p in range(len(one.layers))])
        one.remove(place, more)


@contextmanager
def nothing_recalled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recall, "before", lambda self, output: nullcontext())
        yield


def test_layers_before_the_one_that_is_tried_are_not_computed_again() -> None:
    model, batches = build("bert"), labelled(family_named("bert"))
    rehearsal = rehearsal_of(model, batches)
    called: list[int] = []
    for place, layer in enumerate(model.bert.encoder.layer):
        layer.attention.register_forward_pre_hook(lambda *_, place=place: called.append(place))
    layers, number = len(rehearsal.layers), len(batches)
    rehearsal.without(layers - 1, 1)
    assert len(called) == layers * number
    called.clear()
    rehearsal.without(layers - 1, 2)
    assert set(called) == {layers - 1} and len(called) == number
    called.clear()
    rehearsal.remove(1, 1)
    rehearsal.without(layers - 1, 1)
    assert set(called) == set(range(1, layers))


def test_a_model_without_logits_is_measured_by_its_loss() -> None:
    """The course begins at the loss of the unpruned model, not at 0."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=3, intermediate_size=32,
        vocab_size=50, initializer_range=0.5,
    )  # fmt: skip
    model = BertForQuestionAnswering(config).eval()
    ids = torch.randint(0, 50, (6, 9))
    batches = [{"input_ids": ids, "start_positions": ids[:, 0] % 9, "end_positions": ids[:, 1] % 9}]
    lazy = measured_course(rehearsal_of(model, batches), 4, 1, ignored)
    thorough, start, found = rehearsal_of(model, batches), 0.0, []
    start = thorough.distance()
    assert start == pytest.approx(float(model(**batches[0]).loss.detach()), rel=1e-6)
    for _ in lazy:
        measured = [thorough.without(place, 1) for place in range(3)]
        place = min(range(3), key=measured.__getitem__)
        thorough.remove(place, 1)
        found.append((place, measured[place] - start))
    # Stale measurements may be above new ones here: a loss can fall without a head.
    assert lazy[0][0] == found[0][0]
    assert lazy[0][1] == pytest.approx(found[0][1], rel=1e-4)
    assert len({place for place, _ in lazy[:6]}) > 1


def test_a_course_ends_where_answers_are_too_large() -> None:
    model, batches = build("bert"), labelled(family_named("bert"))
    rehearsal = rehearsal_of(model, batches)
    plain = rehearsal.without

    def without(place: int, more: int) -> float:
        return float("inf") if sum(rehearsal.gone) >= 3 or place == 0 else plain(place, more)

    rehearsal.without = without  # type: ignore[method-assign]
    went = measured_course(rehearsal, 1, 1, ignored)
    assert len(went) == 3 and 0 not in [place for place, _ in went]
    assert all(torch.isfinite(torch.tensor(distance)) for _, distance in went)


def said(problem: str | None, logits: Tensor) -> Any:
    """A model of one layer that answers with these logits, whatever it is asked."""

    class Says(torch.nn.Module):
        config = SimpleNamespace(problem_type=problem, is_encoder_decoder=False)
        gives_vectors = problem == "vectors"
        now = logits

        def forward(self, input_ids: Tensor) -> Any:
            return SimpleNamespace(logits=self.now)

    return Says()


@pytest.mark.parametrize("problem", [None, "multi_label_classification", "regression", "vectors"])
def test_every_kind_of_answer_has_its_distance(problem: str | None) -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, 4, 3, generator=generator)
    model: Any = said(problem, old)
    distance = Distance(model, [{"input_ids": torch.zeros(4, 2)}])
    assert distance.now() == pytest.approx(0.0, abs=1e-6)
    model.now = new
    if problem is None:
        p, q = old.softmax(-1), new.softmax(-1)
        expected = (p * (p / q).log()).sum(-1).mean()
    elif problem == "multi_label_classification":
        p, q = old.sigmoid(), new.sigmoid()
        both = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
        expected = both.sum(-1).mean()
    elif problem == "regression":
        expected = (old - new).square().sum(-1).mean()
    else:
        expected = (1 - torch.cosine_similarity(old, new)).mean()
    assert distance.now() == pytest.approx(float(expected), rel=1e-5)


def test_layers_are_compared_on_batches_from_all_over_the_data() -> None:
    def batches(number: int, size: int, length: int) -> list[Any]:
        return [
            {"input_ids": torch.full((size, length), place), "labels": torch.zeros(size)}
            for place in range(number)
        ]

    def kept(number: int, size: int, length: int) -> list[int]:
        spread, given = Spread(), batches(number, size, length)
        assert [id(b) for b in spread.watching(iter(given))] == [id(b) for b in given]
        assert len(spread._kept) <= 4 * max(1, -(-ANSWERS // size), -(-TOKENS // (size * length)))
        return [int(batch["input_ids"][0, 0]) for batch in spread.batches()]

    assert kept(15, 32, 40) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert kept(1, 32, 40) == [0]
    assert len(kept(1000, 32, 40)) == ANSWERS // 32 and kept(1000, 32, 40)[-1] > 800
    assert len(kept(100, 64, 4)) == TOKENS // (64 * 4)
    assert kept(9, 512, 64) == [4]


def test_a_course_takes_several_at_a_time_and_leaves_what_must_stay() -> None:
    model, batches = build("bert"), labelled(family_named("bert"))
    told: list[int] = []
    rehearsal = rehearsal_of(model, batches, least=1)
    went = measured_course(rehearsal, 0, 2, told.append)
    sizes = [len(layer.order) for layer in rehearsal.layers]
    assert rehearsal.gone == [size - 1 for size in sizes]
    assert len(went) == told[-1] == sum(sizes) - len(sizes)
    assert len(told) < len(went)


@pytest.mark.parametrize("step", [2, 3])
def test_the_course_for_one_k_is_the_beginning_of_that_for_fewer(step: int) -> None:
    model, batches = build("bert"), labelled(family_named("bert"))
    whole = measured_course(rehearsal_of(model, batches), 0, step, ignored)
    for keep in (11, 8, 5, 1):
        some = measured_course(rehearsal_of(model, batches), keep, step, ignored)
        assert [place for place, _ in some] == [place for place, _ in whole[: 12 - keep]]


def test_unlikely_answers_are_counted_together() -> None:
    generator = torch.Generator().manual_seed(0)
    old, new = (torch.randn(5, 3 * LIKELY, generator=generator).double() for _ in range(2))
    likely = old.topk(LIKELY).indices
    p, q = old.softmax(-1), new.softmax(-1)
    own = p.gather(1, likely) * (p.gather(1, likely) / q.gather(1, likely)).log()
    rest = [1 - x.gather(1, likely).sum(1) for x in (p, q)]
    expected = own.sum() + (rest[0] * (rest[0] / rest[1]).log()).sum()
    assert Answers.of(old).divergence(new) == pytest.approx(float(expected), rel=1e-9)
    old, new = old[:, :3], new[:, :3]  # all of these are likely, and nothing is left
    exact = (old.softmax(-1) * (old.log_softmax(-1) - new.log_softmax(-1))).sum()
    assert Answers.of(old).divergence(new) == pytest.approx(float(exact), rel=1e-9)


def test_padding_is_not_measured() -> None:
    family = family_named("bert")
    model = build("bert")
    batch = {**labelled(family, 1)[0]}
    mask = torch.ones_like(batch["input_ids"])
    mask[:, -2:] = 0
    batch["attention_mask"] = mask
    distance = Distance(model, [batch])
    with torch.no_grad():
        batch["input_ids"][:, -2:] = 3  # the model's answers there change
    assert distance.now() == pytest.approx(0.0, abs=1e-9)
    with torch.no_grad():
        batch["input_ids"][:, 0] = 3
    assert distance.now() > 1e-6


def test_every_fourth_place_of_a_text_is_compared() -> None:
    model, batches = build("llama"), labelled(family_named("llama"))
    distance = Distance(model, batches)
    other = build("llama")
    with torch.no_grad():
        other.lm_head.weight.mul_(1.5)
        expected = []
        for batch in batches:
            inputs = {name: value for name, value in batch.items() if name != "labels"}
            old, new = (m(**inputs).logits.double().log_softmax(-1) for m in (model, other))
            each = (old.exp() * (old - new)).sum(-1)
            length = each.shape[1]
            places = [place for place in range(length) if (length - 1 - place) % 4 == 0]
            seen = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
            expected.append(each[:, places][seen[:, places]])
        model.lm_head.weight.mul_(1.5)
    assert distance.now() == pytest.approx(float(torch.cat(expected).mean()), rel=1e-4)


def test_a_model_whose_values_overflow_is_infinitely_far() -> None:
    model, batches = build("bert"), labelled(family_named("bert"))
    distance = Distance(model, batches)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    assert distance.now() == float("inf")
