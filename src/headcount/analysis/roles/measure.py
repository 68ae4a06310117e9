"""Find what the heads of a model do: read the sentences once, add up, then judge.

`find_roles` is the analysis. The second half of the file judges: it compares the sums over all
sentences with the criteria, for every head and every relation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transformers import PreTrainedModel

from headcount.analysis.roles.batches import (
    Example,
    count_tokens,
    make_examples,
    special_tokens,
    with_given_targets,
    with_own_targets,
)
from headcount.analysis.roles.criteria import Criteria, Role
from headcount.analysis.roles.reader import (
    Measured,
    read,
    refuse_without_tokens,
    telling,
    translates,
)
from headcount.analysis.roles.relations import Key
from headcount.analysis.roles.result import HeadRoles, Relation, Roles
from headcount.analysis.roles.sentences import Sentence
from headcount.analysis.roles.statistics import Frequencies, Sums
from headcount.errors import HeadcountError
from headcount.heads.blocks import AttentionBlock, HeadMap
from headcount.heads.find import find_heads
from headcount.heads.mask import HeadMask
from headcount.runs.progress import Progress, Silent
from headcount.tasks.base import Processor

MAX_LENGTH = 128  # tokens
_Accuracies = dict[Key, dict[str, float]]  # by relation, then by the head's name


def find_roles(
    model: PreTrainedModel,
    tokenizer: Processor,
    sentences: Sequence[Sentence],
    *,
    name: str = "the model",
    data: str = "the text",
    frequencies: Sequence[str] | None = None,
    mask: HeadMask | None = None,
    criteria: Criteria | None = None,
    max_length: int = MAX_LENGTH,
    progress: Progress | None = None,
) -> Roles:
    """Find what each head does.

    Heads of encoders and decoders can be positional, syntactic, or for rare or duplicate tokens.
    In an encoder-decoder, trees are about the source, so its decoder has no syntactic heads.
    Cross-attention has neither positional nor syntactic heads. If sentences have no translation,
    the decoder reads the model's own greedy one.

    Args:
        model: a text model, pruned or not.
        tokenizer: the model's own tokenizer; trees need a fast one.
        sentences: the sentences to read, with or without trees.
        name: name of the model, for titles.
        data: name of the sentences, for titles.
        frequencies: a text to count how frequent the tokens of the source are. None counts them in
            the sentences themselves; give a larger text if there are few sentences.
        mask: a mask whose kept heads are marked in the table and the figure; None marks none.
        criteria: when a head has a role; None takes the paper's thresholds.
        max_length: longest sentence in tokens; longer ones are cut.
        progress: receives each stage and step, for a progress bar; None shows nothing.

    Raises:
        HeadcountError: the model does not read text, does not return its weights, or the mask is
            for another model.
    """
    criteria, progress = criteria or Criteria(), progress or Silent()
    heads = find_heads(model)
    refuse_without_tokens(model, heads)
    if mask is not None:
        mask.refuse_other_model(heads)
    special, pad = special_tokens(tokenizer), int(tokenizer.pad_token_id)
    longest = _longest(model, tokenizer, max_length)
    examples = make_examples(tokenizer, sentences, longest)
    with telling(model):
        if translates(heads) and all(one.target is not None for one in sentences):
            examples = with_given_targets(model, tokenizer, examples, sentences, longest)
        elif translates(heads):
            examples = with_own_targets(model, heads, examples, pad, longest, progress)
        elif any(one.target is not None for one in sentences):
            raise HeadcountError(
                f"{type(model).__name__} is no encoder-decoder and reads no translations; leave "
                "the target out"
            )
        often = _frequencies(tokenizer, examples, frequencies, special, criteria.common)
        measured = read(model, heads, examples, often, special, pad, criteria, progress)
    found, relations = _judge(heads, measured, criteria)
    kept = None if mask is None else mask.names
    return Roles(name, data, len(examples), heads.layout, found, relations, criteria, kept)


def _longest(model: PreTrainedModel, tokenizer: Processor, max_length: int) -> int:
    positions = getattr(model.config, "max_position_embeddings", None) or max_length
    return int(min(max_length, tokenizer.model_max_length, positions))


def _frequencies(
    tokenizer: Processor,
    examples: Sequence[Example],
    text: Sequence[str] | None,
    special: frozenset[int],
    common: int,
) -> tuple[Frequencies, Frequencies]:
    sources: Sequence[Sequence[int]] = [example.source for example in examples]
    targets = [example.target for example in examples]
    vocabulary = 1 + max(max(ids, default=0) for ids in (*sources, *targets, sorted(special)))
    if text is not None:
        sources = tokenizer(list(text))["input_ids"]
    counts = (count_tokens(sources, special), count_tokens(targets, special))
    of_source, of_target = (Frequencies.of(count, vocabulary, common) for count in counts)
    return of_source, of_target


def _judge(
    heads: HeadMap, measured: Measured, criteria: Criteria
) -> tuple[tuple[HeadRoles, ...], tuple[Relation, ...]]:
    """The roles of every head, and the best head of every relation."""
    accuracies = _accuracies(heads, measured, criteria)
    found = tuple(
        _roles(block, place, measured, accuracies, criteria)
        for block in heads.blocks
        for place in range(block.num_heads)
        if block.name in measured.blocks
    )
    relations = sorted(
        _relations(measured, accuracies, criteria), key=lambda r: r.baseline - r.accuracy
    )
    return found, tuple(relations)


def _accuracies(heads: HeadMap, measured: Measured, criteria: Criteria) -> _Accuracies:
    relations = measured.relations
    return {
        key: {
            f"{block.name}.{head}": accuracy
            for block in heads.blocks
            if block.name in relations.hits
            for head, accuracy in zip(block.heads, relations.accuracy(key, block.name), strict=True)
        }
        for key in relations.keys
        if relations.cases(key) >= criteria.cases
    }


def _relations(
    measured: Measured, accuracies: _Accuracies, criteria: Criteria
) -> Iterator[Relation]:
    for key, by_head in accuracies.items():
        if by_head:
            offset, baseline = measured.relations.baseline(key)
            best = max(by_head, key=by_head.__getitem__)
            above = sorted(
                (name for name, a in by_head.items() if a >= baseline + criteria.syntactic),
                key=lambda name: -by_head[name],
            )
            yield Relation(
                *key, measured.relations.cases(key), offset, baseline, best, by_head[best],
                tuple(above),
            )  # fmt: skip


def _roles(
    block: AttentionBlock, place: int, measured: Measured, accuracies: _Accuracies, rule: Criteria
) -> HeadRoles:
    name = f"{block.name}.{block.heads[place]}"
    sums = measured.blocks[block.name]
    offset, offset_share = _position(block, place, sums, rule)
    baselines = {key: measured.relations.baseline(key)[1] for key in accuracies}
    gains = sorted(
        ((by[name] - baselines[key], key) for key, by in accuracies.items() if name in by),
        reverse=True,
    )
    relations = [key for gain, key in gains if gain >= rule.syntactic]
    best = gains[0][1] if gains else None
    rare = _share(float(sums.rare[place]), sums.rare_queries)
    chance = _share(sums.chance, sums.rare_queries)
    again = _share(float(sums.again[place]), sums.again_queries)
    again_chance = _share(sums.again_chance, sums.again_queries)
    roles: dict[Role, bool] = {
        "positional": offset_share is not None and offset_share >= rule.positional,
        "syntactic": bool(relations),
        "rare": _above(rare, chance, rule.rare, rule.rare_gain),
        "duplicate": sums.again_queries >= rule.cases
        and _above(again, again_chance, rule.duplicate, rule.duplicate_gain),
    }
    return HeadRoles(
        name=name,
        kind=block.kind,
        roles=tuple(role for role, has in roles.items() if has),
        offset=offset,
        offset_share=offset_share,
        relation=best[0] if best else None,
        direction=best[1] if best else None,
        accuracy=accuracies[best][name] if best else None,
        baseline=baselines[best] if best else None,
        relations=tuple(f"{relation}: {direction}" for relation, direction in relations),
        rare=rare,
        rare_by_chance=chance,
        duplicate=again,
        duplicate_by_chance=again_chance,
        confidence=_share(float(sums.confidence[place]), sums.queries),
        entropy=_share(float(sums.entropy[place]), sums.queries),
        special=_share(float(sums.special[place]), sums.queries),
    )


def _position(
    block: AttentionBlock, place: int, sums: Sums, rule: Criteria
) -> tuple[int | None, float | None]:
    """The relative position that is hit in the largest share of the cases where it exists."""
    if block.kind == "cross" or not sums.queries:
        return None, None
    enough = sums.places >= max(1.0, rule.position_exists * sums.queries)
    shares = (sums.offsets[place] / sums.places.clamp(min=1)).masked_fill(~enough, -1.0)
    best = int(shares.argmax())
    return best - sums.reach, float(shares[best])


def _above(share: float | None, chance: float | None, least: float, gain: float) -> bool:
    return share is not None and chance is not None and share >= max(least, chance + gain)


def _share(part: float, of: int) -> float | None:
    return part / of if of else None
