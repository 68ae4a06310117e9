"""The weights of a GGUF file: their names, their order and their rounding, and all that back again.

Weights get the names of llama.cpp and, where its code rotates neighbours, another order of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.deploy.gguf_architecture import Holding
from headcount.deploy.regular import NotHeldError, regular_state
from headcount.deploy.traits import TIED, rope_parameters
from headcount.errors import HeadcountError

State = dict[str, Tensor]
# Weights in transformers and in GGUF; those of a layer come after `model.layers.N.` and `blk.N.`.
OUTER = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
ROTATED = ("attn_q", "attn_k")


def gguf_package() -> Any:
    """The package that writes and reads GGUF, an extra."""
    try:
        return import_module("gguf")
    except ImportError as error:
        raise HeadcountError(
            "writing GGUF needs gguf, which is not installed; run: pip install 'headcount[gguf]'"
        ) from error


def weights_of(model: PreTrainedModel, found: Holding) -> State:
    """The weights under their names in transformers, with every layer in regular form.

    Raises:
        NotHeldError: a weight has no place in GGUF.
    """
    state = regular_state(model, found.blocks)
    if TIED in found.has:
        state.pop("lm_head.weight", None)
        if found.architecture.copies_output:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
    for name in state:
        _gguf_name(name)
    return state


def _gguf_name(name: str) -> str:
    """The name of a weight in GGUF."""
    path, _, kind = name.rpartition(".")
    if path in OUTER:
        return f"{OUTER[path]}.{kind}"
    layer, _, inner = path.removeprefix("model.layers.").partition(".")
    if not path.startswith("model.layers.") or inner not in INNER:
        raise NotHeldError(f"llama.cpp has no place for its weight {name}")
    return f"blk.{layer}.{INNER[inner]}.{kind}"


def is_skipped(found: Holding, layer: int, state: Mapping[str, Tensor]) -> bool:
    """Whether a layer has no attention in the file, since none of its heads is left."""
    return found.is_skipped(layer, f"model.layers.{layer}.self_attn.o_proj.bias" in state)


def tensors_of(
    model: PreTrainedModel, found: Holding, state: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the file, by name."""
    if rope_parameters(model).get("rope_type") == "llama3":
        yield "rope_freqs.weight", _rope_factors(model)
    skipped = {
        f"blk.{layer}." for layer in range(len(found.blocks)) if is_skipped(found, layer, state)
    }
    size = found.blocks[0].block.anatomy.head_size
    waiting: dict[str, list[Tensor]] = {}
    for key, tensor in state.items():
        name = _gguf_name(key)
        layer, _, inner = name.rpartition(".attn_")
        if inner and f"{layer}." in skipped:
            continue
        kind = inner.partition(".")[0]
        if found.architecture.permuted and inner.startswith(("q.", "k.")):
            tensor = neighbours(tensor, size)
        if found.architecture.fused and kind in ("q", "k", "v"):
            parts = waiting.setdefault(layer, [])
            parts.append(tensor)  # in this order: so they are in every class
            if kind == "v":
                yield f"{layer}.attn_qkv.weight", torch.cat(parts)
            continue
        yield name, tensor


def neighbours(tensor: Tensor, size: int) -> Tensor:
    """The rows of heads in the order of code that rotates neighbours.

    transformers rotates row i of a head with row i + size / 2. `llama` and `deci` rotate row 2i
    with row 2i + 1.

    Args:
        tensor: weights or a bias, one head after another.
        size: rows per head.
    """
    heads = tensor.reshape(-1, 2, size // 2, *tensor.shape[1:])
    return heads.transpose(1, 2).reshape(tensor.shape)


def halves(tensor: Tensor, size: int) -> Tensor:
    """What `neighbours` had before it."""
    heads = tensor.reshape(-1, size // 2, 2, *tensor.shape[1:])
    return heads.transpose(1, 2).reshape(tensor.shape)


def _rope_factors(model: PreTrainedModel) -> Tensor:
    """What llama.cpp divides each frequency by."""
    used: Tensor = model.model.rotary_emb.inv_freq.float().cpu()
    theta = rope_parameters(model)["rope_theta"]
    steps = torch.arange(len(used), dtype=torch.float32) / len(used)
    return torch.pow(theta, -steps) / used


def kind_of(name: str, tensor: Tensor, precision: str) -> Any:
    """The type of a tensor in the file: vectors stay float32, odd rows cannot have 8 bits."""
    types = gguf_package().GGMLQuantizationType
    if tensor.dim() < 2 or precision == "f32":
        return types.F32
    if precision == "q8_0" and tensor.shape[-1] % 32 == 0:
        return types.Q8_0
    return types.F16


def refuse_too_large(name: str, tensor: Tensor, kind: Any) -> None:
    """Refuse weights that half precision cannot hold."""
    if kind.name == "F16" and not tensor.abs().max() <= torch.finfo(torch.float16).max:
        raise HeadcountError(
            f"{name} has weights that are too large for {kind.name}; write the file with f32"
        )


def rounded_copy(model: PreTrainedModel, precision: str) -> PreTrainedModel:
    """The model in float32, with weights rounded as the file has them.

    Rounding looks at a row at a time, so that it does not matter that the file has other rows.
    """
    made: PreTrainedModel = copy.deepcopy(model).float().eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(_rounded(name, parameter, precision))
    return made


def _rounded(name: str, tensor: Tensor, precision: str) -> Tensor:
    quants, kind = gguf_package().quants, kind_of(name, tensor, precision)
    if not tensor.numel():
        return tensor
    data = quants.quantize(tensor.detach().float().contiguous().cpu().numpy(), kind)
    return torch.from_numpy(np.array(quants.dequantize(data, kind)))


def difference_read_again(
    file: Path, found: Holding, state: Mapping[str, Tensor], precision: str
) -> float:
    """The largest difference between the weights in a file and those of the model, rounded.

    Raises:
        HeadcountError: they differ, or the file has other tensors.
    """
    read = _read_state(file, found)
    expected = {
        name: _rounded(name, tensor, precision)
        for name, tensor in state.items()
        if not (".self_attn." in name or ".input_layernorm." in name)
        or not is_skipped(found, int(name.split(".")[2]), state)
    }
    for name in read.keys() ^ expected.keys():
        raise HeadcountError(f"{file.name} was written wrongly: {name} is missing or unexpected")
    gaps = {
        name: float((read[name] - tensor).abs().max())
        if read[name].shape == tensor.shape
        else float("inf")
        for name, tensor in expected.items()
    }
    worst = max(gaps, key=lambda name: gaps[name])
    if gaps[worst] > 0:
        raise HeadcountError(
            f"{file.name} was written wrongly: {worst} differs from the model's by "
            f"{gaps[worst]:.1e}; the disk may be damaged"
        )
    return gaps[worst]


def _read_state(file: Path, found: Holding) -> State:
    """The weights of a file under their names in transformers."""
    gguf = gguf_package()
    size = found.blocks[0].block.anatomy.head_size
    names = {value: key for key, value in {**OUTER, **INNER}.items()}
    state: State = {}
    for entry in gguf.GGUFReader(file).tensors:
        tensor = torch.from_numpy(np.array(gguf.quants.dequantize(entry.data, entry.tensor_type)))
        path, _, kind = entry.name.rpartition(".")
        if path == "rope_freqs":
            continue
        if not path.startswith("blk."):
            state[f"{names[path]}.{kind}"] = tensor
            continue
        _, layer, inner = path.split(".")
        for part, rows in _parts(inner, tensor, found, int(layer), size):
            back = found.architecture.permuted and part in ROTATED
            rows = halves(rows, size) if back else rows
            state[f"model.layers.{layer}.{names[part]}.{kind}"] = rows
    return state


def _parts(
    inner: str, tensor: Tensor, found: Holding, layer: int, size: int
) -> Iterable[tuple[str, Tensor]]:
    if inner != "attn_qkv":
        return [(inner, tensor)]
    queries, key_values = found.blocks[layer].counts
    rows = [count * size for count in (queries, key_values, key_values)]
    return zip(("attn_q", "attn_k", "attn_v"), tensor.split(rows), strict=True)
