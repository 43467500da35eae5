"""The engine changes while it serves, by POST /v2/lumen/engine and by SIGHUP: nobody notices."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, pairwise, permutations
from pathlib import Path
from typing import Any

import pytest
from integration.harness import (
    CHANGE_TIMEOUT_S,
    PATIENCE,
    SANITIZED,
    ServeProcess,
    UnixConnection,
)
from integration.load import (
    ALLOCATORS,
    COMBINATIONS,
    QUEUE_TYPES,
    Case,
    Load,
    make_cases,
    read_csv,
)
from integration.raw_http import Reply, get, head, post, post_json
from integration.reference import reference_of

ENGINE = "/v2/lumen/engine"
KEYS = [
    "queue_type",
    "allocator_type",
    "thread_count",
    "batch_size",
    "max_queue_delay_us",
    "queue_capacity",
    "policy",
    "default_timeout_us",
    "latency_budget_us",
]


def all_changes() -> list[str]:
    """A round trip that makes each of the 20 ordered changes of queue type once (Hierholzer)."""
    left = {
        queue_type: [other for other in QUEUE_TYPES if other != queue_type]
        for queue_type in QUEUE_TYPES
    }
    path, tour = [QUEUE_TYPES[0]], []
    while path:
        if left[path[-1]]:
            path.append(left[path[-1]].pop())
        else:
            tour.append(path.pop())
    assert set(pairwise(tour)) == set(permutations(QUEUE_TYPES, 2)) and len(tour) == 21
    return tour


def make_swap_cases(backend: str, repository: Path) -> list[Case]:
    rows = [3 if i % 3 == 2 else 1 for i in range(60)]
    return make_cases(reference_of(backend, repository), "mlp", rows, seed=3)


@pytest.fixture
def cases(small_repository: Path) -> list[Case]:
    return make_swap_cases("openvino", small_repository)


class Swapped:
    """A server with both listeners and a CSV; `change` returns when the change is made."""

    def __init__(self, folder: Path, repository: Path, *arguments: str) -> None:
        self.csv = folder / "trace.csv"
        self.file = folder / "config.json"
        self.sections: dict[str, Any] = {"engine": {"queue_type": QUEUE_TYPES[0]}}
        self.file.write_text(json.dumps(self.sections))
        self.serve = ServeProcess(
            *("--config", str(self.file), "--http", "127.0.0.1:0"),
            *("--unix", str(folder / "lumen.sock"), "--model-repository", str(repository)),
            *("--telemetry-csv-path", str(self.csv), *arguments),
        )

    def connect_unix(self) -> UnixConnection:
        return UnixConnection(self.serve.addresses["unix"])

    def post(self, document: Any) -> Reply:
        with self.connect_unix() as connection:
            connection.socket.settimeout(CHANGE_TIMEOUT_S)
            return connection.exchange(post_json(ENGINE, document))

    def change_by_post(self, **engine: Any) -> None:
        reply = self.post(engine)
        assert reply.status == 200, reply
        got = reply.json()["engine"]
        assert {key: got[key] for key in engine} == engine

    def change_by_sighup(self, **engine: Any) -> None:
        self.sections["engine"].update(engine)
        self.file.write_text(json.dumps(self.sections))
        self.serve.reload()
        self.serve.wait_for_log("SIGHUP: engine.", timeout_s=CHANGE_TIMEOUT_S)


@pytest.fixture
def swapped(tmp_path: Path, small_repository: Path) -> Iterator[Swapped]:
    one = Swapped(tmp_path, small_repository)
    with one.serve:
        yield one


def check_trace(lines: list[dict[str, str]], ids: list[str]) -> None:
    """Every request once, and each combination of queue and allocator served some of them."""
    assert sorted(line["request_id"] for line in lines) == sorted(ids)
    assert {line["status"] for line in lines} == {"200"}
    served = Counter((line["queue_type"], line["allocator_type"]) for line in lines)
    assert set(served) == set(COMBINATIONS), served
    # With 3 workers the third has had requests too, if not of every queue_type.
    assert {line["worker"] for line in lines} == {"0", "1", "2"}


# --- under load -----------------------------------------------------------------------------------


# The cost of a change decides, so each change of the queue is made with either allocator in one of
# them, and in the others once, with allocators in a turn that meets every one; ./dev soak does all,
# with more requests.
IS_LONG = int(os.environ.get("LUMEN_STRESS_SCALE", "1")) > 1
EACH_CHANGE_TWICE = [(queue, allocator) for allocator in ALLOCATORS for queue in all_changes()]
EACH_CHANGE_ONCE = list(zip(all_changes(), cycle((*ALLOCATORS, *reversed(ALLOCATORS)))))
if IS_LONG:
    WAYS_UNDER_LOAD = [("post", 1, 20_000), ("post", 2, 20_000), ("sighup", 2, 8_000)]
elif SANITIZED:
    WAYS_UNDER_LOAD = [("post", 2, 400), ("sighup", 1, 400)]
else:
    WAYS_UNDER_LOAD = [("post", 1, 2_000), ("post", 2, 8_000), ("sighup", 2, 2_000)]
BACKENDS_UNDER_LOAD = [
    *[pytest.param("openvino", *way) for way in WAYS_UNDER_LOAD],
    pytest.param("onnxruntime", *WAYS_UNDER_LOAD[0]),
]


@pytest.mark.parametrize(("backend", "way", "io_threads", "requests"), BACKENDS_UNDER_LOAD)
def test_every_change_under_load_fails_not_one_request(
    tmp_path: Path, small_repository: Path, backend: str, way: str, io_threads: int, requests: int
) -> None:
    changes = EACH_CHANGE_TWICE if requests >= 8_000 else EACH_CHANGE_ONCE
    cases = make_swap_cases(backend, small_repository)
    flags = ("--io-threads", str(io_threads), "--backend", backend)
    one = Swapped(tmp_path, small_repository, *flags)
    change = one.change_by_post if way == "post" else one.change_by_sighup
    with one.serve:
        load = Load(one.serve.connect, cases, clients=6)
        thread_counts = cycle((3, 2, 1))
        for queue_type, allocator in changes:
            # The first of each 21 changes differs from the one before by its workers.
            workers = next(thread_counts)
            change(queue_type=queue_type, allocator_type=allocator, thread_count=workers)
            load.wait_for(requests // len(changes) + 1)
        outcome = load.end()
        with one.serve.connect() as connection:
            metrics = connection.exchange(get("/metrics")).body.decode()
    outcome.check(len(outcome.ids))
    assert len(outcome.ids) >= requests
    assert re.search(rf"^lumen_engine_swaps_total {len(changes)}$", metrics, re.MULTILINE)
    check_trace(read_csv(one.csv), outcome.ids)


def test_a_change_takes_effect_for_the_next_request(swapped: Swapped, cases: list[Case]) -> None:
    with swapped.serve.connect() as connection:
        for queue_type, allocator in COMBINATIONS:
            swapped.change_by_post(queue_type=queue_type, allocator_type=allocator)
            assert connection.exchange(cases[0].request).status == 200
    swapped.serve.stop()
    lines = read_csv(swapped.csv)
    assert [(line["queue_type"], line["allocator_type"]) for line in lines] == COMBINATIONS


# --- the endpoint ---------------------------------------------------------------------------------


def test_get_tells_the_configuration_and_a_change_shows_in_it(swapped: Swapped) -> None:
    with swapped.connect_unix() as connection:
        before = connection.exchange(get(ENGINE)).json()
        assert list(before) == ["engine", "models"] and list(before["engine"]) == KEYS
        names = [(model["name"], model["backend"]) for model in before["models"]]
        assert names == [(name, "openvino") for name in ("add_sub", "identity", "mlp")]
        assert before["engine"]["queue_type"] == "mpmc"
        wanted = {"queue_type": "batched", "batch_size": 8, "max_queue_delay_us": 100}
        assert connection.exchange(post_json(ENGINE, wanted)).json()["engine"] == {
            **before["engine"],
            **wanted,
        }
        # As a section too, as GET gives it; settings that it does not name stay.
        reply = connection.exchange(post_json(ENGINE, {"engine": {"thread_count": 2}}))
        assert reply.json()["engine"] == {**before["engine"], **wanted, "thread_count": 2}
        assert connection.exchange(get(ENGINE)).body == reply.body
        assert connection.exchange(post(ENGINE, reply.body)).body == reply.body


def test_no_workers_stand_for_as_many_as_there_are_cpus(swapped: Swapped) -> None:
    count = swapped.post({"thread_count": 0}).json()["engine"]["thread_count"]
    assert count >= 1


@pytest.mark.parametrize("request_bytes", [get(ENGINE), post_json(ENGINE, {"batch_size": 2})])
def test_over_tcp_it_is_forbidden(swapped: Swapped, request_bytes: bytes) -> None:
    with swapped.serve.connect() as connection:
        reply = connection.exchange(request_bytes)
        assert reply.status == 403
        assert "unix" in reply.error
        assert connection.exchange(get("/v2/health/live")).status == 200
    with swapped.connect_unix() as connection:
        assert connection.exchange(get(ENGINE)).json()["engine"]["batch_size"] == 16


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b'{"queue_type": "lifo"}',
            ["queue_type", "lifo", "mpmc, spsc, naive, batched, inline, auto"],
        ),
        (b'{"queue_typ": "spsc"}', ["queue_typ", "nearest is 'queue_type'"]),
        (b'{"thread_count": 257}', ["thread_count", "257", "0 to 256"]),
        (b'{"thread_count": "two"}', ["thread_count", "two"]),
        (b'{"thread_count": 1.5}', ["thread_count", "1.5"]),
        (b'{"batch_size": 0}', ["batch_size", "got 0", "1 to 128"]),
        (b'{"queue_capacity": 1000}', ["queue_capacity", "1000", "power of two"]),
        (b'{"batch_size": 2, "batch_size": 3}', ["batch_size", "twice"]),
        (b'{"engine": {}, "server": {}}', ["server"]),
        (b'{"telemetry_csv_path": "x.csv"}', ["telemetry_csv_path", "restart"]),
        (b"[]", ["object"]),
        (b"{", ["line 1"]),
        (b'{"queue_type": "spsc"} x', []),
        (b"\xff\xfe", []),
    ],
)
def test_a_wrong_body_is_refused_with_its_reason(
    swapped: Swapped, body: bytes, words: list[str]
) -> None:
    with swapped.connect_unix() as connection:
        before = connection.exchange(get(ENGINE)).body
        reply = connection.exchange(post(ENGINE, body))
        assert reply.status == 400
        for word in words:
            assert word in reply.error
        assert connection.exchange(get(ENGINE)).body == before


def test_a_change_needs_a_body(swapped: Swapped) -> None:
    with swapped.connect_unix() as connection:
        for request in (head("POST", ENGINE), head("POST", ENGINE, "Content-Length: 0")):
            reply = connection.exchange(request)
            assert reply.status == 400
            assert "body" in reply.error


def test_other_methods_are_not_allowed(swapped: Swapped) -> None:
    with swapped.connect_unix() as connection:
        assert connection.exchange(head("DELETE", ENGINE)).status == 405


def test_changes_asked_for_at_once_are_made_one_after_the_other(swapped: Swapped) -> None:
    connections = [swapped.connect_unix() for _ in range(8)]
    try:
        for number, connection in enumerate(connections):
            connection.send(post_json(ENGINE, {"batch_size": number + 1}))
        got = [connection.reply().json()["engine"]["batch_size"] for connection in connections]
        assert set(got) <= set(range(1, 9))
        with swapped.connect_unix() as connection:
            assert connection.exchange(get(ENGINE)).json()["engine"]["batch_size"] in got
    finally:
        for connection in connections:
            connection.socket.close()


def test_a_client_that_leaves_during_its_change_harms_nobody(swapped: Swapped) -> None:
    with swapped.connect_unix() as connection:
        connection.send(post_json(ENGINE, {"queue_type": "spsc", "thread_count": 2}))
    with swapped.connect_unix() as connection:
        reply = connection.exchange(post_json(ENGINE, {"batch_size": 4}))
        # The control thread takes one after the other, so the first has been made by now.
        assert reply.json()["engine"]["queue_type"] == "spsc"


def test_a_drain_during_a_change_ends_in_peace(swapped: Swapped) -> None:
    with swapped.connect_unix() as connection:
        connection.send(post_json(ENGINE, {"queue_type": "batched", "thread_count": 3}))
        swapped.serve.process.terminate()
        # Answered, or closed unread: the signal may come first.
        connection.is_closed()
    # Not stop(): a second signal would end it at once.
    assert swapped.serve.process.wait(30 * PATIENCE) == 0
