"""Even layouts in plain configurations, which transformers loads without headcount."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount import HeadcountError, HeadMask, export, find_heads, remove_heads
from headcount.deploy.auto_class import auto_class
from headcount.deploy.compare import checked_inputs
from headcount.deploy.plain import plain_form
from headcount.deploy.regular import NotHeldError
from tests.cli.conftest import headcount
from tests.deploy.without_headcount import Elsewhere

__all__ = ["headcount"]

DECODER = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 100, "pad_token_id": 0,
}  # fmt: skip
T5 = {"d_model": 64, "d_kv": 8, "d_ff": 96, "num_layers": 2, "num_heads": 8, "vocab_size": 100}
VISION = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
BIASED = {"attention_bias": True, "mlp_bias": True}


def random_model(name: str, **settings: Any) -> PreTrainedModel:
    """A model in which no bias and no norm is what it would be by default."""
    cls = getattr(transformers, name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = cls(cls.config_class(**settings))
        for parameter in model.parameters():
            parameter.data += (0.3 if parameter.dim() == 1 else 0.1) * torch.randn(parameter.shape)
    return model.eval()


def keep_some(model: nn.Module, number: int, same: bool = False) -> None:
    """Keep so many heads in every block; others in each, unless they must be the same."""
    heads = find_heads(model)
    kept: list[int] = []
    for place, block in enumerate(heads.blocks):
        order = torch.randperm(block.born, generator=torch.Generator().manual_seed(place))
        if same:
            order = torch.arange(block.born).flip(0)
        kept += [block.offset + int(head) for head in order[:number]]
    remove_heads(model, HeadMask.from_indices(heads, kept))


def keep_groups(model: nn.Module, number: int) -> None:
    """Keep so many whole groups in every block, others in each."""
    heads = find_heads(model)
    kept: list[int] = []
    for place, block in enumerate(heads.blocks):
        groups = block.key_value_groups
        for turn in range(number):
            kept += [block.offset + head for head in groups[(place + turn) % len(groups)]]
    remove_heads(model, HeadMask.from_indices(heads, kept))


# The class, its settings, heads kept per layer, and the class that holds the result.
EVEN = (
    ("LlamaForCausalLM", DECODER, 4, "LlamaForCausalLM"),
    ("LlamaForCausalLM", DECODER, 3, "MistralForCausalLM"),
    ("LlamaForCausalLM", DECODER | BIASED, 3, "SeedOssForCausalLM"),
    ("LlamaForSequenceClassification", DECODER, 3, "MistralForSequenceClassification"),
    ("LlamaModel", DECODER, 3, "MistralModel"),
    ("MistralForCausalLM", DECODER | {"sliding_window": 4}, 3, "MistralForCausalLM"),
    ("Qwen2ForCausalLM", DECODER, 3, "SeedOssForCausalLM"),
    ("Qwen3ForCausalLM", DECODER | {"head_dim": 16}, 3, "Qwen3ForCausalLM"),
    ("Gemma3ForCausalLM", DECODER | {"head_dim": 8}, 4, "Gemma3ForCausalLM"),
    ("Phi3ForCausalLM", DECODER, 5, "Phi3ForCausalLM"),
    ("ViTForImageClassification", VISION, 3, "ViTForImageClassification"),
    ("UMT5ForConditionalGeneration", T5, 3, "UMT5ForConditionalGeneration"),
)


def first_answer(model: PreTrainedModel, inputs: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        return next(v for v in model(**inputs).values() if isinstance(v, Tensor))


def test_even_layouts_load_without_headcount(tmp_path: Path) -> None:
    """Also: whole groups, the same heads of T5, tied embeddings, half precision, no pruning."""
    elsewhere = Elsewhere(tmp_path)
    expected: dict[str, tuple[Tensor, str, float]] = {}

    def add(name: str, model: PreTrainedModel, cls: str, allowed: float = 1e-6) -> None:
        record = export(model, "plain", tmp_path / name, source=str(tmp_path / "nowhere"))
        assert record["class"] == cls and record["difference"] <= allowed
        inputs = {k: v for k, v in checked_inputs(model)[0].items() if isinstance(v, Tensor)}
        elsewhere.add(name, tmp_path / name, auto_class(getattr(transformers, cls)), inputs)
        expected[name] = first_answer(model, inputs), cls, allowed

    (tmp_path / "nowhere").mkdir()
    for place, (name, settings, number, cls) in enumerate(EVEN):
        model = random_model(name, **settings)
        keep_some(model, number)
        add(f"{place}-{name}", model, cls)
    for name, cls in (("LlamaForCausalLM", "MistralForCausalLM"),) * 2:
        tied = len(expected) % 2 == 0
        model = random_model(name, **DECODER, tie_word_embeddings=tied)
        keep_groups(model, 3)
        add(f"groups-{tied}", model, cls, allowed=0.0)
    t5 = random_model("T5ForConditionalGeneration", **T5)
    keep_some(t5, 3, same=True)
    add("t5", t5, "T5ForConditionalGeneration", allowed=0.0)
    half = random_model("LlamaForCausalLM", **DECODER).half()
    keep_groups(half, 3)
    add("half", half, "MistralForCausalLM", allowed=1e-2)
    add("unpruned", random_model("GPT2LMHeadModel", n_embd=64, n_head=8, n_layer=2, vocab_size=100),
        "GPT2LMHeadModel", allowed=0.0)  # fmt: skip
    found = elsewhere.run()
    for name, (answer, cls, allowed) in expected.items():
        again = found[name]["answer"]
        assert again.dtype == answer.dtype
        gap = (again - answer).abs().max() / answer.abs().max().clamp(min=1)
        assert float(gap) <= allowed, (name, float(gap))
        said = json.loads((tmp_path / f"{name}.safetensors.json").read_text())
        assert said["class"] == cls


def test_repeated_key_value_heads_are_counted() -> None:
    model = random_model("LlamaForCausalLM", **DECODER)
    heads = find_heads(model)
    kept = [block.offset + head for block in heads.blocks for head in (0, 1, 2)]
    remove_heads(model, HeadMask.from_indices(heads, kept))  # groups of two and of one
    plain = plain_form(model)
    assert plain.repeats == 3 and plain.model.config.num_key_value_heads == 3
    whole = random_model("LlamaForCausalLM", **DECODER)
    keep_groups(whole, 3)
    assert plain_form(whole).repeats == 0
    assert plain_form(whole).model.config.num_key_value_heads == 3


def test_what_no_configuration_says() -> None:
    uneven = random_model("LlamaForCausalLM", **DECODER)
    heads = find_heads(uneven)
    remove_heads(uneven, HeadMask.all(heads) - HeadMask.from_names(heads, ["decoder.1.0"]))
    emptied = random_model("LlamaForCausalLM", **DECODER)
    heads = find_heads(emptied)
    remove_heads(emptied, HeadMask.from_indices(heads, heads.block("decoder.0").indices))
    bert = random_model("BertModel", **{k: v for k, v in DECODER.items() if "key_value" not in k})
    keep_some(bert, 4)
    gemma = random_model("Gemma3ForCausalLM", **DECODER, head_dim=8)
    keep_some(gemma, 3)
    t5 = random_model("T5ForConditionalGeneration", **T5)
    keep_some(t5, 3)
    for model, why in (
        (uneven, "decoder.0 has 8 heads and decoder.1 has 7"),
        (emptied, "decoder.1 has no heads"),
        (bert, "BertModel takes encoder.layer.0.attention.self.query.weight in the shape"),
        (gemma, "Gemma3ForCausalLM does not take it: .*not a multiple of the number of attention"),
        (t5, "encoder.0 and encoder.1 share a position bias and have kept different heads"),
    ):
        with pytest.raises(NotHeldError, match=why):
            plain_form(model)


def test_a_folder_that_answers_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model("LlamaForCausalLM", **DECODER)
    keep_groups(model, 3)
    save = PreTrainedModel.save_pretrained

    def save_another(self: Any, *args: Any, **kwargs: Any) -> None:
        other = copy.deepcopy(self)
        other.model.embed_tokens.weight.data += 0.1
        save(other, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save_another)
    with pytest.raises(HeadcountError, match="the plain folder answers something else"):
        export(model, "plain", tmp_path / "plain", source="")
    assert not list(tmp_path.iterdir())


def test_command(tmp_path: Path, headcount: Any) -> None:
    model = random_model("LlamaForCausalLM", **DECODER)
    keep_groups(model, 3)
    model.save_pretrained(tmp_path / "small")
    done = headcount("export", tmp_path / "small", "--to", "plain", "--output", tmp_path / "plain")
    assert done.code == 0 and "MistralForCausalLM, which computes what" in done.out
    assert f'AutoModelForCausalLM.from_pretrained("{tmp_path / "plain"}")' in done.out.replace(
        "\n", ""
    )
    card = (tmp_path / "plain" / "README.md").read_text()
    assert "headcount is not needed to run it" in card
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert "quantization_config" not in config and config["head_dim"] == 8
