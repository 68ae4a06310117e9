"""HeadMask: the set of heads to keep, which can be saved as a small readable JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headcount.atomic import write_atomically
from headcount.errors import HeadcountError
from headcount.heads.blocks import HeadMap

MASK_FILE = "mask.json"  # in the folder of a pruned model
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
        born = sum(count for _, count in self.layout)
        strays = sorted(index for index in self.kept if not 0 <= index < born)
        if strays:
            raise HeadcountError(
                f"a mask keeps head {strays[0]}, but its heads run from 0 to {born - 1}"
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
        offset = 0
        for name, count in self.layout:
            kept[name] = tuple(h for h in range(count) if offset + h in self.kept)
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
        """The mask that `to_dict` wrote."""
        try:
            layout = tuple((str(b["name"]), int(b["heads"])) for b in data["blocks"])
            kept: set[int] = set()
            offset = 0
            for block, (name, count) in zip(data["blocks"], layout, strict=True):
                heads = [int(head) for head in block["kept"]]
                if len(set(heads)) < len(heads) or not all(0 <= head < count for head in heads):
                    raise HeadcountError(
                        f"block {name} keeps heads {heads}, expected different numbers "
                        f"from 0 to {count - 1}; write the mask anew with HeadMask.save"
                    )
                kept.update(offset + head for head in heads)
                offset += count
            return cls(str(data["model_type"]), layout, frozenset(kept))
        except (KeyError, TypeError, ValueError) as error:
            raise HeadcountError(
                f"this is not a head mask ({type(error).__name__}: {error}); expected JSON with "
                "model_type and blocks, as HeadMask.save writes it"
            ) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mask as JSON; an interrupted write leaves no partial file."""
        target = Path(path)
        text = _readable(self.to_dict())
        write_atomically(target, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> HeadMask:
        """Read a mask from its JSON file."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise HeadcountError(f"cannot read the mask {path}: {error.strerror}") from error
        except ValueError as error:
            raise HeadcountError(f"the mask {path} is not valid JSON: {error}") from error
        return cls.from_dict(data)


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


def _describe(model_type: str, layout: tuple[tuple[str, int], ...]) -> str:
    return f"{model_type} with {sum(c for _, c in layout)} heads in {len(layout)} blocks"


def _readable(data: dict[str, Any]) -> str:
    """JSON with one line per block, so that people can read and compare masks."""
    blocks = ",\n".join("    " + json.dumps(block) for block in data["blocks"])
    head = json.dumps({k: v for k, v in data.items() if k != "blocks"}, indent=2)
    return f'{head[:-2]},\n  "blocks": [\n{blocks}\n  ]\n}}\n'
