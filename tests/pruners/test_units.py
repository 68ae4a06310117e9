"""Even layers and whole groups: exactly K, in training and at the end, with every method."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    TrainerCallback,
    TrainingArguments,
)

import headcount as hc
from headcount import HeadcountError, HeadMap, HeadMask
from headcount.batch import Batch
from headcount.pruners.base import Pruner
from headcount.pruners.choice import Scope, choose
from headcount.pruners.dsp import JointDSP
from headcount.pruners.handover import Handover
from headcount.pruners.hard_concrete import SHIFT, HardConcrete
from headcount.pruners.methods import make_pruner
from headcount.pruners.scored import ScoredSettings
from headcount.pruners.surgeon import removal_costs
from headcount.pruners.units import Units
from headcount.training import PruningTrainer
from tests.pruners.test_surgeon import labelled
from tests.tiny import VOCABULARY, build, family_named

LAYERS, HEADS, GROUP = 3, 8, 2  # of the model with grouped queries
STEPS = 8
EVEN, GROUPS = {"even": True}, {"unit": "group"}
BOTH = {**EVEN, **GROUPS}
# K for each, which the other layouts would mostly refuse.
ASKED: dict[str, tuple[str, dict[str, Any], int]] = {
    "bert-even": ("bert", EVEN, 6),
    "bert-group": ("bert", GROUPS, 5),
    "bert-both": ("bert", BOTH, 9),
    "llama-even": ("llama", EVEN, 9),
    "llama-group": ("llama", GROUPS, 10),
    "llama-both": ("llama", BOTH, 12),
    "bart-even": ("bart", EVEN, 12),
    "bart-both": ("bart", BOTH, 6),
}
LEARNED: dict[str, tuple[str, dict[str, Any]]] = {
    "joint-dsp": ("joint-dsp", {}),
    "paper": ("joint-dsp", {"preset": "paper-bert"}),
    "poisson": ("joint-dsp", {"relaxation": "poisson"}),
    "drawn": ("joint-dsp", {"relaxation": "poisson", "hard": True}),
    "pipelined-dsp": ("pipelined-dsp", {}),
    "ste": ("ste", {}),
    "hard-concrete": ("hard-concrete", {}),
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **LEARNED,
    "from-michel": ("joint-dsp", {"first": "michel"}),
    "committed": ("joint-dsp", {"commit_at": 0.5, "countdown": [0.0, 0.8, 1.0]}),
    "shed": ("joint-dsp", {"shed": True, "cooldown": 2, "scale": [1.0, 1e6]}),
    "ste-countdown": ("ste", {"countdown": [0.0, 0.8, 1.0]}),
    "attrition": ("attrition", {"countdown": [0.1, 0.8, 1.0], "memory": 0.5}),
    "attrition-committed": ("attrition", {"commit_at": 0.6}),
    "handover": ("handover", {}),
    "operations": ("handover", {"countdown": [0.0, 0.8, 1.0], "operations": 3, "measured": True}),
    "surgeon": ("surgeon", {}),
    "surgeon-unmeasured": ("surgeon", {"measured": False}),
    "michel": ("michel", {}),
    "michel-steps": ("michel", {"step": 1}),
    "ablation": ("ablation", {}),
    "random": ("random", {}),
    "magnitude": ("magnitude", {}),
    "wanda": ("wanda", {}),
    "taylor": ("taylor", {}),
    "taylor-vector": ("taylor", {"form": "vector"}),
    "fisher": ("fisher", {}),
    "flap": ("flap", {"compensate": False}),
    "osscar": ("osscar", {}),
}
pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set:UserWarning")
each_layout = pytest.mark.parametrize("asked", ASKED)


def llama(key_value_heads: int = HEADS // GROUP) -> LlamaForCausalLM:
    """A decoder with eight query heads in each layer, two to a key-value head."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=key_value_heads, pad_token_id=1,
            initializer_range=0.3,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()


def model_and_batches(name: str) -> tuple[PreTrainedModel, list[Batch]]:
    model = llama() if name == "llama" else build(name)
    return model, labelled(family_named(name), batches=8)


class Data:
    """What a pruner that scores may ask for: some batches, and the loss."""

    def __init__(self, model: PreTrainedModel, found: list[Batch]) -> None:
        self.model, self.found = model, found

    def batches(self, settings: ScoredSettings, rounds: int) -> Iterable[Batch]:
        return self.found[:2]

    def told(self, what: str, times: int) -> Callable[[int], None]:
        return lambda done: None

    def metric(self) -> Callable[[], float]:
        def measure() -> float:
            with torch.no_grad():
                return -float(self.model(**self.found[0]).loss)

        return measure

    def measuring(self, what: str, times: int) -> Callable[[], float]:
        return self.metric()


def make_trainer(
    folder: Path, pruner: Pruner, model: PreTrainedModel, batches: list[Batch], **changes: Any
) -> PruningTrainer:
    examples = [{name: t[i] for name, t in b.items()} for b in batches for i in range(2)]
    callbacks = changes.pop("callbacks", [])
    args = TrainingArguments(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=2, learning_rate=1e-3,
        report_to=[], use_cpu=True, disable_tqdm=True, seed=3,
        **{"save_strategy": "no", **changes},
    )  # fmt: skip
    return PruningTrainer(
        model=model, pruner=pruner, args=args, train_dataset=examples, callbacks=callbacks
    )


def decided(pruner: Pruner, name: str, folder: Path) -> HeadMask:
    """The choice of a pruner, after training or scoring."""
    model, batches = model_and_batches(name)
    if pruner.needs == "scoring":
        pruner.score(model, Data(model, batches))
        return pruner.mask()
    trainer = make_trainer(folder, pruner, model, batches)
    trainer.train()
    return trainer.mask()


def assert_layout(heads: HeadMap, kept: dict[str, tuple[int, ...]], layout: dict[str, Any]) -> None:
    if layout.get("even"):
        assert len({len(own) for own in kept.values()}) == 1, kept
    if layout.get("unit") == "group":
        for block in heads.blocks:
            own = set(kept[block.name])
            assert all(own >= {*g} or own.isdisjoint(g) for g in block.key_value_groups), kept


@each_layout
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_exactly_k_in_the_layout(
    method: str, asked: str, tmp_path: Path
) -> None:
    (name, own), (model, layout, keep) = METHODS[method], ASKED[asked]
    pruner = make_pruner(name, keep, {**own, **layout}, seed=1)
    mask = decided(pruner, model, tmp_path)
    assert len(mask) == keep
    assert_layout(pruner.bound(), mask.by_block(), layout)


@each_layout
@pytest.mark.parametrize("method", [name for name in LEARNED if name != "hard-concrete"])
def test_gates_are_open_in_training_as_they_will_be_at_the_end(method: str, asked: str) -> None:
    (name, own), (model, layout, keep) = LEARNED[method], ASKED[asked]
    pruner = make_pruner(name, keep, {**own, **layout})
    pruner.bind(hc.find_heads(model_and_batches(model)[0]))
    blocks = pruner.scope.blocks(pruner.bound())
    groups = len(blocks[0].key_value_groups) if layout.get("unit") else blocks[0].num_heads
    assert len(next(pruner.parameters())) == len(blocks) * groups
    for step in range(0, STEPS, 2):
        pruner.begin_step(step, STEPS)
        gates = pruner.gates()
        assert gates.dtype == torch.float64
        by_block = gates.detach().unflatten(0, (len(blocks), -1))
        if layout.get("even"):
            assert by_block.sum(1).tolist() == pytest.approx([keep / len(blocks)] * len(blocks))
        else:
            assert float(by_block.sum()) == pytest.approx(keep)
        in_groups = by_block.unflatten(1, (groups, -1))
        assert torch.equal(in_groups, in_groups[:, :, :1].expand_as(in_groups))


@pytest.mark.parametrize("relaxation", ["gumbel", "poisson"])
@pytest.mark.parametrize("temperature", [1e-100, 1e-8, 1e-2, 1.0, 1e3])
def test_gates_of_blocks_are_finite_at_every_temperature(
    temperature: float, relaxation: str
) -> None:
    given = {"start_temperature": temperature, "annealing": False, "relaxation": relaxation}
    pruner = make_pruner("joint-dsp", 6, {**BOTH, **given, "scale": None})
    pruner.bind(hc.find_heads(llama()))
    w = next(pruner.parameters())
    w.data.copy_(torch.linspace(-1e4, 1e4, len(w)))
    pruner.begin_step(0, STEPS)
    gates = pruner.gates()
    (gates * torch.arange(len(gates))).sum().backward()
    assert w.grad is not None and w.grad.isfinite().all() and gates.isfinite().all()


def test_blocks_draw_their_sets_apart() -> None:
    given = {"relaxation": "poisson", "hard": True, "spread": 0.0, "scale": None, **EVEN}
    pruner = make_pruner("joint-dsp", 12, given)
    pruner.bind(hc.find_heads(llama()))
    drawn = []
    for step in range(STEPS):
        pruner.begin_step(step, STEPS)
        drawn.append(pruner.gates().detach().unflatten(0, (LAYERS, -1)))
    assert any(not torch.equal(step[0], step[1]) for step in drawn)
    assert torch.equal(torch.stack(drawn).sum(2), torch.full((STEPS, LAYERS), 4.0).double())


def test_the_logits_of_a_block_have_their_own_scale() -> None:
    pruner = JointDSP(12, even=True)
    pruner.bind(hc.find_heads(llama()))
    pruner.w.data[:HEADS] += 100.0
    first, *others = pruner.logits().detach().split(HEADS)
    assert float(first.std()) == pytest.approx(1.0)
    assert all(float(other.std()) == pytest.approx(1.0) for other in others)


def test_hard_concrete_is_steered_in_each_block() -> None:
    pruner = HardConcrete(6, even=True, unit="group")
    pruner.bind(hc.find_heads(llama()))
    optimizer = torch.optim.Adam(pruner.parameter_groups())
    pull = torch.linspace(0.0, 1.0, LAYERS).repeat_interleave(HEADS)  # the last is missed most
    for step in range(400):
        pruner.begin_step(step, 400)
        optimizer.zero_grad()
        (pruner.penalty() - (pruner.gates() * pull).sum()).backward()
        optimizer.step()
    open_heads = torch.sigmoid(pruner.log_alpha.detach() - SHIFT).split(HEADS // GROUP)
    counts = [float(GROUP * own.sum()) for own in open_heads]
    assert all(abs(count - 2) < 0.3 for count in counts), counts
    assert len(set(pruner.state()["penalty_weight"])) == LAYERS
    again = HardConcrete(6, even=True, unit="group")
    again.restore(pruner.state())
    again.bind(hc.find_heads(llama()))
    assert again.state() == pruner.state()


def test_hard_concrete_rounds_the_count_that_it_finds() -> None:
    pruner = HardConcrete(penalty_weight=0.1, even=True)
    pruner.bind(hc.find_heads(build("bert")))
    for open_gates, kept in ((0, 3), (4, 3), (5, 6), (11, 12)):
        pruner.log_alpha.data[:] = -1.0
        pruner.log_alpha.data[:open_gates] = 1.0
        assert set(pruner.mask().counts().values()) == {kept // 3}


def test_several_k_all_fit_and_are_nested() -> None:
    pruner = JointDSP([18, 12, 0.3], even=True, unit="group", seed=2)
    pruner.bind(hc.find_heads(llama()))
    masks = pruner.masks()
    assert [*masks] == [18, 12, 6]
    assert masks[6] < masks[12] < masks[18]
    for mask in masks.values():
        assert_layout(pruner.bound(), mask.by_block(), BOTH)
    for step in range(6):
        pruner.begin_step(step, 6)
        sums = pruner.gates().detach().unflatten(0, (LAYERS, -1)).sum(1)
        assert sums.tolist() == pytest.approx([pruner.step_count / LAYERS] * LAYERS)


def test_a_head_can_come_back_only_in_place_of_one_of_its_block() -> None:
    given = {"shed": True, "scale": None, "cooldown": 1, **EVEN}
    pruner = make_pruner("joint-dsp", 3, given)
    pruner.bind(hc.find_heads(build("bert")))
    # The third is above what the other blocks keep, and far below what its own does.
    values = [100.0, 99.9, 50.0, 50.0, 10.0, -50.0, -50.0, -50.0, -90.0, -200.0, -200.0, -200.0]
    next(pruner.parameters()).data.copy_(torch.tensor(values))
    lasting = pruner.lasting(5, 10)
    assert lasting is not None and lasting.kept == {0, 1, 4, 8}


class _Counts(TrainerCallback):
    """Notes how many heads of each block are open in each step."""

    def __init__(self, pruner: Pruner) -> None:
        self.pruner, self.seen = pruner, list[list[float]]()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        blocks = len(self.pruner.bound().blocks)
        by_block = self.pruner.gates().detach().unflatten(0, (blocks, -1))
        self.seen.append(by_block.sum(1).round(decimals=9).tolist())


@pytest.mark.parametrize("method", ["attrition", "ste-countdown"])
def test_layers_lose_heads_in_turns(method: str, tmp_path: Path) -> None:
    name, own = METHODS[method]
    pruner = make_pruner(name, 6, {**own, **BOTH})
    counts = _Counts(pruner)
    trainer = make_trainer(tmp_path, pruner, *model_and_batches("llama"), callbacks=[counts])
    trainer.train()
    assert all(len(set(step)) == 1 and step[0] % GROUP == 0 for step in counts.seen)
    assert len({step[0] for step in counts.seen}) > 2, counts.seen


def test_operations_leave_an_even_model_each(tmp_path: Path) -> None:
    model, batches = model_and_batches("llama")
    pruner = Handover(
        6, even=True, unit="group", operations=2, countdown=hc.Countdown(0.0, 0.6, 1.0)
    )
    heads = hc.find_heads(model)
    pruner.bind(heads)
    left = []
    for step in range(1, 11):
        if pruner.is_due(step, 10):
            mask = pruner.operate(model, batches, step, 10)
            pruner.commit(mask)
            hc.remove_heads(model, mask)
            assert_layout(heads, mask.by_block(), BOTH)
            left.append(len(mask))
    assert left == [18, 6]  # where the countdown has 15 and 6


@pytest.mark.parametrize("method", ["joint-dsp", "ste", "hard-concrete", "attrition", "handover"])
def test_a_resumed_training_gives_the_same(method: str, tmp_path: Path) -> None:
    def trainer(folder: str) -> PruningTrainer:
        return make_trainer(
            tmp_path / folder, make_pruner(method, 6, BOTH), *model_and_batches("llama"),
            save_strategy="steps", save_steps=3,
        )  # fmt: skip

    whole, again = trainer("whole"), trainer("again")
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert whole.mask() == again.mask()
    assert whole.pruner.state() == again.pruner.state()
    for name, value in whole.pruner.state_dict().items():
        assert torch.equal(value, again.pruner.state_dict()[name])


def test_removing_whole_groups_makes_the_cache_smaller() -> None:
    model = llama()
    inputs = torch.arange(5, 12)[None]
    before = _cached(model, inputs)
    pruner = make_pruner("random", 12, GROUPS)
    pruner.bind(hc.find_heads(model))
    hc.remove_heads(model, pruner.mask())
    assert _cached(model, inputs) == before / 2


def _cached(model: PreTrainedModel, inputs: Tensor) -> int:
    cache = model(input_ids=inputs, use_cache=True).past_key_values
    return sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)


def test_michel_gives_a_group_the_sum_of_its_heads() -> None:
    model, batches = model_and_batches("llama")
    single, grouped = make_pruner("michel", 10, {}), make_pruner("michel", 10, GROUPS)
    for pruner in (single, grouped):
        pruner.score(model, Data(model, batches))
    together = single.importance().unflatten(0, (-1, GROUP)).sum(1)
    best = together.argsort(descending=True)[:5].tolist()
    expected = {GROUP * unit + place for unit in best for place in range(GROUP)}
    assert grouped.mask().kept == expected
    assert single.mask().kept != expected


def test_the_surgeon_takes_a_group_out_as_one() -> None:
    model, batches = model_and_batches("llama")
    grouped = removal_costs(model, Scope(unit="group"), batches, 1e-3)
    costs = torch.tensor(list(grouped.values())).unflatten(0, (-1, GROUP))
    assert torch.equal(costs[:, 0], costs[:, 1])
    # In each layer the cheapest pair costs more than the cheapest head.
    single = torch.tensor(list(removal_costs(model, Scope(), batches, 1e-3).values()))
    cheapest = costs.sum(1).unflatten(0, (LAYERS, -1)).min(1).values
    assert (cheapest > single.unflatten(0, (LAYERS, -1)).min(1).values).all()


def test_ablation_masks_a_group_as_one() -> None:
    model, batches = model_and_batches("llama")
    asked = []

    def metric(asked_model: Any) -> float:
        with torch.no_grad():
            asked.append(-float(asked_model(**batches[0]).loss))
        return asked[-1]

    pruner = make_pruner("ablation", 10, GROUPS)
    pruner.fit(model, metric)  # type: ignore[operator]
    assert len(asked) == 1 + LAYERS * HEADS // GROUP
    with hc.masked(
        model, HeadMask.all(pruner.bound()) - HeadMask.from_indices(pruner.bound(), [0, 1])
    ):
        assert float(pruner.importance()[:2].sum()) == pytest.approx(asked[0] - metric(model))


def test_a_random_choice_may_be_any_of_the_layout() -> None:
    heads, seen = hc.find_heads(llama()), set()
    for seed in range(100):
        pruner = make_pruner("random", 6, BOTH, seed=seed)
        pruner.bind(heads)
        seen |= {(block, kept) for block, kept in pruner.mask().by_block().items()}
    assert len(seen) == LAYERS * HEADS // GROUP


@pytest.mark.parametrize(
    ("model", "layout", "keep", "said"),
    [
        (
            "bert", EVEN, 7,
            "cannot keep 7 heads evenly: 3 layers with 4 heads each need a multiple of 3; "
            "keep 6 or 9",
        ),
        (
            "bert", EVEN, 2,
            "cannot keep 2 heads evenly: 3 layers with 4 heads each need a multiple of 3; keep 3",
        ),
        (
            "llama", GROUPS, 7,
            "cannot keep 7 heads in whole groups: groups of 2 heads need a multiple of 2; "
            "keep 6 or 8",
        ),
        (
            "llama", BOTH, 9,
            "cannot keep 9 heads evenly in whole groups: 3 layers with 8 heads in groups of 2 each "
            "need a multiple of 6; keep 6 or 12",
        ),
        (
            "bart", EVEN, 23,
            "cannot keep 23 heads evenly: 6 blocks with 4 heads each need a multiple of 6; "
            "keep 18 or 24",
        ),
        (
            "bert", {**EVEN, "min_per_block": 2}, 3,
            "cannot keep 3 heads with at least 2 in each of 3 blocks, which needs 6; keep more or "
            "lower the minimum",
        ),
        (
            "llama", {**GROUPS, "min_per_block": 3}, 10,
            "cannot keep 10 heads with at least 3 in each of 3 blocks, which needs 12; keep more "
            "or lower the minimum",
        ),
    ],
)  # fmt: skip
def test_a_k_that_does_not_fit_is_refused(
    model: str, layout: dict[str, Any], keep: int, said: str
) -> None:
    with pytest.raises(HeadcountError) as refused:
        make_pruner("random", keep, layout).bind(hc.find_heads(model_and_batches(model)[0]))
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("layout", "keep", "count"),
    [
        (EVEN, 0.3, 6), (EVEN, 0.01, 3), (EVEN, 0.99, 24), (GROUPS, 0.3, 8), (GROUPS, 0.01, 2),
        (BOTH, 0.3, 6), (BOTH, 0.4, 12), (BOTH, 0.5, 12), ({}, 0.3, 7),
    ],
)  # fmt: skip
def test_a_fraction_is_rounded_to_a_k_that_fits(
    layout: dict[str, Any], keep: float, count: int
) -> None:
    assert Scope(**layout).count(hc.find_heads(llama()), keep) == count


def test_blocks_of_different_sizes_keep_the_same_share() -> None:
    config = build("bart").config
    config.decoder_attention_heads = 8  # of its own attention and across, beside 4 of the encoder
    heads = hc.find_heads(BartForConditionalGeneration(config))
    pruner = HardConcrete(10, even=True)
    pruner.bind(heads)
    counts = pruner.mask().counts()
    assert counts == {name: born // 4 for name, born in heads.layout}
    pruner.begin_step(STEPS, STEPS)
    assert pruner._wanted == [float(count) for count in counts.values()]
    with pytest.raises(HeadcountError) as refused:
        make_pruner("random", 12, EVEN).bind(heads)
    assert str(refused.value) == (
        "cannot keep 12 heads evenly: 6 blocks with 4 to 8 heads each need a multiple of 10; "
        "keep 10 or 20"
    )


def test_a_block_that_lost_heads_must_have_its_share() -> None:
    model = build("bart")
    heads = hc.find_heads(model)
    # Half of the decoder was cut before.
    half = [i for b in heads.blocks for i in (b.indices if b.kind == "encoder" else b.indices[:2])]
    hc.remove_heads(model, HeadMask.from_indices(heads, half))
    pruner = make_pruner("random", 12, EVEN)
    pruner.bind(hc.find_heads(model))
    assert set(pruner.mask().counts().values()) == {2}
    with pytest.raises(HeadcountError) as refused:
        make_pruner("random", 15, EVEN).bind(hc.find_heads(model))
    assert str(refused.value).endswith("need a multiple of 6; keep 12")


def test_a_layer_that_lost_too_many_heads_is_named() -> None:
    model = build("bert")
    heads = hc.find_heads(model)
    hc.remove_heads(model, HeadMask.from_indices(heads, [0, *range(4, 12)]))
    with pytest.raises(HeadcountError) as refused:
        make_pruner("random", 6, EVEN).bind(hc.find_heads(model))
    assert str(refused.value) == (
        "cannot keep 6 heads evenly: encoder.0 has 1 of its 4 heads left, which allows no more "
        "than 3; keep 3"
    )
    # On the way down from heads that are uneven, all are there until the first K that fits.
    units = Scope(even=True).units(hc.find_heads(model))
    assert [units.on_the_way(count) for count in (9, 8, 4, 3, 2)] == [9, 9, 9, 3, 3]
    assert units.quotas(9) == (1, 4, 4)
    assert units.after(9, 1) == 3


def test_groups_of_unequal_size_are_refused() -> None:
    model = llama()
    heads = hc.find_heads(model)
    hc.remove_heads(model, HeadMask.from_indices(heads, range(1, len(heads))))
    with pytest.raises(HeadcountError, match=r"those of decoder\.0 have 1 to 2 heads since"):
        make_pruner("random", 6, GROUPS).bind(hc.find_heads(model))
    model = llama()
    hc.remove_heads(model, HeadMask.from_indices(heads, [0, 2, 4, 6, *range(8, 24)]))
    with pytest.raises(HeadcountError, match=r"size is 1 in decoder\.0 and 2 in decoder\.1"):
        make_pruner("random", 6, GROUPS).bind(hc.find_heads(model))


@pytest.mark.parametrize("method", ["fixed", "unpruned"])
@pytest.mark.parametrize("layout", [EVEN, GROUPS])
def test_methods_that_choose_nothing_refuse_it(method: str, layout: dict[str, Any]) -> None:
    with pytest.raises(HeadcountError, match=f"{method} has no setting {next(iter(layout))}"):
        make_pruner(method, 6, layout)


def test_the_signature_says_so() -> None:
    pruner = make_pruner("ste", 6, BOTH)
    pruner.bind(hc.find_heads(llama()))
    assert pruner.signature() == ["even", "unit:group"]


def test_single_heads_of_any_layout_are_chosen_as_before() -> None:
    heads = hc.find_heads(llama())
    worth = torch.rand(len(heads), generator=torch.Generator().manual_seed(0))
    assert Units(heads.blocks).step == 1
    for keep in range(len(heads) + 1):
        best = worth.argsort(descending=True)[:keep].tolist()
        assert choose(heads, Scope(), worth, keep).kept == {*best}
