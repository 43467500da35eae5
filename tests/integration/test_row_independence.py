"""Requests share a call only where the graph proves that rows are independent of each other.

A trial with made-up rows said so of a model whose rows meet for larger numbers: 682 of 1,200
answers were computed from another client's picture. The oracle is ONNX's reference: of a model
whose rows are said to be independent, rows together give the same as alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, Server, lumen_binary
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(MODELS))
import onnx_tools

pytestmark = pytest.mark.timing
node, value = helper.make_node, onnx_tools.value
ROWS, COLUMNS = 3, 4
RANDOM_MODELS = 400 * int(os.environ.get("LUMEN_STRESS_SCALE", "1"))
MODELS_AT_ONCE = 100


def constant(name: str, numbers: Any, kind: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(numbers, kind), name)


def graph(nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes, "rows", [value("x", ["n", COLUMNS])], [value("y", ["n", COLUMNS])], constants
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save(model: onnx.ModelProto, repository: Path, name: str, **config: Any) -> None:
    path = repository / name / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(model, path)
    (repository / name / "config.json").write_text(json.dumps(config))


def autoscale() -> onnx.ModelProto:
    """Divides by 255 where the largest number of all rows is above 1.5."""
    scaled = helper.make_graph([node("Div", ["x", "c255"], ["a"])], "t", [], [value("a", None)])
    plain = helper.make_graph([node("Identity", ["x"], ["b"])], "e", [], [value("b", None)])
    return graph(
        [
            node("ReduceMax", ["x"], ["m"], keepdims=0),
            node("Greater", ["m", "limit"], ["c"]),
            node("If", ["c"], ["y"], then_branch=scaled, else_branch=plain),
        ],
        [constant("limit", 1.5), constant("c255", 255)],
    )


def sums_over_rows() -> onnx.ModelProto:
    return graph([node("CumSum", ["x", "axis"], ["y"])], [constant("axis", 0, np.int64)])


def perceptron() -> onnx.ModelProto:
    weights = np.random.default_rng(0).normal(size=(COLUMNS, COLUMNS))
    return graph(
        [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])], [constant("w", weights)]
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("rows")
    save(autoscale(), repository, "autoscale")
    save(sums_over_rows(), repository, "sums_over_rows")
    save(sums_over_rows(), repository, "trusted", rows_are_independent=True)
    save(perceptron(), repository, "perceptron")
    with Server(repository, "--backend", "auto") as one:
        yield one


def not_packed(served: Server, model: str) -> str | None:
    with urllib.request.urlopen(f"http://{served.url}/v2/models/{model}") as reply:
        return json.load(reply)["parameters"].get("not_packed")


def test_the_document_names_the_node_that_stands_in_the_way_and_the_key(served: Server) -> None:
    assert not_packed(served, "perceptron") is None
    assert not_packed(served, "trusted") is None
    for model, word in (("autoscale", "ReduceMax 'm'"), ("sums_over_rows", "CumSum 'y'")):
        why = not_packed(served, model)
        assert why is not None
        assert word in why
        assert '"rows_are_independent": true in config.json' in why


def test_a_client_of_small_numbers_never_gets_another_clients_scale(served: Server) -> None:
    def ask(number: float) -> set[float]:
        client = triton.InferenceServerClient(served.url)
        x = triton.InferInput("x", [1, COLUMNS], "FP32")
        x.set_data_from_numpy(np.full((1, COLUMNS), number, np.float32))
        answers = [client.infer("autoscale", [x]).as_numpy("y")[0, 0] for _ in range(200)]
        client.close()
        return {round(float(answer), 3) for answer in answers}

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, [0.8, 255.0] * 4))
    assert answers == [{0.8}, {1.0}] * 4


# --- random graphs


class Generator:
    """Operators over x of [n, 2, 2, 4], of which many keep rows apart and some do not."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {"x": (ROWS, 2, 2, 4)}

    def pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def constant(self, numbers: Any, kind: type = np.float32) -> str:
        self.constants.append(constant(f"c{len(self.constants)}", numbers, kind))
        return self.constants[-1].name

    def add(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        output = f"t{len(self.nodes)}"
        self.nodes.append(node(operator, inputs, [output], **attributes))
        return output

    def axis(self, name: str) -> int:
        return int(self.rng.integers(len(self.shapes[name])))

    def grow(self) -> None:
        name = self.pick(list(self.shapes)[-3:])
        shape = self.shapes[name]
        rank = len(shape)
        other = self.pick(list(self.shapes))
        kind = int(self.rng.integers(19))
        if kind == 0:
            self.add(self.pick(["Relu", "Neg", "Sigmoid", "Identity"]), [name])
        elif kind == 1:
            self.add(self.pick(["Add", "Mul", "Max"]), [name, other])
        elif kind == 2:
            sizes = [self.pick([1, size]) for size in shape][int(self.rng.integers(rank + 1)) :]
            self.add("Add", [name, self.constant(self.rng.normal(size=sizes))])
        elif kind == 3:
            self.add("Softmax", [name], axis=self.axis(name) - self.pick([0, rank]))
        elif kind == 4:
            axes = self.constant([self.axis(name)], np.int64)
            self.add("ReduceSum", [name, axes], keepdims=self.pick([0, 1]))
        elif kind == 5:
            self.add("ReduceMax", [name], axes=[self.axis(name)], keepdims=self.pick([0, 1]))
        elif kind == 6:
            self.add("Transpose", [name], perm=[int(i) for i in self.rng.permutation(rank)])
        elif kind == 7:
            self.add("Unsqueeze", [name, self.constant([self.axis(name)], np.int64)])
        elif kind == 8:
            ones = [i for i, size in enumerate(shape) if size == 1]
            if ones:
                self.add("Squeeze", [name, self.constant([self.pick(ones)], np.int64)])
        elif kind == 9:
            self.add("Concat", [name, other], axis=self.axis(name))
        elif kind == 10:
            indices = self.constant(self.rng.integers(0, 1, size=self.pick([(), (2,)])), np.int64)
            self.add("Gather", [name, indices], axis=self.axis(name))
        elif kind == 11:
            size = int(np.prod(shape))
            fronts = [one for one in (1, 2, 3, 4, 6, 8, 12) if size % one == 0]
            target = [self.pick([-1, 0]), self.pick(fronts), self.pick([1, 2, 4])]
            if target[0] == 0:
                target[2] = -1
            self.add("Reshape", [name, self.constant(target, np.int64)])
        elif kind == 12:
            self.add("Flatten", [name], axis=int(self.rng.integers(rank + 1)))
        elif kind == 13:
            shape_of = self.add("Shape", [name])
            rows = self.add("Gather", [shape_of, self.constant([self.axis(name)], np.int64)])
            parts = [rows, self.constant([-1], np.int64)]
            target = self.add("Concat", parts[:: self.pick([1, -1])], axis=0)
            self.add("Reshape", [name, target])
        elif kind == 14:
            weights = self.constant(self.rng.normal(size=(shape[-1], 2)) if rank else 1.0)
            self.add("MatMul", [name, weights])
        elif kind == 15:
            self.add("MatMul", [name, other])
        elif kind == 16:
            axis = self.constant(self.axis(name), np.int64)
            self.add("CumSum", [name, axis])
        elif kind == 17:
            cut = [self.constant([one], np.int64) for one in (0, 1, self.axis(name))]
            self.add("Slice", [name, *cut])
        elif kind == 18:
            shape_of = self.add("Shape", [name])
            some = self.constant(self.rng.normal(size=(1,) * rank))
            self.add("Expand", [some, shape_of])

    def model(self) -> onnx.ModelProto | None:
        """None: no node was a valid one."""
        for _ in range(int(self.rng.integers(2, 9))):
            before = len(self.nodes), len(self.constants)
            try:
                self.grow()
                self.learn(before[0])
            except Exception:
                del self.nodes[before[0] :]
                del self.constants[before[1] :]
                kept = {"x", *(one.output[0] for one in self.nodes)}
                self.shapes = {k: v for k, v in self.shapes.items() if k in kept}
        last = list(self.shapes)[-1]
        if last == "x" or not self.shapes[last]:
            return None
        return self.made(last)

    def made(self, output: str) -> onnx.ModelProto:
        made = helper.make_graph(
            self.nodes,
            "random",
            [value("x", ["n", 2, 2, 4])],
            [value(output, ["m", *[f"d{i}" for i in range(1, len(self.shapes[output]))]])],
            self.constants,
        )
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    def learn(self, first: int) -> None:
        x = np.random.default_rng(0).normal(size=self.shapes["x"]).astype(np.float32)
        for one in self.nodes[first:]:
            name = one.output[0]
            if one.op_type in ("Shape",) or name in self.shapes:
                continue
            self.shapes[name] = (1,)
            answer = ReferenceEvaluator(self.made(name)).run(None, {"x": x})[0]
            if answer.dtype != np.float32:
                del self.shapes[name]
            else:
                self.shapes[name] = answer.shape


def proved(repository: Path) -> list[str]:
    """Models of one input `x` whose rows are said to be independent."""
    command = [lumen_binary(), "models", "--model-repository", repository, "--explain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    names: list[str] = []
    last = ""
    for line in done.stdout.splitlines():
        # Others are never packed, since the rows are not in the first axis of each tensor.
        if line.startswith("m"):
            last = line.split("/")[0] if "[-1" in line.partition("-> ")[2] else ""
            names += [last] if last else []
        elif line.startswith("    not packed:") and last:
            names.remove(last)
    return names


def test_rows_that_are_said_to_be_independent_give_the_same_alone_and_together(
    tmp_path: Path,
) -> None:
    count = 0
    for first in range(0, RANDOM_MODELS, MODELS_AT_ONCE):
        models = {}
        for seed in range(first, first + MODELS_AT_ONCE):
            found = Generator(seed).model()
            if found is not None:
                models[f"m{seed}"] = found
                save(found, tmp_path / str(first), f"m{seed}", backend="onnxruntime")
        names = proved(tmp_path / str(first))
        count += len(names)
        for name in names:
            compare(name, models[name])
    # Neither all nor none: the test would say nothing.
    assert RANDOM_MODELS // 20 < count < RANDOM_MODELS - RANDOM_MODELS // 20


def compare(name: str, model: onnx.ModelProto) -> None:
    rng = np.random.default_rng(1)
    evaluator = ReferenceEvaluator(model)
    x = (rng.normal(size=(ROWS, 2, 2, 4)) * 10 ** rng.integers(-2, 3)).astype(np.float32)
    together = evaluator.run(None, {"x": x})[0]
    assert together.shape[0] == ROWS, name
    for row in range(ROWS):
        alone = evaluator.run(None, {"x": x[row : row + 1]})[0]
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-4, atol=1e-4, err_msg=name)
