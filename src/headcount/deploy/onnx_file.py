"""ONNX files: write a graph, quantise it, and run it with ONNX Runtime on the processor."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

from headcount.deploy.graph import Graph, Tensors

SUFFIX = ".onnx"
INT8 = "int8"
OPSET = 20


def write_onnx(graph: Graph, file: Path) -> None:
    """Trace a graph and write it; more than 2 GB of weights go into a second file."""
    example = graph.example(graph.sizes[0])
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            graph.step,
            kwargs=graph.by_argument(example),
            dynamic_shapes=graph.by_argument(graph.axes()),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None  # only the old exporter, without dynamo, returns None
        _forget_sources(program.model)
        program.save(str(file))


def _forget_sources(model: Any) -> None:
    """Remove the lines of code that the exporter notes: they name folders of this computer."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for node in graph.all_nodes():
            node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks about itself: a check of its file decides."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def quantise_onnx(file: Path) -> Path:
    """Write a copy of an ONNX file with 8-bit weights, next to it.

    Args:
        file: an ONNX file with floating-point weights.

    Returns:
        The new file.
    """
    model = onnx.load(str(file))
    # The exporter transposes some weights and leaves their old shapes here. Without these, the
    # quantiser finds the right ones.
    model.graph.ClearField("value_info")
    quantised = file.with_name(f"{file.stem}_{INT8}{file.suffix}")
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it recommends steps that the exporter has already done
    try:
        quantize_dynamic(
            model,
            str(quantised),
            weight_type=QuantType.QInt8,
            use_external_data_format=data_file(file).exists(),
        )
    finally:
        logger.setLevel(level)
    return quantised


def size_in_bytes(file: Path) -> int:
    """Bytes of an ONNX file and of the file with its weights, if there is one."""
    data = data_file(file)
    return file.stat().st_size + (data.stat().st_size if data.exists() else 0)


def data_file(file: Path) -> Path:
    """The second file of a large ONNX model, for weights that do not fit into the first."""
    return file.with_name(f"{file.name}.data")


class OnnxRunner:
    """Runs the graph in one file.

    Args:
        file: the ONNX file.
        threads: how many threads to use; None for as many as torch uses.
    """

    def __init__(self, file: Path, threads: int | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        self.outputs = [entry.name for entry in self.session.get_outputs()]

    def __call__(self, given: Tensors) -> Tensors:
        """The outputs by name; values for inputs that the graph does not have are ignored."""
        arrays = {name: given[name].numpy() for name in self.inputs}
        made = self.session.run(self.outputs, arrays)
        return {n: torch.from_numpy(array) for n, array in zip(self.outputs, made, strict=True)}
