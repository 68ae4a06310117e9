"""GGUF files: a pruned model with its tokenizer in one file, for llama.cpp and what builds on it.

Layers keep their own numbers of heads. The file is then run in llama.cpp and compared with the
model; without llama.cpp, it is read again and compared with the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from headcount.deploy import llama_cpp
from headcount.deploy.auto_class import FOLDER
from headcount.deploy.gguf_architecture import Holding, holding
from headcount.deploy.gguf_tokenizer import Vocabulary, vocabulary
from headcount.deploy.gguf_weights import (
    difference_read_again,
    gguf_package,
    is_skipped,
    kind_of,
    refuse_too_large,
    rounded_copy,
    tensors_of,
    weights_of,
)
from headcount.deploy.regular import repeated_key_value_heads
from headcount.deploy.traits import rope_parameters, window_of
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


def held(model: PreTrainedModel, source: str) -> str:
    """How GGUF holds a model, in a few words.

    Args:
        model: the model, pruned or not.
        source: the model's folder or hub name, for its tokenizer.

    Raises:
        NotHeldError: it does not hold it.
    """
    found = holding(model)
    weights_of(model, found)
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
    gguf_package()
    found = holding(model)
    words = vocabulary(source, model)
    state = weights_of(model, found)
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
        record["difference"] = difference_read_again(file, found, state, precision)
        record["checked"] = NOT_RUN
        return record
    exact = precision == "f32"
    if not exact:
        # Rounding hides mistakes. So the same file in float32 is compared first, and this one has
        # the same entries, and exactly the rounded weights.
        with TemporaryDirectory(dir=folder) as other:
            record["difference_in_f32"] = write(model, source, Path(other), "f32")["difference"]
        difference_read_again(file, found, state, precision)
    check = llama_cpp.compare(rounded_copy(model, precision), words, file, exact)
    record["difference"] = check.difference
    record["mean_difference"] = check.mean
    record["greedy"] = f"{check.equal} of {check.steps} greedy tokens are equal"
    record["checked"] = RUN.format(version("xllamacpp"))
    return record


def _write_file(
    file: Path,
    name: str,
    model: PreTrainedModel,
    found: Holding,
    words: Vocabulary,
    state: Mapping[str, Tensor],
    precision: str,
) -> None:
    gguf = gguf_package()
    writer = gguf.GGUFWriter(file, found.architecture.name)
    try:
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType[_file_type(precision)])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        _add_sizes(writer, model, found, state)
        _add_rope(writer, model)
        words.add_to(writer)
        for key, tensor in tensors_of(model, found, state):
            kind = kind_of(key, tensor, precision)
            refuse_too_large(key, tensor, kind)
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
        (0, 0) if is_skipped(found, layer, state) else block.counts
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
    types = gguf_package().RopeScalingType
    writer.add_rope_scaling_type(types.LINEAR if kind == "linear" else types.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        known = rope.get("original_max_position_embeddings")
        writer.add_rope_scaling_orig_ctx_len(known or model.config.max_position_embeddings)
        writer.add_rope_scaling_yarn_beta_fast(rope.get("beta_fast") or 32.0)
        writer.add_rope_scaling_yarn_beta_slow(rope.get("beta_slow") or 1.0)
