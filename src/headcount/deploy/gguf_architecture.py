"""Which architecture of llama.cpp holds a pruned model.

llama.cpp has code for each architecture. Most of it takes one number of heads for all layers. A
few architectures take a number for every layer, and each of those lacks something else: biases,
norms of queries and keys, a sliding window, untied embeddings. The table below says what each has.
Every row was run beside the models; several wrong choices load and answer something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headcount.deploy.regular import NotHeldError, RegularBlock, regular_blocks
from headcount.heads.blocks import HeadMap
from headcount.heads.find import find_heads

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "seed_oss")
# What a model may have, as the table and the refusals call it.
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


@dataclass(frozen=True)
class Architecture:
    """What the code of one architecture of llama.cpp does.

    Attributes:
        name: its name in GGUF.
        has: what models may have that it holds.
        permuted: it rotates neighbouring rows of queries and keys, not the halves of a head.
        fused: queries, keys and values are one tensor.
        windowed: all its layers are written as windowed; a model without a window gets one that
            no text fills.
        skips: a layer without heads may have no attention tensors, except the first.
        copies_output: it reads output weights, also where they are the embeddings.
    """

    name: str
    has: frozenset[str]
    permuted: bool = False
    fused: bool = False
    windowed: bool = False
    skips: bool = False
    copies_output: bool = False


# The best first: what most programs know, then what needs the fewest tricks.
ARCHITECTURES = (
    Architecture(
        "llama", frozenset({BIASES, TIED, UNTIED, LLAMA3, LINEAR, YARN}), permuted=True
    ),
    Architecture("qwen3", frozenset({NORMS, TIED, UNTIED, LINEAR, YARN})),
    Architecture(
        "deci",
        frozenset({OWN_COUNTS, BIASES, TIED, UNTIED, LLAMA3, LINEAR, YARN}),
        permuted=True,
        skips=True,
    ),
    Architecture("openelm", frozenset({OWN_COUNTS, NORMS, TIED, LINEAR, YARN}), fused=True),
    Architecture("step35", frozenset({OWN_COUNTS, NORMS, UNTIED}), windowed=True),
    Architecture(
        "mimo2",
        frozenset({OWN_COUNTS, WINDOW, TIED, UNTIED}),
        windowed=True,
        copies_output=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Holding:
    """A model in an architecture that holds it.

    Attributes:
        architecture: what holds it.
        blocks: the heads of every layer, as they are written.
        has: what the model has, in the words of the table.
    """

    architecture: Architecture
    blocks: tuple[RegularBlock, ...]
    has: frozenset[str]

    @property
    def words(self) -> str:
        """The architecture and what it was chosen for."""
        what = [trait for trait in (OWN_COUNTS, NORMS, WINDOW, BIASES) if trait in self.has]
        return ", ".join([f"architecture {self.architecture.name}", *what])

    def is_skipped(self, layer: int, out_bias: bool) -> bool:
        """Whether a layer is written without attention.

        llama.cpp takes the sizes of the model from its first layer, and leaves out the bias of the
        output projection together with the heads. Such layers get a head of zeros instead.

        Args:
            layer: the number of the layer.
            out_bias: its output projection has a bias.
        """
        skips = self.architecture.skips and layer > 0 and not out_bias
        return skips and self.blocks[layer].is_emptied


def holding(model: PreTrainedModel) -> Holding:
    """Find the architecture that holds a model.

    Raises:
        NotHeldError: there is none, or the model is of a kind that was never tried.
    """
    kind = model.config.model_type
    if kind not in MODEL_TYPES or not type(model).__name__.endswith("ForCausalLM"):
        raise NotHeldError(
            f"{type(model).__name__} is not among the models that were tried in llama.cpp: "
            f"{', '.join(MODEL_TYPES)}, each for causal language modelling"
        )
    heads = find_heads(model)
    _refuse_other_code(model, heads)
    blocks = regular_blocks(heads)
    has = _traits(model, blocks)
    for architecture in ARCHITECTURES:
        if has <= architecture.has:
            return Holding(architecture, blocks, has)
    telling = sorted(has - {TIED, UNTIED})
    raise NotHeldError(f"no architecture of llama.cpp has {' together with '.join(telling)}")


def _refuse_other_code(model: PreTrainedModel, heads: HeadMap) -> None:
    """Refuse settings that change what a model computes, and that no key of GGUF says."""
    config = model.config
    if len(heads.blocks) != config.num_hidden_layers or heads.left_alone:
        raise NotHeldError("not every layer has attention that headcount understands")
    if config.hidden_act not in ("silu", "swish"):
        raise NotHeldError(f"its activation is {config.hidden_act}, and llama.cpp computes silu")
    rope = rope_parameters(config)
    scaling = rope.get("rope_type", "default")
    if scaling not in ("default", *ROPES):
        raise NotHeldError(f"its rope scaling {scaling} was never tried in llama.cpp")
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise NotHeldError("it rotates only a part of each head")
    if scaling == "yarn" and not _plain_yarn(rope):
        raise NotHeldError("its yarn rope scaling has settings that llama.cpp has no keys for")


def rope_parameters(config: Any) -> dict[str, Any]:
    """The settings of the rotary embeddings, under the names of transformers 5."""
    return dict(config.rope_parameters)


def _plain_yarn(rope: Mapping[str, Any]) -> bool:
    """Whether yarn scales attention by its usual factor, and rounds its ranges."""
    unusual = [rope.get(key) for key in ("attention_factor", "mscale", "mscale_all_dim")]
    return not any(unusual) and rope.get("truncate", True) is True


def _traits(model: PreTrainedModel, blocks: Sequence[RegularBlock]) -> frozenset[str]:
    config: Any = model.config
    names = [name for name, _ in model.named_parameters()]
    rope = rope_parameters(config).get("rope_type", "default")
    found = {
        OWN_COUNTS: len({block.counts for block in blocks}) > 1,
        BIASES: any(name.endswith("_proj.bias") for name in names),
        NORMS: any(name.endswith(("q_norm.weight", "k_norm.weight")) for name in names),
        WINDOW: _window(config) is not None,
        TIED: is_tied(model),
        UNTIED: not is_tied(model),
        **{words: rope == name for name, words in ROPES.items()},
    }
    return frozenset(trait for trait, there in found.items() if there)


def window_of(model: PreTrainedModel) -> int | None:
    """How many tokens every layer sees; None if they see all.

    Raises:
        NotHeldError: some layers have a window and others have none.
    """
    return _window(model.config)


def _window(config: Any) -> int | None:
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
