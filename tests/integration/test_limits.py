"""Bounded resources of a server (connections, requests in memory, queue), and model options."""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import openvino
import pytest
from integration.harness import (
    MODELS,
    PATIENCE,
    Server,
    copy_models,
    make_squeezenet,
    run_serve,
)
from integration.raw_http import Connection, Reply, get, post, post_json
from integration.reference import OPTIONS
from integration.slow_model import make_slow_model

StartServer = Callable[..., Server]
LIVE = get("/v2/health/live")


def infer_request(model: str, name: str, array: np.ndarray) -> bytes:
    payload = array.astype(np.float32).tobytes()
    given = {"name": name, "datatype": "FP32", "shape": list(array.shape)}
    given["parameters"] = {"binary_data_size": len(payload)}
    text = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"/v2/models/{model}/infer", text + payload, length)


def floats(reply: Reply) -> np.ndarray:
    assert reply.status == 200, reply
    return np.frombuffer(
        reply.body[int(reply.headers["inference-header-content-length"]) :], np.float32
    )


IDENTITY = infer_request("identity", "input", np.arange(4.0).reshape(1, 4))


# --- requests in memory ---------------------------------------------------------------------------


# Was: "mapping 150994944 bytes of memory: Cannot allocate memory", without the limit.
@pytest.mark.skipif(PATIENCE > 1, reason="AddressSanitizer reserves more addresses than any limit")
def test_a_bound_of_the_address_space_is_named_with_the_settings_that_fit_it() -> None:
    bound = partial(resource.setrlimit, resource.RLIMIT_AS, (16 << 30, 16 << 30))
    arguments = ["--http", "127.0.0.1:0", "--unix", "off", "--model-repository", str(MODELS)]
    done = run_serve(*arguments, preexec_fn=bound)
    assert done.returncode == 1
    for words in ("ulimit -v", "max_active_requests 1320", "such requests would fit"):
        assert words in done.stderr
    small = ["--max-body-bytes", "1048576", "--max-active-requests", "100"]
    with Server(MODELS, *small, preexec_fn=bound) as one, Connection(one.address) as connection:
        assert connection.exchange(LIVE).status == 200


def test_a_request_waits_for_memory_until_the_one_before_is_answered(server: StartServer) -> None:
    one = server("--max-active-requests", "1")
    with Connection(one.address) as first, Connection(one.address) as second:
        body = first.begin(IDENTITY)
        second.send(IDENTITY)
        first.send(body)
        assert floats(first.reply()).tolist() == [0, 1, 2, 3]
        assert floats(second.reply()).tolist() == [0, 1, 2, 3]


def test_a_client_that_leaves_gives_its_memory_to_the_next(server: StartServer) -> None:
    one = server("--max-active-requests", "1")
    with Connection(one.address) as second:
        with Connection(one.address) as first:
            first.begin(IDENTITY)
            second.send(IDENTITY)
        assert floats(second.reply()).tolist() == [0, 1, 2, 3]


def resident(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(x for x in status.splitlines() if x.startswith(field)).split()[1]) * 1024


def test_a_flood_of_the_largest_bodies_stays_under_the_memory_bound(server: StartServer) -> None:
    bound, body, clients = 192 << 20, 12 << 20, 48
    one = server(
        *("--max-memory-bytes", str(bound), "--max-body-bytes", str(body)),
        *("--max-active-requests", str(clients)),
    )
    request = infer_request("identity", "input", np.zeros((body // 16 - 64, 4)))
    with Connection(one.address) as connection:
        assert connection.exchange(IDENTITY).status == 200
    before = resident(one.pid, "VmRSS")
    statuses: list[int] = []

    def flood() -> None:
        with Connection(one.address) as connection:
            connection.send(request)
            reply = connection.reply()
            assert reply.status == 200 or reply.headers["retry-after"] == "1"
            statuses.append(reply.status)

    threads = [threading.Thread(target=flood) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == clients, "each was answered"
    assert set(statuses) <= {200, 429} and 200 in statuses
    if PATIENCE == 1:  # a sanitizer keeps memory of its own
        assert resident(one.pid, "VmHWM") - before < bound
    with Connection(one.address) as connection:
        assert floats(connection.exchange(IDENTITY)).tolist() == [0, 1, 2, 3]


# --- the queue ------------------------------------------------------------------------------------


def test_a_full_queue_answers_429_and_serves_again(server: StartServer, tmp_path: Path) -> None:
    make_squeezenet()
    folder = copy_models(tmp_path / "large", [MODELS / "squeezenet", MODELS / "identity"])
    one = server("--queue-capacity", "2", repository=folder)
    request = infer_request("squeezenet", "data", np.zeros((1, 3, 224, 224)))
    connections = [Connection(one.address) for _ in range(32)]
    try:
        # Each takes milliseconds to run and a tenth of one to arrive: the queue must overflow.
        for connection in connections:
            connection.send(request)
        replies = [connection.reply() for connection in connections]
        assert {reply.status for reply in replies} == {200, 429}
        refused = next(reply for reply in replies if reply.status == 429)
        assert "queue" in refused.error
        assert refused.headers["retry-after"] == "1"
        for connection in connections:
            assert floats(connection.exchange(IDENTITY)).tolist() == [0, 1, 2, 3]
    finally:
        for connection in connections:
            connection.socket.close()


# --- options of a model ---------------------------------------------------------------------------


def mlp_answer(folder: Path, rows: np.ndarray, options: dict[str, object]) -> np.ndarray:
    """OpenVINO's answer from a compile for exactly this number of rows."""
    graph = openvino.Core().read_model(folder / "mlp" / "1" / "model.onnx")
    graph.reshape(list(rows.shape))
    return openvino.Core().compile_model(graph, "CPU", options)(rows)[0].ravel()


@pytest.mark.parametrize("rows", [1, 4])
def test_each_configured_batch_size_has_a_compile_of_its_own(
    server: StartServer, small_repository: Path, rows: int
) -> None:
    (small_repository / "mlp" / "config.json").write_text('{"batch_sizes": [1, 4]}')
    array = np.random.default_rng(rows).standard_normal((rows, 256)).astype(np.float32)
    one = server()
    with Connection(one.address) as connection:
        got = floats(connection.exchange(infer_request("mlp", "input", array)))
    assert got.tobytes() == mlp_answer(small_repository, array, OPTIONS).tobytes()


def cpu_has_bf16() -> bool:
    return "avx512_bf16" in Path("/proc/cpuinfo").read_text().split()


@pytest.mark.parametrize("precision", ["f32", "bf16", "auto"])
def test_every_precision_is_near_f32_and_is_bf16_where_it_can_be(
    server: StartServer, small_repository: Path, precision: str
) -> None:
    """Was: a setting that did nothing passed as well."""
    (small_repository / "mlp" / "config.json").write_text(json.dumps({"precision": precision}))
    array = np.random.default_rng(1).standard_normal((1, 256)).astype(np.float32)
    one = server()
    with Connection(one.address) as connection:
        got = floats(connection.exchange(infer_request("mlp", "input", array)))
    exact = mlp_answer(small_repository, array, OPTIONS)
    # bf16 keeps 8 bits: 0.4 % a value.
    assert np.abs(got - exact).max() < 0.02 * np.abs(exact).max()
    if precision == "f32":
        assert got.tobytes() == exact.tobytes()
    elif cpu_has_bf16():
        assert got.tobytes() != exact.tobytes(), "computed in f32"


def test_two_versions_of_a_model_are_served_side_by_side(
    server: StartServer, tmp_path: Path
) -> None:
    folder = copy_models(tmp_path / "versions", [MODELS / "identity"])
    for version in ("2", "10"):
        target = folder / "identity" / version
        target.mkdir()
        (target / "model.onnx").write_bytes((folder / "identity/1/model.onnx").read_bytes())
    one = server(repository=folder)
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [7]}]}
    with Connection(one.address) as connection:
        assert connection.exchange(get("/v2/models/identity")).json()["versions"] == [
            "1",
            "2",
            "10",
        ]
        for path, answered in (("", "10"), ("/versions/1", "1"), ("/versions/2", "2")):
            reply = connection.exchange(post_json(f"/v2/models/identity{path}/infer", body))
            assert reply.json()["model_version"] == answered


# --- time at rest ---------------------------------------------------------------------------------


def test_a_connection_at_rest_is_closed_after_its_time(server: StartServer) -> None:
    one = server("--idle-timeout-ms", "200")
    for first in (None, LIVE, IDENTITY):  # one that never asked, and two that did
        with Connection(one.address) as connection:
            if first is not None:
                assert connection.exchange(first).status == 200
            begin = time.monotonic()
            assert connection.is_closed()
            # The server looks at a clock of 4 ms steps, and began to count before `begin`.
            assert time.monotonic() - begin > 0.15


def test_a_connection_that_is_not_at_rest_outlives_that_time(server: StartServer) -> None:
    """Others that come to rest at the same moment and are closed show that the time has passed."""
    one = server("--idle-timeout-ms", "200")
    head, separator, body = IDENTITY.partition(b"\r\n\r\n")

    def time_passes() -> None:
        with Connection(one.address) as at_rest:
            assert at_rest.is_closed()

    with (
        Connection(one.address) as in_head,
        Connection(one.address) as in_body,
        Connection(one.address) as pipelines,
    ):
        in_head.send(head[:20])
        in_body.send(head + separator + body[:3])
        for _ in range(2):
            pipelines.send(IDENTITY[:-1])
            time_passes()
            pipelines.send(IDENTITY[-1:])
            assert floats(pipelines.reply()).tolist() == [0, 1, 2, 3]
        in_head.send(head[20:] + separator + body)
        in_body.send(body[3:])
        for connection in (in_head, in_body):
            assert floats(connection.reply()).tolist() == [0, 1, 2, 3]
            assert connection.is_closed(), "at rest now"


def test_a_request_that_runs_longer_than_that_time_is_answered(
    server: StartServer, small_repository: Path
) -> None:
    make_slow_model(small_repository)
    one = server("--idle-timeout-ms", "20", "--queue-type", "mpmc")
    with Connection(one.address) as connection:
        for _ in range(2):
            reply = connection.exchange(infer_request("slow", "input", np.ones((1, 1))))
            assert floats(reply).tolist() == [1]


# --- connections ----------------------------------------------------------------------------------


def test_beyond_the_connection_limit_the_busy_ones_are_still_served(server: StartServer) -> None:
    one = server("--max-connections", "2")
    busy = [Connection(one.address) for _ in range(2)]
    try:
        bodies = [connection.begin(IDENTITY) for connection in busy]
        with Connection(one.address) as refused:
            assert refused.is_closed()
        for connection, body in zip(busy, bodies, strict=True):
            connection.send(body)
            assert floats(connection.reply()).tolist() == [0, 1, 2, 3]
    finally:
        for connection in busy:
            connection.socket.close()


def test_a_connection_at_rest_makes_room_for_a_new_one(server: StartServer) -> None:
    one = server("--max-connections", "2")
    with Connection(one.address) as oldest, Connection(one.address) as other:
        assert oldest.exchange(LIVE).status == 200
        assert other.exchange(LIVE).status == 200
        with Connection(one.address) as newest:
            assert newest.exchange(LIVE).status == 200
            assert oldest.is_closed()
            assert other.exchange(LIVE).status == 200
