"""Each pruner keeps exactly K, and leaves the model as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import headcount as hc
from headcount import HeadMask
from headcount.pruners.ablation import Ablation
from headcount.pruners.base import Pruner
from headcount.pruners.choice import Scope, choose
from headcount.pruners.dsp import JointDSP, PipelinedDSP
from headcount.pruners.dsp_settings import PRESETS, DSPSettings
from headcount.pruners.fixed import Fixed, Random, Unpruned
from headcount.pruners.gated import CLOSED, applied
from headcount.pruners.hard_concrete import HardConcrete
from headcount.pruners.michel import Michel, importance
from headcount.pruners.schedule import Annealing
from headcount.pruners.ste import STE
from tests.pruners.toy import examples, planted
from tests.tiny import build, family_named

LEARNED: dict[str, Callable[..., Pruner]] = {
    "joint-dsp": JointDSP,
    "pipelined-dsp": PipelinedDSP,
    "ste": STE,
    "hard-concrete": HardConcrete,
}
learned = pytest.mark.parametrize("make", LEARNED.values(), ids=LEARNED)


@learned
@pytest.mark.parametrize("keep", [1, 5, 12, 0.25])
def test_mask_has_exactly_k_heads(make: Callable[..., Pruner], keep: float) -> None:
    pruner = make(keep)
    with pruner.attached(build("bert")):
        assert len(pruner.mask()) == (3 if keep == 0.25 else keep)


@learned
def test_gates_are_the_masks_in_evaluation(make: Callable[..., Pruner]) -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    pruner = make(5)
    with pruner.attached(model) as gated, torch.no_grad():
        gated.begin_step(3, 10)
        found = model(**inputs).logits
    with hc.masked(model, pruner.mask()), torch.no_grad():
        assert torch.equal(found, model(**inputs).logits)


@learned
def test_nothing_is_left_on_the_model(make: Callable[..., Pruner]) -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    with torch.no_grad():
        before = model(**inputs).logits
        with pytest.raises(RuntimeError), make(2).attached(model):
            raise RuntimeError
        assert torch.equal(model(**inputs).logits, before)
    assert all(parameter.requires_grad for parameter in model.parameters())


@learned
def test_the_same_seed_and_step_give_the_same_gates(make: Callable[..., Pruner]) -> None:
    gates: list[Tensor] = []
    for _ in range(2):
        pruner = make(5, seed=4)
        with pruner.attached(build("bert")) as gated:
            gated.begin_step(7, 20)
            gates.append(pruner.gates().detach())
    assert torch.equal(*gates)


def test_pipelined_trains_nothing_but_w() -> None:
    model, inputs = build("bert"), family_named("bert").inputs()
    pruner = PipelinedDSP(5)
    with pruner.attached(model.train()) as gated:
        gated.begin_step(0, 10)
        model(**inputs).logits.square().sum().backward()
        assert pruner.w.grad is not None
        assert pruner.w.grad.abs().sum() > 0
        assert all(parameter.grad is None for parameter in model.parameters())


def test_parts_are_frozen_by_the_pattern_of_their_name() -> None:
    model = build("bart")
    pruner = HardConcrete(3, kinds=["encoder"], freeze=["model.decoder.*"])
    with pruner.attached(model):
        trains = {name for name, p in model.named_parameters() if p.requires_grad}
        assert not any(name.startswith("model.decoder.") for name in trains)
        assert any(name.startswith("model.encoder.") for name in trains)
    assert all(parameter.requires_grad for parameter in model.parameters())
    with (
        pytest.raises(hc.HeadcountError, match="no parameter of the model is called"),
        JointDSP(3, freeze=["decodr.*"]).attached(model),
    ):
        pass


def test_ste_keeps_exactly_k_with_ties_and_with_all() -> None:
    for keep in (4, 12):
        pruner = STE(keep, spread=0.0, balance=False)
        with pruner.attached(build("bert")):
            gates = pruner.gates()
            assert gates.sum() == keep
            gates.sum().backward()
            assert torch.equal(pruner.w.grad, torch.ones(12, dtype=torch.float64))


def test_hard_concrete_follows_its_equations() -> None:
    pruner = HardConcrete(5, penalty_weight=0.5)
    with pruner.attached(build("bert")):
        pruner.log_alpha.data = torch.linspace(-3, 3, 12, dtype=torch.float64)
        expected = torch.sigmoid(pruner.log_alpha - 0.33 * torch.log(torch.tensor(0.1 / 1.1)))
        assert torch.allclose(pruner.penalty(), 0.5 * expected.sum())
        opened = torch.zeros(12, dtype=torch.float64)
        for step in range(4000):
            pruner.begin_step(step, 4000)
            opened += pruner.gates().detach() > 0
        assert torch.allclose(opened / 4000, expected.detach(), atol=0.04)


def test_hard_concrete_in_penalty_mode_keeps_what_is_open() -> None:
    pruner = HardConcrete(penalty_weight=0.1)
    with pruner.attached(build("bert")):
        pruner.log_alpha.data = torch.tensor([1.0] * 7 + [-1.0] * 5, dtype=torch.float64)
        assert len(pruner.mask()) == 7


def test_hard_concrete_steers_its_penalty_towards_k() -> None:
    pruner = HardConcrete(3, penalty_weight=1e-4, steer=True)
    with pruner.attached(build("bert")) as gated:
        optimizer = torch.optim.Adam(gated.parameter_groups())
        for step in range(400):
            gated.begin_step(step, 400)
            # every head is worth a little, some more than others
            loss = -(pruner.gates() * torch.linspace(0.01, 0.1, 12)).sum() + gated.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert abs(float(pruner.expected_count().detach()) - 3) < 1


def _one_by_one(model: Any, batch: dict[str, Tensor], heads: int) -> Tensor:
    """eq. 21 by hand: one example, one backward pass at a time."""
    total = torch.zeros(heads, dtype=torch.float64)
    for row in range(len(batch["input_ids"])):
        gates = torch.ones(heads, requires_grad=True)
        with hc.masked(model, gates):
            loss = model(**{name: value[row : row + 1] for name, value in batch.items()}).loss
        total += torch.autograd.grad(loss, gates)[0].abs().double()
    return total / len(batch["input_ids"])


def labelled() -> tuple[Any, dict[str, Tensor]]:
    model, mask = planted(0)
    ids, targets = examples(model, mask)
    return model, {"input_ids": ids[:12], "labels": targets[:12].argmax(-1)}


def test_michel_is_the_mean_absolute_gradient_per_example() -> None:
    model, batch = labelled()
    heads = hc.find_heads(model)
    halves = [{n: v[:6] for n, v in batch.items()}, {n: v[6:] for n, v in batch.items()}]
    found = importance(model, heads, HeadMask.all(heads), halves, normalise=False)
    assert torch.allclose(found, _one_by_one(model, batch, len(heads)), atol=1e-7)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_michel_normalises_by_layer() -> None:
    model, batch = labelled()
    heads = hc.find_heads(model)
    found = importance(model, heads, HeadMask.all(heads), [batch])
    assert torch.allclose(found.view(3, 4).norm(dim=1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("granularity", ["token", "batch"])
def test_michel_has_other_granularities(granularity: Any) -> None:
    model, batch = labelled()
    heads = hc.find_heads(model)
    everything = HeadMask.all(heads)
    exact = importance(model, heads, everything, [batch], normalise=False)
    found = importance(model, heads, everything, [batch], granularity, normalise=False)
    # |sum| of parts is at most the sum of |parts|
    assert bool((found >= exact - 1e-9).all() if granularity == "token" else (found <= exact).all())


# The towers of one are called in another order than it has them; layers of the other share a block.
@pytest.mark.parametrize("family", ["clip", "albert"])
def test_michel_gives_every_head_its_own_gradient(family: str) -> None:
    model, inputs = build(family), family_named(family).inputs()
    asked = {"return_loss": True} if family == "clip" else {"labels": inputs["input_ids"]}
    heads = hc.find_heads(model)
    gates = torch.ones(len(heads), requires_grad=True)
    with hc.masked(model, gates):
        (felt,) = torch.autograd.grad(model(**inputs, **asked).loss, gates)
    everything = HeadMask.all(heads)
    found = importance(model, heads, everything, [{**inputs, **asked}], "batch", normalise=False)
    assert torch.allclose(found, felt.abs().double(), atol=1e-7)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"step": 0}, "step of michel is 0, expected a number of heads"),
    ({"granularity": "sentence"}, "michel is 'sentence', expected example or token or batch"),
])  # fmt: skip
def test_michel_refuses_what_it_cannot_do(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(hc.HeadcountError, match=said):
        Michel(5, **wrong)


@pytest.mark.parametrize("step", [None, 1, 4, 0.25])
def test_michel_keeps_exactly_k_in_any_steps(step: Any) -> None:
    model, batch = labelled()
    pruner, rounds = Michel(5, step=step), []

    class Counted(list[Any]):
        def __iter__(self) -> Any:
            rounds.append(1)
            return super().__iter__()

    mask = pruner.fit(model, Counted([batch]))
    assert len(mask) == 5
    assert len(rounds) == pruner.rounds


def test_michel_in_one_step_keeps_the_best_scores() -> None:
    model, batch = labelled()
    heads = hc.find_heads(model)
    scores = importance(model, heads, HeadMask.all(heads), [batch])
    best = scores.argsort(descending=True)[:5].tolist()
    assert Michel(5).fit(model, [batch]) == HeadMask.from_indices(heads, best)


def test_michel_in_steps_keeps_what_the_last_scores_say() -> None:
    model, batch = labelled()
    heads = hc.find_heads(model)
    mask = HeadMask.all(heads)
    for left in (8, 4):
        scores = importance(model, heads, mask, [batch])
        kept = sorted(mask.indices, key=lambda index: -float(scores[index]))[:left]
        mask = HeadMask.from_indices(heads, kept)
    assert Michel(4, step=4).fit(model, [batch]) == mask


def test_michel_stops_when_it_is_no_longer_good_enough() -> None:
    model, batch = labelled()
    mask = Michel(1, step=2).fit(model, [batch], until=lambda mask: len(mask) >= 7)
    assert len(mask) == 8


def test_michel_without_data_or_labels_says_so() -> None:
    model, batch = labelled()
    with pytest.raises(hc.HeadcountError, match="no data"):
        Michel(3).fit(model, [])
    with pytest.raises(hc.HeadcountError, match="labels"):
        Michel(3).fit(model, [{"input_ids": batch["input_ids"]}])


def test_ablation_keeps_the_heads_that_are_missed_most() -> None:
    model, planted_heads = planted(2)
    ids, targets = examples(model, planted_heads)

    def closeness(model: Any) -> float:
        with torch.no_grad(), hc.masked(model, planted_heads):
            return -float((model(input_ids=ids[:64]).logits - targets[:64]).square().mean())

    pruner = Ablation(3)
    assert pruner.fit(model, closeness) == planted_heads
    with pytest.raises(hc.HeadcountError, match="ablation has scored no model yet"):
        Ablation(3).importance()


def test_random_and_unpruned() -> None:
    model = build("bert")
    pruner = Random(4, seed=1)
    with pruner.attached(model):
        assert len(pruner.mask()) == 4
        assert pruner.mask() == pruner.mask()
    unpruned = Unpruned()
    with unpruned.attached(model):
        assert len(unpruned.mask()) == 12


@pytest.mark.parametrize(("keep", "most"), [(3, 1), (5, 2), (12, 4)])
def test_a_fixed_layout_is_even_and_drawn_by_its_seed(keep: int, most: int) -> None:
    model = build("bert")
    masks = []
    for seed in (0, 0, *range(1, 6)):
        pruner = Fixed(keep, seed=seed)
        with pruner.attached(model):
            masks.append(pruner.mask())
    for mask in masks:
        counts = sorted(mask.counts().values())
        assert sum(counts) == keep and counts[-1] == most and counts[-1] - counts[0] <= 1
    assert masks[0] == masks[1]
    assert len({mask.indices for mask in masks}) > 1 or keep == 12


def test_a_fixed_layout_follows_a_pruned_model(tmp_path: Path) -> None:
    model = build("bert")
    mask = hc.HeadMask.random(hc.find_heads(model), keep=5, seed=3)
    mask.save(tmp_path / "mask.json")
    for like in (mask, tmp_path, str(tmp_path / "mask.json")):
        pruner = Fixed(like=like)
        with pruner.attached(model):
            assert pruner.mask() == mask
            assert pruner.gates().sum() == 5
    with pytest.raises(hc.HeadcountError, match="keeps 5 heads, but keep is 4"):
        Fixed(4, like=mask).bind(hc.find_heads(model))
    with pytest.raises(hc.HeadcountError, match="leave out min_per_block"):
        Fixed(like=mask, min_per_block=1)
    with pytest.raises(hc.HeadcountError, match="layout is missing"):
        Fixed()
    with pytest.raises(hc.HeadcountError, match="mask"):
        Fixed(like=mask).bind(hc.find_heads(build("gpt2")))


@pytest.mark.parametrize("kinds", [["encoder"], ["cross"], ["decoder", "cross"]])
def test_heads_outside_the_scope_stay(kinds: list[str]) -> None:
    pruner = Random(3, kinds=kinds)
    with pruner.attached(build("bart")):
        counts = pruner.mask().counts()
    inside = sum(count for name, count in counts.items() if name.split(".")[0] in kinds)
    outside = sum(count for name, count in counts.items() if name.split(".")[0] not in kinds)
    assert inside == 3
    assert outside == 24 - 8 * len(kinds)


def test_scope_by_layers() -> None:
    pruner = Random(1, layers=[1])
    with pruner.attached(build("bert")):
        assert pruner.mask().counts() == {"encoder.0": 4, "encoder.1": 1, "encoder.2": 4}


@given(
    st.lists(st.floats(-100, 100), min_size=12, max_size=12),
    st.integers(0, 2),
    st.data(),
)
def test_choice_is_exact_and_respects_the_minimum(
    scores: list[float], least: int, data: st.DataObject
) -> None:
    heads = hc.find_heads(build("bert"))
    keep = data.draw(st.integers(3 * least, 12))
    mask = choose(heads, Scope(min_per_block=least), torch.tensor(scores), keep)
    assert len(mask) == keep
    assert min(mask.counts().values()) >= least


def test_bad_settings_are_told() -> None:
    with pytest.raises(
        hc.HeadcountError,
        match="is 'paper-gpt', expected default or paper-bert",
    ):
        JointDSP(3, "paper-gpt")
    with pytest.raises(hc.HeadcountError, match="temperature must be above 0"):
        Annealing(1.0, 0.0, 10)
    with pytest.raises(hc.HeadcountError, match="cooldown"):
        Annealing(1.0, 0.1, 1.5)
    with pytest.raises(hc.HeadcountError, match="no heads of kinds"):
        Scope(kinds=("cross",)).positions(hc.find_heads(build("bert")))
    with pytest.raises(hc.HeadcountError, match="at least 2 in each of 3 blocks"):
        Scope(min_per_block=2).count(hc.find_heads(build("bert")), 5)
    with pytest.raises(hc.HeadcountError, match="has seen no model"):
        JointDSP(3).mask()
    with pytest.raises(hc.HeadcountError, match="nothing to steer for"):
        HardConcrete(steer=True)


def test_annealing_is_log_linear_and_then_constant() -> None:
    annealing = Annealing(1000.0, 1e-8, 25_000)
    assert annealing.temperature(0, 36_816) == 1000.0
    assert annealing.temperature(14_000, 36_816) == pytest.approx(7e-4, rel=0.1)
    assert annealing.temperature(30_000, 36_816) == pytest.approx(1e-8)
    assert Annealing(1.0, 0.01, 0.5).temperature(50, 200) == pytest.approx(0.1)


def test_presets_are_the_papers() -> None:
    bert, encdec = PRESETS["paper-bert"], PRESETS["paper-encdec"]
    assert (bert.annealing, bert.learning_rate) == (Annealing(1000.0, 1e-8, 25_000), 0.5)
    assert (encdec.annealing, encdec.learning_rate) == (Annealing(0.1, 1e-8, 15_000), 0.2)
    assert bert.scale is None
    assert not encdec.balance


def test_annealing_is_a_course_and_not_a_switch() -> None:
    with pytest.raises(hc.HeadcountError, match="annealing is False, expected an Annealing"):
        DSPSettings(annealing=False)  # type: ignore[arg-type]


def test_clamped_gates_stay_below_one() -> None:
    pruner = JointDSP(8, DSPSettings(Annealing(1.0, 0.1, 0.5), clamp=True))
    with pruner.attached(build("bert")) as gated:
        for step in range(50):
            gated.begin_step(step, 50)
            assert pruner.gates().max() <= 1


def test_a_vanishing_gate_is_applied_as_zero_with_its_gradient() -> None:
    gates = torch.tensor([1e-30, 0.5, CLOSED / 2, 1.0], dtype=torch.float64, requires_grad=True)
    found = applied(gates)
    assert found.tolist() == [0.0, 0.5, 0.0, 1.0]
    assert torch.autograd.grad(found.sum(), gates)[0].tolist() == [1.0] * 4


def test_freezing_a_pattern_freezes_what_is_tied_to_it() -> None:
    model = build("bart")
    names = {id(p): n for n, p in model.named_parameters()}
    embeddings = model.get_parameter("model.decoder.embed_tokens.weight")
    assert "decoder" not in names[id(embeddings)]  # it is known by its other name
    with hc.JointDSP(3, freeze=["model.decoder.*"]).attached(model):
        assert not embeddings.requires_grad
        assert not model.get_output_embeddings().weight.requires_grad
        own = [p for n, p in model.named_parameters() if "decoder" in n]
        assert own and not any(p.requires_grad for p in own)
        assert model.get_parameter("model.encoder.layers.0.self_attn.q_proj.weight").requires_grad
    assert embeddings.requires_grad


@pytest.mark.parametrize("granularity", ["example", "token"])
@pytest.mark.parametrize("family", ["bart", "gpt2"])
def test_michels_score_does_not_depend_on_the_batches(family: str, granularity: Any) -> None:
    # Targets of very different lengths: the loss is a mean over all tokens of a batch.
    model, generator = build(family), torch.Generator().manual_seed(0)
    ids = torch.randint(3, 50, (6, 8), generator=generator)
    labels = ids.clone()
    for row, length in enumerate((8, 2, 5, 3, 7, 4)):
        labels[row, length:] = -100
    whole = [{"input_ids": ids, "labels": labels}]
    single = [{"input_ids": ids[i : i + 1], "labels": labels[i : i + 1]} for i in range(6)]
    heads = hc.find_heads(model)
    found = [
        importance(model, heads, hc.HeadMask.all(heads), batches, granularity, normalise=False)
        for batches in (whole, single)
    ]
    assert found[0].max() > 0
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-9)
