"""Which roles a head has, from the sums over all sentences."""

from __future__ import annotations

from collections.abc import Iterator

from headcount.analysis.roles.criteria import Criteria, Role
from headcount.analysis.roles.reader import Measured
from headcount.analysis.roles.relations import Key
from headcount.analysis.roles.result import HeadRoles, Relation
from headcount.analysis.roles.statistics import Sums
from headcount.heads.blocks import AttentionBlock, HeadMap

Accuracies = dict[Key, dict[str, float]]  # by relation, then by the head's name


def judge(
    heads: HeadMap, measured: Measured, criteria: Criteria
) -> tuple[tuple[HeadRoles, ...], tuple[Relation, ...]]:
    """The roles of every head, and the best head of every relation.

    Args:
        heads: of the model.
        measured: what was added up.
        criteria: when a head has a role.
    """
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


def _accuracies(heads: HeadMap, measured: Measured, criteria: Criteria) -> Accuracies:
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
    measured: Measured, accuracies: Accuracies, criteria: Criteria
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
    block: AttentionBlock, place: int, measured: Measured, accuracies: Accuracies, rule: Criteria
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
    """The relative position that is hit most often of the times when it is there."""
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
