"""The text of a modelling file, which gives each attention block its own number of heads.

One template serves all families: which rows of which tensors belong to a head is all that differs
between most of them, and the anatomy of a block knows it. Sections of the template are for three
shapes of attention that need more: an argument with a value per head that comes from outside
(MPNet, BLOOM), code that reads its configuration (Phi-3), and a position bias that blocks share
(T5). A section stays if its condition on these features holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

import transformers
from torch import nn
from transformers import AutoModel, PreTrainedModel

from headcount.deploy.auto_class import FOLDER
from headcount.deploy.regular import NotHeldError
from headcount.heads.anatomy import Anatomy, Count, Part

MODULE = "modeling_pruned"
WIDTH = 100  # of a line
_ALWAYS_USED = {
    "transformers.conversion_mapping": (
        "get_checkpoint_conversion_mapping",
        "register_checkpoint_conversion_mapping",
    ),
    "transformers.pytorch_utils": ("Conv1D",),
}


@dataclass(frozen=True)
class Kind:
    """Blocks that differ only in their heads.

    Attributes:
        paths: where they are, with asterisks for numbers of layers.
        anatomy: how each of them is built.
        attention: the class of the module that computes the attention.
        config_names: the names in the configuration that their code reads, and whether each counts
            query heads.
    """

    paths: tuple[str, ...]
    anatomy: Anatomy
    attention: type[nn.Module]
    config_names: tuple[tuple[str, bool], ...]

    @property
    def features(self) -> frozenset[str]:
        """The sections of the template that these blocks need."""
        has = {
            "arguments": bool(self.anatomy.arguments),
            "own_config": bool(self.config_names),
            "shared_bias": self.anatomy.shares_bias,
        }
        return frozenset(name for name, needed in has.items() if needed)


class Layers(NamedTuple):
    """How a configuration says the heads of every layer.

    Attributes:
        path: the path of a layer's block, with an asterisk for its number.
        queries: the key of the number of query heads.
        key_values: the key of the number of key-value heads; the same, if there is only one.
    """

    path: str
    queries: str
    key_values: str


@dataclass(frozen=True)
class Classes:
    """The classes of transformers that the generated ones are made from.

    Attributes:
        config: the configuration.
        base: what `AutoModel` loads.
        task: the class of the model, which may be the same.
        autos: the auto classes that load the class of the model, the most usual first.
    """

    config: type
    base: type[PreTrainedModel]
    task: type[PreTrainedModel]
    autos: tuple[str, ...]

    @property
    def load(self) -> str:
        """The Python that loads the folder."""
        return f'{self.autos[0]}.from_pretrained("{FOLDER}", trust_remote_code=True)'

    @property
    def auto_map(self) -> dict[str, str]:
        """The generated class that each auto class loads."""
        loaded = {"AutoConfig": self.config, "AutoModel": self.base}
        loaded |= {auto: self.task for auto in self.autos if auto != "AutoModel"}
        return {auto: generated(cls) for auto, cls in loaded.items()}


def generated(cls: type) -> str:
    """The name of the class that is made from one of transformers."""
    return f"Pruned{cls.__name__}"


def modeling_file(
    classes: Classes, kinds: Sequence[Kind], entry: str, layers: Layers | None
) -> str:
    """The text of the file.

    Args:
        classes: the classes to derive from.
        kinds: how the blocks that lost heads are built.
        entry: the key in config.json that has their heads.
        layers: how that entry says them, if it is `per_layer_config`; None if it is our own.

    Raises:
        NotHeldError: the file would need a class that is not in transformers.
    """
    features = frozenset[str]().union(*(kind.features for kind in kinds))
    features |= {"per_layer" if layers else "per_block"}
    models = list(dict.fromkeys([classes.base, classes.task]))
    sharing = {kind.attention for kind in kinds if kind.anatomy.shares_bias}
    if len(sharing) > 1 or (sharing and any(not kind.anatomy.shares_bias for kind in kinds)):
        raise NotHeldError("only some of its blocks share a position bias in the same way")
    template = (files(__package__) / "templates" / f"{MODULE}.py.txt").read_text("utf-8")
    return Template(_sections(template, features)).substitute(
        attention=_tuple([_attention(kind) for kind in kinds], 0),
        attention_class="".join(cls.__name__ for cls in sharing),
        base_class=classes.task.__name__,
        base_name=generated(classes.base),
        base_own=classes.base.__name__,
        classes="\n\n\n".join(_class(classes, cls) for cls in models),
        config_class=classes.config.__name__,
        config_name=generated(classes.config),
        entry=entry,
        imports="\n".join(_imports({AutoModel, classes.config, *models, *sharing})),
        key_values=layers.key_values if layers else "",
        layer_path=layers.path.replace("*", "{layer}") if layers else "",
        load=classes.load,
        queries=layers.queries if layers else "",
        registrations="\n".join(_registrations(classes)),
        version=transformers.__version__,
    )


def _sections(template: str, features: frozenset[str]) -> str:
    """The template with the sections whose condition holds: `#[one or another]` … `#[end]`."""
    kept: list[bool] = []
    lines = []
    for line in template.splitlines(keepends=True):
        found = re.fullmatch(r"#\[(.+)\]\n", line)
        if found is None:
            if all(kept):
                lines.append(line)
        elif found[1] == "end":
            kept.pop()
        else:
            kept.append(_holds(found[1], features))
    return "".join(lines)


def _holds(condition: str, features: frozenset[str]) -> bool:
    if condition.startswith("neither "):
        return not features.intersection(condition.removeprefix("neither ").split(" nor "))
    return bool(features.intersection(condition.split(" or ")))


def _imports(classes: set[type]) -> Iterator[str]:
    modules = {name: list(used) for name, used in _ALWAYS_USED.items()}
    for cls in classes:
        public = getattr(transformers, cls.__name__, None) is cls
        if not public and not cls.__module__.startswith("transformers."):
            raise NotHeldError(f"{cls.__name__} is not a class of transformers")
        modules.setdefault("transformers" if public else cls.__module__, []).append(cls.__name__)
    for module, names in sorted(modules.items()):
        names.sort(key=str.casefold)
        line = f"from {module} import {', '.join(names)}"
        if len(line) > WIDTH:
            line = "\n".join([f"from {module} import (", *(f"    {n}," for n in names), ")"])
        yield line


def _attention(kind: Kind) -> str:
    """The expression that says how a kind of block is built."""
    anatomy = kind.anatomy
    sums = [count for count in anatomy.counts if count.role != "groups"]
    groups = [count for count in anatomy.counts if count.role == "groups"]
    fields = {
        "paths": [json.dumps(path) for path in kind.paths],
        "tensors": [
            _row(_join(part.path, name), dim, *_per_head(anatomy, part))
            for part in anatomy.parts
            if not part.whole
            for name, dim in part.tensors
        ],
        "counts": [_row(_join(c.path, c.attribute), *_per_count(anatomy, c)) for c in sums],
        "groups": [json.dumps(_join(c.path, c.attribute)) for c in groups],
        "arguments": [_row(a.name, a.dim, a.folded) for a in anatomy.arguments],
        "config": [_row(name, int(query), int(not query)) for name, query in kind.config_names],
    }
    lines = [f"        {name}={_tuple(rows, 8)}," for name, rows in fields.items() if rows]
    if anatomy.core and kind.features & {"arguments", "own_config"}:
        lines.append(f"        core={json.dumps(anatomy.core)},")
    return "\n".join(["Attention(", *lines, "    )"])


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _row(*values: Any) -> str:
    said = (json.dumps(v) if isinstance(v, str) else repr(v) for v in values)
    return f"({', '.join(said)})"


def _tuple(rows: Sequence[str], indent: int) -> str:
    """A tuple of expressions, in the form that ruff gives it."""
    if len(rows) == 1 and "\n" not in rows[0] and len(rows[0]) + indent + 14 < WIDTH:
        return f"({rows[0]},)"
    space = " " * indent
    return "\n".join(["(", *(f"{space}    {row}," for row in rows), f"{space})"])


def _per_head(anatomy: Anatomy, part: Part) -> tuple[int, int]:
    """Rows of a part per query head, and per key-value head."""
    rows = {"query": 0, "key_value": 0}
    heads = {"query": anatomy.num_heads, "key_value": anatomy.num_key_value_heads}
    for segment in part.segments:
        of = heads[segment.unit] if segment.only is None else len(segment.only)
        rows[segment.unit] += segment.size * of
    return rows["query"] // heads["query"], rows["key_value"] // heads["key_value"]


def _per_count(anatomy: Anatomy, count: Count) -> tuple[int, int]:
    """What a query head adds to a count, and what a key-value head adds."""
    return {
        "heads": (1, 0),
        "width": (anatomy.head_size, 0),
        "query_width": (anatomy.key_size, 0),
        "key_value": (0, 1),
        "key_value_width": (0, anatomy.head_size),
    }[count.role]


def _class(classes: Classes, cls: type[PreTrainedModel]) -> str:
    prefix = classes.task.base_model_prefix
    # The name of the base model inside the class for the task begins the names of its weights.
    other = f'\n    base_model_prefix = "{prefix}"' if cls.base_model_prefix != prefix else ""
    return (
        f"class {generated(cls)}(PrunedHeads, {cls.__name__}):\n"
        f'    """{cls.__name__} with the heads that were kept."""\n\n'
        f"    config_class = {generated(classes.config)}{other}"
    )


def _registrations(classes: Classes) -> Iterator[str]:
    """Each class is registered once, for the auto class that it is loaded with most."""
    if classes.base is not classes.task:
        yield f'{generated(classes.base)}.register_for_auto_class("AutoModel")'
    yield f'{generated(classes.task)}.register_for_auto_class("{classes.autos[0]}")'
