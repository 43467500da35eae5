"""The model as ONNX: read, and brought to a form that ONNX Runtime's quantiser takes as it is.

That quantiser fails, or writes a file that no backend loads, where a model has weights held by
Constant nodes, nodes without a name of their own, a Gemm's bias of shape [1,N], or an opset below
13 (per channel). `prepare` mends each and checks that the answers stayed the same. Threads: one.
Errors: QuantizeError.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter
from onnxruntime.quantization import quant_pre_process

from lumen_engine.quantize.errors import QuantizeError, told_by
from lumen_engine.quantize.runners import OnnxRuntime
from lumen_engine.quantize.samples import Call, Port

OPSET = 17
# Below it, QuantizeLinear has no axis: nothing can be quantised by channel.
LEAST_OPSET_BY_CHANNEL = 13
QUANTISED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Of the largest number of an output: kernels add up in another order after the rewriting.
SAME = 1e-4


def read(path: Path) -> onnx.ModelProto:
    if path.suffix != ".onnx":
        raise QuantizeError(
            f"{path} is OpenVINO's own form; wanted an ONNX file (export the model as ONNX again, "
            "or quantise it with NNCF)"
        )
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf, onnx and the system raise their own
        raise QuantizeError(f"reading {path}: {told_by(error)}") from error
    _unique_names(model.graph)  # ONNX Runtime loads no two nodes with one name
    return model


def ports(values: Sequence[onnx.ValueInfoProto]) -> list[Port]:
    made = []
    for value in values:
        tensor = value.type.tensor_type
        if value.type.WhichOneof("value") != "tensor_type":
            raise QuantizeError(f"{value.name!r} is no tensor; only tensors are quantised")
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        # Some exporters write -1 for a free axis.
        axes = [
            axis.dim_value if axis.dim_value > 0 else axis.dim_param or "?"
            for axis in tensor.shape.dim
        ]
        made.append(Port(value.name, dtype, tuple(axes)))
    return made


def inputs_of(model: onnx.ModelProto) -> list[Port]:
    weights = {one.name for one in model.graph.initializer}
    return ports([value for value in model.graph.input if value.name not in weights])


def opset_of(model: onnx.ModelProto) -> int:
    return max(
        (one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0
    )


def quantisable(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes that can be computed in INT8: those with weights, in order."""
    weights = {one.name for one in model.graph.initializer}
    return [
        node.name
        for node in model.graph.node
        if node.op_type in QUANTISED and len(node.input) > 1 and node.input[1] in weights
    ]


def prepare(model: onnx.ModelProto, calls: Sequence[Call]) -> onnx.ModelProto:
    """A copy to quantise, whose answers are the model's own for `calls`."""
    wanted = OnnxRuntime(model).run_all(calls)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made = _to_opset(made)
    _constants_to_weights(made.graph)
    made = _optimised(made)
    _flat_biases(made.graph)  # afterwards: it makes a Gemm of MatMul and Add, with the Add's shape
    _unique_names(made.graph)
    got = OnnxRuntime(made).run_all(calls)
    for one, other in zip(wanted, got):
        for name in one:
            largest = max(1e-30, float(np.abs(one[name].astype(np.float64)).max(initial=0)))
            apart = np.abs(one[name].astype(np.float64) - other[name]).max(initial=0)
            if apart > SAME * largest:
                raise QuantizeError(
                    f"output {name!r} changed by {apart / largest:.2g} of its largest number when "
                    f"the model was brought to opset {opset_of(made)} and optimised; a fault of "
                    "that tool, which would be quantised along"
                )
    return made


def _to_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    before = opset_of(model)
    if before >= OPSET:
        return model
    try:
        made = version_converter.convert_version(model, OPSET)
        made.ir_version = max(made.ir_version, 8)
        return made
    except Exception as error:  # the converter's own, in C++
        if before >= LEAST_OPSET_BY_CHANNEL:
            return model
        raise QuantizeError(
            f"the model has opset {before}, and onnx's converter can't bring it to {OPSET}: "
            f"{told_by(error)}; export it with opset {LEAST_OPSET_BY_CHANNEL} or later"
        ) from error


def _constants_to_weights(graph: onnx.GraphProto) -> None:
    kept = []
    for node in graph.node:
        value = next((one for one in node.attribute if one.name == "value"), None)
        if node.op_type != "Constant" or value is None:
            kept.append(node)
            continue
        weight = graph.initializer.add()
        weight.CopyFrom(value.t)
        weight.name = node.output[0]
    del graph.node[:]
    graph.node.extend(kept)


def _flat_biases(graph: onnx.GraphProto) -> None:
    """A Gemm's bias [1,N] as [N], under a name of its own: other nodes may read it too."""
    weights = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type != "Gemm" or len(node.input) < 3 or node.input[2] not in weights:
            continue
        bias = numpy_helper.to_array(weights[node.input[2]])
        if bias.ndim != 2 or bias.shape[0] != 1:
            continue
        flat = numpy_helper.from_array(bias.reshape(-1).copy(), f"{node.input[2]}_flat")
        if flat.name not in weights:
            weights[flat.name] = flat
            graph.initializer.append(flat)
        node.input[2] = flat.name


def _optimised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Constants folded, batch normalisation folded into convolutions, shapes inferred."""
    with tempfile.TemporaryDirectory(prefix="lumen-quantize-") as folder:
        source, target = Path(folder) / "in.onnx", Path(folder) / "out.onnx"
        onnx.save(model, source)
        logging.disable(logging.WARNING)
        try:
            # Symbolic shapes want sympy, and are for transformers with shapes that ONNX's own
            # inference does not follow; a tensor without a shape is quantised all the same.
            quant_pre_process(source, target, skip_symbolic_shape=True)
            return onnx.load(target)
        except Exception as error:
            raise QuantizeError(
                f"ONNX Runtime can't prepare the model: {told_by(error)}"
            ) from error
        finally:
            logging.disable(logging.NOTSET)


def _unique_names(graph: onnx.GraphProto) -> None:
    seen: set[str] = set()
    for number, node in enumerate(graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{number}_of_lumen"
        seen.add(node.name)
