"""Models that are told of their sequence by inputs, and sequences that do not begin with zeros.

Triton's own server is the oracle of the controls' values in test_compat_triton.py.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration import triton_sequences
from integration.ensemble_models import onnx_tools
from integration.harness import PATIENCE, Server, eventually
from integration.load import stopped
from integration.picture_files import document
from integration.raw_http import post, post_json
from integration.sequence_models import load_reasons
from lumen_engine import Client, InferError
from onnx import TensorProto, helper

StartServer = Callable[..., Server]
BACKENDS = ["openvino", "onnxruntime"]
TYPES = {"bool": TensorProto.BOOL, "int32": TensorProto.INT32, "fp32": TensorProto.FLOAT}


def write_told(models: Path, name: str, ids: int, config: dict[str, Any]) -> None:
    """sum = h (1 - START) + x, told = START + 2 END + 4 READY, and the id; rows of one number."""
    row: list[int | str] = ["rows", 1]
    node = helper.make_node
    floats = {"START": "start", "END": "end", "READY": "ready"}
    onnx_tools.save(
        models / name / "1" / "model.onnx",
        name,
        [
            *(node("Cast", [c], [f], to=TensorProto.FLOAT) for c, f in floats.items()),
            node("Sub", ["one", "start"], ["goes_on"]),
            node("Mul", ["h", "goes_on"], ["kept"]),
            node("Add", ["kept", "x"], ["h_out"]),
            node("Add", ["h_out", "none"], ["sum"]),
            node("Mul", ["end", "two"], ["twice"]),
            node("Mul", ["ready", "four"], ["four_times"]),
            node("Sum", ["start", "twice", "four_times"], ["told"]),
            node("Identity", ["ID"], ["id"]),
        ],
        [
            onnx_tools.value("x", row),
            onnx_tools.value("h", row),
            onnx_tools.value("START", row, TYPES["bool"]),
            onnx_tools.value("END", row, TYPES["int32"]),
            onnx_tools.value("READY", row, TYPES["fp32"]),
            onnx_tools.value("ID", row, ids),
        ],
        [
            onnx_tools.value("sum", row),
            onnx_tools.value("told", row),
            onnx_tools.value("id", row, ids),
            onnx_tools.value("h_out", row),
        ],
        [
            onnx_tools.initializer(number, np.array([value], np.float32))
            for number, value in (("none", 0), ("one", 1), ("two", 2), ("four", 4))
        ],
    )
    (models / name / "config.json").write_text(json.dumps(config))


CONTROLS = [
    {"input": "START", "kind": "start"},
    {"input": "END", "kind": "end"},
    {"input": "READY", "kind": "ready", "values": [0, 1]},
    {"input": "ID", "kind": "id"},
]


def with_controls(**more: Any) -> dict[str, Any]:
    state = {"input": "h", "output": "h_out"}
    return {"sequences": {"states": [state], "controls": CONTROLS}, **more}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "told"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("queue_type", ["mpmc", "batched"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_row_of_a_run_is_told_of_its_own_sequence(
    models: Path, backend: str, queue_type: str
) -> None:
    """Eight clients whose requests share runs, over TCP and the bus."""
    write_told(models, "told", TensorProto.INT64, with_controls(backend=backend))
    bus = models.parent / "bus"
    failures: list[str] = []
    arguments = ["--queue-type", queue_type, "--thread-count", "2", "--bus", str(bus)]
    arguments += ["--max-queue-delay-us", "2000"]  # `batched` waits for the other clients
    with Server(models, *arguments) as running:

        def client(number: int) -> None:
            try:
                run_client(number)
            except InferError as error:
                failures.append(f"client {number}: {error}")

        def run_client(number: int) -> None:
            numbers = np.random.default_rng(number)
            url = f"bus:{bus}" if number % 2 else f"http://{running.url}"
            with Client(url, timeout=60 * PATIENCE) as one:
                for sequence in range(30):
                    name = 2**30 + 100 * number + sequence  # OpenVINO computes with 32 bits
                    values = numbers.integers(-9, 9, numbers.integers(1, 6)).astype(np.float32)
                    for at, x in enumerate(values):
                        flags = {"sequence_start": at == 0, "sequence_end": at == len(values) - 1}
                        found = one.infer("told", {"x": x.reshape(1, 1)}, sequence_id=name, **flags)
                        told = sum(bit * flag for bit, flag in zip((1, 2), flags.values())) + 4
                        wanted = {"sum": values[: at + 1].sum(), "told": told, "id": name}
                        if any(found[key].item() != value for key, value in wanted.items()):
                            failures.append(f"client {number}, {sequence}, {at}: {found} {wanted}")

        threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[:3]
        stats = document(running, "/v2/models/told/stats")["model_stats"][0]
        assert stats["execution_count"] < stats["inference_count"] or queue_type == "mpmc"


def test_clients_see_no_controls_and_the_configuration_names_them(
    server: StartServer, models: Path
) -> None:
    write_told(models, "told", TensorProto.INT64, with_controls(backend="openvino"))
    running = server(repository=models)
    metadata = document(running, "/v2/models/told")
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["x"]
    assert [tensor["name"] for tensor in metadata["outputs"]] == ["sum", "told", "id"]
    said = metadata["parameters"]["sequences"]["controls"]
    assert said[0] == {"input": "START", "kind": "start", "values": [0, 1]}
    assert said[3] == {"input": "ID", "kind": "id"}
    with Client(f"http://{running.url}") as client:
        inputs = {"x": np.zeros((1, 1), np.float32), "START": np.ones((1, 1), bool)}
        with pytest.raises(InferError, match="'START'"):
            client.infer("told", inputs, sequence_id=1, sequence_start=True)


def test_an_id_that_the_models_input_can_not_hold_is_refused(
    server: StartServer, models: Path
) -> None:
    types = {"int32": TensorProto.INT32, "uint32": TensorProto.UINT32, "text": TensorProto.STRING}
    for name, dtype in types.items():
        write_told(models, name, dtype, with_controls(backend="onnxruntime"))
    running = server("--backend", "auto", repository=models)
    x = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}

    def answer(model: str, sequence: int | str) -> tuple[int, str]:
        parameters = {"sequence_id": sequence, "sequence_start": True}
        body = json.dumps({"inputs": [x], "parameters": parameters}).encode()
        with running.connect() as connection:
            reply = connection.exchange(post(f"/v2/models/{model}/infer", body))
        if reply.status != 200:
            return reply.status, reply.body.decode()
        outputs = {output["name"]: output["data"] for output in reply.json()["outputs"]}
        return reply.status, str(outputs["id"][0])

    assert answer("int32", 2**31 - 1) == (200, str(2**31 - 1))
    assert answer("uint32", 2**32 - 1) == (200, str(2**32 - 1))
    assert answer("text", 2**64 - 1) == (200, str(2**64 - 1))
    assert answer("text", "x" * 128) == (200, "x" * 128)
    # Of a model that takes texts, 2^64 - 1 and its digits are one sequence.
    with running.connect() as connection:
        goes_on = {"inputs": [x], "parameters": {"sequence_id": str(2**64 - 1)}}
        reply = connection.exchange(
            post("/v2/models/text/infer", json.dumps(goes_on).encode())
        ).json()
    assert {output["name"]: output["data"] for output in reply["outputs"]}["sum"] == [2]
    refused = [("int32", 2**31), ("uint32", 2**32), ("int32", "7")]
    for model, sequence in refused:
        status, text = answer(model, sequence)
        assert status == 400 and f"ids of sequences as {model.upper()}" in text, text


def test_a_sequence_begins_with_the_numbers_of_its_file(server: StartServer, models: Path) -> None:
    state = {"input": "so_far", "output": "so_far_out", "initial_file": "seven"}
    controls = [{"input": name, "kind": kind} for name, kind in CONTROL_INPUTS.items()]
    for name in ("first", "absent", "short"):
        triton_sequences.write_sums(models / name / "1" / "model.onnx", True, "UINT64")
        config = {"sequences": {"states": [state], "controls": controls}, "backend": "openvino"}
        (models / name / "config.json").write_text(json.dumps(config))
    write_first(models / "first", 7)
    (models / "short" / "initial_state").mkdir()
    (models / "short" / "initial_state" / "seven").write_bytes(b"\0" * 3)
    running = server("--tcp-control", "on", repository=models)
    reasons = load_reasons(running)
    assert "initial_state" in reasons["absent"]
    assert "initial_state/seven has 3 bytes, wanted the 4 of" in reasons["short"]
    with Client(f"http://{running.url}") as client:

        def total(x: int, *, start: bool) -> int:
            rows = np.full((1, 1), x, np.int32)
            found = client.infer("first", {"x": rows}, sequence_id=1, sequence_start=start)
            return int(found["sum"].item())

        # Not told of its start, the model goes on from the first state.
        assert [total(1, start=True), total(1, start=False), total(5, start=True)] == [8, 9, 12]
        config = document(running, "/v2/models/first/config")
        (said,) = config["sequence_batching"]["state"]
        assert said["initial_state"][0]["data_file"] == "seven"
        write_first(models / "first", -7)
        load = {"parameters": {"config": json.dumps(config)}}
        with running.connect() as connection:
            reply = connection.exchange(post_json("/v2/repository/models/first/load", load))
        assert reply.status == 200, reply.body
        assert total(1, start=True) == -6, "the configuration in Triton's form, and the new file"


# The start is taken for an end, so that this model does not forget its first state.
CONTROL_INPUTS = {"START": "end", "END": "end", "READY": "ready", "CORRID": "id"}


def write_first(model: Path, value: int) -> None:
    (model / "initial_state").mkdir(exist_ok=True)
    (model / "initial_state" / "seven").write_bytes(np.int32(value).tobytes())


PROGRAM = """
def run(inputs):
    total = inputs["h"] * (inputs["START"] == 0) + inputs["x"]
    return {"sum": total, "h_out": total, "id": inputs["ID"]}
"""


def test_a_model_in_python_has_states_and_controls(models: Path) -> None:
    def tensor(name: str, datatype: str = "FP32") -> dict[str, Any]:
        return {"name": name, "data_type": f"TYPE_{datatype}", "dims": [1]}

    config = {
        "max_batch_size": 8,
        "input": [tensor("x"), tensor("h"), tensor("START", "INT32"), tensor("ID", "STRING")],
        "output": [tensor("sum"), tensor("h_out"), tensor("id", "STRING")],
        "sequences": {
            "states": [{"input": "h", "output": "h_out"}],
            "controls": [{"input": "START", "kind": "start"}, {"input": "ID", "kind": "id"}],
        },
        "rows_are_independent": True,
    }
    (models / "program" / "1").mkdir(parents=True)
    (models / "program" / "1" / "model.py").write_text(PROGRAM)
    (models / "program" / "config.json").write_text(json.dumps(config))
    with (
        Server(models, "--python", "on", "--queue-type", "batched") as running,
        Client(f"http://{running.url}", timeout=60 * PATIENCE) as client,
    ):
        for at in range(4):
            for name in ("a", "b"):
                x = np.full((1, 1), at + len(name), np.float32)
                found = client.infer("program", {"x": x}, sequence_id=name, sequence_start=at == 0)
                assert found["sum"].item() == sum(range(1, at + 2))
                assert found["id"].item() in (name, name.encode())


KEEPS = """
import os
import numpy as np

sums = {}


def run(inputs):
    found = []
    for name, start, x in zip(inputs["ID"].ravel(), inputs["START"].ravel(), inputs["x"].ravel()):
        if x > 1000:
            raise ValueError("x is too large")
        sums[name] = x if start else sums[name] + x
        found.append(sums[name])
    rows = np.array(found, np.float32).reshape(-1, 1)
    return {"sum": rows, "process": np.full_like(rows, os.getpid(), np.int32)}
"""


def write_keeper(models: Path, name: str, **more: Any) -> None:
    """The program keeps the sums; its inputs of sequences stand in `sequence_batching` alone."""
    control = {
        "START": {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]},
        "ID": {"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"},
    }
    config = {
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [
            {"name": "sum", "data_type": "TYPE_FP32", "dims": [1]},
            {"name": "process", "data_type": "TYPE_INT32", "dims": [1]},
        ],
        "sequence_batching": {
            "direct": {},
            "control_input": [{"name": of, "control": [one]} for of, one in control.items()],
        },
        "rows_are_independent": True,
        **more,
    }
    (models / name / "1").mkdir(parents=True)
    (models / name / "1" / "model.py").write_text(KEEPS)
    (models / name / "config.json").write_text(json.dumps(config))


def test_a_program_keeps_states_until_its_process_ends(models: Path) -> None:
    write_keeper(models, "keeper")
    bus = models.parent / "bus"
    with (
        Server(models, "--python", "on", "--thread-count", "2", "--bus", str(bus)) as running,
        Client(f"http://{running.url}", timeout=60 * PATIENCE) as http,
        Client(f"bus:{bus}", timeout=60 * PATIENCE) as over_bus,
    ):

        def ask(client: Client, sequence: int, *, start: bool = False) -> tuple[float, int]:
            x = np.ones((1, 1), np.float32)
            found = client.infer("keeper", {"x": x}, sequence_id=sequence, sequence_start=start)
            return found["sum"].item(), found["process"].item()

        for round_number in range(2):
            for at in range(3):
                for sequence, client in ((1, http), (2, over_bus)):
                    total, process = ask(client, sequence, start=at == 0)
                    assert total == at + 1, (round_number, sequence)
            os.kill(process, signal.SIGKILL)
            eventually(lambda: begins_again(ask, http))
            for sequence, client in ((1, http), (2, over_bus)):
                for _ in range(2):
                    with pytest.raises(InferError, match="has lost the states of its sequences"):
                        ask(client, sequence)


def begins_again(ask: Callable[..., tuple[float, int]], client: Client) -> bool:
    try:
        return ask(client, 3, start=True)[0] == 1
    except InferError as error:
        assert "Python process" in str(error)
        return False


def test_a_request_that_fails_changes_no_other_state_of_a_program(models: Path) -> None:
    """A run that requests share would be repeated for each of them, those that were fine, too."""
    write_keeper(models, "keeper")
    arguments = ["--queue-type", "batched", "--batch-size", "8", "--max-queue-delay-us", "5000"]

    def request(sequence: int, x: int, *, start: bool) -> bytes:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [x]}
        parameters = {"sequence_id": sequence, "sequence_start": start}
        return post_json("/v2/models/keeper/infer", {"inputs": [tensor], "parameters": parameters})

    with Server(models, "--python", "on", *arguments) as running, ExitStack() as stack:
        connections = [stack.enter_context(running.connect()) for _ in range(8)]
        for at in range(6):
            with stopped(running.pid):
                for number, connection in enumerate(connections):
                    x = 1001 if number == 7 else number + 1
                    connection.send_into_kernel(
                        request(number + 1, x, start=at == 0 or number == 7)
                    )
            replies = [connection.reply() for connection in connections]
            assert [reply.status for reply in replies] == [200] * 7 + [500]
            for number, reply in enumerate(replies[:7]):
                outputs = {output["name"]: output["data"] for output in reply.json()["outputs"]}
                assert outputs["sum"] == [(at + 1) * (number + 1)], (at, number)
        parameters = document(running, "/v2/models/keeper")["parameters"]
        assert "the program keeps states itself" in parameters["not_packed"]


def test_sequences_without_states_want_a_program_that_is_told_of_their_ids(
    server: StartServer, models: Path
) -> None:
    config = {"sequences": {"controls": CONTROLS}, "backend": "openvino"}
    write_told(models, "graph", TensorProto.INT64, config)
    start = {"name": "START", "control": [{"int32_false_true": [0, 1]}]}
    write_keeper(models, "nameless", sequence_batching={"control_input": [start]})
    running = server("--python", "on", repository=models)
    reasons = load_reasons(running)
    assert "names no states, and a model of the backend 'openvino'" in reasons["graph"]
    assert 'no control of the kind "id"' in reasons["nameless"]
