"""A mask is a set of heads: its algebra, its file, its draws."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headcount as hc
from headcount import HeadMap, HeadMask
from tests.tiny import Family, build, families


@cache
def heads() -> HeadMap:
    return hc.find_heads(build("bert"))


def keeping(*names: str) -> HeadMask:
    return HeadMask.from_names(heads(), names)


some_masks = st.sets(st.integers(0, 11)).map(lambda kept: HeadMask.from_indices(heads(), kept))


@given(some_masks, some_masks)
def test_de_morgan(a: HeadMask, b: HeadMask) -> None:
    assert ~(a & b) == ~a | ~b
    assert ~(a | b) == ~a & ~b


@given(some_masks, some_masks)
def test_operations_are_those_of_sets(a: HeadMask, b: HeadMask) -> None:
    ours, theirs = set(a), set(b)
    assert set(a & b) == ours & theirs
    assert set(a | b) == ours | theirs
    assert set(a - b) == ours - theirs
    assert set(a ^ b) == ours ^ theirs
    assert set(~a) == set(heads()) - ours
    assert (a <= b, a < b, a == b) == (ours <= theirs, ours < theirs, ours == theirs)


@given(some_masks)
def test_a_mask_counts_its_heads(mask: HeadMask) -> None:
    assert len(mask) == len(mask.names) == len(mask.indices) == len(list(mask))
    assert sum(mask.counts().values()) == len(mask)
    assert {name: len(kept) for name, kept in mask.by_block().items()} == mask.counts()
    assert float(mask.gates().sum()) == len(mask)
    assert len(mask) + len(~mask) == mask.born == 12


@given(some_masks)
def test_names_indices_and_gates_tell_the_same(mask: HeadMask) -> None:
    assert HeadMask.from_names(heads(), mask.names) == mask
    assert HeadMask.from_indices(heads(), mask.indices) == mask
    assert mask.gates().nonzero().flatten().tolist() == list(mask.indices)
    assert all(name in mask for name in mask)
    assert all(index in mask for index in mask.indices)
    assert not any(name in mask for name in ~mask)


@given(some_masks, some_masks)
def test_overlap_is_a_share(a: HeadMask, b: HeadMask) -> None:
    assert 0 <= a.overlap(b) == b.overlap(a) <= 1
    assert a.overlap(a) == 1
    assert (a.overlap(b) == 1) == (a == b)


@pytest.mark.parametrize(
    "a, b, share",
    [
        (["encoder.0.0", "encoder.0.1"], ["encoder.0.1", "encoder.2.3"], 0.5),
        (["encoder.0.0"], ["encoder.0.1"], 0.0),
        (["encoder.0.0", "encoder.0.1", "encoder.1.0", "encoder.1.1"], ["encoder.0.0"], 0.25),
    ],
)
def test_overlap_is_taken_of_the_larger_mask(a: list[str], b: list[str], share: float) -> None:
    assert keeping(*a).overlap(keeping(*b)) == share


@given(mask=some_masks)
def test_a_mask_survives_its_file(mask: HeadMask, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("masks") / "mask.json"
    mask.save(path)
    assert HeadMask.load(path) == mask
    assert [file.name for file in path.parent.iterdir()] == ["mask.json"]


@families("t5", "clip", "albert")
def test_a_mask_of_any_layout_survives_its_file(family: Family, tmp_path: Path) -> None:
    mask = HeadMask.random(hc.find_heads(build(family)), keep=0.5)
    mask.save(tmp_path / "mask.json")
    assert HeadMask.load(tmp_path / "mask.json") == mask


def test_the_file_says_which_heads_of_which_blocks(tmp_path: Path) -> None:
    keeping("encoder.0.2", "encoder.2.0", "encoder.2.3").save(tmp_path / "mask.json")
    data = json.loads((tmp_path / "mask.json").read_text())
    assert (data["model_type"], data["kept"], data["of"]) == ("bert", 3, 12)
    assert data["blocks"] == [
        {"name": "encoder.0", "heads": 4, "kept": [2]},
        {"name": "encoder.1", "heads": 4, "kept": []},
        {"name": "encoder.2", "heads": 4, "kept": [0, 3]},
    ]


@given(keep=st.integers(0, 12), seed=st.integers(0, 2**32))
def test_a_random_mask_keeps_exactly_k_and_is_seeded(keep: int, seed: int) -> None:
    mask = HeadMask.random(heads(), keep=keep, seed=seed)
    assert len(mask) == keep
    assert mask == HeadMask.random(heads(), keep=keep, seed=seed)


def test_another_seed_draws_another_mask() -> None:
    assert len({HeadMask.random(heads(), keep=6, seed=seed).kept for seed in range(20)}) > 15


def test_every_head_is_drawn_equally_often() -> None:
    drawn = torch.stack([HeadMask.random(heads(), keep=3, seed=s).gates() for s in range(2000)])
    assert drawn.mean(0).sub(3 / 12).abs().max() < 0.05


def test_a_random_mask_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    HeadMask.random(heads(), keep=3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("keep, kept", [(0.5, 6), (0.25, 3), (0.01, 1), (1, 1), (1.0, 1), (0, 0)])
def test_k_is_a_count_or_a_fraction_below_one(keep: float, kept: int) -> None:
    assert len(HeadMask.random(heads(), keep=keep)) == kept


def test_all_and_none() -> None:
    assert HeadMask.all(heads()).names == heads().names
    assert HeadMask.none(heads()).names == ()
    assert ~HeadMask.all(heads()) == HeadMask.none(heads())


def test_a_mask_of_a_pruned_model_draws_from_the_heads_that_are_left() -> None:
    model = build("bert")
    left = HeadMask.random(heads(), keep=5, seed=4)
    hc.remove_heads(model, left)
    assert HeadMask.all(hc.find_heads(model)) == left
    assert HeadMask.random(hc.find_heads(model), keep=3) < left
