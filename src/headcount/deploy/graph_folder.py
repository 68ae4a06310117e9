"""Graphs in a folder: ONNX files or programs of `torch.export`, each checked against the model.

ONNX graphs are where transformers.js and optimum look for them: `onnx/model.onnx` beside the
configuration and the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from transformers import AutoTokenizer, PreTrainedModel

from headcount import __version__
from headcount.deploy.decoder import decoder_graph
from headcount.deploy.encoder import encoder_graph
from headcount.deploy.encoder_decoder import encoder_decoder_graphs
from headcount.deploy.graph import TOLERANCE, Graph, Sizes, largest_difference
from headcount.deploy.plain import plain_config
from headcount.deploy.regular import NotHeldError
from headcount.deploy.run import open_graph
from headcount.errors import HeadcountError
from headcount.loading.folder import NO_CODE, first_line

Format = Literal["onnx", "torch"]
Record = dict[str, Any]
LEAST_TORCH = (2, 9)  # torch 2.6 cannot trace what transformers computes today
ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
FOLDERS: dict[Format, str] = {"onnx": "onnx", "torch": "."}  # where the graphs are


def held(model: PreTrainedModel, source: str, form: Format) -> str:
    """How graphs would hold a model, in a few words.

    Raises:
        NotHeldError: a model of this kind has no graphs, or torch is too old.
    """
    _refuse_old_torch()
    names = [graph.name for graph in graphs_of(model, _tokenizer_inputs(source))]
    return f"{'graphs' if form == 'onnx' else 'programs'} {', '.join(names)}"


def write(
    model: PreTrainedModel, source: str, folder: Path, form: Format, precision: str = "f32"
) -> Record:
    """Write the graphs of a model into a folder that exists, and check each against the model.

    Args:
        model: the model, pruned or not.
        source: the model's folder or hub name; its tokenizer decides on the inputs.
        folder: the folder to write to.
        form: `onnx` for ONNX graphs, `torch` for programs of `torch.export`.
        precision: `int8` also writes ONNX graphs with 8-bit weights, smaller and less exact.

    Returns:
        What was written and checked.

    Raises:
        HeadcountError: the model cannot be exported, or the export answers something else.
    """
    _refuse_old_torch()
    model.eval()
    graphs = graphs_of(model, _tokenizer_inputs(source))
    inner = folder / FOLDERS[form]
    inner.mkdir(exist_ok=True)
    entries = {
        graph.name: _write_graph(graph, model, folder, inner, form, precision == "int8")
        for graph in graphs
    }
    record: Record = {
        "format": form,
        "model": type(model).__name__,
        "tolerance": TOLERANCE,
        "versions": _versions(form),
        "graphs": entries,
        "difference": max(entry["difference"] for entry in entries.values()),
    }
    if form == "onnx":
        from headcount.deploy.onnx_file import OPSET

        record["opset"] = OPSET
    _save_config(model, folder)
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    return record


def _save_config(model: PreTrainedModel, folder: Path) -> None:
    """Write a configuration that says how many heads there are, if one can.

    Programs that generate text make an empty cache from it.
    """
    try:
        plain_config(model).save_pretrained(folder)
    except NotHeldError:
        model.config.save_pretrained(folder)


def graphs_of(
    model: PreTrainedModel, tokenizer_inputs: tuple[str, ...] | None = None
) -> tuple[Graph, ...]:
    """The graphs of a model, with the names that Hugging Face's `optimum` gives its exports.

    Args:
        model: the model, pruned or not, in evaluation mode.
        tokenizer_inputs: the names of what its tokenizer makes; None if it has no tokenizer.

    Raises:
        HeadcountError: a model of this kind cannot be exported.
    """
    try:
        if not model.can_generate():
            return (encoder_graph(model, tokenizer_inputs),)
        if model.config.is_encoder_decoder:
            return encoder_decoder_graphs(model)
        return (decoder_graph(model),)
    except HeadcountError:
        raise
    except Exception as error:  # families that need more inputs raise errors of many types
        raise NotHeldError(
            f"{type(model).__name__} does not answer to {model.main_input_name} alone"
        ) from error


def _tokenizer_inputs(source: str) -> tuple[str, ...] | None:
    folder = Path(source)
    if folder.is_dir() and not (folder / "tokenizer_config.json").is_file():
        return None
    try:
        return tuple(AutoTokenizer.from_pretrained(source, **NO_CODE).model_input_names)
    except (OSError, ValueError, KeyError, ImportError):  # it has none, or one that cannot load
        return None


def _write_graph(
    graph: Graph, model: PreTrainedModel, folder: Path, inner: Path, form: Format, int8: bool
) -> Record:
    engine = _engine(form)
    file = inner / f"{graph.name}{engine.suffix}"
    try:
        with plain_attention(model):
            engine.write(graph, file)
    except Exception as error:  # exporters raise errors of many types
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        if isinstance(cause, OSError):  # the disk is full, and the model has nothing to do with it
            raise cause from error
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported as {form}: {first_line(cause)}"
        ) from error
    entry: Record = {
        "file": file.relative_to(folder).as_posix(),
        "bytes": engine.size_in_bytes(file),
        "inputs": {name: list(shape) for name, shape in graph.inputs.items()},
        "outputs": list(graph.outputs),
    }
    checked = engine.checked_sizes(graph)
    found = largest_difference(graph, open_graph(folder, form, graph.name, entry), checked)
    if not found <= TOLERANCE:
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported as {form}: what {file.name} answers "
            f"differs from the model by {found:.1e}, expected at most {TOLERANCE:.0e}"
        )
    entry |= {"difference": found, "checked_on": [sizes._asdict() for sizes in checked]}
    if int8:
        from headcount.deploy.onnx_file import quantise_onnx

        small = quantise_onnx(file)
        entry["int8"] = {
            "file": small.relative_to(folder).as_posix(),
            "bytes": engine.size_in_bytes(small),
        }
        runner = open_graph(folder, form, graph.name, entry, int8=True)
        entry["int8"]["difference"] = largest_difference(graph, runner, checked)
    return entry


@contextmanager
def plain_attention(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute attention with plain products and sums.

    At a position that sees nothing (padding on the left), engines disagree about fused attention,
    and some give NaN. Plain attention gives the same everywhere.
    """
    chosen = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(chosen)


class _Engine(NamedTuple):
    """What an export of one format needs.

    Attributes:
        suffix: the ending of its files.
        write: traces a graph and writes it into a file.
        checked_sizes: the sizes of a graph's examples that the export takes.
        size_in_bytes: the bytes of a file, with its weights.
    """

    suffix: str
    write: Callable[[Graph, Path], None]
    checked_sizes: Callable[[Graph], tuple[Sizes, ...]]
    size_in_bytes: Callable[[Path], int]


def _engine(form: Format) -> _Engine:
    """Import the engine of a format only now: the packages of ONNX may be missing."""
    if form == "torch":
        from headcount.deploy import torch_file as pt2

        return _Engine(
            pt2.SUFFIX, pt2.write_torch, pt2.allowed_sizes, lambda file: file.stat().st_size
        )
    from headcount.deploy import onnx_file as onnx

    return _Engine(onnx.SUFFIX, onnx.write_onnx, lambda graph: graph.sizes, onnx.size_in_bytes)


def _refuse_old_torch() -> None:
    major, minor, *_ = torch.__version__.split(".")
    if (int(major), int(minor)) < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        raise NotHeldError(f"it needs torch {least} or newer, and this is {torch.__version__}")


def _versions(form: Format) -> dict[str, str]:
    packages = ("torch", "transformers", *(ONNX_PACKAGES if form == "onnx" else ()))
    return {"headcount": __version__, **{package: version(package) for package in packages}}
