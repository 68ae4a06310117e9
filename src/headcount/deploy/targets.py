"""Where a model can go: the table of targets, and one function that writes any of them.

Every target has a module with two functions. `held` says how it would hold a model, or raises
NotHeldError with the reason. `write` fills a folder, compares what it wrote with the model, and
returns a record of both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from transformers import PreTrainedModel

from headcount.atomic import new_folder, write_text
from headcount.deploy.auto_class import sentence_lines
from headcount.deploy.card import write_card
from headcount.deploy.older_names import write_older_names
from headcount.deploy.regular import NotHeldError
from headcount.deploy.run import RECORD
from headcount.errors import HeadcountError
from headcount.loading.folder import (
    COMPANIONS,
    LICENCES,
    copy_companions,
    first_line,
    inner_place,
)
from headcount.loading.module_list import has_modules

Record = dict[str, Any]
# What SentenceTransformer is told besides the folder, by target.
_SENTENCES: dict[str, tuple[str, ...]] = {
    "plain": (), "remote-code": ("trust_remote_code=True",), "onnx": ('backend="onnx"',),
}  # fmt: skip
# sentence-transformers builds the encoder of a T5 by its class, and ignores a modelling file.
_BUILT_ELSEWHERE = "EncoderModel"
_NOT_OPENED = (
    "sentence-transformers does not open this folder: it builds such an encoder with the family's "
    "own class. It opens what `--to onnx` writes."
)


@dataclass(frozen=True)
class Target:
    """A form that other programs load.

    Attributes:
        name: what `--to` takes.
        runs_in: the programs that load it.
        module: the module with its `held` and `write`.
        more: what that module is told besides, where it serves several targets.
        precisions: what `--precision` may be, the default first; empty if weights stay as they are.
        packages: what it needs.
        extra: headcount's extra that installs these.
        companions: whether tokenizer and processor files go beside it.
    """

    name: str
    runs_in: str
    module: str
    more: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str = ""
    companions: bool = True

    def held(self, model: PreTrainedModel, source: str) -> str:
        """How it would hold the model; see the module."""
        self.refuse_missing_packages()
        return str(self._function("held")(model, source, *self.more))

    def write(
        self, model: PreTrainedModel, source: str, folder: Path, precision: str | None
    ) -> Record:
        """Write the model into a folder that exists; see the module."""
        self.refuse_missing_packages()
        options = {"precision": precision or self.precisions[0]} if self.precisions else {}
        record: Record = self._function("write")(model, source, folder, *self.more, **options)
        return record

    def refuse_missing_packages(self) -> None:
        """Refuse to go on without a package that it needs."""
        for package in self.packages:
            if find_spec(package) is None:
                raise NotHeldError(
                    f"it needs the package {package}: pip install 'headcount[{self.extra}]'"
                )

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(import_module(self.module), name)
        return function


_ONNX = ("onnx", "onnxruntime", "onnxscript")
# In the order in which they are recommended in place of one another.
TARGETS = {
    target.name: target
    for target in (
        Target("plain", "transformers and vLLM", "headcount.deploy.plain"),
        Target(
            "remote-code",
            "transformers and vLLM, with trust_remote_code",
            "headcount.deploy.remote_code",
        ),
        Target(
            "gguf",
            "llama.cpp and what is built on it",
            "headcount.deploy.gguf_file",
            precisions=("f16", "f32", "q8_0"),
            packages=("gguf",),
            extra="gguf",
            companions=False,
        ),
        Target("mlx", "mlx_lm on Apple computers", "headcount.deploy.mlx_folder"),
        Target(
            "onnx",
            "ONNX Runtime, OpenVINO, optimum, transformers.js",
            "headcount.deploy.graph_folder",
            more=("onnx",),
            precisions=("f32", "int8"),
            packages=_ONNX,
            extra="export",
        ),
        Target("torch", "torch.export", "headcount.deploy.graph_folder", more=("torch",)),
    )
}


class Offer(NamedTuple):
    """What a target can do for one model.

    Attributes:
        target: the target.
        holds: whether it can hold the model.
        how: how it would hold it, or why it cannot.
    """

    target: Target
    holds: bool
    how: str


def offers(model: PreTrainedModel, source: str) -> Iterator[Offer]:
    """What each target can hold of a model, one after the other."""
    source = inner_place(source)
    for target in TARGETS.values():
        try:
            yield Offer(target, True, target.held(model, source))
        except NotHeldError as problem:
            yield Offer(target, False, str(problem))
        except Exception as error:  # models of many families, in libraries of many kinds
            yield Offer(target, False, f"{type(error).__name__}, {first_line(error)}")


def find_target(name: str, precision: str | None = None) -> Target:
    """The target of that name, which can have that precision."""
    if name not in TARGETS:
        raise HeadcountError(f"--to is {name!r}, expected one of {', '.join(TARGETS)}")
    target = TARGETS[name]
    if precision is not None and precision not in target.precisions:
        known = " or ".join(target.precisions) or "nothing, because weights stay as they are"
        raise HeadcountError(f"--precision is {precision!r}, expected {known} with --to {name}")
    return target


def export(
    model: PreTrainedModel,
    to: str,
    output: str | Path,
    *,
    source: str | None = None,
    precision: str | None = None,
) -> Record:
    """Write a model so that another program loads it without headcount, and check it.

    Args:
        model: the model, pruned or not.
        to: `plain`, `remote-code`, `gguf`, `mlx`, `onnx` or `torch`.
        output: the folder to write; it must not exist.
        source: the folder or hub name with its tokenizer, which is copied; None for where the
            model was loaded from.
        precision: of the weights, where the target has a choice: `f16`, `f32` or `q8_0` with
            `gguf`, `int8` with `onnx`.

    Returns:
        What was written and checked, which is also in `export.json`.

    Raises:
        HeadcountError: the target cannot hold the model, or what was written answers otherwise.
    """
    target = find_target(to, precision)
    place = source if source is not None else model.name_or_path or ""
    with new_folder(Path(output)) as folder:
        return fill(folder, model, place, target, precision)


def fill(
    folder: Path, model: PreTrainedModel, source: str, target: Target, precision: str | None = None
) -> Record:
    """Write a model for a target into a folder that exists; see `export`."""
    try:
        record = target.write(model, inner_place(source), folder, precision)
    except NotHeldError as problem:
        raise HeadcountError(
            f"{target.name} cannot hold this model: {problem}; {_instead(model, source, target)}"
        ) from problem
    except (HeadcountError, OSError, SafetensorError):
        raise
    except Exception as error:  # models of many families, in libraries of many kinds
        raise HeadcountError(
            f"{target.name} cannot hold this model: {type(error).__name__}, {first_line(error)}; "
            f"{_instead(model, source, target)}"
        ) from error
    if source:
        copy_companions(source, folder, COMPANIONS if target.companions else LICENCES)
    if target.name == "onnx":
        write_older_names(folder)
    record = {"target": target.name, **record}
    if target.name in _SENTENCES and has_modules(folder):
        if "flag" in record and type(model).__name__.endswith(_BUILT_ELSEWHERE):
            record["flag"] += f" {_NOT_OPENED}"
        else:
            record["load"] = sentence_lines(*_SENTENCES[target.name])
    write_record(folder, record)
    write_card(folder, source, target.runs_in, record)
    return record


def write_record(folder: Path, record: Record) -> None:
    """Write `export.json`."""
    write_text(folder / RECORD, json.dumps(record, indent=2) + "\n")


def _instead(model: PreTrainedModel, source: str, refused: Target) -> str:
    """What to do in place of a target that cannot hold the model."""
    for offer in offers(model, source):
        if offer.holds and offer.target is not refused:
            return f"give --to {offer.target.name}, which can"
    return "no other target can, so load it with headcount"
