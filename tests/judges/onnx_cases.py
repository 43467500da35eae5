"""The cases of ONNX's own backend test suite, out of the wheel `onnx`: models, inputs, answers.

Collecting them runs the suite's own reference, 20 s; the collected cases are kept in .build/judges,
for each version of the wheel. Errors: as the wheel raises them.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

Arrays = dict[str, NDArray[Any]]

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".build" / "judges"
FORMAT = 2  # of the kept file

DATATYPES = {
    TensorProto.BOOL: "BOOL",
    TensorProto.UINT8: "UINT8",
    TensorProto.UINT16: "UINT16",
    TensorProto.UINT32: "UINT32",
    TensorProto.UINT64: "UINT64",
    TensorProto.INT8: "INT8",
    TensorProto.INT16: "INT16",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.FLOAT16: "FP16",
    TensorProto.BFLOAT16: "BF16",
    TensorProto.FLOAT: "FP32",
    TensorProto.DOUBLE: "FP64",
    TensorProto.STRING: "BYTES",
}

# The error of a transform is relative to the largest of its sums: where the right answer is 0, the
# suite's 1e-7 asks for more than FP32 has.
TRANSFORMS = ("DFT", "STFT")
TRANSFORM_ERROR = 1e-6

# Their answers are drawn anew by each run, so that no fixed answer is the right one.
RANDOM = ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
RANDOM_CASES = ("test_training_dropout", "test_bernoulli")


# Nets of which one row takes up to a second.
LARGE = "light_"


@dataclass
class Case:
    """`unspoken`: why the protocol can't carry it; empty where it can."""

    name: str
    model: bytes
    inputs: Arrays
    outputs: Arrays
    datatypes: dict[str, str]  # of inputs and outputs
    rtol: float
    atol: float
    unspoken: str = ""
    neighbours: list[Arrays] = field(default_factory=list)  # requests of other values

    @property
    def is_of_the_tenth(self) -> bool:
        return hashlib.sha256(self.name.encode()).digest()[0] * 10 < 256


def why_unspoken(model: onnx.ModelProto) -> str:
    for value in [*model.graph.input, *model.graph.output]:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"'{value.name}' is a {kind.removesuffix('_type')}"
        number = value.type.tensor_type.elem_type
        if number not in DATATYPES:
            return f"the protocol has no {TensorProto.DataType.Name(number)}"
    return ""


def why_random(name: str, model: onnx.ModelProto) -> str:
    drawn = next((node.op_type for node in model.graph.node if node.op_type in RANDOM), "")
    is_dropout = name.startswith(RANDOM_CASES) and "zero_ratio" not in name
    if drawn or is_dropout:
        return "its answer is random"
    return ""


def array_of(value: Any) -> NDArray[Any]:
    """BF16 as uint16 and texts as bytes, as lumen_engine.Client has them."""
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    if array.dtype.kind in "OSU":
        items = [item.encode() if isinstance(item, str) else bytes(item) for item in array.flat]
        texts = np.empty(len(items), np.object_)
        texts[:] = items
        return texts.reshape(array.shape)
    return array


def make_case(
    name: str, model: onnx.ModelProto, inputs: list[Any], outputs: list[Any], tolerances: Any
) -> Case:
    rtol, atol = tolerances
    unspoken = why_unspoken(model) or why_random(name, model)
    case = Case(name, model.SerializeToString(), {}, {}, {}, rtol, atol, unspoken)
    if case.unspoken:
        return case
    graph = model.graph
    for values, given, arrays in (
        (graph.input, inputs, case.inputs),
        (graph.output, outputs, case.outputs),
    ):
        assert len(values) == len(given), name
        for value, one in zip(values, given):
            case.datatypes[value.name] = DATATYPES[value.type.tensor_type.elem_type]
            arrays[value.name] = array_of(one)
    if any(node.op_type in TRANSFORMS for node in graph.node):
        largest = max(float(np.max(np.abs(array))) for array in case.outputs.values())
        case.atol = max(atol, TRANSFORM_ERROR * largest)
    return case


def node_cases() -> Iterator[Case]:
    from onnx.backend.test.case.node import collect_testcases  # noqa: PLC0415

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for one in collected:
        ((inputs, outputs),) = one.data_sets
        yield make_case(one.name, one.model, inputs, outputs, (one.rtol, one.atol))


def light_cases() -> Iterator[Case]:
    """Known nets whose weights are ConstantOfShape: with the runner's own input and answer."""
    from onnx.backend.test.runner import Runner  # noqa: PLC0415

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for file in sorted(folder.glob("*.onnx")):
        model = onnx.load(file)
        weights = {one.name for one in model.graph.initializer}
        inputs = [one for one in model.graph.input if one.name not in weights]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        expected = TensorProto.FromString((folder / f"{file.stem}_output_0.pb").read_bytes())
        given = [Runner.generate_dummy_data(one) for one in inputs]
        yield make_case(file.stem, model, given, [expected], (1e-3, 1e-7))


def with_free_rows(case: Case) -> Case | None:
    """The same with a first axis of any size, where all inputs and outputs have as many rows, so
    that a server may pack it. Its neighbours have the case's values in another order."""
    rows = {array.shape[:1] for array in [*case.inputs.values(), *case.outputs.values()]}
    if case.unspoken or not case.inputs or len(rows) != 1 or rows & {(), (0,)}:
        return None
    model = onnx.ModelProto.FromString(case.model)
    for value in [*model.graph.input, *model.graph.output]:
        if not value.type.tensor_type.shape.dim:
            return None
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    # Attributes of the fixed size are of no use any more.
    del model.graph.value_info[:]
    free = Case(
        case.name + "__rows",
        model.SerializeToString(),
        case.inputs,
        case.outputs,
        case.datatypes,
        case.rtol,
        case.atol,
    )
    for seed in range(3):
        generator = np.random.default_rng(seed)
        free.neighbours.append(
            {
                name: generator.permutation(array.reshape(-1)).reshape(array.shape)
                for name, array in case.inputs.items()
            }
        )
    return free


def collect() -> list[Case]:
    cases = [*node_cases(), *light_cases()]
    # A large net with several rows takes seconds a request.
    small = [case for case in cases if not case.name.startswith(LARGE)]
    return [*cases, *filter(None, map(with_free_rows, small))]


def all_cases() -> list[Case]:
    """Kept from an earlier run where the wheel is the same."""
    kept = KEPT / f"onnx-{onnx.__version__}-{FORMAT}.pickle"
    if kept.is_file():
        return pickle.loads(kept.read_bytes())
    cases = collect()
    KEPT.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(cases))
    part.rename(kept)
    return cases
