"""The proof at the door: an anatomy that the model itself refutes is never acted on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM, LlamaConfig, LlamaForCausalLM

import headcount as hc
from headcount import HeadcountError
from headcount.heads import find, probe
from headcount.heads.anatomy import Anatomy, Part, Segment
from headcount.heads.find import find_heads
from tests.tiny import FAMILIES, build

Wrong = Callable[[Anatomy], Anatomy]


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(probe, "_PROVED", {})
    yield


def changed(anatomy: Anatomy, place: int, **what: Any) -> Anatomy:
    parts = list(anatomy.parts)
    parts[place] = replace(parts[place], **what)
    return replace(anatomy, parts=tuple(parts))


def two_heads_swapped(place: int) -> Wrong:
    """The first two heads (or groups) have one another's rows in one of q, k and v."""

    def wrong(anatomy: Anatomy) -> Anatomy:
        (segment,) = anatomy.parts[place].segments
        count = anatomy.num_heads if segment.unit == "query" else anatomy.num_key_value_heads
        order = [(1,), (0,), tuple(range(2, count))]
        segments = tuple(replace(segment, only=only) for only in order if only)
        return changed(anatomy, place, segments=segments)

    return wrong


def keys_and_values_swapped(anatomy: Anatomy) -> Anatomy:
    query, key, value, *others = anatomy.parts
    return replace(anatomy, parts=(query, value, key, *others))


def heads_of_half_the_size(anatomy: Anatomy) -> Anatomy:
    def halved(part: Part) -> Part:
        return replace(part, segments=tuple(replace(s, size=s.size // 2) for s in part.segments))

    return replace(
        anatomy,
        num_heads=2 * anatomy.num_heads,
        num_key_value_heads=2 * anatomy.num_key_value_heads,
        head_size=anatomy.head_size // 2,
        key_size=anatomy.key_size // 2,
        parts=tuple(map(halved, anatomy.parts)),
    )


def interleaving_taken_for_blocks(anatomy: Anatomy) -> Anatomy:
    size = anatomy.head_size
    return changed(
        anatomy, 0, segments=(Segment("query", size), *(Segment("key_value", size),) * 2)
    )


def blocks_taken_for_interleaving(anatomy: Anatomy) -> Anatomy:
    return changed(anatomy, 0, segments=(Segment("query", 3 * anatomy.head_size),))


def head_by_head(multi_query: bool = False) -> nn.Module:
    torch.manual_seed(0)
    config = GPTBigCodeConfig(
        vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, multi_query=multi_query
    )
    return GPTBigCodeForCausalLM(config)


PLANTED: list[tuple[str | Callable[[], nn.Module], Wrong]] = [
    ("bert", two_heads_swapped(0)),
    ("bert", two_heads_swapped(1)),
    ("bert", two_heads_swapped(2)),
    ("llama", two_heads_swapped(0)),
    ("llama", two_heads_swapped(1)),
    ("llama", two_heads_swapped(2)),
    ("bert", keys_and_values_swapped),
    ("llama", keys_and_values_swapped),
    ("t5", keys_and_values_swapped),
    ("bert", heads_of_half_the_size),
    ("llama", heads_of_half_the_size),
    ("gpt2", heads_of_half_the_size),
    ("vit", heads_of_half_the_size),
    ("gpt-neox", interleaving_taken_for_blocks),
    ("bloom", interleaving_taken_for_blocks),
    (head_by_head, interleaving_taken_for_blocks),
    ("gpt2", blocks_taken_for_interleaving),
]


@pytest.mark.parametrize(("family", "wrong"), PLANTED)
def test_a_planted_mistake_is_refused_with_the_blocks_name(
    family: Any, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(family) if isinstance(family, str) else family()
    right = find_heads(model)
    recognise = find.recognise

    def mistaken(home: nn.Module, path: str) -> Any:
        found = recognise(home, path)
        return wrong(found) if isinstance(found, Anatomy) else found

    monkeypatch.setattr(find, "recognise", mistaken)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(HeadcountError, match="a probe of it refutes") as told:
        hc.remove_heads(model, hc.HeadMask.random(right, keep=2, seed=0))
    assert right.blocks[0].path in str(told.value)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_is_proved(family: Any) -> None:
    model = build(family)
    heads = find_heads(model)
    assert not [one for one in heads.left_alone if "probe" in one.reason]
    fresh = build(family)  # a forward pass may set a switch (ModernBERT in transformers 5.0)
    kinds = {probe.kind_of(fresh, block.path, block.anatomy) for block in heads.blocks}
    assert kinds == set(probe._PROVED)


def test_a_probe_leaves_no_trace() -> None:
    model = build("bert")
    model.train()
    model.bert.embeddings.eval()  # a part that somebody keeps from training
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    find_heads(model)
    assert torch.equal(torch.rand(3), expected)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_kind_of_block_is_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find_heads(build("bert"))

    def never(*args: Any) -> Any:
        raise AssertionError("it is known already")

    monkeypatch.setattr(probe, "first_calls", never)
    find_heads(build("bert"))


def test_half_precision_is_proved_in_float32() -> None:
    # bfloat16 products crash some processors, and would be too coarse for a proof.
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=99, hidden_size=32, intermediate_size=16, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2,
        )
    ).to(torch.bfloat16)  # fmt: skip
    find_heads(model)
    assert list(probe._PROVED.values()) == [None]
    assert next(model.parameters()).dtype == torch.bfloat16


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(probe.SWITCH, "0")
    find_heads(build("bert"))
    assert not probe._PROVED
