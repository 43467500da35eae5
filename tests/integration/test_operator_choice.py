"""Which backend gets a model by its operators: OpenVINO computes INT64 in 32 bits and FP64 in FP32.

`auto` asked only which backend was faster. An id beyond 2^31 hit another row of an embedding, and
100000 times 100000 was 1410065408, with status 200. Some operators end OpenVINO's or ONNX Runtime's
process by the numbers of a request; a backend is not given these.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, Server
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(MODELS))
import onnx_tools

pytestmark = pytest.mark.timing
node, value = helper.make_node, onnx_tools.value
KINDS = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64", np.dtype(np.float64): "FP64"}
ROWS, COLUMNS = 1000, 64
LEAST = np.int64(-(2**63))


def embedding() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)


def constant(name: str, number: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(number), name)


def hashed(path: Path) -> None:
    """Looks ids up in an embedding, after a multiplication that leaves 32 bits."""
    onnx_tools.save(
        path,
        "hashed",
        [
            node("Mul", ["id", "k"], ["product"]),
            node("Mod", ["product", "rows"], ["row"]),
            node("Gather", ["embedding", "row"], ["y"]),
        ],
        [value("id", ["n"], TensorProto.INT64)],
        [value("y", ["n", COLUMNS])],
        [
            constant("k", np.int64(31)),
            constant("rows", np.int64(ROWS)),
            constant("embedding", embedding()),
        ],
    )


def squares(path: Path) -> None:
    """Long enough that OpenVINO is faster, and two squares beside it that need the width."""
    nodes, last = [], "f"
    for i in range(40):
        nodes.append(node(["Sigmoid", "Tanh", "Elu", "Mish"][i % 4], [last], [f"t{i}"]))
        last = f"t{i}"
    nodes += [
        node("Sigmoid", [last], ["feature"]),
        node("Mul", ["id", "id"], ["square"]),
        node("Mul", ["amount", "amount"], ["total"]),
    ]
    graph = helper.make_graph(
        nodes,
        "squares",
        [
            value("f", ["n", 256]),
            value("id", ["n", 4], TensorProto.INT64),
            value("amount", ["n", 4], TensorProto.DOUBLE),
        ],
        [
            value("feature", ["n", 256]),
            value("square", ["n", 4], TensorProto.INT64),
            value("total", ["n", 4], TensorProto.DOUBLE),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def steps(path: Path) -> None:
    scalars = [value(name, [], TensorProto.INT64) for name in ("start", "limit", "delta")]
    onnx_tools.save(
        path,
        "steps",
        [node("Range", ["start", "limit", "delta"], ["y"])],
        scalars,
        [value("y", ["n"], TensorProto.INT64)],
        [],
    )


def division(operator: str) -> Callable[[Path], None]:
    def save(path: Path) -> None:
        onnx_tools.save(
            path,
            operator,
            [node(operator, ["x", "by"], ["y"])],
            [value("x", ["n"], TensorProto.INT64), value("by", ["n"], TensorProto.INT64)],
            [value("y", ["n"], TensorProto.INT64)],
            [],
        )

    return save


def plain(path: Path) -> None:
    onnx_tools.save(
        path,
        "plain",
        [node("Relu", ["x"], ["y"])],
        [value("x", ["n", 4])],
        [value("y", ["n", 4])],
        [],
    )


def doubled(scale: float) -> Callable[[Path], None]:
    """A picture of 4 by 4, its height and width times `scale`, corners aligned."""

    def save(path: Path) -> None:
        onnx_tools.save(
            path,
            "doubled",
            [
                node(
                    "Resize",
                    ["x", "", "scales"],
                    ["y"],
                    mode="linear",
                    coordinate_transformation_mode="align_corners",
                )
            ],
            [value("x", [1, 1, 4, 4])],
            [value("y", [1, 1, "h", "w"])],
            [constant("scales", np.array([1, 1, scale, scale], np.float32))],
        )

    return save


MODELS_BY_NAME: dict[str, tuple[Callable[[Path], None], str]] = {
    "hashed": (hashed, "auto"),
    "hashed_by_openvino": (hashed, "openvino"),
    "squares": (squares, "auto"),
    "squares_by_openvino": (squares, "openvino"),
    "steps": (steps, "auto"),
    "steps_by_openvino": (steps, "openvino"),
    "division": (division("Div"), "auto"),
    "modulo": (division("Mod"), "onnxruntime"),
    "plain": (plain, "openvino"),
    "doubled": (doubled(2), "auto"),
    "shrunk": (doubled(0.6), "auto"),
    "shrunk_by_onnxruntime": (doubled(0.6), "onnxruntime"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("operators")
    for name, (save, backend) in MODELS_BY_NAME.items():
        save(repository / name / "1" / "model.onnx")
        (repository / name / "config.json").write_text(json.dumps({"backend": backend}))
    with Server(repository, "--backend", "auto") as one:
        yield one


@pytest.fixture(scope="module")
def client(served: Server) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(served.url)


def infer(client: triton.InferenceServerClient, model: str, **inputs: np.ndarray) -> Any:
    tensors = []
    for name, array in inputs.items():
        tensors.append(triton.InferInput(name, list(array.shape), KINDS[array.dtype]))
        tensors[-1].set_data_from_numpy(array)
    return client.infer(model, tensors)


def document(served: Server, model: str) -> dict[str, Any]:
    """Of a model that is not ready it is the refusal's body."""
    try:
        with urllib.request.urlopen(f"http://{served.url}/v2/models/{model}") as reply:
            return json.load(reply)
    except urllib.error.HTTPError as refusal:
        assert refusal.code == 503
        return json.load(refusal)


def test_ids_beyond_32_bits_find_their_own_row(client: triton.InferenceServerClient) -> None:
    ids = np.array([5, 69273667, 100000000, 2000000000, -7], np.int64)
    answer = infer(client, "hashed", id=ids).as_numpy("y")
    assert np.array_equal(answer, embedding()[(ids * 31) % ROWS])


def test_numbers_that_leave_32_bits_are_whole(client: triton.InferenceServerClient) -> None:
    ids = np.array([[100000, 65536, 46341, 3]], np.int64)
    amounts = np.array([[1e30, 16777217, 0, 0.1]], np.float64)
    answer = infer(client, "squares", f=np.ones((1, 256), np.float32), id=ids, amount=amounts)
    assert np.array_equal(answer.as_numpy("square"), ids * ids)
    assert np.allclose(answer.as_numpy("total"), amounts * amounts, rtol=1e-12)


def test_openvino_by_name_serves_with_a_warning_of_each_operator(served: Server) -> None:
    wanted = ["Mul of INT64", "Mul of FP64"]
    assert document(served, "squares_by_openvino")["parameters"]["operators_not_known"] == wanted
    for one in wanted:
        served.wait_for_log(
            "model squares_by_openvino/1 is served by openvino",
            f"not known to compute as ONNX defines it: {one}",
        )


def test_a_model_whose_operators_are_known_has_no_warning(served: Server) -> None:
    assert "operators_not_known" not in document(served, "plain")["parameters"]
    assert not any("model plain/1 is served by openvino, which" in line for line in served.log)


@pytest.mark.parametrize(
    ("model", "operator"),
    [
        ("hashed_by_openvino", "Mod"),
        ("steps_by_openvino", "Range"),
        ("division", "Div"),
        ("modulo", "Mod"),
    ],
)
def test_a_backend_is_not_given_an_operator_by_which_a_request_ends_it(
    served: Server, client: triton.InferenceServerClient, model: str, operator: str
) -> None:
    reply = document(served, model)
    assert f"{operator} (" in reply["error"]
    assert "a request can end the process" in reply["error"]
    with pytest.raises(InferenceServerException, match="is unavailable"):
        infer(client, model, x=np.array([LEAST]), by=np.array([-1]))


DIVIDE_THE_LEAST = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
least = numpy.array([-(2**63)], numpy.int64)
session.run(None, {"x": least, "by": numpy.array([-1], numpy.int64)})
"""


# If it fails, ONNX Runtime is mended: remove src/backends/onnxruntime/operators.h's entry.
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_onnx_runtime_still_dies_by_the_least_number_divided_by_minus_1(
    tmp_path: Path, operator: str
) -> None:
    path = tmp_path / "model.onnx"
    division(operator)(path)
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
    done = subprocess.run([sys.executable, "-c", DIVIDE_THE_LEAST, path], env=environment)
    assert done.returncode == -signal.SIGFPE


def test_a_delta_of_0_is_refused_and_the_server_lives(
    client: triton.InferenceServerClient,
) -> None:
    def scalars(*numbers: int) -> dict[str, np.ndarray]:
        names = ("start", "limit", "delta")
        return {name: np.array(n, np.int64) for name, n in zip(names, numbers, strict=True)}

    assert infer(client, "steps", **scalars(0, 5, 1)).as_numpy("y").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InferenceServerException, match="delta"):
        infer(client, "steps", **scalars(0, 5, 0))
    assert infer(client, "steps", **scalars(0, 2, 1)).as_numpy("y").tolist() == [0, 1]


def test_a_file_with_a_newer_opset_than_a_backend_reads_says_so(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Unheard", ["x"], ["y"])], "new", [value("x", ["n"])], [value("y", ["n"])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 99)], ir_version=10)
    for backend in ("openvino", "onnxruntime", "auto"):
        path = tmp_path / backend / "1" / "model.onnx"
        path.parent.mkdir(parents=True)
        onnx.save(model, path)
        (path.parents[1] / "config.json").write_text(json.dumps({"backend": backend}))
    with Server(tmp_path) as one:
        reasons = {path.name: document(one, path.name)["error"] for path in tmp_path.iterdir()}
    for backend, newest, name in (
        ("openvino", 28, "OpenVINO"),
        ("onnxruntime", 26, "ONNX Runtime"),
    ):
        said = f"the file has opset 99, newer than {newest}, the newest that is known of {name}"
        assert said in reasons[backend]
        assert f"export it with opset {newest} or lower" in reasons[backend]
    assert "newer than 26" in reasons["auto"]
    # The library's own limit: a newer version of it may have raised it.
    assert "till opset 26" in reasons["onnxruntime"]


def test_where_onnx_runtime_refuses_the_model_the_reason_names_the_key(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node("Mul", ["x", "x"], ["y"])],
        "future",
        [value("x", ["n"], TensorProto.INT64)],
        [value("y", ["n"], TensorProto.INT64)],
    )
    # ONNX Runtime does not read an IR version that is newer than itself.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=99)
    path = tmp_path / "future" / "1" / "model.onnx"
    path.parent.mkdir(parents=True)
    onnx.save(model, path)
    with Server(tmp_path, "--backend", "auto") as one:
        reason = document(one, "future")["error"]
    assert "Mul of INT64" in reason
    assert '"backend": "openvino" in config.json allows it' in reason
    assert "onnxruntime: " in reason


def test_an_operator_computed_otherwise_is_refused_and_serves_with_a_warning_where_named(
    served: Server, client: triton.InferenceServerClient
) -> None:
    reason = document(served, "shrunk")["error"]
    assert "Resize (with align_corners and scales that are not whole" in reason
    assert '"backend": "onnxruntime" in config.json allows it' in reason
    named = document(served, "shrunk_by_onnxruntime")["parameters"]["operators_not_known"]
    assert [one.split(" (")[0] for one in named] == ["Resize"]
    warning = "model shrunk_by_onnxruntime/1 is served by onnxruntime, which is not known to"
    assert any(warning in line and "Resize (" in line for line in served.log)


def test_corners_are_aligned_with_whole_scales(client: triton.InferenceServerClient) -> None:
    picture = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    answer = infer(client, "doubled", x=picture).as_numpy("y")
    places = np.linspace(0, 3, 8)
    assert np.allclose(answer[0, 0], 4 * places[:, None] + places, atol=1e-5)
