"""GGUF files: a pruned model with its tokenizer in one file, for llama.cpp and what builds on it.

Weights get the names of llama.cpp and, where its code rotates neighbours, another order of rows.
Layers keep their own numbers of heads. The file is then run in llama.cpp and compared with the
model; without llama.cpp, it is read again and compared with the weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.deploy import llama_cpp
from headcount.deploy.auto_class import FOLDER
from headcount.deploy.gguf_architecture import Holding, holding
from headcount.deploy.gguf_tokenizer import Vocabulary, vocabulary
from headcount.deploy.regular import NotHeldError, regular_state, repeated_key_value_heads
from headcount.deploy.traits import TIED, rope_parameters, window_of
from headcount.errors import HeadcountError
from headcount.loading.origin import origin_of

PRECISIONS = {"f32": "F32", "f16": "F16", "q8_0": "Q8_0"}
NOT_RUN = (
    "It was not run in llama.cpp: xllamacpp is not installed here. The file was read again, and "
    "its weights are those of the model."
)
RUN = (
    "It was run in llama.cpp (xllamacpp {}) and compared with the model: tokens of text, their "
    "log-probabilities, and what follows."
)
NO_WINDOW = 1 << 20  # more tokens than any of these models reads
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


def held(model: PreTrainedModel, source: str) -> str:
    """How GGUF holds a model, in a few words.

    Args:
        model: the model, pruned or not.
        source: the model's folder or hub name, for its tokenizer.

    Raises:
        NotHeldError: it does not hold it.
    """
    found = holding(model)
    _state(model, found)
    vocabulary(source, model)
    return found.words


def write(
    model: PreTrainedModel, source: str, folder: Path, precision: str = "f16"
) -> dict[str, Any]:
    """Write a model as one GGUF file, and compare it with the model.

    Args:
        model: the model, pruned or not.
        source: the model's folder or hub name, for its tokenizer and chat template.
        folder: the folder to write to, which exists.
        precision: how weights are written: `f32`, `f16`, or `q8_0` with 8 bits. Norms and biases
            are always float32.

    Returns:
        What was written and how it was checked.

    Raises:
        NotHeldError: no architecture of llama.cpp holds the model, or not its tokenizer.
        HeadcountError: the file answers something else than the model.
    """
    if precision not in PRECISIONS:
        raise HeadcountError(
            f"the precision of a GGUF file is {precision!r}, expected {', '.join(PRECISIONS)}"
        )
    _gguf()
    found = holding(model)
    words = vocabulary(source, model)
    state = _state(model, found)
    file = folder / f"model-{PRECISIONS[precision]}.gguf"
    name = (origin_of(source).name if source else None) or "model"  # never the path of a folder
    _write_file(file, name, model, found, words, state, precision)
    record: dict[str, Any] = {
        "file": file.name,
        "bytes": file.stat().st_size,
        "architecture": found.architecture.name,
        "why": found.words,
        "repeated_key_value_heads": repeated_key_value_heads(found.blocks),
        "precision": precision,
        "tokenizer": words.words,
        "load": f"llama-cli -m {FOLDER}/{file.name}",
    }
    if find_spec("xllamacpp") is None:
        record["difference"] = _difference_read_again(file, found, state, precision)
        record["checked"] = NOT_RUN
        return record
    exact = precision == "f32"
    if not exact:
        # Rounding hides mistakes. So the same file in float32 is compared first, and this one has
        # the same entries, and exactly the rounded weights.
        with TemporaryDirectory(dir=folder) as other:
            record["difference_in_f32"] = write(model, source, Path(other), "f32")["difference"]
        _difference_read_again(file, found, state, precision)
    check = llama_cpp.compare(_rounded_copy(model, precision), words, file, exact)
    record["difference"] = check.difference
    record["mean_difference"] = check.mean
    record["greedy"] = f"{check.equal} of {check.steps} greedy tokens are equal"
    record["checked"] = RUN.format(version("xllamacpp"))
    return record


def _gguf() -> Any:
    try:
        return import_module("gguf")
    except ImportError as error:
        raise HeadcountError(
            "writing GGUF needs gguf, which is not installed; run: pip install 'headcount[gguf]'"
        ) from error


def _state(model: PreTrainedModel, found: Holding) -> State:
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


def _write_file(
    file: Path,
    name: str,
    model: PreTrainedModel,
    found: Holding,
    words: Vocabulary,
    state: Mapping[str, Tensor],
    precision: str,
) -> None:
    gguf = _gguf()
    writer = gguf.GGUFWriter(file, found.architecture.name)
    try:
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType[_file_type(precision)])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        _add_sizes(writer, model, found, state)
        _add_rope(writer, model)
        words.add_to(writer)
        for key, tensor in _tensors(model, found, state):
            kind = _kind(key, tensor, precision)
            _refuse_too_large(key, tensor, kind)
            data = gguf.quants.quantize(tensor.float().contiguous().cpu().numpy(), kind)
            writer.add_tensor(key, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _file_type(precision: str) -> str:
    return "ALL_F32" if precision == "f32" else f"MOSTLY_{PRECISIONS[precision]}"


def _add_sizes(
    writer: Any, model: PreTrainedModel, found: Holding, state: Mapping[str, Tensor]
) -> None:
    config: Any = model.config
    size = found.blocks[0].block.anatomy.head_size
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    counts = [
        (0, 0) if _is_skipped(found, layer, state) else block.counts
        for layer, block in enumerate(found.blocks)
    ]
    queries, key_values = (list(of_kind) for of_kind in zip(*counts, strict=True))
    even = len(set(counts)) == 1
    writer.add_head_count(queries[0] if even else queries)
    writer.add_head_count_kv(key_values[0] if even else key_values)
    if found.architecture.windowed:
        writer.add_sliding_window(window_of(model) or NO_WINDOW)
        writer.add_sliding_window_pattern([True] * len(counts))
        writer.add_rope_freq_base_swa(rope_parameters(model)["rope_theta"])
        writer.add_expert_feed_forward_length(config.intermediate_size)  # asked for, never used


def _add_rope(writer: Any, model: PreTrainedModel) -> None:
    rope = rope_parameters(model)
    writer.add_rope_freq_base(rope["rope_theta"])
    kind = rope.get("rope_type", "default")
    if kind not in ("linear", "yarn"):
        return  # what Llama 3 does to frequencies is a tensor
    types = _gguf().RopeScalingType
    writer.add_rope_scaling_type(types.LINEAR if kind == "linear" else types.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        known = rope.get("original_max_position_embeddings")
        writer.add_rope_scaling_orig_ctx_len(known or model.config.max_position_embeddings)
        writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast") or 32.0)
        writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow") or 1.0)


def _is_skipped(found: Holding, layer: int, state: Mapping[str, Tensor]) -> bool:
    return found.is_skipped(layer, f"model.layers.{layer}.self_attn.o_proj.bias" in state)


def _tensors(
    model: PreTrainedModel, found: Holding, state: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of the file, by name."""
    if rope_parameters(model).get("rope_type") == "llama3":
        yield "rope_freqs.weight", _rope_factors(model)
    skipped = {
        f"blk.{layer}." for layer in range(len(found.blocks)) if _is_skipped(found, layer, state)
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


def _kind(name: str, tensor: Tensor, precision: str) -> Any:
    """The type of a tensor in the file: vectors stay float32, odd rows cannot have 8 bits."""
    types = _gguf().GGMLQuantizationType
    if tensor.dim() < 2 or precision == "f32":
        return types.F32
    if precision == "q8_0" and tensor.shape[-1] % 32 == 0:
        return types.Q8_0
    return types.F16


def _refuse_too_large(name: str, tensor: Tensor, kind: Any) -> None:
    if kind.name == "F16" and not tensor.abs().max() <= torch.finfo(torch.float16).max:
        raise HeadcountError(
            f"{name} has weights that are too large for {kind.name}; write the file with f32"
        )


def _rounded_copy(model: PreTrainedModel, precision: str) -> PreTrainedModel:
    """The model in float32, with weights rounded as the file has them.

    Rounding looks at a row at a time, so that it does not matter that the file has other rows.
    """
    made: PreTrainedModel = copy.deepcopy(model).float().eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(_rounded(name, parameter, precision))
    return made


def _rounded(name: str, tensor: Tensor, precision: str) -> Tensor:
    quants, kind = _gguf().quants, _kind(name, tensor, precision)
    if not tensor.numel():
        return tensor
    data = quants.quantize(tensor.detach().float().contiguous().cpu().numpy(), kind)
    return torch.from_numpy(np.array(quants.dequantize(data, kind)))


def _difference_read_again(
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
        or not _is_skipped(found, int(name.split(".")[2]), state)
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
    gguf = _gguf()
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
