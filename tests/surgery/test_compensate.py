"""What a cut takes can partly be given back, and the cut stays what the mask promises."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, XLMConfig, XLMModel

import headcount as hc
from headcount import HeadcountError
from headcount.bench.size import peak_memory
from headcount.surgery.outputs import Output, outputs_of, tokens_among
from tests.tiny import (
    VOCABULARY,
    Family,
    Inputs,
    build,
    difference,
    families,
    family_named,
    mask_for,
    masks,
    run,
)

CLOSE = 1e-5


def sample(family: Family) -> list[Inputs]:
    """Two batches like the family's own, larger and of other tokens or pixels."""
    generator = torch.Generator().manual_seed(7)

    def drawn(name: str, tensor: Tensor) -> Tensor:
        tensor = tensor.repeat(6, *(1,) * (tensor.dim() - 1))
        if name == "attention_mask":
            return tensor
        if tensor.is_floating_point():
            return torch.randn(tensor.shape, generator=generator)
        return torch.randint(5, VOCABULARY, tensor.shape, generator=generator)

    inputs = family.inputs()
    return [{name: drawn(name, t) for name, t in inputs.items()} for _ in range(2)]


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def closed(model: PreTrainedModel, mask: hc.HeadMask, inputs: Inputs) -> dict[str, Tensor]:
    with hc.masked(model, mask):
        return run(model, inputs)


@masks("half", "three_heads_each", "empty_middle_block", "empty_every_block")
@families("bert", "gpt2", "llama", "t5", "bart", "vit", "albert")
def test_the_cut_model_equals_the_masked_one(family: Family, mask_name: str) -> None:
    model, inputs = build(family), family.inputs()
    mask, before = mask_for(model, mask_name), weights(model)
    hc.compensate(model, mask, sample(family))
    expected = closed(model, mask, inputs)
    nothing_to_fit = mask_name == "empty_every_block" and family.name in ("llama", "t5")
    assert (difference(weights(model), before) == 0) == nothing_to_fit
    hc.remove_heads(model, mask)
    assert difference(run(model, inputs), expected) < CLOSE


def test_a_model_that_was_cut_before_can_be_cut_further() -> None:
    family = family_named("gpt2")
    model, inputs = build(family), family.inputs()
    first = mask_for(model, "uneven")
    second = first & mask_for(model, "half")
    hc.remove_heads(model, first)
    hc.compensate(model, second, sample(family))
    expected = closed(model, second, inputs)
    hc.remove_heads(model, second)
    assert difference(run(model, inputs), expected) < CLOSE


def error(model: PreTrainedModel, mask: hc.HeadMask, batches: list[Inputs], whole: Any) -> float:
    """Mean square of what the masked model's last hidden states miss."""
    total = 0.0
    for inputs, wanted in zip(batches, whole, strict=True):
        found = closed(model, mask, inputs)
        total += float((found["logits"] - wanted["logits"]).square().mean())
    return total / len(batches)


@masks("half", "three_heads_each")
@families("bert", "gpt2", "llama", "t5", "bart", "vit")
def test_the_outputs_come_closer_to_the_unpruned_ones(family: Family, mask_name: str) -> None:
    model, batches = build(family), sample(family)
    mask = mask_for(model, mask_name)
    whole = [run(model, inputs) for inputs in batches]
    plain = error(model, mask, batches, whole)
    hc.compensate(model, mask, batches)
    assert error(model, mask, batches, whole) < 0.8 * plain


@families("bert", "llama", "bart")
def test_a_batch_goes_through_the_model_twice_however_many_blocks_there_are(
    family: Family,
) -> None:
    model, batches = build(family), sample(family)
    first = next(module for module in model.modules() if isinstance(module, nn.Embedding))
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    once = first.register_forward_hook(count)
    run(model, batches[0])
    per_pass, calls = calls, 0
    hc.compensate(model, mask_for(model, "half"), batches)
    once.remove()
    look_round = 1  # the first batch tells in which order the blocks come
    assert calls == per_pass * (2 * len(batches) + look_round)


@families("llama", "bart")
def test_passes_that_wait_hold_no_cache(family: Family) -> None:
    model, asked = build(family), []
    assert model.config.use_cache

    def listen(module: nn.Module, args: Any, given: dict[str, Any]) -> None:
        asked.append(given.get("use_cache"))

    model.register_forward_pre_hook(listen, with_kwargs=True)
    hc.compensate(model, mask_for(model, "half"), sample(family))
    passes = asked[1:]  # the first one looks round
    assert passes and all(kept is False for kept in passes)


def test_groups_of_layers_that_share_their_weights_and_take_turns() -> None:
    family = family_named("albert")
    config = build(family).config
    config.num_hidden_layers, config.num_hidden_groups = 4, 2
    torch.manual_seed(0)
    model = type(build(family))(config).eval()
    batches, mask = sample(family), mask_for(model, "half")
    whole = [run(model, inputs) for inputs in batches]
    plain = error(model, mask, batches, whole)
    hc.compensate(model, mask, batches)
    assert error(model, mask, batches, whole) < 0.9 * plain
    expected = closed(model, mask, batches[0])
    hc.remove_heads(model, mask)
    assert difference(run(model, batches[0]), expected) < CLOSE


def test_autocast_is_as_it_was_and_each_pass_has_its_own() -> None:
    """`accelerate` wraps a model's forward in one autocast, which all passes enter."""
    family = family_named("bert")
    model, batches = build(family), sample(family)
    mixed = torch.autocast("cpu", torch.float16)
    model.forward = mixed(model.forward)  # type: ignore[method-assign]
    hc.compensate(model, mask_for(model, "half"), batches)
    assert not torch.is_autocast_enabled("cpu")
    model.bert.encoder.layer[1].forward = None  # breaks off in the middle
    with pytest.raises(TypeError):
        hc.compensate(model, mask_for(model, "half"), batches)
    assert not torch.is_autocast_enabled("cpu")


def test_a_batch_may_do_without_a_block() -> None:
    """Such as a text without an image, in a model of both."""
    family = family_named("bert")
    model, batches = build(family), sample(family)
    short = {name: t[:, :3] for name, t in batches[1].items()}
    layer: Any = model.bert.encoder.layer[1]
    plain = layer.forward
    layer.forward = lambda states, *args, **kwargs: (
        plain(states, *args, **kwargs) if states.shape[1] > 3 else states
    )
    mask, before = mask_for(model, "half"), weights(model)
    hc.compensate(model, mask, [batches[0], short])
    changed = {name for name, w in weights(model).items() if not w.equal(before[name])}
    assert len(changed) == 2 * len(model.bert.encoder.layer)
    whole = build(family)
    hc.compensate(whole, mask, [batches[0]])
    alone = weights(whole)
    name = "bert.encoder.layer.0.attention.output.dense.weight"
    assert not weights(model)[name].equal(alone[name])  # the short batch counts where it goes


def test_keeping_every_head_changes_nothing() -> None:
    model = build("bert")
    before = weights(model)
    hc.compensate(model, hc.HeadMask.all(hc.find_heads(model)), sample(family_named("bert")))
    assert difference(weights(model), before) == 0


def test_an_emptied_block_gives_the_mean_of_what_it_gave() -> None:
    family = family_named("bert")
    model, inputs = build(family), family.inputs()
    projection: Any = model.bert.encoder.layer[0].attention.output.dense
    seen: list[Tensor] = []
    with projection.register_forward_hook(lambda _, args, out: seen.append(out)):
        run(model, inputs)
    mean = seen[0][inputs["attention_mask"].bool()].mean(0)
    heads = hc.find_heads(model)
    first = hc.HeadMask.from_indices(heads, heads.blocks[0].indices)
    hc.compensate(model, hc.HeadMask.all(heads) - first, [inputs])
    assert float((projection.bias.detach() - mean).abs().max()) < 1e-6


def test_what_a_kept_head_can_say_is_recovered() -> None:
    """The values of a block's second head are made a linear function of its first head's."""
    family = family_named("bert")
    model, batches = build(family), sample(family)
    attention: Any = model.bert.encoder.layer[1].attention.self
    mixing = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for projection in (attention.query, attention.key):
            projection.weight[8:16] = projection.weight[:8]
            projection.bias[8:16] = projection.bias[:8]
        attention.value.weight[8:16] = mixing @ attention.value.weight[:8]
        attention.value.bias[8:16] = mixing @ attention.value.bias[:8]
    heads = hc.find_heads(model)
    mask = hc.HeadMask.all(heads) - hc.HeadMask.from_names(heads, ["encoder.1.1"])
    whole = run(model, batches[0])["logits"]
    lost = float((closed(model, mask, batches[0])["logits"] - whole).abs().max())
    hc.compensate(model, mask, batches, ridge=1e-9)
    left = float((closed(model, mask, batches[0])["logits"] - whole).abs().max())
    assert lost > 0.1
    assert left < 1e-3 * lost


def test_padding_has_no_influence() -> None:
    family = family_named("bert")
    batches = sample(family)
    longer = [{name: nn.functional.pad(t, (0, 3)) for name, t in b.items()} for b in batches]
    found = []
    for given in (batches, longer):
        model = build(family)
        hc.compensate(model, mask_for(model, "half"), given)
        found.append(weights(model))
    assert difference(*found) < CLOSE


def test_places_without_a_label_have_no_influence() -> None:
    family = family_named("bart")
    batches = [
        {"labels" if name == "decoder_input_ids" else name: t for name, t in batch.items()}
        for batch in sample(family)
    ]
    longer = [b | {"labels": nn.functional.pad(b["labels"], (0, 3), value=-100)} for b in batches]
    found = []
    for given in (batches, longer):
        model = build(family)
        hc.compensate(model, mask_for(model, "half"), given)
        found.append(weights(model))
    assert difference(*found) < CLOSE


class Scaled(nn.Linear):
    """A projection that does more than one."""

    def forward(self, values: Tensor) -> Tensor:
        return 2 * super().forward(values)


def test_refusals_leave_the_model_as_it_was() -> None:
    llama, bert = build("llama"), build("bert")
    half, other = mask_for(llama, "half"), mask_for(bert, "half")
    batches = sample(family_named("llama"))
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((llama, other, batches), "this mask is for bert"),
        ((llama, half, batches, 0.0), "the ridge is 0.0, expected a number above 0"),
        ((llama, half, []), "no data to compensate with"),
    ]
    before = weights(llama)
    for given, said in wrong:
        with pytest.raises(HeadcountError, match=said):
            hc.compensate(*given)
    last: Any = llama.model.layers[-1].self_attn
    last.o_proj.__class__ = Scaled
    with pytest.raises(HeadcountError, match=r"o_proj is a Scaled .* expected a plain Linear"):
        hc.compensate(llama, half, batches)
    assert difference(weights(llama), before) == 0
    assert not llama.training


def test_values_that_overflow_are_refused() -> None:
    model: Any = build("llama").half()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.v_proj.weight *= 1e5
    before = copy.deepcopy(model.state_dict())
    mask = hc.HeadMask.random(hc.find_heads(model), keep=3, seed=0)
    with pytest.raises(HeadcountError, match=r"not finite in torch\.float16, so heads cannot be"):
        hc.compensate(model, mask, [family_named("llama").inputs()])
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_mask_of_sound_is_read_at_the_places_of_the_model() -> None:
    family = family_named("wav2vec2")
    model, inputs = build(family), family.inputs()
    length = run(model, inputs)["hidden_states.0"].shape[1]
    whole, shorter = (int(model._get_feat_extract_output_lengths(n)) for n in (80, 60))
    assert length == whole > shorter
    rows = tokens_among(torch.zeros(2, length, 4), model, inputs, "encoder")
    assert rows.shape == (whole + shorter, 4)


class Plain(nn.Linear):
    """A projection of another name that does the same, as Falcon has one."""

    def forward(self, values: Tensor) -> Tensor:
        return values @ self.weight.T if self.bias is None else values @ self.weight.T + self.bias


def test_a_projection_of_another_class_is_fitted_if_it_does_nothing_else() -> None:
    family = family_named("bert")
    named, other = build(family), build(family)
    for block in hc.find_heads(other).blocks:
        home: Any = other.get_submodule(block.path)
        home.get_submodule(block.anatomy.output).__class__ = Plain
    mask = mask_for(named, "half")
    for model in (named, other):
        hc.compensate(model, mask, sample(family))
    assert difference(weights(named), weights(other)) < 1e-5


def calls_of(
    model: Any, output: Output, mask: hc.HeadMask, batches: list[Inputs]
) -> tuple[Tensor, Tensor]:
    """Inputs and outputs of a projection, a row per position."""
    heard: list[tuple[Tensor, Tensor]] = []
    hook = model.get_submodule(output.name).register_forward_hook(
        lambda _, args, answer: heard.append((args[0].flatten(0, -2), answer.flatten(0, -2)))
    )
    with torch.no_grad(), hc.masked(model, mask):
        for batch in batches:
            model(**batch)
    hook.remove()
    values, answers = (torch.cat(part) for part in zip(*heard, strict=True))
    return values, answers


def plainly_fitted(model: Any, mask: hc.HeadMask, batches: list[Inputs]) -> dict[str, Tensor]:
    """Each block after another, with all batches through the whole model for every block."""
    whole, ridge = copy.deepcopy(model), 1e-3
    outputs = outputs_of(model, hc.find_heads(model), mask)
    for output in outputs:
        given, pruned = calls_of(model, output, mask, batches)
        _, before = calls_of(whole, output, hc.HeadMask.all(hc.find_heads(whole)), batches)
        given, missing = given[:, output.kept], before - pruned
        squares = given.T @ given
        penalty = ridge * squares.diagonal().mean() * torch.eye(len(squares), dtype=squares.dtype)
        with torch.no_grad():
            model.get_submodule(output.name).weight[:, output.kept] += torch.linalg.solve(
                squares + penalty, given.T @ missing
            ).T
    return weights(model)


def test_the_fit_is_that_of_block_after_block() -> None:
    family = family_named("llama")
    model: Any = build(family).double()
    batches = [{"input_ids": batch["input_ids"]} for batch in sample(family)]
    mask = mask_for(model, "half")
    expected = plainly_fitted(copy.deepcopy(model), mask, batches)
    hc.compensate(model, mask, batches)
    for name, weight in weights(model).items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-6, atol=1e-10)


def test_passes_that_wait_hold_little_more_than_hidden_states() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        vocab_size=100,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    ids = torch.randint(100, (256, 64), generator=torch.Generator().manual_seed(0))
    mask = mask_for(model, "half")

    def fit() -> None:
        hc.compensate(model, mask, [{"input_ids": row} for row in ids.split(8)])

    hidden = ids.numel() * 64 * 4
    # The embeddings, and what each of the two passes has; the rest is one batch and the sums.
    assert peak_memory(fit) < 4.5 * hidden


def test_a_layer_that_changes_its_inputs_is_not_begun_twice() -> None:
    family = family_named("llama")
    model, same = build(family), build(family)
    batches, mask = sample(family), mask_for(model, "half")
    for one, change in ((model, Tensor.mul_), (same, Tensor.mul)):
        layer: Any = one.get_submodule("model.layers.1")

        def scaled(
            states: Tensor, *args: Any, do: Any = change, layer: Any = layer, **given: Any
        ) -> Any:
            return type(layer).forward(layer, do(states, 1.5), *args, **given)

        layer.forward = scaled
    hc.compensate(model, mask, batches)
    hc.compensate(same, mask, batches)
    found = weights(model)
    for name, weight in weights(same).items():
        torch.testing.assert_close(found[name], weight)


def test_a_layer_that_is_given_a_cache_is_not_begun_twice() -> None:
    """XLM makes a cache for every pass, and nothing tells it not to."""
    torch.manual_seed(0)
    config = XLMConfig(vocab_size=VOCABULARY, emb_dim=16, n_layers=3, n_heads=4, pad_index=1)
    model = XLMModel(config).eval()
    family = family_named("bert")
    batches, mask = sample(family), hc.HeadMask.random(hc.find_heads(model), keep=6, seed=0)
    wanted = run(model, batches[0])
    missed = difference(closed(model, mask, batches[0]), wanted)
    hc.compensate(model, mask, batches)
    fitted = closed(model, mask, batches[0])
    assert difference(fitted, wanted) < missed
    hc.remove_heads(model, mask)
    assert difference(run(model, batches[0]), fitted) < CLOSE
