"""The roles of a model's heads as an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headcount.analysis.base import Analysis
from headcount.analysis.roles.criteria import ROLES, Criteria, Direction, Role, offset_text
from headcount.heads.blocks import Kind

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class HeadRoles:
    """What one head does; None stands where nothing could be measured.

    Attributes:
        name: `encoder.3.7`.
        kind: of its attention.
        roles: all that it has.
        offset: the relative position that its largest weight is most often on.
        offset_share: how often, where there is a token.
        relation: the one that it hits best, compared with the baseline.
        direction: whether it looks at the governor or at the dependent.
        accuracy: how often it hits that relation.
        baseline: how often the best fixed relative position hits it.
        relations: all that make it syntactic, best first: `nsubj: governor`.
        rare: how often its largest weight is on one of the least frequent tokens.
        rare_by_chance: how often that would be by chance.
        duplicate: how often, where its token stands elsewhere too, its largest weight is there.
        duplicate_by_chance: how often that would be by chance.
        confidence: the mean of its largest weight on a real token.
        entropy: of its weights, the mean; 1 if it looks everywhere alike.
        special: how often its largest weight of all is on a special token.
    """

    name: str
    kind: Kind
    roles: tuple[Role, ...]
    offset: int | None
    offset_share: float | None
    relation: str | None
    direction: Direction | None
    accuracy: float | None
    baseline: float | None
    relations: tuple[str, ...]
    rare: float | None
    rare_by_chance: float | None
    duplicate: float | None
    duplicate_by_chance: float | None
    confidence: float | None
    entropy: float | None
    special: float | None

    @property
    def functions(self) -> int:
        """How many things it does, each relation counted, as the paper counts them."""
        return len(set(self.roles) - {"syntactic"}) + len(self.relations)


@dataclass(frozen=True)
class Relation:
    """A relation and the head that hits it most often.

    Attributes:
        relation: of Universal Dependencies, without subtypes.
        direction: whether the dependent looks for its governor, or the other way round.
        cases: in the text.
        offset: the fixed relative position that hits most often.
        baseline: how often it does.
        head: the name of the best head.
        accuracy: how often that one hits.
        heads: names of all that are above the baseline by the margin.
    """

    relation: str
    direction: Direction
    cases: int
    offset: int
    baseline: float
    head: str
    accuracy: float
    heads: tuple[str, ...]


@dataclass(frozen=True)
class Roles(Analysis):
    """What the heads of a model do.

    Attributes:
        model: its name.
        data: that it read; a name.
        sentences: in the data.
        layout: name and original number of heads of each block.
        heads: those that are there, in flat order.
        relations: that were frequent enough, those with most gain over the baseline first.
        criteria: when a head has a role.
        kept: names of the heads that a mask keeps, if one was given.
    """

    kind: ClassVar[str] = "roles"

    model: str
    data: str
    sentences: int
    layout: tuple[tuple[str, int], ...]
    heads: tuple[HeadRoles, ...]
    relations: tuple[Relation, ...]
    criteria: Criteria = field(default_factory=Criteria)
    kept: tuple[str, ...] | None = None

    @property
    def title(self) -> str:
        return f"Roles of the heads, {self.model}, {self.data}"

    @property
    def counts(self) -> dict[str, int]:
        """How many heads have each role, and how many none."""
        found: dict[str, int] = {
            role: sum(role in head.roles for head in self.heads) for role in ROLES
        }
        return found | {"other": sum(not head.roles for head in self.heads)}

    @property
    def note(self) -> str:
        rule, counts = self.criteria, self.counts
        resting = sum((head.special or 0.0) > rule.special for head in self.heads)
        return (
            f"Of {len(self.heads)} heads {counts['positional']} are positional (the largest weight "
            f"on one relative position in at least {rule.positional:.0%} of cases), "
            f"{counts['syntactic']} syntactic (it finds a governor or dependent at least "
            f"{100 * rule.syntactic:.0f} points more often than the best fixed position, relations "
            f"with {rule.cases} cases or more), {counts['rare']} for rare tokens (on one of the "
            f"{rule.rarest} least frequent in at least {rule.rare:.0%} of cases), "
            f"{counts['duplicate']} for duplicates (where a token stands elsewhere too, there "
            f"in at least {rule.duplicate:.0%} of cases); a head may have several roles, "
            f"{counts['other']} have none. Weights on special tokens are left out "
            f"before the largest is taken; {resting} heads rest on special tokens in more than "
            f"{rule.special:.0%} of cases. {self.sentences} sentences; criteria of Voita et al. "
            "(2019), but for duplicates."
        )

    def table(self) -> pd.DataFrame:
        import pandas as pd

        columns = {
            "head": [h.name for h in self.heads],
            "roles": [", ".join(h.roles) or "other" for h in self.heads],
            "offset": [None if h.offset is None else offset_text(h.offset) for h in self.heads],
            "at offset": _numbers([h.offset_share for h in self.heads]),
            "relation": [h.relation and f"{h.relation}: {h.direction}" for h in self.heads],
            "accuracy": _numbers([h.accuracy for h in self.heads]),
            "baseline": _numbers([h.baseline for h in self.heads]),
            "relations": [len(h.relations) for h in self.heads],
            "rare": _numbers([h.rare for h in self.heads]),
            "rare by chance": _numbers([h.rare_by_chance for h in self.heads]),
            "duplicate": _numbers([h.duplicate for h in self.heads]),
            "duplicate by chance": _numbers([h.duplicate_by_chance for h in self.heads]),
            "confidence": _numbers([h.confidence for h in self.heads]),
            "entropy": _numbers([h.entropy for h in self.heads]),
            "special": _numbers([h.special for h in self.heads]),
        }
        if self.kept is not None:
            columns["kept"] = [h.name in self.kept for h in self.heads]
        return pd.DataFrame(columns)

    def figures(self) -> Mapping[str, Figure]:
        from headcount.analysis.figures.roles import draw_relations, draw_roles

        found = {"roles": draw_roles(self)}
        return found | {"relations": draw_relations(self)} if self.relations else found


def _numbers(values: list[float | None]) -> pd.Series:
    import pandas as pd

    return pd.Series(values, dtype=float)
