"""Load with known answers: cases that a runtime has answered, clients that compare every reply.

Each client is a thread with a connection of its own. Requests carry an id that no other has, so
that the telemetry CSV can be held against the sent requests. Errors: Outcome.failures, never by
raising: a client that failed must not end the others.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from integration.raw_http import Connection, Reply, get, post
from integration.reference import OnnxRuntimeReference, Reference

QUEUE_TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
# Of tests that take seconds each, most of them waits: all five in ./dev soak. spsc and naive differ
# from mpmc by the queue alone, which the unit and conformance tests compare.
SLOW_QUEUE_TYPES = (
    QUEUE_TYPES
    if int(os.environ.get("LUMEN_STRESS_SCALE", "1")) > 1
    else ("mpmc", "batched", "inline")
)
ALLOCATORS = ("lumen_arena", "standard")
COMBINATIONS = [(queue, allocator) for queue in QUEUE_TYPES for allocator in ALLOCATORS]
# As long as every id, so that a request is made by putting bytes in the place of others.
ID_PLACE = b"c00-00000000"


@dataclass(frozen=True)
class Case:
    """A request as it leaves, with ID_PLACE as its id, and the answer, of which an element may be
    off by `tolerance`: packed with others, rows may be added up in another order."""

    model: str
    rows: int
    request: bytes
    answer: bytes
    tolerance: float = 0

    def is_answered_by(self, got: bytes) -> bool:
        if self.tolerance == 0 or len(got) != len(self.answer):
            return got == self.answer
        arrays = (np.frombuffer(data, np.float32) for data in (got, self.answer))
        return np.allclose(*arrays, rtol=0, atol=self.tolerance)


@dataclass
class Outcome:
    ids: list[str] = field(default_factory=list)  # of all that were answered as wanted
    rows: int = 0
    failures: list[str] = field(default_factory=list)

    def check(self, requests: int) -> None:
        assert not self.failures, f"{len(self.failures)} failures, the first: {self.failures[0]}"
        assert len(self.ids) == len(set(self.ids)) == requests


def infer_bytes(
    model: str, name: str, array: np.ndarray, *, request_id: str | None = None, **parameters: int
) -> bytes:
    """A request in the protocol's binary form, as tritonclient sends it."""
    payload = array.astype(np.float32).tobytes()
    tensor = {"name": name, "datatype": "FP32", "shape": list(array.shape)}
    tensor["parameters"] = {"binary_data_size": len(payload)}
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True, **parameters}}
    if request_id is not None:
        document["id"] = request_id
    text = json.dumps(document).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"/v2/models/{model}/infer", text + payload, length)


def output_bytes(reply: Reply) -> bytes:
    return reply.body[int(reply.headers["inference-header-content-length"]) :]


def make_cases(
    reference: Reference | OnnxRuntimeReference, model: str, rows: Sequence[int], seed: int
) -> list[Case]:
    """One for each of `rows`; the first input takes random values."""
    name, tail = reference.first_input(model)
    rng = np.random.default_rng(seed)
    cases = []
    for count in rows:
        array = rng.standard_normal((count, *tail)).astype(np.float32)
        outputs = reference.infer(model, {name: array}).values()
        answer = b"".join(output.tobytes() for output in outputs)
        request = infer_bytes(model, name, array, request_id=ID_PLACE.decode())
        cases.append(Case(model, count, request, answer, reference.tolerance))
    return cases


def ask(
    connect: Callable[[], Connection],
    cases: Sequence[Case],
    client: int,
    is_over: Callable[[int], bool],
    on_answer: Callable[[], None] = lambda: None,
) -> Outcome:
    """One client, until `is_over` says so of the number of requests made."""
    outcome = Outcome()
    number = 0
    try:
        with connect() as connection:
            while not is_over(number):
                case = cases[(number + client) % len(cases)]
                request_id = b"c%02d-%08d" % (client, number)
                reply = connection.exchange(case.request.replace(ID_PLACE, request_id, 1))
                number += 1
                head = reply.body[: len(reply.body) - len(case.answer)]
                if reply.status != 200:
                    outcome.failures.append(f"{request_id!r}: {reply.status} {reply.body[:300]!r}")
                elif not case.is_answered_by(output_bytes(reply)) or request_id not in head:
                    outcome.failures.append(f"{request_id!r}: {case.model}, a wrong answer")
                else:
                    outcome.ids.append(request_id.decode())
                    outcome.rows += case.rows
                on_answer()
    except (OSError, AssertionError) as error:
        outcome.failures.append(f"client {client} after {number} requests: {error!r}")
        on_answer()
    return outcome


def merge(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        [one for outcome in outcomes for one in outcome.ids],
        sum(outcome.rows for outcome in outcomes),
        [one for outcome in outcomes for one in outcome.failures],
    )


class Load:
    """`clients` threads that ask until they have asked enough or are told to stop."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        cases: Sequence[Case],
        clients: int,
        requests_each: int | None = None,
    ) -> None:
        self._answered = 0
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._outcomes: list[Outcome] = []

        def is_over(number: int) -> bool:
            return self._stop.is_set() or number == requests_each

        def run(client: int) -> None:
            outcome = ask(connect, cases, client, is_over, self._count)
            self._outcomes.append(outcome)

        self._threads = [threading.Thread(target=run, args=(i,)) for i in range(clients)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, more: int, timeout_s: float = 60) -> None:
        """Until so many more requests than now have been answered."""
        with self._changed:
            wanted = self._answered + more
            assert self._changed.wait_for(lambda: self._answered >= wanted, timeout_s), (
                f"{self._answered} answers, wanted {wanted}: {merge(self._outcomes).failures[:3]}"
            )

    def end(self) -> Outcome:
        self._stop.set()
        return self.join()

    def join(self) -> Outcome:
        for thread in self._threads:
            thread.join()
        return merge(self._outcomes)

    def _count(self) -> None:
        with self._changed:
            self._answered += 1
            self._changed.notify_all()


def statistics(connection: Connection, model: str) -> dict[str, int]:
    """{"inference_count", "execution_count", "success", "fail"} of a model."""
    reply = connection.exchange(get(f"/v2/models/{model}/stats"))
    assert reply.status == 200, reply
    (entry,) = reply.json()["model_stats"]
    counts = {key: entry[key] for key in ("inference_count", "execution_count")}
    stages = entry["inference_stats"]
    return counts | {key: stages[key]["count"] for key in ("success", "fail")}


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process stands still: requests that its kernel has acknowledged by the end come to
    it in one turn of its loop."""
    os.kill(pid, signal.SIGSTOP)
    try:
        os.waitpid(pid, os.WUNTRACED)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
