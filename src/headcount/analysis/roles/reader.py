"""Let a model read sentences, get its attention weights, and add up what its heads look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.analysis.roles.batches import Example, Tokens, batches, padded, padded_sources
from headcount.analysis.roles.criteria import Criteria
from headcount.analysis.roles.relations import Relations
from headcount.analysis.roles.statistics import Frequencies, Sums, View, view
from headcount.batch import evaluating
from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock, HeadMap, Kind
from headcount.runs.progress import Progress


@dataclass
class Measured:
    """Sums over all sentences.

    Attributes:
        relations: counts of the relations in the trees.
        blocks: sums of each block, by its name.
    """

    relations: Relations
    blocks: dict[str, Sums] = field(default_factory=dict)


def read(
    model: PreTrainedModel,
    heads: HeadMap,
    examples: Sequence[Example],
    frequencies: tuple[Frequencies, Frequencies],
    special: frozenset[int],
    pad: int,
    criteria: Criteria,
    progress: Progress,
) -> Measured:
    """Read the examples once and add up what the heads look at.

    Args:
        model: a model that returns its weights, see `telling`.
        heads: the heads of the model.
        examples: the examples; for an encoder-decoder with targets.
        frequencies: how frequent the tokens of the sources are, and those of the targets.
        special: tokens that are not part of the text.
        pad: the padding token.
        criteria: say which tokens are rare.
        progress: receives each stage and step, for a progress bar.
    """
    both = translates(heads)
    kinds = dict.fromkeys(block.kind for block in heads.blocks)
    # Trees are about the source, which an encoder-decoder reads with its encoder.
    with_trees: Kind = "encoder" if both or "encoder" in kinds else "decoder"
    reach = max(max(len(one.source), len(one.target)) for one in examples)
    made = Measured(Relations(examples, causal=with_trees == "decoder"))
    progress.begin("reading", len(examples))
    done = 0
    for batch in batches(examples, len(heads)):
        source = padded_sources(batch, special, pad, model.device)
        target = padded([one.target for one in batch], special, pad, model.device) if both else None
        views = dict(_views(kinds, source, target, frequencies, criteria, reach))
        looks = made.relations.looks(batch, source.ids.shape[1], model.device)
        for block, weights in _attention_of(model, heads, _inputs(source, target)):
            sums = made.blocks.setdefault(block.name, Sums(block.num_heads, reach))
            sums.add(weights, views[block.kind])
            if looks is not None and block.kind == with_trees:
                made.relations.add(block.name, weights, looks)
        done += len(batch)
        progress.advance(done)
    return made


@contextmanager
def telling(model: PreTrainedModel) -> Iterator[None]:
    """Let the model use eager attention, the only kind that returns weights."""
    before = model.config._attn_implementation or "eager"
    model.set_attn_implementation("eager")
    try:
        with evaluating(model), torch.inference_mode():
            yield
    finally:
        model.set_attn_implementation(before)


def translates(heads: HeadMap) -> bool:
    """Whether a model has an encoder and a decoder."""
    return any(block.kind == "cross" for block in heads.blocks)


def refuse_without_tokens(model: PreTrainedModel, heads: HeadMap) -> None:
    """Raise if the model reads anything else than text."""
    towers = {block.name.rpartition(".")[0] for block in heads.blocks}
    if model.main_input_name != "input_ids" or any("." in tower for tower in towers):
        raise HeadcountError(
            f"{type(model).__name__} does not read text alone, and roles are about tokens and "
            "words; give a text model: an encoder, a decoder or an encoder-decoder"
        )


def _views(
    kinds: dict[Kind, None],
    source: Tokens,
    target: Tokens | None,
    frequencies: tuple[Frequencies, Frequencies],
    criteria: Criteria,
    reach: int,
) -> Iterator[tuple[Kind, View]]:
    of_source, of_target = frequencies
    for kind in kinds:
        causal = kind == "decoder"
        if kind == "cross" and target is not None:
            queries, keys, often = target, source, of_source
        elif causal and target is not None:
            queries, keys, often = target, target, of_target
        else:
            queries, keys, often = source, source, of_source
        yield kind, view(queries, keys, often, criteria, causal=causal, reach=reach)


def _inputs(source: Tokens, target: Tokens | None) -> dict[str, Tensor]:
    inputs = {"input_ids": source.ids, "attention_mask": source.seen.long()}
    if source.types is not None:
        inputs["token_type_ids"] = source.types
    if target is not None:
        inputs |= {
            "decoder_input_ids": target.ids, "decoder_attention_mask": target.seen.long()
        }  # fmt: skip
    return inputs


def _attention_of(
    model: PreTrainedModel, heads: HeadMap, inputs: dict[str, Tensor]
) -> Iterator[tuple[AttentionBlock, Tensor]]:
    """Each block that has heads, with its weights: batch × heads × queries × keys.

    A block that serves several layers, as in ALBERT, comes once per layer.

    Raises:
        HeadcountError: the model does not return its weights.
    """
    with _calls(model, heads) as called:
        output: Any = model(**inputs, output_attentions=True)
    for kind in dict.fromkeys(block.kind for block in heads.blocks):
        layers = [block for block in called if block.kind == kind]
        recorded = output.get(f"{kind}_attentions", output.get("attentions"))
        if not any(block.heads for block in heads.blocks if block.kind == kind):
            continue
        if not layers or len(layers) != len(recorded or ()):
            raise _silent(model, kind)
        for block, weights in zip(layers, recorded, strict=True):
            if block.heads and weights is None:
                raise _silent(model, kind)
            if block.heads:
                yield block, weights.float()


@contextmanager
def _calls(model: PreTrainedModel, heads: HeadMap) -> Iterator[list[AttentionBlock]]:
    """Note the blocks in the order of their calls; several layers may share one block."""
    called: list[AttentionBlock] = []

    def note(block: AttentionBlock, *_: Any) -> None:
        called.append(block)

    with ExitStack() as hooks:
        for block in heads.blocks:
            home = model.get_submodule(block.path)
            hooks.enter_context(home.register_forward_pre_hook(partial(note, block)))
        yield called


def _silent(model: PreTrainedModel, kind: str) -> HeadcountError:
    return HeadcountError(
        f"{type(model).__name__} does not tell the attention weights of its {kind}; use a model "
        "whose forward pass returns them when output_attentions is set"
    )
