"""Which architecture of llama.cpp holds a pruned model.

llama.cpp has code for each architecture. Most of it takes one number of heads for all layers. A
few architectures take a number for every layer, and each of those lacks something else: biases,
norms of queries and keys, a sliding window, untied embeddings. The table below says what each has.
Every row was run beside the models; several wrong choices load and answer something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedModel

from headcount.deploy.regular import RegularBlock, regular_blocks
from headcount.deploy.traits import (
    BIASES,
    LINEAR,
    LLAMA3,
    NORMS,
    OWN_COUNTS,
    TIED,
    UNTIED,
    WINDOW,
    YARN,
    refusal,
    refuse_untried,
    traits_of,
)
from headcount.heads.find import find_heads


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
    heads = find_heads(model)
    refuse_untried(model, heads, "llama.cpp")
    blocks = regular_blocks(heads)
    has = traits_of(model, blocks)
    for architecture in ARCHITECTURES:
        if has <= architecture.has:
            return Holding(architecture, blocks, has)
    raise refusal(has, "llama.cpp")
