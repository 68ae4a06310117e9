"""What a decoder has that formats elsewhere may lack: biases, norms, a sliding window, and so on.

Formats for other programs are tables of such traits; see `gguf_architecture.py`. Only families that
were tried there are taken at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headcount.deploy.regular import NotHeldError, RegularBlock
from headcount.heads.blocks import HeadMap

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "seed_oss")
OWN_COUNTS = "layers with their own numbers of heads"
BIASES = "biases"
NORMS = "norms of queries and keys"
WINDOW = "a sliding window"
TIED, UNTIED = "tied embeddings", "untied embeddings"
ROPES: Mapping[str, str] = {
    "llama3": "the rope of Llama 3",
    "linear": "linear rope scaling",
    "yarn": "yarn rope scaling",
}
LLAMA3, LINEAR, YARN = ROPES.values()


def traits_of(model: PreTrainedModel, blocks: Sequence[RegularBlock]) -> frozenset[str]:
    """What a model has.

    Args:
        model: the model, which `refuse_untried` took.
        blocks: its heads as they will be written.

    Raises:
        NotHeldError: some layers have a window and others have none.
    """
    names = [name for name, _ in model.named_parameters()]
    rope = rope_parameters(model).get("rope_type", "default")
    found = {
        OWN_COUNTS: len({block.counts for block in blocks}) > 1,
        BIASES: any(name.endswith("_proj.bias") for name in names),
        NORMS: any(name.endswith(("q_norm.weight", "k_norm.weight")) for name in names),
        WINDOW: window_of(model) is not None,
        TIED: is_tied(model),
        UNTIED: not is_tied(model),
        **{words: rope == name for name, words in ROPES.items()},
    }
    return frozenset(trait for trait, there in found.items() if there)


def refuse_untried(model: PreTrainedModel, heads: HeadMap, program: str) -> None:
    """Refuse families that were not tried, and settings that change what a model computes.

    Args:
        model: the model.
        heads: its heads.
        program: the name of the program that is to run it, for the sentence.
    """
    config: Any = model.config
    if config.model_type not in MODEL_TYPES or not type(model).__name__.endswith("ForCausalLM"):
        raise NotHeldError(
            f"{type(model).__name__} is not among the models that were tried in {program}: "
            f"{', '.join(MODEL_TYPES)}, each for causal language modelling"
        )
    if len(heads.blocks) != config.num_hidden_layers or heads.left_alone:
        raise NotHeldError("not every layer has attention that headcount understands")
    if config.hidden_act not in ("silu", "swish"):
        raise NotHeldError(f"its activation is {config.hidden_act}, and {program} computes silu")
    rope = rope_parameters(model)
    scaling = rope.get("rope_type", "default")
    if scaling not in ("default", *ROPES):
        raise NotHeldError(f"its rope scaling {scaling} was not tried in {program}")
    if (rope.get("partial_rotary_factor") or 1.0) != 1.0:
        raise NotHeldError("it rotates only a part of each head")
    if scaling == "yarn" and not _plain_yarn(rope):
        raise NotHeldError(f"its yarn rope scaling has settings that {program} has no keys for")


def _plain_yarn(rope: Mapping[str, Any]) -> bool:
    """Whether yarn scales attention by its usual factor, and rounds its ranges."""
    unusual = [rope.get(key) for key in ("attention_factor", "mscale", "mscale_all_dim")]
    return not any(unusual) and rope.get("truncate", True) is True


def rope_parameters(model: PreTrainedModel) -> dict[str, Any]:
    """The settings of the rotary embeddings, under the names of transformers 5."""
    return dict(model.config.rope_parameters)


def window_of(model: PreTrainedModel) -> int | None:
    """How many tokens every layer sees; None if they see all.

    Raises:
        NotHeldError: some layers have a window and others have none.
    """
    config: Any = model.config
    window: int | None = getattr(config, "sliding_window", None)
    if window is None or not getattr(config, "use_sliding_window", True):
        return None
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention"])
    if kinds == {"full_attention"}:
        return None
    if kinds != {"sliding_attention"}:
        raise NotHeldError("some of its layers have a sliding window and others have none")
    return window


def is_tied(model: PreTrainedModel) -> bool:
    """Whether the output weights are the embeddings."""
    inner, outer = model.get_input_embeddings(), model.get_output_embeddings()
    return isinstance(outer, nn.Module) and outer.weight is inner.weight


def refusal(has: frozenset[str], program: str) -> NotHeldError:
    """That nothing in a program has all of these traits."""
    telling = sorted(has - {TIED, UNTIED})
    return NotHeldError(f"{program} has nothing with {', '.join(telling)} at once")
