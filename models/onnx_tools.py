# The parts that the model scripts share: graphs by onnx.helper, written so that two runs give equal
# bytes.
# Control plane only; run by hand, by the build or by ./dev demo. Errors: exception (a script's
# traceback).
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Opset 17 and IR 8 are read by every OpenVINO and ONNX Runtime of the last three years.
OPSET = 17
IR_VERSION = 8


def initializer(name: str, array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(array), name)


def value(name: str, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A graph input or output; a string in `shape` is a dynamic axis."""
    return helper.make_tensor_value_info(name, dtype, shape)


def save(
    path: Path,
    name: str,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[onnx.TensorProto],
) -> None:
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
    model = helper.make_model(
        graph, producer_name="lumen", opset_imports=[helper.make_opsetid("", OPSET)]
    )
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Rename, so that a server that scans the repository never sees half a file; a name of our own,
    # as two builds may be making it at once.
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(model.SerializeToString(deterministic=True))
    partial.rename(path)
    print(f"{path}: {path.stat().st_size:,} bytes")
