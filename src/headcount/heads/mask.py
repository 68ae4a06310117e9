"""HeadMask: the set of heads to keep, which can be saved as a small readable JSON file."""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as in_brief
from typing import Any

import torch

from headcount.atomic import write_text
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap
from headcount.json_file import parse_json, read_bytes

MASK_FILE = "mask.json"  # in the folder of a pruned model
MOST_HEADS = 2**20  # of a model; the largest ones have some 20,000
_FORMAT = "headcount mask 1"


@dataclass(frozen=True)
class HeadMask:
    """Which heads of a model are kept; all others are closed.

    A mask fits models of one layout: the same blocks with the same original numbers of heads. A
    mask stays valid for a model that was cut with it.

    Attributes:
        model_type: the type of the model, as in its `config.json`.
        layout: name and original number of heads of each block, in order.
        kept: flat indices of the kept heads.
    """

    model_type: str
    layout: tuple[tuple[str, int], ...]
    kept: frozenset[int]

    def __post_init__(self) -> None:
        if self.born > MOST_HEADS:
            raise HeadcountError(
                f"a mask is for {self.born} heads, but no model has more than {MOST_HEADS:,}; give "
                "the mask of a model"
            )
        strays = sorted(index for index in self.kept if not 0 <= index < self.born)
        if strays:
            raise HeadcountError(
                f"a mask keeps head {strays[0]}, but its heads run from 0 to {self.born - 1}"
            )

    @classmethod
    def all(cls, heads: HeadMap) -> HeadMask:
        """Keep every head that is there now."""
        return cls.from_indices(heads, heads.indices)

    @classmethod
    def none(cls, heads: HeadMap) -> HeadMask:
        """Keep no head."""
        return cls.from_indices(heads, ())

    @classmethod
    def random(cls, heads: HeadMap, keep: int | float, seed: int = 0) -> HeadMask:
        """Keep a random set of heads; all sets of this size are equally likely.

        Args:
            heads: the map of the model's heads.
            keep: a count, or a fraction below 1 of the heads that are there now.
            seed: the same seed gives the same mask; change it for another one.
        """
        count = count_to_keep(keep, len(heads))
        order = torch.randperm(len(heads), generator=torch.Generator().manual_seed(seed))
        return cls.from_indices(heads, (heads.indices[i] for i in order[:count].tolist()))

    @classmethod
    def from_indices(cls, heads: HeadMap, indices: Iterable[int]) -> HeadMask:
        """Keep the heads with these flat indices."""
        return cls(heads.model_type, heads.layout, frozenset(int(i) for i in indices))

    @classmethod
    def from_names(cls, heads: HeadMap, names: Iterable[str]) -> HeadMask:
        """Keep the heads of these names; a name that is unknown or repeated is an error."""
        indices: set[int] = set()
        for name in names:
            index = heads.index(name)
            if index in indices:
                raise HeadcountError(f"the head {name!r} is named twice; name each head once")
            indices.add(index)
        return cls.from_indices(heads, indices)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kept heads, in flat order."""
        return tuple(f"{block}.{head}" for block, kept in self.by_block().items() for head in kept)

    @property
    def indices(self) -> tuple[int, ...]:
        """Flat indices of the kept heads."""
        return tuple(sorted(self.kept))

    @property
    def born(self) -> int:
        """Original number of heads of the model, before any removal."""
        return sum(count for _, count in self.layout)

    def __len__(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, head: object) -> bool:
        return head in self.kept if isinstance(head, int) else head in self.names

    def by_block(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the kept heads of each block."""
        kept: dict[str, tuple[int, ...]] = {}
        indices, offset = self.indices, 0
        for name, count in self.layout:
            own = indices[bisect_left(indices, offset) : bisect_left(indices, offset + count)]
            kept[name] = tuple(index - offset for index in own)
            offset += count
        return kept

    def counts(self) -> dict[str, int]:
        """How many heads each block keeps."""
        return {name: len(kept) for name, kept in self.by_block().items()}

    def gates(self) -> torch.Tensor:
        """One gate per original head: 1 for a kept head, 0 for a closed one."""
        gates = torch.zeros(self.born)
        gates[list(self.indices)] = 1.0
        return gates

    def overlap(self, other: HeadMask) -> float:
        """Heads that both masks keep, divided by the heads of the larger mask; 1 if equal."""
        self._refuse_other_layout(other)
        larger = max(len(self), len(other))
        return len(self.kept & other.kept) / larger if larger else 1.0

    def _with(self, kept: frozenset[int]) -> HeadMask:
        return HeadMask(self.model_type, self.layout, kept)

    def __and__(self, other: HeadMask) -> HeadMask:
        self._refuse_other_layout(other)
        return self._with(self.kept & other.kept)

    def __or__(self, other: HeadMask) -> HeadMask:
        self._refuse_other_layout(other)
        return self._with(self.kept | other.kept)

    def __sub__(self, other: HeadMask) -> HeadMask:
        self._refuse_other_layout(other)
        return self._with(self.kept - other.kept)

    def __xor__(self, other: HeadMask) -> HeadMask:
        self._refuse_other_layout(other)
        return self._with(self.kept ^ other.kept)

    def __invert__(self) -> HeadMask:
        return self._with(frozenset(range(self.born)) - self.kept)

    def __le__(self, other: HeadMask) -> bool:
        self._refuse_other_layout(other)
        return self.kept <= other.kept

    def __lt__(self, other: HeadMask) -> bool:
        self._refuse_other_layout(other)
        return self.kept < other.kept

    def refuse_other_model(self, heads: HeadMap) -> None:
        """Raise if this mask was made for a model of another type or layout."""
        if self.model_type != heads.model_type or self.layout != heads.layout:
            raise HeadcountError(
                f"this mask is for {_describe(self.model_type, self.layout)}, but the model is "
                f"{_describe(heads.model_type, heads.layout)}; use a mask made for this model"
            )
        missing = self.kept - set(heads.indices)
        if missing:
            raise HeadcountError(
                f"this mask keeps {heads.name(min(missing))}, which was removed from the model "
                "before; keep only heads that are still there"
            )

    def _refuse_other_layout(self, other: HeadMask) -> None:
        if (self.model_type, self.layout) != (other.model_type, other.layout):
            raise HeadcountError(
                f"these masks are for different models: {_describe(self.model_type, self.layout)} "
                f"and {_describe(other.model_type, other.layout)}; compare masks of one model"
            )

    def to_dict(self) -> dict[str, Any]:
        """The mask as its JSON file has it."""
        by_block = self.by_block()
        return {
            "format": _FORMAT,
            "model_type": self.model_type,
            "kept": len(self),
            "of": self.born,
            "blocks": [
                {"name": name, "heads": count, "kept": list(by_block[name])}
                for name, count in self.layout
            ],
        }

    @classmethod
    def from_dict(cls, data: Any) -> HeadMask:
        """The mask that `to_dict` wrote; anything else is refused, whoever wrote it."""
        _refuse_other_form(data)
        layout = tuple((block["name"], block["heads"]) for block in data["blocks"])
        kept: set[int] = set()
        offset = 0
        for block in data["blocks"]:
            kept.update(offset + head for head in block["kept"])
            offset += block["heads"]
        mask = cls(data["model_type"], layout, frozenset(kept))
        if (data["kept"], data["of"]) != (len(mask), mask.born):
            raise _not_a_mask(
                f"it says that {data['kept']} of {data['of']} heads are kept, but its blocks keep "
                f"{len(mask)} of {mask.born}"
            )
        return mask

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mask as JSON; an interrupted write leaves no partial file."""
        target = Path(path)
        text = _readable(self.to_dict())
        write_text(target, text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> HeadMask:
        """Read a mask from its JSON file."""
        try:
            data = parse_json(read_bytes(Path(path)).decode("utf-8"))
        except HeadcountError as error:
            raise HeadcountError(f"cannot read the mask {path}: {error}") from error
        except ValueError as error:
            raise HeadcountError(
                f"the mask {path} is not valid JSON: {error}; write it again with HeadMask.save"
            ) from error
        try:
            return cls.from_dict(data)
        except HeadcountError as error:
            raise HeadcountError(f"{path}: {error}") from error


def count_to_keep(keep: int | float, total: int) -> int:
    """K as a number of heads, from a count or from a fraction below 1."""
    if isinstance(keep, float) and 0 < keep < 1:
        return max(1, round(keep * total))
    if not 0 <= keep <= total or keep != int(keep):
        raise HeadcountError(
            f"cannot keep {keep} of {total} heads; give a count from 0 to {total}, "
            "or a fraction between 0 and 1"
        )
    return int(keep)


@dataclass(frozen=True)
class _Form:
    """What a value of a mask must be, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]


_TEXT = _Form("text to print", lambda v: type(v) is str and v != "" and v.isprintable())
_COUNT = _Form("a whole number from 0", lambda v: type(v) is int and v >= 0)
_MASK = {
    "format": _Form(repr(_FORMAT), lambda v: v == _FORMAT),
    "model_type": _TEXT,
    "kept": _COUNT,
    "of": _COUNT,
    "blocks": _Form("a list of blocks", lambda v: type(v) is list and v != []),
}
_BLOCK = {
    "name": _TEXT,
    "heads": _Form("a whole number from 1", lambda v: type(v) is int and v > 0),
    "kept": _Form(
        "a list of whole numbers", lambda v: type(v) is list and all(type(h) is int for h in v)
    ),
}


def _refuse_other_form(data: Any) -> None:
    """Refuse what `to_dict` never writes. Types are exact: true, 2.0 and "2" are no numbers."""
    _refuse_other_values("it", data, _MASK)
    for number, block in enumerate(data["blocks"]):
        _refuse_other_values(f"block {number}", block, _BLOCK)
        heads, count = block["kept"], block["heads"]
        if len(set(heads)) < len(heads) or not all(0 <= head < count for head in heads):
            raise HeadcountError(
                f"block {block['name']} keeps heads {in_brief(heads)}, expected different numbers "
                f"from 0 to {count - 1}; write the mask again with HeadMask.save"
            )
    names = [block["name"] for block in data["blocks"]]
    if len(set(names)) < len(names):
        raise _not_a_mask("two of its blocks have the same name")


def _refuse_other_values(what: str, data: Any, expected: dict[str, _Form]) -> None:
    if type(data) is not dict:
        raise _not_a_mask(f"{what} is {in_brief(data)}, expected keys and values")
    for name, form in expected.items():
        if name not in data:
            raise _not_a_mask(f"{what} has no {name}")
        if not form.fits(data[name]):
            raise _not_a_mask(f"{what} has {in_brief(data[name])} as {name}, expected {form.words}")


def _not_a_mask(problem: str) -> HeadcountError:
    return HeadcountError(
        f"this is not a head mask: {problem}; give one that headcount or HeadMask.save wrote"
    )


def _describe(model_type: str, layout: tuple[tuple[str, int], ...]) -> str:
    return f"{model_type} with {sum(c for _, c in layout)} heads in {len(layout)} blocks"


def _readable(data: dict[str, Any]) -> str:
    """JSON with one line per block, so that people can read and compare masks."""
    blocks = ",\n".join("    " + json.dumps(block) for block in data["blocks"])
    head = json.dumps({k: v for k, v in data.items() if k != "blocks"}, indent=2)
    return f'{head[:-2]},\n  "blocks": [\n{blocks}\n  ]\n}}\n'
