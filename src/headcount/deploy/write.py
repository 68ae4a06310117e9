"""Write a folder with an exported model: its graphs, its companion files, and what was checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
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
from headcount.deploy.run import RECORD, open_graph
from headcount.errors import HeadcountError
from headcount.loading.folder import NO_CODE, copy_companions, first_line

Format = Literal["onnx", "torch"]
Record = dict[str, Any]
LEAST_TORCH = (2, 9)  # torch 2.6 cannot trace what transformers computes today
_PACKAGES = ("onnx", "onnxruntime", "onnxscript")


@dataclass(frozen=True)
class Export:
    """How to export.

    Attributes:
        form: `onnx` for ONNX graphs, `torch` for programs of `torch.export`.
        int8: also write ONNX graphs with 8-bit weights, which are smaller and less exact.
    """

    form: Format = "onnx"
    int8: bool = False

    def __post_init__(self) -> None:
        if self.form not in ("onnx", "torch"):
            raise HeadcountError(f"--format is {self.form!r}, expected onnx or torch")
        if self.int8 and self.form != "onnx":
            raise HeadcountError(
                "only ONNX graphs can be quantised; leave out --quantise or give --format onnx"
            )
        _refuse_old_torch()
        if self.form == "onnx":
            _refuse_missing_packages()


def write_export(model: PreTrainedModel, source: str, folder: Path, how: Export) -> Record:
    """Export a model into a folder that exists, and check every file against the model.

    Args:
        model: the model, pruned or not.
        source: the model's folder or hub name; its tokenizer and other companion files are copied.
        folder: the folder to write to.
        how: the format.

    Returns:
        What was written and checked, with the contents of `export.json`.

    Raises:
        HeadcountError: the model cannot be exported, or the export answers something else.
    """
    model.eval()
    graphs = graphs_of(model, _tokenizer_inputs(source))
    entries = {graph.name: _write_graph(graph, model, folder, how) for graph in graphs}
    record: Record = {
        "format": how.form,
        "model": type(model).__name__,
        "tolerance": TOLERANCE,
        "versions": _versions(how),
        "graphs": entries,
    }
    if how.form == "onnx":
        from headcount.deploy.onnx_file import OPSET

        record["opset"] = OPSET
    model.config.save_pretrained(folder)
    if model.can_generate() and model.generation_config is not None:
        model.generation_config.save_pretrained(folder)
    copy_companions(source, folder)
    write_record(folder, record)
    return record


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
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported: it does not answer to "
            f"{model.main_input_name} alone; export a model of plain text or of images"
        ) from error


def _tokenizer_inputs(source: str) -> tuple[str, ...] | None:
    folder = Path(source)
    if folder.is_dir() and not (folder / "tokenizer_config.json").is_file():
        return None
    try:
        return tuple(AutoTokenizer.from_pretrained(source, **NO_CODE).model_input_names)
    except (OSError, ValueError, KeyError, ImportError):  # it has none, or one that cannot load
        return None


def _write_graph(graph: Graph, model: PreTrainedModel, folder: Path, how: Export) -> Record:
    engine = _engine(how.form)
    file = folder / f"{graph.name}{engine.suffix}"
    try:
        with plain_attention(model):
            engine.write(graph, file)
    except Exception as error:  # exporters raise errors of many types
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported as {how.form}: {first_line(cause)}"
        ) from error
    entry: Record = {
        "file": file.name,
        "bytes": engine.size_in_bytes(file),
        "inputs": {name: list(shape) for name, shape in graph.inputs.items()},
        "outputs": list(graph.outputs),
    }
    checked = engine.checked_sizes(graph)
    found = largest_difference(graph, open_graph(folder, how.form, graph.name, entry), checked)
    if not found <= TOLERANCE:
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported as {how.form}: what {file.name} answers "
            f"differs from the model by {found:.1e}, expected at most {TOLERANCE:.0e}"
        )
    entry |= {"difference": found, "checked_on": [sizes._asdict() for sizes in checked]}
    if how.int8:
        from headcount.deploy.onnx_file import quantise_onnx

        small = quantise_onnx(file)
        entry["int8"] = {"file": small.name, "bytes": engine.size_in_bytes(small)}
        runner = open_graph(folder, how.form, graph.name, entry, int8=True)
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


def write_record(folder: Path, record: Record) -> None:
    """Write `export.json`."""
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _refuse_old_torch() -> None:
    major, minor, *_ = torch.__version__.split(".")
    if (int(major), int(minor)) < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        raise HeadcountError(
            f"exporting needs torch {least} or newer, found {torch.__version__}; run: "
            f"pip install 'torch>={least}'"
        )


def _refuse_missing_packages() -> None:
    for package in _PACKAGES:
        try:
            import_module(package)
        except ImportError as error:
            raise HeadcountError(
                f"exporting to ONNX needs {package}, which is not installed; "
                "run: pip install 'headcount[export]'"
            ) from error


def _versions(how: Export) -> dict[str, str]:
    packages = ("torch", "transformers", *(_PACKAGES if how.form == "onnx" else ()))
    return {"headcount": __version__, **{package: version(package) for package in packages}}
