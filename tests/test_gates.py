"""A gate multiplies the output of one head, for as long as the block lasts and no longer."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headcount as hc
from headcount import HeadcountError
from tests.tiny import (
    BATCH,
    Family,
    Outputs,
    build,
    difference,
    families,
    family_named,
    mask_for,
    run,
)

CLOSE = 1e-5

# The first block's output projection; GPT-2's Conv1D keeps its inputs in rows.
FIRST_PROJECTIONS = {
    "bert": ("bert.encoder.layer.0.attention.output.dense", 1),
    "gpt2": ("transformer.h.0.attn.c_proj", 0),
    "llama": ("model.layers.0.self_attn.o_proj", 1),
    "t5": ("encoder.block.0.layer.0.SelfAttention.o", 1),
}


def random_gates(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(5))


def hooks_on(model: nn.Module) -> int:
    return sum(len(module._forward_pre_hooks) for module in model.modules())


def example(outputs: Outputs, row: int) -> Outputs:
    return {name: tensor[row : row + 1] for name, tensor in outputs.items()}


@families()
def test_gates_of_one_change_nothing(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    whole = run(model, inputs)
    with hc.masked(model, torch.ones(len(hc.find_heads(model)))):
        assert difference(run(model, inputs), whole) == 0


@pytest.mark.parametrize("gate", [0.0, 0.5, -2.0])
@families(*FIRST_PROJECTIONS)
def test_a_gate_scales_its_columns_of_the_output_projection(family: Family, gate: float) -> None:
    model, inputs = build(family), family.inputs()
    gates = torch.ones(len(hc.find_heads(model)))
    gates[2] = gate
    with hc.masked(model, gates):
        gated = run(model, inputs)
    path, dim = FIRST_PROJECTIONS[family.name]
    model.get_submodule(path).weight.data.narrow(dim, 16, 8).mul_(gate)
    assert difference(gated, run(model, inputs)) < CLOSE


@families()
def test_gates_go_away(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    whole, hooks = run(model, inputs), hooks_on(model)
    with hc.masked(model, mask_for(model, "half")):
        assert hooks_on(model) > hooks
    assert hooks_on(model) == hooks
    assert difference(run(model, inputs), whole) == 0


def test_gates_go_away_after_an_exception() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    whole, hooks = run(model, inputs), hooks_on(model)
    with pytest.raises(ZeroDivisionError), hc.masked(model, mask_for(model, "half")):
        raise ZeroDivisionError
    assert hooks_on(model) == hooks
    assert difference(run(model, inputs), whole) == 0


@families("bert", "gpt2", "t5")
def test_gates_of_nested_blocks_multiply(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    outer, inner = random_gates(2, len(hc.find_heads(model)))
    with hc.masked(model, outer * inner):
        product = run(model, inputs)
    with hc.masked(model, outer):
        with hc.masked(model, inner):
            assert difference(run(model, inputs), product) < CLOSE
        alone = run(model, inputs)
    assert difference(alone, product) > 100 * CLOSE


@families(
    *FIRST_PROJECTIONS, "albert", "deberta-v2", "modernbert", "bloom", "phi3", "whisper", "vit"
)
def test_a_row_of_gates_per_example_equals_examples_alone(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    gates = random_gates(BATCH, len(hc.find_heads(model)))
    with hc.masked(model, gates):
        together = run(model, inputs)
    for row in range(BATCH):
        with hc.masked(model, gates[row]):
            alone = run(model, {name: tensor[row : row + 1] for name, tensor in inputs.items()})
        assert difference(example(together, row), alone) < CLOSE


@families("gpt2", "llama", "t5", "bart")
def test_a_row_of_gates_per_example_holds_for_its_beams(family: Family) -> None:
    model, prompt = build(family), family.prompt()
    first = hc.HeadMask.random(hc.find_heads(model), keep=0.5, seed=6)
    settings = {"num_beams": 3, "do_sample": False, "min_new_tokens": 5, "max_new_tokens": 5}
    with hc.masked(model, torch.stack([first.gates(), (~first).gates()])):
        together = model.generate(**prompt, **settings)
    for row, mask in enumerate((first, ~first)):
        with hc.masked(model, mask):
            alone = model.generate(**prompt, **settings)
        assert torch.equal(together[row], alone[row])


def test_gradients_of_gates_equal_finite_differences() -> None:
    model, inputs = build("bert").double(), family_named("bert").inputs()

    def logits(gates: Tensor) -> Tensor:
        with hc.masked(model, gates):
            return model(**inputs).logits

    gates = random_gates(12).double().requires_grad_()
    assert torch.autograd.gradcheck(logits, gates, fast_mode=True)


@families()
def test_every_gate_has_a_gradient(family: Family) -> None:
    model = build(family)
    gates = torch.ones(len(hc.find_heads(model)), requires_grad=True)
    with hc.masked(model, gates):
        model(**family.inputs())[0].square().sum().backward()
    assert gates.grad is not None
    assert (gates.grad != 0).all()


def test_every_example_has_its_own_gradient() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    gates = torch.ones(BATCH, 12, requires_grad=True)
    with hc.masked(model, gates):
        model(**inputs).logits[0].sum().backward()
    assert gates.grad is not None
    assert (gates.grad[0] != 0).all()
    assert (gates.grad[1] == 0).all()


@families("bert", "llama", "t5")
def test_a_pruned_model_takes_gates_for_its_heads_or_for_all_it_was_born_with(
    family: Family,
) -> None:
    model, inputs = build(family), family.inputs()
    mask = mask_for(model, "half")
    gates = random_gates(mask.born)
    with hc.masked(model, mask), hc.masked(model, gates):
        expected = run(model, inputs)
    hc.remove_heads(model, mask)
    for given in (gates, gates[list(mask.indices)], gates.expand(BATCH, -1)):
        with hc.masked(model, given):
            assert difference(run(model, inputs), expected) < CLOSE


@families("bert", "llama", "t5")
def test_a_pruned_model_takes_a_smaller_mask(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    large = mask_for(model, "uneven")
    small = large & mask_for(model, "half")
    with hc.masked(model, small):
        expected = run(model, inputs)
    hc.remove_heads(model, large)
    with hc.masked(model, small):
        assert difference(run(model, inputs), expected) < CLOSE


@pytest.mark.parametrize(
    "given",
    [
        [1, 0] * 6,
        [True, False] * 6,
        torch.tensor([1, 0] * 6),
        torch.tensor([1.0, 0.0] * 6).double(),
    ],
    ids=["numbers", "truths", "integers", "doubles"],
)
def test_gates_of_any_number_type_are_taken(given: Tensor) -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    mask = hc.HeadMask.from_indices(hc.find_heads(model), range(0, 12, 2))
    with hc.masked(model, mask):
        expected = run(model, inputs)
    with hc.masked(model, given):
        assert difference(run(model, inputs), expected) == 0


def test_the_block_tells_which_heads_are_gated() -> None:
    model = build("bert")
    with hc.masked(model, torch.ones(12)) as heads:
        assert heads == hc.find_heads(model)


@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_a_model_that_was_compiled_before_is_refused(how: str) -> None:
    model: Any = build("bert")
    heads = hc.find_heads(model)
    if how == "wrapped":
        model = torch.compile(model)
    else:
        model.compile()
    mask = hc.HeadMask.random(heads, keep=3, seed=0)
    with pytest.raises(HeadcountError, match="was compiled before"), hc.masked(model, mask):
        pass
    with pytest.raises(HeadcountError, match="was compiled before"), hc.STE(3).attached(model):
        pass


def test_a_second_thread_is_refused_and_the_first_is_not_disturbed() -> None:
    model = build("bert")
    heads = hc.find_heads(model)
    first, second = (hc.HeadMask.random(heads, keep=3, seed=s) for s in (0, 1))
    told: list[str] = []

    def other() -> None:
        try:
            with hc.masked(model, second):
                pass
        except HeadcountError as error:
            told.append(str(error))

    with hc.masked(model, first):
        before = run(model, family_named("bert").inputs())
        with hc.masked(model, first):  # nested blocks of one thread are fine
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        after = run(model, family_named("bert").inputs())
    assert "masked in another thread" in told[0]
    assert difference(before, after) == 0
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(told) == 1  # it is free again


def test_a_copy_made_inside_the_block_has_no_gates() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    plain = run(model, inputs)
    with hc.masked(model, hc.HeadMask.random(hc.find_heads(model), keep=2, seed=0)):
        twin = copy.deepcopy(model)
        assert difference(run(model, inputs), plain) > 1e-3
        assert difference(run(twin, inputs), plain) == 0
    assert difference(run(twin, inputs), plain) == 0
