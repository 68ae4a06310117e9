"""ONNX: write a graph, and run it with ONNX Runtime on the processor."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

from headcount.deploy.graph import Graph, Tensors

SUFFIX = ".onnx"
OPSET = 20


def write_onnx(graph: Graph, file: Path) -> None:
    """Trace a graph and write it; weights of more than 2 GB get a file of their own."""
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
        assert program is not None  # it is None for the exporter of before only
        program.save(str(file))


class OnnxRunner:
    """Runs one file.

    Args:
        file: of one graph.
        threads: as many as torch uses, if not given.
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
        """The outputs by name; inputs that the graph does not have are left out."""
        arrays = {name: given[name].numpy() for name in self.inputs}
        made = self.session.run(self.outputs, arrays)
        return {n: torch.from_numpy(array) for n, array in zip(self.outputs, made, strict=True)}


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the exporter keep its remarks about itself: it is judged by the check of its file."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


INT8 = "int8"


def quantise_onnx(file: Path) -> Path:
    """Write a quantised copy of an ONNX file beside it.

    Args:
        file: with floating-point weights.

    Returns:
        The new file.
    """
    model = onnx.load(str(file))
    # The exporter leaves the shapes of weights that it has turned round since; without them, the
    # quantiser finds the right ones.
    model.graph.ClearField("value_info")
    quantised = file.with_name(f"{file.stem}_{INT8}{file.suffix}")
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it advises steps that the exporter has already taken
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


def data_file(file: Path) -> Path:
    """Where the weights of a large ONNX model are, which one file cannot hold."""
    return file.with_name(f"{file.name}.data")


def size_in_bytes(file: Path) -> int:
    """Of an exported graph with its weights."""
    data = data_file(file)
    return file.stat().st_size + (data.stat().st_size if data.exists() else 0)
