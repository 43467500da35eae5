"""Outputs that no operator writes: an input, a constant or another output under a second name.

Such an output was answered with zeros or with bytes of another client's request. The oracle is
ONNX's reference implementation. Before each request another model's answer lies in the server's
memory, with a number that no model here computes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, Server
from onnx import helper
from onnx.reference import ReferenceEvaluator

sys.path.insert(0, str(MODELS))
import onnx_tools

node, value = helper.make_node, onnx_tools.value
SECRET = 4242.25
# Small tensors are copied by the backends and large ones bound where they lie; the limit is 16 KiB.
SMALL, LARGE = 4, 8192


def graphs(columns: int) -> dict[str, tuple[list[onnx.NodeProto], list[str]]]:
    """Nodes over `x` and the constant `c`, and the names of the outputs."""
    return {
        "keyed": ([node("Relu", ["x"], ["y"])], ["y", "x"]),
        "only_input": ([], ["x"]),
        "constant": ([node("Add", ["x", "c"], ["y"])], ["c", "y"]),
        "two_names": (
            [
                node("Relu", ["x"], ["r"]),
                node("Identity", ["r"], ["y"]),
                node("Identity", ["r"], ["z"]),
            ],
            ["y", "z", "r"],
        ),
        "dropout": ([node("Dropout", ["x"], ["y"])], ["y"]),
        "sum_of_one": ([node("Sum", ["x"], ["y"])], ["y"]),
        "max_of_one": ([node("Max", ["x"], ["y"])], ["y"]),
        "min_of_one": ([node("Min", ["x"], ["y"])], ["y"]),
        "einsum": ([node("Einsum", ["x"], ["y"], equation="ij->ij")], ["y"]),
        "identity": ([node("Identity", ["x"], ["y"])], ["y"]),
        "chain": ([node("Sum", ["x"], ["s"]), node("Max", ["s"], ["y"])], ["y", "s"]),
        "beside_work": (
            [node("Sum", ["x"], ["s"]), node("Add", ["s", "c"], ["y"])],
            ["s", "y", "x"],
        ),
    }


def save(file: Path, columns: int, rows: int | str, name: str) -> None:
    # Not onnx_tools.save(): ONNX's checker refuses a graph without nodes.
    nodes, outputs = graphs(columns)[name]
    constant = onnx_tools.initializer("c", np.arange(columns, dtype=np.float32).reshape(1, -1))
    shapes: dict[str, list[int | str]] = {"c": [1, columns]}
    graph = helper.make_graph(
        nodes,
        name,
        [value("x", [rows, columns])],
        [value(one, shapes.get(one, [rows, columns])) for one in outputs],
        [constant],
    )
    opsets = [helper.make_opsetid("", onnx_tools.OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=onnx_tools.IR_VERSION)
    file.parent.mkdir(parents=True)
    file.write_bytes(model.SerializeToString())


@dataclass
class Served:
    repository: Path
    client: triton.InferenceServerClient

    def infer(
        self, model: str, x: np.ndarray, outputs: list[str] | None = None
    ) -> dict[str, np.ndarray]:
        tensor = triton.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        wanted = [triton.InferRequestedOutput(name) for name in outputs or []]
        reply = self.client.infer(model, [tensor], outputs=wanted or None)
        return {one["name"]: reply.as_numpy(one["name"]) for one in reply.get_response()["outputs"]}

    def leave_a_secret(self) -> None:
        self.infer("other", np.full((9, LARGE), SECRET / 2, np.float32))


@pytest.fixture(scope="module", params=["onnxruntime", "openvino", "auto"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    repository = tmp_path_factory.mktemp("passed_on")
    for columns in (SMALL, LARGE):
        for name in graphs(columns):
            for kind, rows in (("fixed", 1), ("free", "n")):
                save(repository / f"{name}_{kind}_{columns}/1/model.onnx", columns, rows, name)
    onnx_tools.save(
        repository / "other" / "1" / "model.onnx",
        "other",
        [node("Add", ["x", "x"], ["y"])],
        [value("x", ["n", LARGE])],
        [value("y", ["n", LARGE])],
        [],
    )
    with Server(repository, "--backend", request.param) as server:
        yield Served(repository, triton.InferenceServerClient(server.url))


@pytest.mark.parametrize("columns", [SMALL, LARGE])
@pytest.mark.parametrize("kind", ["fixed", "free"])
@pytest.mark.parametrize("name", list(graphs(SMALL)))
def test_an_output_that_no_operator_writes_holds_its_own_value(
    served: Served, name: str, kind: str, columns: int
) -> None:
    model = f"{name}_{kind}_{columns}"
    outputs = graphs(columns)[name][1]
    oracle = ReferenceEvaluator(str(served.repository / model / "1" / "model.onnx"))
    for turn, rows in enumerate([1, 1, 3, 1] if kind == "free" else [1, 1, 1]):
        x = np.full((rows, columns), turn + 7, np.float32)
        wanted = dict(zip(outputs, oracle.run(None, {"x": x}), strict=True))
        served.leave_a_secret()
        got = served.infer(model, x)
        assert list(got) == outputs
        for output in outputs:
            np.testing.assert_array_equal(got[output], wanted[output], output)
        # Some of them, in another order.
        served.leave_a_secret()
        some = outputs[::-1][:2]
        got = served.infer(model, x, some)
        assert list(got) == some
        for output in some:
            np.testing.assert_array_equal(got[output], wanted[output], output)
