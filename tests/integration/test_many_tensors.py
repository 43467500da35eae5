"""Models with an input or an output for each column of a table, models without inputs, and tensors
of no elements.

A model with more than 64 inputs or outputs was UNAVAILABLE, and so was one without inputs; a
tensor of no elements was answered 400 by every backend.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import MODELS, Server
from integration.raw_http import Connection, post_json
from lumen_engine import Client, InferError
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(MODELS))
import onnx_tools

node, value = helper.make_node, onnx_tools.value
COLUMNS, MOST = 300, 4096
# OpenVINO compiles 4,096 for minutes; auto does not try it with them.
SERVED = {"auto": (COLUMNS, MOST), "onnxruntime": (COLUMNS, MOST), "openvino": (COLUMNS,)}
CONSTANT = np.arange(3, dtype=np.float32)


def columns(path: Path, count: int) -> None:
    """An input a column; their table times two."""
    names = [f"c{i}" for i in range(count)]
    onnx_tools.save(
        path,
        f"columns{count}",
        [node("Concat", names, ["table"], axis=1), node("Add", ["table", "table"], ["y"])],
        [value(name, ["n", 1]) for name in names],
        [value("y", ["n", count])],
        [],
    )


def parts(path: Path, count: int) -> None:
    """A table's columns, an output each."""
    onnx_tools.save(
        path,
        f"parts{count}",
        [
            node("Add", ["x", "x"], ["twice"]),
            node("Split", ["twice"], [f"c{i}" for i in range(count)], axis=1),
        ],
        [value("x", ["n", count])],
        [value(f"c{i}", ["n", 1]) for i in range(count)],
        [],
    )


def no_inputs(path: Path) -> None:
    onnx_tools.save(
        path,
        "no_inputs",
        [node("Add", ["c", "c"], ["y"])],
        [],
        [value("y", [3])],
        [numpy_helper.from_array(CONSTANT, "c")],
    )


def edges(path: Path) -> None:
    """The sum of the rows that a list names, which may be empty."""
    onnx_tools.save(
        path,
        "edges",
        [node("Gather", ["x", "e"], ["rows"]), node("ReduceSum", ["rows"], ["y"], keepdims=0)],
        [value("x", ["n", 3]), value("e", ["k"], TensorProto.INT64)],
        [value("y", [])],
        [],
    )


def double(path: Path) -> None:
    onnx_tools.save(
        path,
        "double",
        [node("Add", ["x", "x"], ["y"])],
        [value("x", ["n", 3])],
        [value("y", ["n", 3])],
        [],
    )


def recurrent(path: Path) -> None:
    """By a batch of size 0 an LSTM ends ONNX Runtime's process."""
    weights = [numpy_helper.from_array(np.ones((1, 8, 2), np.float32), name) for name in ("w", "r")]
    onnx_tools.save(
        path,
        "recurrent",
        [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)],
        [value("x", [3, "n", 2])],
        [value("y", [3, 1, "n", 2])],
        weights,
    )


@pytest.fixture(scope="module", params=SERVED)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def served(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("many")
    repository = folder / "models"
    for count in SERVED[backend]:
        columns(repository / f"columns{count}" / "1" / "model.onnx", count)
        parts(repository / f"parts{count}" / "1" / "model.onnx", count)
    no_inputs(repository / "no_inputs" / "1" / "model.onnx")
    edges(repository / "edges" / "1" / "model.onnx")
    double(repository / "double" / "1" / "model.onnx")
    recurrent(repository / "recurrent" / "1" / "model.onnx")
    config = {"rows_are_independent": True, "response_cache": {"enable": True}}
    (repository / f"columns{COLUMNS}" / "config.json").write_text(json.dumps(config))
    with Server(
        repository,
        *("--backend", backend, "--queue-type", "batched"),
        *("--bus", str(folder / "lumen.bus"), "--bus-area-bytes", str(8 << 20)),
    ) as one:
        yield one


@pytest.fixture(params=["http", "bus"])
def client(served: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    url = f"bus:{served.bus_path}" if request.param == "bus" else f"http://{served.url}"
    with Client(url) as one:
        yield one


def table(rows: int, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, count)).astype(np.float32)


def test_an_input_for_each_column_in_any_order(client: Client, backend: str) -> None:
    for count in SERVED[backend]:
        x = table(3, count)
        shuffled = np.random.default_rng(1).permutation(count)
        for order in (range(count), reversed(range(count)), shuffled):
            got = client.infer(f"columns{count}", {f"c{i}": x[:, i : i + 1] for i in order})
            np.testing.assert_array_equal(got["y"], x + x)


def test_an_output_for_each_column(client: Client, backend: str) -> None:
    for count in SERVED[backend]:
        x = table(2, count)
        got = client.infer(f"parts{count}", {"x": x})
        assert len(got) == count
        for i in range(count):
            np.testing.assert_array_equal(got[f"c{i}"], 2 * x[:, i : i + 1])
        wanted = [f"c{i}" for i in reversed(range(0, count, 3))]
        some = client.infer(f"parts{count}", {"x": x}, outputs=wanted)
        assert list(some) == wanted
        np.testing.assert_array_equal(some["c3"], 2 * x[:, 3:4])


def test_the_same_as_json(served: Server) -> None:
    x = table(2, COLUMNS)
    inputs = [
        {"name": f"c{i}", "shape": [2, 1], "datatype": "FP32", "data": x[:, i].tolist()}
        for i in range(COLUMNS)
    ]
    with Connection(served.address) as connection:
        reply = connection.exchange(
            post_json(f"/v2/models/columns{COLUMNS}/infer", {"inputs": inputs})
        )
        (output,) = reply.json()["outputs"]
        np.testing.assert_array_equal(
            np.array(output["data"], np.float32).reshape(2, COLUMNS), x + x
        )
        twice = [*inputs, inputs[7]]
        reply = connection.exchange(
            post_json(f"/v2/models/columns{COLUMNS}/infer", {"inputs": twice})
        )
        assert reply.status == 400 and "'c7' is given twice" in reply.error
        reply = connection.exchange(
            post_json(f"/v2/models/columns{COLUMNS}/infer", {"inputs": inputs[1:]})
        )
        assert reply.status == 400 and "input 'c0'" in reply.error and "is missing" in reply.error


def test_clients_whose_requests_run_together_get_their_own_rows(served: Server) -> None:
    def ask(seed: int) -> None:
        with Client(f"http://{served.url}") as one:
            for number in range(20):
                x = table(1 + seed % 3, COLUMNS, 1000 * seed + number)
                got = one.infer(
                    f"columns{COLUMNS}", {f"c{i}": x[:, i : i + 1] for i in range(COLUMNS)}
                )
                np.testing.assert_array_equal(got["y"], x + x)

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(ask, seed) for seed in range(8)]:
            done.result()


def test_a_model_without_inputs_answers(client: Client, served: Server) -> None:
    for _ in range(3):
        np.testing.assert_array_equal(client.infer("no_inputs", {})["y"], 2 * CONSTANT)
    with pytest.raises(InferError, match="has no input 'x'"):
        client.infer("no_inputs", {"x": CONSTANT})
    with urllib.request.urlopen(f"http://{served.url}/v2/models/no_inputs") as reply:
        assert json.load(reply)["inputs"] == []


EMPTY: dict[str, dict[str, Any]] = {
    "edges": {"x": np.ones((2, 3), np.float32), "e": np.zeros(0, np.int64)},
    "double": {"x": np.zeros((0, 3), np.float32)},
}
ANSWERS = {"edges": np.float32(0), "double": np.zeros((0, 3), np.float32)}


@pytest.mark.parametrize("model", EMPTY)
def test_a_tensor_of_no_elements_goes_to_the_backend_that_knows_them(
    client: Client, served: Server, model: str
) -> None:
    if "onnxruntime" not in client.metadata(model)["parameters"]["backend"]:
        with pytest.raises(InferError, match="wanted every dimension >= 1"):
            client.infer(model, EMPTY[model])
        return
    for _ in range(2):
        got = client.infer(model, EMPTY[model])["y"]
        assert got.shape == np.shape(ANSWERS[model])
        np.testing.assert_array_equal(got, ANSWERS[model])
        full = client.infer("double", {"x": np.ones((1, 3), np.float32)})["y"]
        np.testing.assert_array_equal(full, np.full((1, 3), 2, np.float32))


def test_an_operator_that_an_empty_tensor_would_crash_is_not_given_one(client: Client) -> None:
    assert client.infer("recurrent", {"x": np.ones((3, 1, 2), np.float32)})["y"].shape == (
        3,
        1,
        1,
        2,
    )
    with pytest.raises(InferError, match="wanted every dimension >= 1"):
        client.infer("recurrent", {"x": np.ones((3, 0, 2), np.float32)})
    assert client.is_ready("recurrent")


def test_a_tensor_of_no_elements_as_json(served: Server) -> None:
    given = {"name": "x", "shape": [0, 3], "datatype": "FP32", "data": []}
    with Connection(served.address) as connection:
        reply = connection.exchange(post_json("/v2/models/double/infer", {"inputs": [given]}))
        metadata = connection.exchange(b"GET /v2/models/double HTTP/1.1\r\nHost: a\r\n\r\n").json()
        if metadata["parameters"]["backend"] == "openvino":
            assert reply.status == 400
            return
        (output,) = reply.json()["outputs"]
        assert output["shape"] == [0, 3] and output["data"] == []
        # An axis that the model fixes is not free to be empty.
        given["shape"] = [1, 0]
        reply = connection.exchange(post_json("/v2/models/double/infer", {"inputs": [given]}))
        assert reply.status == 400 and "wanted [-1,3]" in reply.error
