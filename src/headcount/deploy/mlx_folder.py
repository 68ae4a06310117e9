"""Folders for MLX: a pruned model that `mlx_lm` runs on a Mac, without headcount.

An even layout is a plain folder. For layers with their own numbers of heads, mlx_lm has one class
that takes them, OpenELM. It holds Llama and Qwen3 without biases and without rope scaling.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from headcount.deploy import examples, mlx_run
from headcount.deploy.auto_class import FOLDER
from headcount.deploy.other_process import ask
from headcount.deploy.plain import even_counts, plain_form
from headcount.deploy.regular import NotHeldError, RegularBlock, regular_blocks, regular_state
from headcount.deploy.traits import (
    BIASES,
    NORMS,
    OWN_COUNTS,
    TIED,
    UNTIED,
    WINDOW,
    is_tied,
    refusal,
    refuse_untried,
    rope_parameters,
    traits_of,
)
from headcount.errors import HeadcountError
from headcount.heads.find import find_heads
from headcount.loading.folder import copy_companions

OPENELM = frozenset({OWN_COUNTS, NORMS, TIED, UNTIED})
# How much logits may differ, relative to the largest, with everything in float32. Measured were up
# to 3e-6 for tiny models and 2e-4 for SmolLM2; without its window, a Mistral differs by 1.4.
TOLERANCE = 5e-3
LENGTH, STEPS = 48, 17
Record = dict[str, Any]
# The names of weights in transformers and in mlx_lm's OpenELM; those of a layer come after
# `model.layers.N.` and `transformer.layers.N.`, and several together are one tensor.
OUTER = {
    "model.embed_tokens.weight": "transformer.token_embeddings.weight",
    "model.norm.weight": "transformer.norm.weight",
    "lm_head.weight": "lm_head.weight",
}
INNER = {
    "attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn.out_proj": ("self_attn.o_proj",),
    "attn.q_norm": ("self_attn.q_norm",),
    "attn.k_norm": ("self_attn.k_norm",),
    "attn_norm": ("input_layernorm",),
    "ffn_norm": ("post_attention_layernorm",),
    "ffn.proj_1": ("mlp.gate_proj", "mlp.up_proj"),
    "ffn.proj_2": ("mlp.down_proj",),
}


def held(model: PreTrainedModel, source: str) -> str:
    """How MLX holds a model, in a few words.

    Args:
        model: the model, pruned or not.
        source: the model's folder or hub name.

    Raises:
        NotHeldError: it does not hold it.
    """
    return "a plain folder" if _even(model) else f"as openelm, {OWN_COUNTS}"


def write(model: PreTrainedModel, source: str, folder: Path) -> Record:
    """Write a folder for mlx_lm, and compare it with the model.

    Args:
        model: the model, pruned or not.
        source: the model's folder or hub name; its tokenizer and other companions are copied.
        folder: the folder to write to, which exists.

    Returns:
        What was written and how it was checked.

    Raises:
        NotHeldError: no class of mlx_lm holds the model.
        HeadcountError: the folder answers something else than the model.
    """
    record: Record
    if _even(model):
        plain = plain_form(model)
        plain.model.save_pretrained(folder)
        _say_rope(folder / "config.json", plain.model)
        record = {"architecture": plain.model.config.model_type, "why": plain.why}
    else:
        _write_openelm(model, regular_blocks(find_heads(model)), folder)
        record = {"architecture": "openelm", "why": f"openelm, for {OWN_COUNTS}"}
    if source:
        copy_companions(source, folder)
    files = sorted(folder.glob("model*.safetensors"))
    record |= {
        "file": files[0].name,
        "bytes": sum(file.stat().st_size for file in files),
        "load": f"mlx_lm.generate --model {FOLDER} --prompt Hello",
    }
    if find_spec("mlx_lm") is None:
        return {**record, "checked": "It was not run in MLX: mlx_lm is not installed here."}
    return record | _compare(model, folder)


def _even(model: PreTrainedModel) -> bool:
    """Whether a plain folder holds a model; if not, OpenELM does.

    Raises:
        NotHeldError: neither does.
    """
    heads = find_heads(model)
    refuse_untried(model, heads, "mlx_lm")
    blocks = regular_blocks(heads)
    has = traits_of(model, blocks)
    if WINDOW in has:
        raise NotHeldError("mlx_lm does not look at the sliding window of such a model")
    if has >= {NORMS, BIASES}:
        raise refusal(has, "mlx_lm")
    try:
        even_counts(model, regular_blocks(heads, common_group=True))
    except NotHeldError:
        if not has <= OPENELM:
            raise refusal(has | {OWN_COUNTS}, "mlx_lm") from None
        return False
    return True


def _say_rope(file: Path, model: PreTrainedModel) -> None:
    """Write the settings of the rope where mlx_lm reads them, beside where transformers 5 does.

    Most classes of mlx_lm know only the older places, and take 10,000 for a base that they miss.
    """
    rope = rope_parameters(model)
    config = json.loads(file.read_text("utf-8"))
    config["rope_theta"] = rope.pop("rope_theta")
    if rope.get("rope_type", "default") != "default":
        config["rope_scaling"] = rope
    file.write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def _write_openelm(model: PreTrainedModel, blocks: tuple[RegularBlock, ...], folder: Path) -> None:
    config: Any = model.config
    queries, key_values = zip(*(block.counts for block in blocks), strict=True)
    layers = config.num_hidden_layers
    state = regular_state(model, blocks)
    made = {
        "model_type": "openelm",
        "head_dim": blocks[0].block.anatomy.head_size,
        "num_transformer_layers": layers,
        "model_dim": config.hidden_size,
        "vocab_size": config.vocab_size,
        "ffn_dim_divisor": 1,
        "ffn_multipliers": [config.intermediate_size / config.hidden_size] * layers,
        "num_query_heads": queries,
        "num_kv_heads": key_values,
        "normalize_qk_projections": "model.layers.0.self_attn.q_norm.weight" in state,
        "share_input_output_layers": is_tied(model),
        "rms_norm_eps": config.rms_norm_eps,
        "rope_freq_constant": rope_parameters(model)["rope_theta"],
        "max_position_embeddings": config.max_position_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
    }
    (folder / "config.json").write_text(json.dumps(made, indent=2) + "\n", "utf-8")
    weights = dict(_openelm_weights(state, layers, is_tied(model)))
    save_file(weights, folder / "model.safetensors", {"format": "mlx"})


def _openelm_weights(
    state: Mapping[str, Tensor], layers: int, tied: bool
) -> Iterator[tuple[str, Tensor]]:
    for name, new in OUTER.items():
        if not (tied and name.startswith("lm_head")):
            yield new, state[name].contiguous()
    for layer in range(layers):
        for new, names in INNER.items():
            parts = [f"model.layers.{layer}.{name}.weight" for name in names]
            if all(part in state for part in parts):
                rows = torch.cat([state[part] for part in parts])
                yield f"transformer.layers.{layer}.{new}.weight", rows


def _compare(model: PreTrainedModel, folder: Path) -> Record:
    """Compare a folder in mlx_lm with the model.

    Raises:
        HeadcountError: mlx_lm cannot run it, or answers something else.
    """
    length = min(LENGTH, model.config.max_position_embeddings - STEPS)
    prompts = examples.tokens(model, 2, length).tolist()
    with TemporaryDirectory() as arrays:
        request = {"folder": str(folder), "prompts": prompts, "steps": STEPS, "arrays": arrays}
        answer = ask(mlx_run.__file__, request, f"mlx_lm cannot run {folder.name}")
        found = [np.load(Path(arrays, f"{n}.npy")) for n in range(len(prompts))]
    largest, equal = 0.0, 0
    exact = copy.deepcopy(model).float().eval()
    with torch.inference_mode():
        for tokens, logits in zip(answer["tokens"], found, strict=True):
            given = torch.tensor([tokens[:-1]], device=model.device)
            right = exact(input_ids=given).logits[0].cpu()
            gap = (right - torch.from_numpy(logits)).abs().max() / right.abs().max()
            largest = max(largest, float(gap.nan_to_num(torch.inf)))
            chosen = right[-STEPS:].argmax(-1).tolist()
            equal += sum(one == two for one, two in zip(chosen, tokens[-STEPS:], strict=True))
    if not largest <= TOLERANCE:
        raise HeadcountError(
            f"{folder.name} answers something else in MLX: its logits differ from the model's by "
            f"{largest:.1e}, expected at most {TOLERANCE:.0e}; export the model in another form"
        )
    return {
        "difference": largest,
        "greedy": f"{equal} of {STEPS * len(prompts)} greedy tokens are equal",
        "checked": f"It was run in mlx_lm {version('mlx_lm')} and compared with the model.",
    }
