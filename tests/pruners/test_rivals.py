"""Methods that score a model in one pass or none: what holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import headcount as hc
from headcount import HeadcountError
from headcount.pruners.methods import make_pruner
from tests.pruners.rivals import in_one, one_by_one, uneven
from tests.tiny import Family, build, families, family_named

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "magnitude": ("magnitude", {}),
    "wanda": ("wanda", {}),
    "taylor": ("taylor", {}),
    "taylor-vector": ("taylor", {"form": "vector"}),
    "fisher": ("fisher", {}),
    "flap": ("flap", {"compensate": False}),
    "osscar": ("osscar", {}),
}
each_method = pytest.mark.parametrize("method", METHODS)


def fitted(method: str, keep: int | None, model: Any, batches: Any, **more: Any) -> Any:
    name, own = METHODS[method]
    pruner: Any = make_pruner(name, keep, {**own, **more})
    pruner.fit(model, batches)
    return pruner


@each_method
@families("bert", "gpt2", "llama", "t5", "bart", "albert", "phi3")
def test_exactly_k_heads_and_the_model_is_as_it_was(method: str, family: Family) -> None:
    model, batches = build(family), uneven(family)
    trains = [place % 2 > 0 for place, _ in enumerate(model.parameters())]
    for parameter, own in zip(model.parameters(), trains, strict=True):
        parameter.requires_grad_(own)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    number = len(hc.find_heads(model))
    for keep in (1, number // 2, number - 1):
        assert len(fitted(method, keep, model, batches).mask()) == keep
    assert all(p.equal(before[name]) for name, p in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert [p.requires_grad for p in model.parameters()] == trains
    assert not any(module._forward_hooks for module in model.modules())


@each_method
@families("bert", "llama", "t5")
def test_batches_of_another_size_give_the_same_scores(method: str, family: Family) -> None:
    model, batches = build(family).double(), uneven(family)
    found = fitted(method, 5, model, batches).importance()
    for others in (in_one(batches), iter(one_by_one(batches))):
        again = fitted(method, 5, model, others).importance()
        assert torch.allclose(found, again, rtol=1e-6), (found, again)


@each_method
def test_a_model_that_lost_heads_before_is_scored_by_what_is_left(method: str) -> None:
    for name in ("bert", "llama", "t5"):
        family = family_named(name)
        model, batches = build(family), uneven(family)
        heads = hc.find_heads(model)
        gone = [*heads.blocks[0].indices, heads.blocks[1].indices[1]]  # a block and a head
        hc.remove_heads(model, hc.HeadMask.all(heads) - hc.HeadMask.from_indices(heads, gone))
        pruner = fitted(method, 5, model, batches)
        assert len(pruner.importance()) == len(heads) - len(gone)
        assert len(pruner.mask()) == 5
        assert not pruner.mask().kept & set(gone)


@each_method
def test_only_heads_in_scope_go(method: str) -> None:
    family = family_named("bart")
    model = build(family)
    kept = fitted(method, 2, model, uneven(family), kinds=["cross"], min_per_block=1).mask()
    for block in hc.find_heads(model).blocks:
        expected = 1 if block.kind == "cross" else block.num_heads
        assert len(kept.by_block()[block.name]) == expected


@pytest.mark.parametrize("method", [name for name in METHODS if name != "magnitude"])
def test_no_data_is_told(method: str) -> None:
    with pytest.raises(HeadcountError, match="there is no data to score the heads on"):
        fitted(method, 2, build("bert"), [])
