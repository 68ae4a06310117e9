"""Fill a folder with an exported model: its graphs, what belongs to it, and what was checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from transformers import AutoTokenizer, PreTrainedModel

from headcount import __version__
from headcount.deploy.encoder import graphs_of, plain_attention
from headcount.deploy.graph import TOLERANCE, Graph, largest_difference
from headcount.deploy.onnx_file import size_in_bytes
from headcount.deploy.run import RECORD, open_graph
from headcount.errors import HeadcountError
from headcount.loading.folder import copy_companions, first_line

Format = Literal["onnx", "torch"]
Record = dict[str, Any]
_PACKAGES = ("onnx", "onnxruntime", "onnxscript")


@dataclass(frozen=True)
class Export:
    """How to export.

    Attributes:
        form: `onnx` for ONNX graphs, `torch` for programs of `torch.export`.
        int8: also write quantised ONNX graphs.
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
        if self.form == "onnx":
            _refuse_missing_packages()


def write_export(model: PreTrainedModel, source: str, folder: Path, how: Export) -> Record:
    """Export a model into a folder that exists, and check every file against the model.

    Args:
        model: pruned or not.
        source: the model's folder or hub name, for the files that belong to it.
        folder: to write to.
        how: the format.

    Returns:
        What was written, as `export.json` has it.

    Raises:
        HeadcountError: the model cannot be exported, or its export does not answer as it does.
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


def write_record(folder: Path, record: Record) -> None:
    """Write `export.json`."""
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _write_graph(graph: Graph, model: PreTrainedModel, folder: Path, how: Export) -> Record:
    write, suffix = _writer(how.form)
    file = folder / f"{graph.name}{suffix}"
    try:
        with plain_attention(model):
            write(graph, file)
    except Exception as error:  # an exporter that does not understand a family fails in many ways
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise HeadcountError(
            f"{type(model).__name__} cannot be exported as {how.form}: {first_line(cause)}"
        ) from error
    entry: Record = {
        "file": file.name,
        "bytes": size_in_bytes(file),
        "inputs": {name: list(shape) for name, shape in graph.inputs.items()},
        "outputs": list(graph.outputs),
    }
    checked = _checked_sizes(graph, how.form)
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
        entry["int8"] = {"file": small.name, "bytes": size_in_bytes(small)}
        runner = open_graph(folder, how.form, graph.name, entry, int8=True)
        entry["int8"]["difference"] = largest_difference(graph, runner, checked)
    return entry


def _writer(form: Format) -> tuple[Any, str]:
    if form == "torch":
        from headcount.deploy import torch_file

        return torch_file.write_torch, torch_file.SUFFIX
    from headcount.deploy import onnx_file

    return onnx_file.write_onnx, onnx_file.SUFFIX


def _checked_sizes(graph: Graph, form: Format) -> Any:
    if form == "torch":
        from headcount.deploy.torch_file import allowed_sizes

        return allowed_sizes(graph)
    return graph.sizes


def _tokenizer_inputs(source: str) -> tuple[str, ...] | None:
    folder = Path(source)
    if folder.is_dir() and not (folder / "tokenizer_config.json").is_file():
        return None
    try:
        return tuple(AutoTokenizer.from_pretrained(source).model_input_names)
    except (OSError, ValueError, KeyError, ImportError):  # there is none, or not for this model
        return None


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
