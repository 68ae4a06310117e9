"""Every head of every family is found and has one name and one flat index."""

from __future__ import annotations

import pytest
import torch
import transformers

import headcount as hc
from tests.tiny import Family, build, difference, families, family_named, mask_for, run

SEQ2SEQ_BLOCKS = ["encoder.0", "encoder.1", "decoder.0", "cross.0", "decoder.1", "cross.1"]
CLIP_BLOCKS = [f"{tower}.encoder.{layer}" for tower in ("text", "vision") for layer in range(3)]


def expected_blocks(family: Family) -> list[str]:
    special = {"albert": ["encoder.0"], "clip": CLIP_BLOCKS}
    if family.name in special:
        return special[family.name]
    if family.is_seq2seq:
        return SEQ2SEQ_BLOCKS
    return [f"{'decoder' if family.generates else 'encoder'}.{layer}" for layer in range(3)]


@families()
def test_blocks_are_named_by_kind_and_layer(family: Family) -> None:
    heads = hc.find_heads(build(family))
    assert [block.name for block in heads.blocks] == expected_blocks(family)
    assert [f"{b.kind}.{b.layer}" for b in heads.blocks] == [
        name.removeprefix("text.").removeprefix("vision.") for name in expected_blocks(family)
    ]


@families()
def test_every_block_has_its_four_heads(family: Family) -> None:
    heads = hc.find_heads(build(family))
    assert {block.heads for block in heads.blocks} == {(0, 1, 2, 3)}
    assert heads.layout == tuple((name, 4) for name in expected_blocks(family))
    assert len(heads) == heads.born == 4 * len(heads.blocks)
    assert not heads.left_alone


@families()
def test_every_head_matters(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    whole = run(model, inputs)
    everything = hc.HeadMask.all(hc.find_heads(model))
    for index in everything.indices:
        gates = everything.gates()
        gates[index] = 0
        with hc.masked(model, gates):
            assert difference(run(model, inputs), whole) > 1e-3


@families()
def test_paths_lead_to_the_blocks(family: Family) -> None:
    model = build(family)
    paths = [block.path for block in hc.find_heads(model).blocks]
    assert len(set(paths)) == len(paths)
    assert all("att" in path.lower() for path in paths)
    assert all(list(model.get_submodule(path).parameters()) for path in paths)


@pytest.mark.parametrize("name, size", [("bert", 8), ("qwen3", 16), ("t5", 8), ("phi3", 8)])
def test_head_size_is_that_of_the_output_projection_input(name: str, size: int) -> None:
    assert {block.head_size for block in hc.find_heads(build(name)).blocks} == {size}


@families()
def test_grouped_queries_are_found(family: Family) -> None:
    blocks = hc.find_heads(build(family)).blocks
    groups = ((0, 1), (2, 3)) if family.is_grouped else ((0,), (1,), (2,), (3,))
    assert {block.key_value_groups for block in blocks} == {groups}
    assert {block.num_key_value_heads for block in blocks} == {len(groups)}


@families("bert", "gpt2", "t5", "clip")
def test_names_and_indices_belong_together(family: Family) -> None:
    heads = hc.find_heads(build(family))
    assert len(set(heads.names)) == len(heads)
    assert heads.indices == tuple(range(len(heads)))
    assert tuple(heads.name(index) for index in heads.indices) == heads.names == tuple(heads)
    assert tuple(heads.index(name) for name in heads.names) == heads.indices


def test_flat_indices_count_block_by_block() -> None:
    heads = hc.find_heads(build("t5"))
    assert heads.name(0) == "encoder.0.0"
    assert heads.name(10) == "decoder.0.2"
    assert heads.index("cross.1.3") == 23


def test_names_and_indices_stay_when_neighbours_leave() -> None:
    model = build("bert")
    whole = hc.find_heads(model)
    hc.remove_heads(model, hc.HeadMask.from_names(whole, ["encoder.0.3", "encoder.2.1"]))
    heads = hc.find_heads(model)
    assert heads.names == ("encoder.0.3", "encoder.2.1")
    assert heads.indices == (3, 9)
    assert (len(heads), heads.born, heads.layout) == (2, 12, whole.layout)
    assert heads.name(4) == "encoder.1.0"


@families()
def test_finding_changes_nothing(family: Family) -> None:
    model, inputs = build(family), family.inputs()
    before, modules = run(model, inputs), [type(module) for module in model.modules()]
    hc.find_heads(model)
    assert difference(run(model, inputs), before) == 0
    assert [type(module) for module in model.modules()] == modules


def test_albert_shares_one_block_among_its_layers() -> None:
    model, inputs = build("albert"), family_named("albert").inputs()
    assert model.config.num_hidden_layers == 3
    states = run(model, inputs)
    with hc.masked(model, mask_for(model, "one_head")):
        closed = run(model, inputs)
    for layer in (1, 2, 3):
        assert (states[f"hidden_states.{layer}"] - closed[f"hidden_states.{layer}"]).any()


@pytest.mark.parametrize(
    "architecture, name, blocks",
    [
        ("BertModel", "bert", 3),
        ("BertForSequenceClassification", "bert", 3),
        ("GPT2Model", "gpt2", 3),
        ("T5EncoderModel", "t5", 2),
        ("WhisperModel", "whisper", 6),
    ],
)
def test_heads_are_found_whatever_stands_on_top(architecture: str, name: str, blocks: int) -> None:
    family = family_named(name)
    config = getattr(transformers, family.config)(**family.settings)
    assert len(hc.find_heads(getattr(transformers, architecture)(config)).blocks) == blocks


def test_a_model_without_weights_has_heads() -> None:
    family = family_named("llama")
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**family.settings))
    assert hc.find_heads(model).layout == hc.find_heads(build(family)).layout
