"""Small random models with the answers of ONNX's own reference: the same for the same seed.

Operators are added one after the other, each with its value at hand, so that none is left in where
the right answer is not one: not finite, beyond the range of a cast's target, or a comparison of
numbers that two right implementations round differently.
Left out, since the reference is loose there or ONNX leaves it open: division of whole numbers, Mod
of negative ones, BitShift by the width or more, casts of fractions to whole numbers out of range,
TopK and ArgMax with ties, sums of whole numbers that leave their type, BF16, anything
after NaN.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Arrays = dict[str, NDArray[Any]]

OPSET, IR = 18, 9
FLOATS = {"FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE, "FP16": TensorProto.FLOAT16}
SIGNED = {
    "INT64": TensorProto.INT64,
    "INT32": TensorProto.INT32,
    "INT16": TensorProto.INT16,
    "INT8": TensorProto.INT8,
}
UNSIGNED = {
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
}
OTHERS = {"BOOL": TensorProto.BOOL, "BYTES": TensorProto.STRING}
TYPES = {**FLOATS, **SIGNED, **UNSIGNED, **OTHERS}
# Arithmetic is rare among the small types of the backends; all of them are passed on.
WEIGHTS = {"FP32": 8, "INT64": 6, "INT32": 3, "FP64": 3, "BOOL": 3, "FP16": 1, "BYTES": 1}
TOLERANCES = {"FP32": 1e-4, "FP64": 1e-4, "FP16": 1e-2}
# Values on this grid, and no larger than that, are exact in each step of the type.
GRID = {"FP32": 2.0**10, "FP64": 2.0**10, "FP16": 2.0**3}
LARGEST = {"FP32": 2.0**12, "FP64": 2.0**12, "FP16": 2.0**7}


@dataclass
class Value:
    name: str
    datatype: str
    rows: bool  # its first axis is that of the requests
    shape: tuple[int, ...]  # without that axis


@dataclass
class RandomModel:
    """The requests of judges.asking. `requests` and `answers`: the first is `inputs` and
    `outputs`."""

    name: str
    seed: int
    proto: onnx.ModelProto
    requests: list[Arrays]
    answers: list[Arrays]
    datatypes: dict[str, str]
    rtol: float = 1e-4
    atol: float = 1e-5
    config: dict[str, Any] = field(default_factory=dict)  # of the model

    @property
    def model(self) -> bytes:
        return self.proto.SerializeToString()

    @property
    def inputs(self) -> Arrays:
        return self.requests[0]

    @property
    def outputs(self) -> Arrays:
        return self.answers[0]

    @property
    def neighbours(self) -> list[Arrays]:
        return self.requests[1:]

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in self.proto.graph.node]


def numpy_type(datatype: str) -> Any:
    return helper.tensor_dtype_to_np_dtype(TYPES[datatype])


def draw(numbers: np.random.Generator, datatype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Fractions of a coarse grid; whole numbers of the whole range now and then."""
    if datatype == "BOOL":
        return numbers.integers(0, 2, shape).astype(np.bool_)
    if datatype == "BYTES":
        words = np.array([b"", b"a", b"Lumen", "größer".encode()], np.object_)
        return np.asarray(words[numbers.integers(0, len(words), shape)], np.object_).reshape(shape)
    dtype = numpy_type(datatype)
    if datatype in FLOATS:
        return (numbers.integers(-16, 17, shape) / 4).astype(dtype)
    limits = np.iinfo(dtype)
    if numbers.integers(0, 3) == 0:
        return numbers.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return numbers.integers(max(limits.min, -9), 10, shape).astype(dtype)


def is_good(array: NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.all(np.isfinite(array)))


def is_exact(array: NDArray[Any], datatype: str) -> bool:
    if datatype not in FLOATS:
        return True
    scaled = array.astype(np.float64) * GRID[datatype]
    small = np.all(np.abs(array) < LARGEST[datatype])
    return bool(small and np.all(scaled == np.round(scaled)))


@dataclass
class Maker:
    """One model in the making: each value is known for each of the requests."""

    seed: int
    rng: random.Random = field(init=False)
    numbers: np.random.Generator = field(init=False)
    values: list[Value] = field(default_factory=list)
    known: list[Arrays] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # rows of each request

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.numbers = np.random.default_rng(self.seed)

    def pick(self, test: Callable[[Value], bool] = lambda _: True) -> Value | None:
        fitting = [value for value in self.values if test(value)]
        # The newest are likelier, so that graphs are deep.
        return (
            self.rng.choice(fitting[-3:] if self.rng.random() < 0.6 else fitting)
            if fitting
            else None
        )

    def add_inputs(self) -> None:
        is_free = self.rng.random() < 0.6
        self.counts = [self.rng.randint(1, 4) if is_free else 0 for _ in range(4)]
        self.known = [{} for _ in self.counts]
        shape = tuple(
            self.rng.randint(1, 4) for _ in range(self.rng.randint(0 if is_free else 1, 2))
        )
        kinds = [*TYPES]
        for number in range(self.rng.randint(1, 3)):
            datatype = self.rng.choices(kinds, [WEIGHTS.get(kind, 0.5) for kind in kinds])[0]
            if number and self.rng.random() < 0.6:
                datatype = self.values[0].datatype
            value = Value(f"in{number}", datatype, is_free, shape)
            for known, rows in zip(self.known, self.counts):
                whole = (rows, *shape) if is_free else shape
                known[value.name] = draw(self.numbers, datatype, whole)
            self.inputs.append(value)
            self.values.append(value)

    def constant(self, array: NDArray[Any], datatype: str, is_value: bool = True) -> str:
        name = f"const{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(array, name))
        for known in self.known:
            known[name] = array
        if is_value:
            self.values.append(Value(name, datatype, False, array.shape))
        return name

    def small_constant(self, value: Value) -> str:
        return self.constant(draw(self.numbers, value.datatype, value.shape), value.datatype, False)

    def add(self, kind: str, inputs: list[str], result: Value, **attributes: Any) -> bool:
        """False where the right answer would be open, or the reference refuses."""
        node = helper.make_node(kind, inputs, [result.name], **attributes)
        outputs = []
        for known in self.known:
            try:
                with np.errstate(all="ignore"):
                    evaluator = ReferenceEvaluator(node, opsets={"": OPSET})
                    got = evaluator.run(None, {name: known[name] for name in inputs})[0]
            except Exception:  # the reference has no such kernel: any exception of its own
                return False
            got = np.asarray(got)
            if result.datatype != "BYTES" and got.dtype != numpy_type(result.datatype):
                return False
            if not is_good(got):
                return False
            outputs.append(got)
        for known, got in zip(self.known, outputs):
            known[result.name] = got
        first = outputs[0].shape
        result.shape = first[1:] if result.rows else first
        self.nodes.append(node)
        self.values.append(result)
        return True

    def are_exact(self, value: Value) -> bool:
        return all(is_exact(known[value.name], value.datatype) for known in self.known)

    def are_small(self, value: Value) -> bool:
        """So that no sum leaves the type: ONNX does not say which number that would be."""
        limit = np.iinfo(numpy_type(value.datatype)).max // 1024
        arrays = [known[value.name] for known in self.known]
        return all(np.all((array >= -limit) & (array <= limit)) for array in arrays)

    def step(self) -> bool:
        value = self.pick()
        if value is None:
            return False
        kinds = [self.passing, self.comparing, self.casting, self.moving, self.reducing]
        kinds += [self.arithmetic] * 3 + [self.smooth, self.logic, self.choosing]
        return self.rng.choice(kinds)(value)

    def result(self, like: Value, datatype: str = "", **changes: Any) -> Value:
        return Value(f"v{len(self.nodes)}", datatype or like.datatype, like.rows, like.shape)

    def partner(self, value: Value) -> str:
        """Of the same type and shape: another value, itself, or a constant."""
        other = self.pick(
            lambda v: (v.datatype, v.rows, v.shape) == (value.datatype, value.rows, value.shape)
        )
        if other is None or self.rng.random() < 0.3:
            return self.small_constant(value)
        return other.name

    def passing(self, value: Value) -> bool:
        kind = self.rng.choice(["Identity", "Identity", "Unsqueeze", "Concat"])
        if kind == "Unsqueeze" and len(value.shape) < 3:
            axis = self.constant(np.array([1], np.int64), "INT64", False)
            return value.rows and self.add(kind, [value.name, axis], self.result(value))
        if kind == "Concat" and value.shape:
            return self.add(kind, [value.name] * 2, self.result(value), axis=-1)
        return self.add("Identity", [value.name], self.result(value))

    def arithmetic(self, value: Value) -> bool:
        if value.datatype in OTHERS:
            return False
        kinds = ["Add", "Sub", "Mul", "Max", "Min", "Abs"]
        if value.datatype in FLOATS:
            kinds += ["Neg", "Relu", "Sum", "Mean"]
        elif value.datatype in SIGNED:
            kinds += ["Neg", "Sign"]
        else:
            kinds = ["Add", "Sub", "Mul", "Max", "Min", "BitwiseAnd", "BitwiseXor", "BitwiseNot"]
        kind = self.rng.choice(kinds)
        if kind in ("Abs", "Neg", "Relu", "Sign", "BitwiseNot"):
            return self.add(kind, [value.name], self.result(value))
        inputs = [value.name, self.partner(value)]
        if kind in ("Max", "Min", "Sum", "Mean"):
            inputs = inputs[: self.rng.randint(1, 2)]
        return self.add(kind, inputs, self.result(value))

    def smooth(self, value: Value) -> bool:
        kind = self.rng.choice(["Sigmoid", "Tanh", "Softplus", "Softmax", "Erf"])
        if value.datatype != "FP32" or (kind == "Softmax" and not value.shape):
            return False
        attributes = {"axis": -1} if kind == "Softmax" else {}
        return self.add(kind, [value.name], self.result(value), **attributes)

    def comparing(self, value: Value) -> bool:
        # Equal of texts is newer than the opset.
        if value.datatype in OTHERS or not self.are_exact(value):
            return False
        partner = self.partner(value)
        if not all(is_exact(known[partner], value.datatype) for known in self.known):
            return False
        kind = (
            "Equal" if value.datatype == "BYTES" else self.rng.choice(["Equal", "Less", "Greater"])
        )
        return self.add(kind, [value.name, partner], self.result(value, "BOOL"))

    def logic(self, value: Value) -> bool:
        if value.datatype != "BOOL":
            return False
        kind = self.rng.choice(["And", "Or", "Xor", "Not"])
        inputs = [value.name] if kind == "Not" else [value.name, self.partner(value)]
        return self.add(kind, inputs, self.result(value))

    def choosing(self, value: Value) -> bool:
        condition = self.pick(
            lambda v: v.datatype == "BOOL" and (v.rows, v.shape) == (value.rows, value.shape)
        )
        if condition is None:
            return False
        inputs = [condition.name, value.name, self.partner(value)]
        return self.add("Where", inputs, self.result(value))

    def casting(self, value: Value) -> bool:
        target = self.rng.choice([kind for kind in TYPES if kind != "BYTES"])
        if value.datatype == "BYTES" or not self.are_exact(value):
            return False
        if target not in ("BOOL", *FLOATS):
            limits = np.iinfo(numpy_type(target))
            for known in self.known:
                array = known[value.name]
                if value.datatype in FLOATS:
                    array = array.astype(np.float64)
                if value.datatype in FLOATS and array.size:
                    if array.min() < limits.min or array.max() > min(limits.max, 2**52):
                        return False
        return self.add("Cast", [value.name], self.result(value, target), to=TYPES[target])

    def moving(self, value: Value) -> bool:
        rank = len(value.shape) + value.rows
        if rank < 2:
            return False
        first = 1 if value.rows else 0
        if self.rng.random() < 0.4 and rank - first >= 2:
            order = list(range(first, rank))
            self.rng.shuffle(order)
            perm = [*range(first), *order]
            return self.add("Transpose", [value.name], self.result(value), perm=perm)
        size = value.shape[-1]
        if not size:
            return False
        if self.rng.random() < 0.5:
            chosen = self.numbers.integers(-size, size, self.rng.randint(1, 3))
            indices = self.constant(chosen.astype(np.int64), "INT64", False)
            return self.add("Gather", [value.name, indices], self.result(value), axis=-1)
        numbers = [[self.rng.randint(0, size - 1)], [2**62], [-1], [self.rng.randint(1, 2)]]
        names = [self.constant(np.array(one, np.int64), "INT64", False) for one in numbers]
        return self.add("Slice", [value.name, *names], self.result(value))

    def reducing(self, value: Value) -> bool:
        """Over the last axis; or over the rows, which makes them depend on each other."""
        if value.datatype not in ("FP32", "FP64", "INT32", "INT64"):
            return False
        axis = -1 if self.rng.random() < 0.7 else 0
        if axis == -1 and not value.shape:
            return False
        kind = self.rng.choice(["ReduceSum", "ReduceMax", "ReduceMin", "CumSum"])
        if "Sum" in kind and value.datatype in SIGNED and not self.are_small(value):
            return False
        if kind == "CumSum":
            axes = self.constant(np.array(axis, np.int64), "INT64", False)
            return self.add(kind, [value.name, axes], self.result(value))
        axes = self.constant(np.array([axis], np.int64), "INT64", False)
        result = self.result(value)
        result.rows = value.rows and axis == -1
        return self.add(kind, [value.name, axes], result, keepdims=1)

    def info(self, value: Value, is_input: bool) -> onnx.ValueInfoProto:
        axes: list[Any] = [*(["rows"] if value.rows else []), *value.shape]
        return helper.make_tensor_value_info(value.name, TYPES[value.datatype], axes)

    def finish(self) -> RandomModel:
        """Outputs: the last value, and now and then an input, an initializer or another value."""
        values = {value.name: value for value in self.values}
        chosen = [self.values[-1].name]
        if self.rng.random() < 0.5:
            chosen.append(self.rng.choice(self.values).name)
        if self.rng.random() < 0.15:
            chosen.append(self.rng.choice(self.inputs).name)
        if self.rng.random() < 0.15:
            chosen.append(self.constant(draw(self.numbers, "FP32", (3,)), "FP32"))
            values[chosen[-1]] = self.values[-1]
        outputs = [values[name] for name in dict.fromkeys(chosen)]
        return self.model_of(outputs)

    def model_of(self, outputs: list[Value]) -> RandomModel:
        graph = helper.make_graph(
            self.nodes,
            f"seed{self.seed}",
            [self.info(value, True) for value in self.inputs],
            [self.info(value, False) for value in outputs],
            self.initializers,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=IR)
        requests = [{v.name: known[v.name] for v in self.inputs} for known in self.known]
        answers = [{v.name: np.asarray(known[v.name]) for v in outputs} for known in self.known]
        rtol = max([TOLERANCES.get(value.datatype, 0) for value in self.values], default=0)
        datatypes = {value.name: value.datatype for value in [*self.inputs, *outputs]}
        name = f"random_{self.seed}"
        return RandomModel(name, self.seed, proto, requests, answers, datatypes, rtol, rtol / 10)


def grown(seed: int) -> Maker:
    maker = Maker(seed)
    maker.add_inputs()
    wanted = maker.rng.randint(3, 12)
    for _ in range(60 * wanted):
        if len(maker.nodes) == wanted:
            break
        maker.step()
    return maker


def make(seed: int) -> RandomModel:
    return grown(seed).finish()


def cut(whole: Maker, depth: int, value: Value, is_passing: bool) -> RandomModel | None:
    """`value` from nodes no more than `depth` before it, values before those being inputs; alone,
    or with an input and a constant as outputs beside it."""
    made = {node.output[0]: node for node in whole.nodes}
    nodes: list[onnx.NodeProto] = []
    names, level = {value.name}, {value.name}
    for _ in range(depth):
        found = [made[name] for name in level if name in made]
        nodes += [node for node in found if node not in nodes]
        level = {name for node in found for name in node.input}
        names |= level
    inside = {node.output[0] for node in nodes}
    part = Maker(whole.seed)
    part.known = whole.known
    part.nodes = [node for node in whole.nodes if node.output[0] in inside]
    part.initializers = [one for one in whole.initializers if one.name in names]
    constants = {one.name for one in part.initializers}
    by_name = {one.name: one for one in whole.values}
    given = [name for name in names if name not in inside | constants]
    part.inputs = [by_name[name] for name in sorted(given)]
    part.values = [*part.inputs, value]
    if not part.nodes or not part.inputs:
        return None
    outputs = [value]
    if is_passing:
        part.constant(np.array([1, 2, 3], np.float32), "FP32")
        outputs += [part.inputs[0], part.values[-1]]
    model = part.model_of(outputs)
    model.name = f"random_{whole.seed}_{value.name}_{depth}{'_passing' if is_passing else ''}"
    return model


def smaller(seed: int) -> list[RandomModel]:
    """Parts of the model of `seed`, the smallest first: each value alone, of one node or more."""
    whole = grown(seed)
    cuts = [
        cut(whole, depth, value, is_passing)
        for value in whole.values[len(whole.inputs) :]
        for depth in range(1, len(whole.nodes) + 1)
        for is_passing in (False, True)
    ]
    parts: dict[bytes, RandomModel] = {}
    for one in filter(None, cuts):
        key = b"".join(node.SerializeToString() for node in one.proto.graph.node)
        key += bytes([len(one.outputs)])
        parts.setdefault(key, one)
    return sorted(parts.values(), key=lambda one: (len(one.operators), len(one.outputs)))
