"""Deadlines: a request that waited too long is answered 504, and its model does not run for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from integration.harness import Server, UnixConnection
from integration.load import (
    SLOW_QUEUE_TYPES,
    infer_bytes,
    output_bytes,
    read_csv,
    statistics,
    stopped,
)
from integration.raw_http import Connection, Reply, get, post_json
from integration.slow_model import make_slow_model

pytestmark = pytest.mark.timing

StartServer = Callable[..., Server]
ARRAY = np.arange(4, dtype=np.float32).reshape(1, 4)
LIVE = get("/v2/health/live")
every_kind = pytest.mark.parametrize("queue", SLOW_QUEUE_TYPES)


@pytest.fixture
def slow_repository(small_repository: Path) -> Path:
    make_slow_model(small_repository)
    return small_repository


def slow_request(**parameters: int) -> bytes:
    return infer_bytes("slow", "input", np.ones((1, 1)), **parameters)


def identity_request(**parameters: int) -> bytes:
    return infer_bytes("identity", "input", ARRAY, **parameters)


def exchange_with_a_pause(one: Server, connection: Connection, request: bytes) -> Reply:
    """The last byte comes only when the server has read the others.

    The deadline counts from the first. That a connection opened later is answered means that the
    loop has turned since, which takes longer than the 1 us of the timeouts here.
    """
    connection.send(request[:-1])
    with Connection(one.address) as other:
        assert other.exchange(LIVE).status == 200
    return connection.exchange(request[-1:])


# --- the parameter `timeout` ----------------------------------------------------------------------


@every_kind
def test_an_expired_request_is_answered_504_and_its_model_does_not_run(
    server: StartServer, tmp_path: Path, queue: str
) -> None:
    file = tmp_path / "trace.csv"
    one = server("--queue-type", queue, "--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        assert connection.exchange(identity_request()).status == 200
        before = statistics(connection, "identity")
        for number in range(1, 6):
            reply = exchange_with_a_pause(one, connection, identity_request(timeout=1))
            assert reply.status == 504
            assert "expired" in reply.error and "identity" in reply.error
            after = statistics(connection, "identity")
            assert after == {**before, "fail": number}
        # The connection goes on, and so does the model.
        reply = connection.exchange(identity_request())
        assert output_bytes(reply) == ARRAY.tobytes()
        assert statistics(connection, "identity")["execution_count"] == 2
    one.stop()
    late = [line for line in read_csv(file) if line["status"] == "504"]
    assert len(late) == 5
    for line in late:
        assert line["queue_type"] == queue
        assert line["inference_us"] == "" and line["preprocess_us"] == ""
        assert float(line["queue_us"]) >= 0 and line["rows"] == "1"


@every_kind
def test_a_timeout_that_is_not_reached_changes_nothing(server: StartServer, queue: str) -> None:
    one = server("--queue-type", queue)
    with Connection(one.address) as connection:
        hour = exchange_with_a_pause(one, connection, identity_request(timeout=3_600_000_000))
        assert output_bytes(hour) == ARRAY.tobytes()


@pytest.mark.parametrize("timeout", [0, 2**63 - 1, 2**64 - 1])
def test_0_is_no_timeout_and_a_huge_one_is_as_good_as_none(
    server: StartServer, timeout: int
) -> None:
    one = server()
    with Connection(one.address) as connection:
        reply = exchange_with_a_pause(one, connection, identity_request(timeout=timeout))
        assert output_bytes(reply) == ARRAY.tobytes()


@pytest.mark.parametrize("timeout", [-1, 1.5, "soon", True, [1]])
def test_a_timeout_that_is_no_whole_number_is_refused(server: StartServer, timeout: object) -> None:
    one = server()
    given = {"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    document = {"inputs": [given], "parameters": {"timeout": timeout}}
    with Connection(one.address) as connection:
        reply = connection.exchange(post_json("/v2/models/identity/infer", document))
        assert reply.status == 400
        assert "timeout" in reply.error


# --- in the queue ---------------------------------------------------------------------------------


# These tests build on the order in which requests of several models wait.
FIFO = ("--policy", "fifo")


def send_at_once(one: Server, *requests: bytes) -> list[Connection]:
    """All of them come to the server in one turn of its loop, in this order."""
    connections = [Connection(one.address) for _ in requests]
    # The last one is none of theirs: a loop that is stopped behind a reply may receive from that
    # connection once more before it looks at all of them.
    with Connection(one.address) as another:
        for connection in (*connections, another):
            assert connection.exchange(LIVE).status == 200
    with stopped(one.pid):
        for connection, request in zip(connections, requests):
            connection.send_into_kernel(request)
    return connections


@every_kind
def test_a_request_that_waits_longer_than_the_default_expires(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    # 20 ms: the slow model takes more, and one that finds its worker free much less.
    arguments = ("--queue-type", queue, *FIFO, "--default-timeout-us", "20000")
    one = server(*arguments, repository=slow_repository)
    first, late, patient, own = connections = send_at_once(
        one,
        slow_request(timeout=0),
        identity_request(),
        identity_request(timeout=0),
        identity_request(timeout=3_600_000_000),
    )
    try:
        assert first.reply().status == 200
        assert late.reply().status == 504
        # 0 is "none" also where there is a default, and a timeout of its own beats it.
        assert output_bytes(patient.reply()) == ARRAY.tobytes()
        assert output_bytes(own.reply()) == ARRAY.tobytes()
        counts = statistics(first, "identity")
        assert (counts["execution_count"], counts["success"], counts["fail"]) == (2, 2, 1)
    finally:
        for connection in connections:
            connection.socket.close()


@every_kind
def test_a_timeout_of_its_own_may_be_shorter_than_the_default(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    arguments = ("--queue-type", queue, *FIFO, "--default-timeout-us", "3600000000")
    one = server(*arguments, repository=slow_repository)
    requests = (slow_request(), slow_request(timeout=20_000), identity_request())
    first, late, other = connections = send_at_once(one, *requests)
    try:
        assert [c.reply().status for c in (first, late, other)] == [200, 504, 200]
        assert statistics(first, "slow")["execution_count"] == 1
    finally:
        for connection in connections:
            connection.socket.close()


def test_one_that_is_held_back_for_others_expires_before_they_come(server: StartServer) -> None:
    # `batched` would wait ten seconds for the batch to fill.
    arguments = ("--queue-type", "batched", "--batch-size", "8", "--max-queue-delay-us", "10000000")
    one = server(*arguments, "--default-timeout-us", "50000")
    array = np.zeros((1, 256), np.float32)
    with Connection(one.address) as connection:
        reply = connection.exchange(infer_bytes("mlp", "input", array))
        assert reply.status == 504
        assert statistics(connection, "mlp")["execution_count"] == 0
        # No wait where the batch is full at once.
        full = infer_bytes("mlp", "input", np.zeros((8, 256), np.float32))
        assert connection.exchange(full).status == 200


@every_kind
def test_the_default_changes_while_the_server_runs(
    server: StartServer, slow_repository: Path, tmp_path: Path, queue: str
) -> None:
    path = tmp_path / "lumen.sock"
    one = server("--queue-type", queue, *FIFO, "--unix", str(path), repository=slow_repository)
    for timeout, wanted in ((0, 200), (20_000, 504), (0, 200)):
        with UnixConnection(path) as control:
            change = post_json("/v2/lumen/engine", {"default_timeout_us": timeout})
            assert control.exchange(change).status == 200
        first, second = send_at_once(one, slow_request(timeout=0), identity_request())
        with first, second:
            assert [first.reply().status, second.reply().status] == [200, wanted]
