"""The forms of a model that `lumen quantize` compares: f32, bf16, weights only, INT8, INT8 in part.

INT8 is ONNX Runtime's static quantisation: QDQ, unsigned activations and signed weights (the other
order is 3.5 times slower in ONNX Runtime 1.31), weights by channel, ranges by MinMax. "In part"
leaves the nodes in float that cost the answers most. Threads: one. Errors: QuantizeError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

from lumen_engine.quantize.distance import sqnr_db
from lumen_engine.quantize.errors import QuantizeError, told_by
from lumen_engine.quantize.network import QUANTISED, quantisable
from lumen_engine.quantize.runners import OnnxRuntime
from lumen_engine.quantize.samples import Call

# Parts of a model whose sensitivity is measured one by one: each costs a quantisation and a load.
MOST_PARTS = 48
# Calls by which the parts are put in order: the order needs no more.
ORDERING_CALLS = 4


@dataclass(frozen=True)
class Candidate:
    name: str
    model: bytes
    precision: str = "f32"  # OpenVINO's, of the parts that are float
    float_nodes: tuple[str, ...] = ()  # left in float although they could be INT8

    @property
    def precision_name(self) -> str:
        """As the server's documents have it."""
        if self.name == "weights":
            return "int8_weights"
        return "int8_mixed" if self.float_nodes else self.name

    @property
    def is_small(self) -> bool:
        """Has weights of 8 bits: a file of its own."""
        return self.name not in ("f32", "bf16")


class _Reader(CalibrationDataReader):
    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = iter(calls)

    def get_next(self) -> Call | None:
        return next(self._calls, None)


def has_vnni(cpuinfo: str) -> bool:
    """`cpuinfo`: the text of /proc/cpuinfo. Without VNNI a CPU adds two products of bytes in 16
    bits, too few for 8 bits each: it saturates, and answers are wrong (ONNX Runtime's documentation
    of quantisation, "reduce range")."""
    return any(flag in cpuinfo.split() for flag in ("avx512_vnni", "avx_vnni"))


class Quantiser:
    """Finds the ranges once and keeps them in `folder`, for any choice of nodes."""

    def __init__(self, prepared: onnx.ModelProto, calls: Sequence[Call], folder: Path) -> None:
        self._prepared = prepared
        self._calls = calls
        self._folder = folder
        self.nodes = quantisable(prepared)
        self._is_exact = has_vnni(Path("/proc/cpuinfo").read_text())

    def quantise(self, nodes: Sequence[str]) -> bytes:
        target = self._folder / "int8.onnx"
        model = onnx.ModelProto()
        model.CopyFrom(self._prepared)
        logging.disable(logging.WARNING)
        try:
            quantize_static(
                model,
                target,
                _Reader(self._calls),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(QUANTISED),
                nodes_to_quantize=list(nodes),
                per_channel=True,
                reduce_range=not self._is_exact,  # weights of 7 bits
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax,
                # Without CalibMaxIntermediateOutputs, by which ONNX Runtime 1.31 forgets rows: the
                # ranges are too small, and answers saturate.
                calibration_cache_path=self._folder / "ranges.json",
            )
        except Exception as error:  # the quantiser has no type of its own
            raise QuantizeError(
                f"ONNX Runtime can't quantise the model: {type(error).__name__}: {told_by(error)}"
            ) from error
        finally:
            logging.disable(logging.NOTSET)
        return target.read_bytes()

    def parts_by_sensitivity(self, tell: Callable[[str], None]) -> list[list[str]]:
        """Runs of neighbouring nodes, the one first that alone in INT8 costs the answers most."""
        size = -(-len(self.nodes) // MOST_PARTS)
        parts = [self.nodes[i : i + size] for i in range(0, len(self.nodes), size)]
        calls = self._calls[:ORDERING_CALLS]
        wanted = OnnxRuntime(self._prepared).run_all(calls)
        costs = []
        for number, part in enumerate(parts):
            tell(f"sensitivity of part {number + 1} of {len(parts)}")
            costs.append(sqnr_db(wanted, OnnxRuntime(self.quantise(part)).run_all(calls)))
        return [parts[i] for i in np.argsort(costs, kind="stable")]


def plain(model: onnx.ModelProto, with_bf16: bool) -> list[Candidate]:
    data = model.SerializeToString()
    made = [Candidate("f32", data)]
    if with_bf16:
        made.append(Candidate("bf16", data, precision="bf16"))
    return made


def weights_only(prepared: onnx.ModelProto) -> Candidate | None:
    """Weights of MatMul and Gemm in 8 bits, all else in float: less memory to read.

    Those of convolutions are left: OpenVINO makes floats of them again when it compiles. None:
    there is no such weight.
    """
    model = onnx.ModelProto()
    model.CopyFrom(prepared)
    graph = model.graph
    weights = {one.name: one for one in graph.initializer}
    unpacked: dict[tuple[str, int], str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights:
            name = node.input[1]
            axis = 0 if _is_transposed(node) else 1
            values = numpy_helper.to_array(weights[name])
            if values.dtype == np.float32 and values.ndim == 2:
                if (name, axis) not in unpacked:
                    unpacked[name, axis] = _pack(graph, nodes, name, values, axis)
                node.input[1] = unpacked[name, axis]
        nodes.append(node)
    if not unpacked:
        return None
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for node in graph.node for name in node.input}
    read.update(one.name for one in graph.output)
    kept = [one for one in graph.initializer if one.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return Candidate("weights", model.SerializeToString())


def _is_transposed(node: onnx.NodeProto) -> bool:
    return any(one.name == "transB" and one.i == 1 for one in node.attribute)


def _pack(
    graph: onnx.GraphProto, nodes: list[onnx.NodeProto], name: str, values: np.ndarray, axis: int
) -> str:
    """Adds the weight in 8 bits and the node that unpacks it; the name of that node's output."""
    largest = np.abs(values).max(axis=1 - axis, keepdims=True)
    scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    packed = np.rint(values / scale).astype(np.int8)
    base = f"{name}_int8_{axis}"
    for suffix, array in (
        ("", packed),
        ("_scale", scale.reshape(-1)),
        ("_zero", np.zeros(scale.size, np.int8)),
    ):
        graph.initializer.append(numpy_helper.from_array(array, base + suffix))
    nodes.append(
        helper.make_node(
            "DequantizeLinear",
            [base, f"{base}_scale", f"{base}_zero"],
            [f"{base}_unpacked"],
            name=f"{base}_unpack",
            axis=axis,
        )
    )
    return f"{base}_unpacked"
