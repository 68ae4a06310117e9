"""What is counted is exact; what is timed is put together rightly. No test asserts a time."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
from torch import nn

import headcount as hc
from headcount import HeadcountError, HeadMask
from headcount.bench.made_up import random_batch
from headcount.bench.size import cache_bytes, count_flops, peak_memory
from headcount.bench.speed import Spread, in_turn, ratio
from tests.tiny import build, families, family_named

LAYERS, WIDTH, INNER, VOCABULARY = 3, 32, 48, 50  # of the tiny models
FLOAT = 4  # bytes


def test_jobs_are_run_in_turn_and_the_warm_up_is_not_counted() -> None:
    seen: list[str] = []
    times = in_turn([lambda: seen.append("a"), lambda: seen.append("b")], rounds=4, warm_up=2)
    assert seen == ["a", "b", "b", "a"] * 3  # every other round backwards
    assert [len(spent) for spent in times] == [4, 4]


def test_a_spent_budget_still_leaves_three_rounds() -> None:
    assert [len(spent) for spent in in_turn([list], rounds=9, budget=0.0)] == [3]


def test_the_clock_can_be_chosen() -> None:
    ticks = iter(range(100))
    assert in_turn([list], rounds=3, warm_up=0, clock=lambda: float(next(ticks))) == [[1, 1, 1]]


def test_ratios_are_taken_round_by_round() -> None:
    assert ratio([2.0, 40.0, 6.0], [1.0, 10.0, 2.0]) == Spread(3.0, 2.5, 3.5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_operations_of_a_linear_layer() -> None:
    layer, inputs = nn.Linear(30, 20), torch.zeros(5, 7, 30)
    assert count_flops(lambda: layer(inputs)) == 2 * 5 * 7 * 30 * 20


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_operations_of_an_encoder_count_its_attention(attention: str) -> None:
    model, batch, length = build("bert", attention), 2, 7
    inputs = random_batch(model, batch, length)
    tokens = batch * length
    layer = tokens * (4 * WIDTH**2 + 2 * WIDTH * INNER) + 2 * tokens * length * WIDTH
    output = tokens * (WIDTH**2 + WIDTH * VOCABULARY)

    def forward() -> None:
        with torch.inference_mode():
            model(**inputs)

    assert count_flops(forward) == 2 * (LAYERS * layer + output)
    hc.remove_heads(model, HeadMask.none(hc.find_heads(model)))
    feed_forward = LAYERS * tokens * 2 * WIDTH * INNER
    assert count_flops(forward) == 2 * (feed_forward + output)


def test_measuring_memory_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    peak_memory(lambda: torch.ones(3) + 1)
    os.write(2, b"heard")
    assert capfd.readouterr() == ("", "heard")


def test_peak_memory_is_of_the_worst_moment() -> None:
    start = torch.zeros(1000)

    def job() -> None:
        several = torch.cat([start, start, start])  # 3000 numbers
        _less = several[:1000].clone()  # and 1000
        del several
        _more = torch.cat([start, start])  # 3000 in all

    assert peak_memory(job) == 4000 * FLOAT


def test_cache_of_a_decoder_is_keys_and_values_of_the_heads_that_are_left() -> None:
    model, length, head_size = build("gpt2"), 6, WIDTH // 4
    inputs = random_batch(model, 2, length)
    assert cache_bytes(model, inputs) == 2 * 2 * length * WIDTH * LAYERS * FLOAT
    heads = hc.find_heads(model)
    hc.remove_heads(model, HeadMask.from_indices(heads, [b.indices[0] for b in heads.blocks]))
    assert cache_bytes(model, inputs) == 2 * 2 * length * head_size * LAYERS * FLOAT


def test_cache_of_an_encoder_decoder_holds_both_attentions() -> None:
    model, length = build("bart"), 6
    inputs = random_batch(model, 1, length)
    each = 2 * length * WIDTH * 2 * FLOAT  # keys and values, two layers
    assert cache_bytes(model, inputs) == 2 * each
    heads = hc.find_heads(model)
    crossing = [i for b in heads.blocks if b.kind == "cross" for i in b.indices]
    hc.remove_heads(model, HeadMask.all(heads) - HeadMask.from_indices(heads, crossing))
    # An emptied block counts its tokens: one number each for keys and values.
    assert cache_bytes(model, inputs) == each + 2 * length * 2 * FLOAT


@families("bert", "llama", "t5", "vit")
def test_inputs_are_made_up_for_texts_and_images(family: object) -> None:
    model = build(family)  # type: ignore[arg-type]
    with torch.inference_mode():
        output = model(**random_batch(model, 3, 5))
    assert output.logits.shape[0] == 3


@pytest.mark.parametrize(
    ("name", "length", "words"),
    [("wav2vec2", 5, "input_values"), ("clip", 5, "CLIPModel"), ("bert", 33, "32 tokens")],
)
def test_inputs_that_cannot_be_made_are_refused(name: str, length: int, words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        random_batch(build(family_named(name)), 2, length)


def test_an_emptied_block_asks_for_no_gradient_in_inference() -> None:
    model = build("bert")
    hc.remove_heads(model, HeadMask.none(hc.find_heads(model)))
    asked: list[bool] = []
    for block in hc.find_heads(model).blocks:
        projection = model.get_submodule(block.path).get_submodule(block.anatomy.output)
        projection.register_forward_hook(_note(asked))
    with torch.inference_mode():
        model(**random_batch(model, 2, 5))
    assert asked == [False] * LAYERS


def _note(asked: list[bool]) -> Callable[..., None]:
    return lambda module, args, output: asked.append(output.requires_grad)
