"""Cases of one operator, with the right answer, which tools/operator_table.py tries on OpenVINO.

Three sources: the cases of one node in ONNX's own backend suite; these again in each older version
of the operator that can say the same, with ONNX Runtime's answer; and forms that models have and
the suite does not (VARIANTS), with ONNX Runtime's answer. Parameters (axes, shapes, limits) are
constants, as the table wants them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

# Exporters of the last years write from here on.
OLDEST_OPSET = 7
IR_VERSION = 8
NEWEST_OPSET = onnx.defs.onnx_opset_version()
# The name of an attribute in an older version of an operator, by the input that replaced it.
OLDER_NAMES = {"constant_value": "value"}

FLOAT, INT32, INT64, BOOL = (
    TensorProto.FLOAT,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
)


@dataclass
class Case:
    name: str
    model: onnx.ModelProto
    sets: list[tuple[list[Any], list[Any] | None]]  # inputs, outputs; None: as ONNX Runtime
    rtol: float = 1e-3
    atol: float = 1e-6

    @property
    def node(self) -> onnx.NodeProto:
        return self.model.graph.node[-1]

    @property
    def opset(self) -> int:
        wanted = self.node.domain
        return int(next(o.version for o in self.model.opset_import if o.domain == wanted))


def schema_of(case: Case, version: int | None = None) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(case.node.op_type, version or case.opset, case.node.domain)


def suite() -> Iterator[Case]:
    for case in collect_testcases(None):
        if case.model is None:
            continue
        graph = case.model.graph
        values = [*graph.input, *graph.output]
        is_plain = all(value.type.HasField("tensor_type") for value in values)
        arrays = [one for inputs, _ in case.data_sets or [] for one in inputs]
        # Empty tensors are never given to OpenVINO.
        is_plain = is_plain and all(isinstance(one, np.ndarray | np.generic) for one in arrays)
        is_empty = any(np.size(one) == 0 and np.ndim(one) != 1 for one in arrays if is_plain)
        if len(graph.node) == 1 and is_plain and case.data_sets and not is_empty:
            sets: list[Any] = list(case.data_sets)
            yield Case(case.name, case.model, sets, case.rtol, case.atol)


def with_constants(case: Case, parameters: Iterable[int]) -> Case:
    if len(case.sets) != 1:
        return case
    node = case.node
    names = {node.input[i] for i in parameters if i < len(node.input)}
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    inputs, wanted = case.sets[0]
    kept, left = [], []
    for value, array in zip(case.model.graph.input, inputs, strict=True):
        if value.name in names:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
        else:
            kept.append(array)
            left.append(value)
    del model.graph.input[:]
    model.graph.input.extend(left)
    return Case(case.name, model, [(kept, wanted)], case.rtol, case.atol)


def in_version(case: Case, version: int) -> Case | None:
    """The case as an older version of its operator says it; None: it can't."""
    new, old = schema_of(case), schema_of(case, version)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    node = model.graph.node[-1]
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    old_inputs = [one.name for one in old.inputs]
    kept = []
    for i, name in enumerate(node.input):
        declared = new.inputs[min(i, len(new.inputs) - 1)].name
        if i < len(old_inputs) or declared in old_inputs:
            kept.append(name)
            continue
        attribute = OLDER_NAMES.get(declared, declared)
        if not name:
            continue
        if attribute not in old.attributes or name not in constants or not constants[name].size:
            return None
        value = constants[name]
        kind = old.attributes[attribute].type
        plain: Any = value.tolist()
        if kind in (onnx.defs.OpSchema.AttrType.INT, onnx.defs.OpSchema.AttrType.FLOAT):
            plain = value.ravel()[0].item()
        elif not isinstance(plain, list):
            plain = [plain]
        node.attribute.append(helper.make_attribute(attribute, plain))
    del node.input[:]
    node.input.extend(kept)
    for one in [t for t in model.graph.initializer if t.name not in kept]:
        model.graph.initializer.remove(one)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid(node.domain, version))
    model.ir_version = IR_VERSION
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:
        return None
    return Case(f"{case.name} @{version}", model, [(case.sets[0][0], None)])


def older(case: Case) -> Iterator[Case]:
    """The case in each earlier version of its operator, from OLDEST_OPSET on."""
    if case.node.domain or len(case.sets) != 1:
        return
    first = schema_of(case).since_version
    versions = {
        max(schema.since_version, OLDEST_OPSET)
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == case.node.op_type and schema.domain == "" and schema.since_version < first
    }
    for version in sorted(versions):
        made = in_version(case, version) if version < first else None
        if made is not None:
            yield made


def _numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def variant(
    operator: str, inputs: list[Any], opset: int, outputs: int = 1, **attributes: Any
) -> Case:
    """Of numbers in; a tuple is a constant of these numbers."""
    names = [f"x{i}" for i in range(len(inputs))]
    constants = [
        numpy_helper.from_array(np.asarray(one[0]), name)
        for name, one in zip(names, inputs, strict=True)
        if isinstance(one, tuple)
    ]
    given = [(n, o) for n, o in zip(names, inputs, strict=True) if not isinstance(o, tuple)]
    node = helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION
    )
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    shown = " ".join(f"{name}={value}" for name, value in attributes.items())
    return Case(f"{operator} {shown} @{opset}", inferred, [([a for _, a in given], None)])


def _convolutions() -> Iterator[Case]:
    x, weights, bias = _numbers(1, 4, 9, 9), _numbers(4, 4, 3, 3, seed=1), _numbers(4, seed=2)
    of_groups = _numbers(4, 2, 3, 3, seed=3)
    for opset in (7, 11, 22):
        for auto_pad in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            yield variant(
                "Conv", [x, (weights,), (bias,)], opset, auto_pad=auto_pad, strides=[2, 2]
            )
        yield variant("Conv", [x, (of_groups,), (bias,)], opset, group=2, dilations=[2, 2])
        yield variant(
            "Conv", [x, (weights,), (bias,)], opset, pads=[1, 0, 2, 1], kernel_shape=[3, 3]
        )
        yield variant("Conv", [x[:, :, 0], (_numbers(2, 4, 3),)], opset, pads=[1, 1])
        for auto_pad in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            yield variant(
                "ConvTranspose", [x, (weights,), (bias,)], opset, auto_pad=auto_pad, strides=[2, 2]
            )
        yield variant(
            "ConvTranspose",
            [x, (of_groups,)],
            opset,
            group=2,
            output_padding=[1, 1],
            strides=[2, 2],
        )


def _pools() -> Iterator[Case]:
    x = _numbers(1, 4, 9, 9)
    forms = itertools.product((0, 1), ([0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]), (1, 2, 3))
    for ceil, pads, stride in forms:
        some: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": pads}
        for opset in (7, 10, 11, 12, 19, 22):
            if ceil and opset < 10:
                continue
            if opset >= 10:
                some["ceil_mode"] = ceil
            yield variant("MaxPool", [x], opset, **some)
            for counted in (0, 1):
                yield variant("AveragePool", [x], opset, count_include_pad=counted, **some)
    for auto_pad, size in itertools.product(("VALID", "SAME_UPPER", "SAME_LOWER"), (2, 3)):
        for opset in (7, 10, 11, 12, 19, 22):
            some = {"kernel_shape": [size, size], "strides": [2, 2], "auto_pad": auto_pad}
            yield variant("MaxPool", [x], opset, **some)
            for counted in (0, 1):
                yield variant("AveragePool", [x], opset, count_include_pad=counted, **some)


def _reductions() -> Iterator[Case]:
    x = np.arange(1, 121, dtype=np.float32).reshape(2, 3, 4, 5) / 50
    names = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
    for name in [f"Reduce{one}" for one in names.split()]:
        for keepdims in (0, 1):
            for opset in (7, 11, 12, 13):
                if opset == 13 and name == "ReduceSum":
                    continue
                yield variant(name, [x], opset, axes=[1, 2], keepdims=keepdims)
                yield variant(name, [x], opset, keepdims=keepdims)
                if opset > 7:
                    yield variant(name, [x], opset, axes=[-1], keepdims=keepdims)
            for opset in (18, 20):
                yield variant(name, [x, (np.array([1, 2]),)], opset, keepdims=keepdims)
                yield variant(name, [x, (np.array([-1]),)], opset, keepdims=keepdims)
        yield variant(name, [x], 18)
        yield variant(name, [x], 18, noop_with_empty_axes=1)
    for axes in ([1, 2], [-1], [0]):
        yield variant("ReduceSum", [x, (np.array(axes),)], 13)


def _numbers_of_axes() -> Iterator[Case]:
    x = _numbers(2, 3, 4, 5)
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        for opset in (7, 11, 13):
            for axis in (0, 1, 2, 3, *((-1, -2) if opset > 7 else ())):
                yield variant(name, [x], opset, axis=axis)
            yield variant(name, [x], opset)
            yield variant(name, [x.reshape(24, 5)], opset, axis=1)
    for opset, axis in itertools.product((7, 9, 11, 13, 21), (0, 1, 2, 4)):
        yield variant("Flatten", [x], opset, axis=axis)
    for opset in (7, 11, 13):
        yield variant("Concat", [x, x, x[:, :1]], opset, axis=1)
        yield variant("Concat", [x, (x,), x[:1], x], opset, axis=0)
        yield variant("Gather", [x, (np.array([2, 0]),)], opset, axis=1)
        yield variant("Gather", [x, (np.array(1),)], opset, axis=2)
        yield variant("Transpose", [x], opset if opset < 13 else 13, perm=[0, 2, 3, 1])
    for kind in (np.float32, np.int32, bool):
        a = (np.arange(24).reshape(4, 6) % 7).astype(kind)
        yield variant("Concat", [a, a, a], NEWEST_OPSET, axis=-1)
        yield variant("Gather", [a, (np.array([2, 0]),)], NEWEST_OPSET, axis=1)
        yield variant("Transpose", [a], NEWEST_OPSET)
        yield variant("Reshape", [a, (np.array([0, 2, -1]),)], NEWEST_OPSET)
        yield variant("Flatten", [a], NEWEST_OPSET)
        yield variant("Identity", [a], NEWEST_OPSET)
        yield variant("Squeeze", [a[:1], (np.array([0]),)], NEWEST_OPSET)
        yield variant("Unsqueeze", [a, (np.array([1, -1]),)], NEWEST_OPSET)
        yield variant("Expand", [a[:1], (np.array([4, 6]),)], NEWEST_OPSET)
        yield variant("Tile", [a, (np.array([2, 1]),)], NEWEST_OPSET)
        yield variant("Where", [a > 2, a, a], NEWEST_OPSET)


def _slices() -> Iterator[Case]:
    x = _numbers(6, 8)
    most, least = 2**63 - 1, -(2**63)
    for kind in (np.float32, np.int32, bool):
        a = (x * 3).astype(kind)
        for start, end, step in (
            (0, most, 1),
            (-3, most, 1),
            (7, least, -1),
            (1, -1, 2),
            (2, 2**31, 1),
        ):
            parts = [(np.array([one]),) for one in (start, end, 1, step)]
            for opset in (10, 11, 13):
                yield variant("Slice", [a, *parts], opset)
    for opset in (7, 9):
        yield variant("Slice", [x], opset, starts=[1, 0], ends=[most, 3], axes=[0, 1])
        yield variant("Slice", [x], opset, starts=[1], ends=[-1])
    for opset in (11, 13, 18):
        parts = [(np.array([2, 6]),)] if opset > 11 else []
        given: dict[str, Any] = {} if opset > 11 else {"split": [2, 6]}
        yield variant("Split", [x, *parts], opset, outputs=2, axis=1, **given)
    yield variant("Pad", [x], 7, pads=[1, 0, 0, 2], value=3.0)
    yield variant("Pad", [x, (np.array([1, 0, 0, 2]),), (np.float32(3),)], 13, mode="constant")
    numbers = (x * 3, (x * 3).astype(np.int32))
    for mode, a in itertools.product(("reflect", "edge", "constant"), numbers):
        three: Any = (np.asarray(3, a.dtype),)
        forms: list[list[Any]] = [[three], [three, (np.array([1]),)], []]
        for form in forms:
            pads = np.array([1, 2] if len(form) == 2 else [1, 0, 0, 2])
            for opset in (11, 13, 18, 19, 21, NEWEST_OPSET):
                if len(form) < 2 or opset >= 18:
                    yield variant("Pad", [a, (pads,), *form], opset, mode=mode)


def _others() -> Iterator[Case]:
    a, b, c = _numbers(5, 4), _numbers(4, 3, seed=1), _numbers(3, seed=2)
    for opset in (7, 9, 11, 13):
        for trans_a, trans_b in itertools.product((0, 1), (0, 1)):
            x, y = (a.T.copy() if trans_a else a), (b.T.copy() if trans_b else b)
            yield variant("Gemm", [x, (y,), (c,)], opset, transA=trans_a, transB=trans_b)
            if opset >= 11:
                yield variant("Gemm", [x, (y,)], opset, transA=trans_a, transB=trans_b, alpha=0.5)
    for opset, name in itertools.product((8, 13), ("Max", "Min", "Mean", "Sum")):
        yield variant(name, [a, a * 2, a[:1], a - 1], opset)
    for opset in (7, 9, 14, 15):
        parts = [(abs(_numbers(4, seed=seed)) + 1,) for seed in range(4)]
        yield variant("BatchNormalization", [_numbers(2, 4, 3, 3), *parts], opset, epsilon=0.1)
        yield variant("BatchNormalization", [a, *parts], opset)
    yield variant("Dropout", [a], 7, ratio=0.5)
    yield variant("Dropout", [a, (np.float32(0.5),)], 12)
    yield variant("Dropout", [a, (np.float32(0.5),)], NEWEST_OPSET)
    rounded = np.round(_numbers(3, 4, 5))
    for name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"):
        yield variant(name, [rounded, rounded[::-1].copy()], NEWEST_OPSET)
    for name in ("ArgMax", "ArgMin"):
        for axis, keepdims in itertools.product((0, 1, -1), (0, 1)):
            yield variant(name, [rounded], NEWEST_OPSET, axis=axis, keepdims=keepdims)
    for opset in (7, 9, 13, 19, 21, NEWEST_OPSET):
        for kind in (np.int32, bool, np.float32, np.uint8, np.int8):
            # INT32 to FP32 rounds; the numbers are around the limit of 24 bits.
            numbers = np.array([0, 1, 7, 16777217, -16777219, 2**31 - 1], np.int64)
            yield variant("Cast", [numbers.astype(kind)], opset, to=1)
    for opset in (7, 9, 13):
        yield variant("PRelu", [-_numbers(2, 3, 4), (_numbers(3, 1),)], opset)
        yield variant("Clip", [a], 7, min=-0.5, max=0.5)
        yield variant("LeakyRelu", [a], opset if opset != 13 else 16, alpha=0.2)
    for opset, low in ((11, -1.0), (12, 0.0), (13, 0.0)):
        yield variant("Clip", [a, (np.float32(low),), (np.float32(1),)], opset)
    for opset in (9, 13):
        yield variant("MatMul", [_numbers(2, 3, 4), (_numbers(2, 4, 5),)], opset)
        yield variant("MatMul", [_numbers(2, 3, 4), _numbers(4, 5)], opset)
        yield variant("MatMul", [_numbers(4), _numbers(4, 5)], opset)
        yield variant("LRN", [_numbers(1, 4, 9, 9)], opset, size=3)
    for opset in (7, 22):
        yield variant("InstanceNormalization", [_numbers(2, 3, 4), (c,), (c,)], opset)
    for opset, count in ((18, 2), (21, 4)):
        parts = [(_numbers(count, seed=seed),) for seed in (1, 2)]
        yield variant("GroupNormalization", [_numbers(2, 4, 3, 3), *parts], opset, num_groups=2)
    for axis in (-1, 1):
        scale = _numbers(12 if axis == 1 else 4, seed=3).reshape((3, 4) if axis == 1 else (4,))
        yield variant("LayerNormalization", [_numbers(2, 3, 4), (scale,), (scale,)], 17, axis=axis)


def variants() -> Iterator[Case]:
    for source in (_convolutions, _pools, _reductions, _numbers_of_axes, _slices, _others):
        yield from source()


def dangerous() -> Iterator[Case]:
    """Requests that show why OpenVINO is not given an operator: see DANGERS."""
    whole, x = np.array, np.ones((4, 3), np.float32)
    yield variant("Col2Im", [np.ones((1, 5, 5), np.float32), whole([5, 5]), whole([0, 0])], 18)
    yield variant("DFT", [np.ones((1, 4, 1), np.float32), whole(0)], 20)
    yield variant("GatherND", [x, whole([[10**6]])], 13)
    yield variant("Mod", [np.full(9, 2**40), np.zeros(9, np.int64)], 13)
    yield variant("Range", [whole(0), whole(5), whole(0)], 11)
    updates = np.full((1, 3), 7, np.float32)
    yield variant("Scatter", [x, np.full((1, 3), -9), updates], 9)
    yield variant("ScatterElements", [x, np.full((1, 3), -9), updates], 18)
    sequence, length = np.ones((3, 1, 2), np.float32), np.array([9], np.int32)
    for operator, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        weights = np.ones((1, 2 * gates, 2), np.float32)
        inputs = [sequence, weights, weights, np.zeros((1, 4 * gates), np.float32), length]
        yield variant(operator, inputs, 14, hidden_size=2)
