"""`prune_heads` and `head_mask` mean what they meant in transformers v4."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import headcount as hc
from headcount import HeadcountError
from tests.loading.test_checkpoint import same_weights, write_as_version_4
from tests.tiny import Family, build, difference, families, family_named, floats, run

CLOSE = 1e-5
PAGE = Path(__file__).parents[1] / "docs" / "look-up" / "version4.md"
# One path for each layer: the output projection, and the side of its weight that has the heads.
PROJECTIONS = {
    "bert": ("bert.encoder.layer.{}.attention.output.dense", 1),
    "gpt2": ("transformer.h.{}.attn.c_proj", 0),
    "distilbert": ("distilbert.transformer.layer.{}.attention.out_lin", 1),
}
BLOCKS = {
    "encoder": "encoder.block.{}.layer.0.SelfAttention.o",
    "decoder": "decoder.block.{}.layer.0.SelfAttention.o",
    "cross": "decoder.block.{}.layer.1.EncDecAttention.o",
}
HEADS, SIZE = 4, 8


def scale(model: PreTrainedModel, path: str, dim: int, head: int, factor: float) -> None:
    """Scale the columns of an output projection that belong to a head."""
    projection = model.get_submodule(path)
    projection.weight.data.narrow(dim, head * SIZE, SIZE).mul_(factor)


def random_mask(*shape: int, seed: int = 7) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


@families(*PROJECTIONS)
def test_pruned_heads_are_zero_columns_of_the_output_projection(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    reference = copy.deepcopy(model)
    path, dim = PROJECTIONS[family.name]
    for layer, head in ((0, 1), (0, 2), (2, 0)):
        scale(reference, path.format(layer), dim, head, 0.0)
    removal = hc.prune_heads(model, {0: [1, 2], 2: [0]})
    kind = hc.find_heads(model).blocks[0].kind
    assert removal.removed == (f"{kind}.0.1", f"{kind}.0.2", f"{kind}.2.0")
    assert removal.parameters_after < removal.parameters_before
    assert difference(run(model, inputs), run(reference, inputs)) < CLOSE


def test_pruning_again_keeps_the_original_numbers() -> None:
    model, at_once = build("bert"), build("bert")
    hc.prune_heads(model, {0: [0, 1]})
    again = hc.prune_heads(model, {0: [1, 3, 3], 1: []})
    assert again.removed == ("encoder.0.3",)
    hc.prune_heads(at_once, {0: [0, 1, 3]})
    assert same_weights(model, at_once)


@pytest.mark.parametrize(
    "heads", [{1, 2}, (2, 1, 1), range(1, 3), np.array([1, 2]), torch.tensor([2, 1])]
)
def test_heads_may_come_in_any_sequence(heads: Any) -> None:
    assert hc.prune_heads(build("bert"), {np.int64(0): heads}).removed == (
        "encoder.0.1",
        "encoder.0.2",
    )


def test_blocks_of_an_encoder_decoder_have_names() -> None:
    family = family_named("t5")
    model, inputs = build(family), family.inputs()
    reference = copy.deepcopy(model)
    for kind, head in (("encoder", 0), ("decoder", 1), ("cross", 3)):
        scale(reference, BLOCKS[kind].format(1), 1, head, 0.0)
    hc.prune_heads(model, {"encoder.1": [0], "decoder.1": [1], "cross.1": [3]})
    assert difference(run(model, inputs), run(reference, inputs)) < CLOSE


@pytest.mark.parametrize(
    ("name", "heads", "said"),
    [
        ("bert", {0: [4]}, r"has \[4\] for layer 0, expected numbers from 0 to 3"),
        ("bert", {0: [-1]}, r"has \[-1\] for layer 0"),
        ("bert", {0: [1.0]}, r"has \[1\.0\] for layer 0"),
        ("bert", {0: [True]}, r"has \[True\] for layer 0"),
        ("bert", {0: "12"}, "has '12' for layer 0"),
        ("bert", {0: 1}, "has 1 for layer 0"),
        ("bert", {0: [[1]]}, r"has \[\[1\]\] for layer 0"),
        ("bert", {0: np.ones((2, 2), int)}, "for layer 0, expected numbers"),
        ("bert", {9: [1]}, r"has layer 9, which this model does not have: .* encoder\.0 to"),
        ("bert", {-1: [1]}, "has -1 as a layer, expected a number from 0"),
        ("bert", {0.0: [1]}, r"has 0\.0 as a layer"),
        ("bert", {"decoder.0": [1]}, "has 'decoder.0' as a layer"),
        ("bert", {0: [1], "encoder.0": [2]}, "names a layer twice"),
        ("bert", [1, 2], r"is \[1, 2\], expected lists of heads by layer"),
        ("t5", {0: [1]}, "several stacks of layers, encoder, decoder, cross, so that a number"),
        ("clip", {0: [1]}, "has layer 0, but this model has several stacks"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(name: str, heads: Any, said: str) -> None:
    model, before = build(name), build(name)
    with pytest.raises(HeadcountError, match=f"^heads_to_prune .*{said}.*; give lists"):
        hc.prune_heads(model, heads)
    assert same_weights(model, before)


@families(*PROJECTIONS)
def test_a_head_mask_scales_columns_of_the_output_projection(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    layers = len(hc.find_heads(model).blocks)
    mask = random_mask(layers, HEADS)
    mask[0, 1] = 0.0
    with hc.head_mask(model, mask):
        got = run(model, inputs)
    path, dim = PROJECTIONS[family.name]
    for layer in range(layers):
        for head in range(HEADS):
            scale(model, path.format(layer), dim, head, float(mask[layer, head]))
    assert difference(got, run(model, inputs)) < CLOSE


def test_one_row_is_for_every_layer() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    row = torch.tensor([1, 0, 1, 1])
    with hc.head_mask(model, row):
        got = run(model, inputs)
    with hc.head_mask(model, row.float().repeat(len(hc.find_heads(model).blocks), 1)):
        assert difference(got, run(model, inputs)) == 0


@families("t5", "bart", "whisper")
def test_each_stack_of_an_encoder_decoder_has_its_mask(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    heads = hc.find_heads(model)
    masks = {}
    for seed, kind in enumerate(("encoder", "decoder", "cross")):
        layers = sum(block.kind == kind for block in heads.blocks)
        masks[kind] = random_mask(layers, HEADS, seed=seed)
    flat = torch.cat([masks[block.kind][block.layer] for block in heads.blocks])
    with hc.masked(model, flat):
        expected = run(model, inputs)
    with hc.head_mask(model, masks["encoder"], decoder=masks["decoder"], cross=masks["cross"]):
        assert difference(run(model, inputs), expected) == 0
    with hc.head_mask(model, decoder=masks["decoder"]):
        alone = run(model, inputs)
    assert difference(alone, expected) > 100 * CLOSE


@families("bert", "gpt2")
@pytest.mark.parametrize("pruned", [False, True])
def test_gradients_of_several_batches_are_those_of_masked(family: Family, pruned: bool) -> None:
    model, inputs = build(family), family.inputs()
    blocks = hc.find_heads(model).blocks
    if pruned:
        hc.prune_heads(model, {0: [0, 2], 1: [0, 1, 2, 3]})
    mask = random_mask(len(blocks), HEADS).requires_grad_()
    same = mask.detach().flatten().clone().requires_grad_()

    def backward() -> None:
        output = floats(model(**inputs))
        sum(tensor.square().sum() for tensor in output.values()).backward()

    with hc.head_mask(model, mask):
        backward()
        backward()
    for _ in range(2):
        with hc.masked(model, same):
            backward()
    assert mask.grad is not None and same.grad is not None
    assert mask.grad.abs().sum() > 0
    torch.testing.assert_close(mask.grad.flatten(), same.grad)
    if pruned:
        assert not mask.grad[0, [0, 2]].any() and not mask.grad[1].any()


def test_a_model_without_heads_takes_a_mask() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    layers = len(hc.find_heads(model).blocks)
    hc.prune_heads(model, {layer: range(HEADS) for layer in range(layers)})
    whole = run(model, inputs)
    with hc.head_mask(model, torch.zeros(HEADS)):
        assert difference(run(model, inputs), whole) == 0


@pytest.mark.parametrize(
    ("name", "masks", "said"),
    [
        ("bert", {"mask": torch.ones(3)}, r"the shape \(3,\), expected \(3, 4\) or \(4,\)"),
        ("bert", {"mask": torch.ones(4, 3)}, r"the shape \(4, 3\)"),
        ("bert", {"mask": torch.ones(1, 3, 4)}, r"the shape \(1, 3, 4\)"),
        ("bert", {"cross": torch.ones(4)}, "for cross blocks, but this model has only encoder"),
        ("gpt2", {"mask": torch.ones(4), "decoder": torch.ones(4)}, "for encoder blocks, but"),
        ("clip", {"mask": torch.ones(4)}, "not one for each layer of one stack"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(name: str, masks: Any, said: str) -> None:
    with pytest.raises(HeadcountError, match=said), hc.head_mask(build(name), **masks):
        pass


def test_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = build("bert")
    hc.prune_heads(old, {0: [0, 3], 2: [1]})
    old.save_pretrained("pruned-by-v4")
    write_as_version_4(tmp_path / "pruned-by-v4", {0: [0, 3], 2: [1]})
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) > 3
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(compile(snippet, PAGE.name, "exec"), names)
