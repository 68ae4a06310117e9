"""Dynamic quantisation: weights as 8-bit integers, activations likewise while they are computed."""

from __future__ import annotations

import logging
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from headcount.export.files import data_file

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
