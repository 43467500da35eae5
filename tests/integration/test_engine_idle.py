"""After a burst of load a server at rest costs nothing, with any queue type."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from integration.harness import PATIENCE, Server
from integration.load import ALLOCATORS, QUEUE_TYPES, Load, make_cases
from integration.raw_http import Connection, get
from integration.reference import Reference

pytestmark = pytest.mark.timing

StartServer = Callable[..., Server]
CONNECTIONS = 100
SILENCE_S = 3.0
# bench/idle.py holds the server to 10 ms in 10 s; here the same rate.
MAX_CPU_NS = 3_000_000


def cpu_ns(pid: int) -> int:
    """Of all threads. Ticks of 10 ms, as in /proc/PID/stat, would be too coarse."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has ended meanwhile
            total += int((task / "schedstat").read_text().split()[0])
    return total


def wait_until_still(pid: int, connections: list[Connection]) -> None:
    """Until nothing ran for 0.3 s: workers spin for half a millisecond, the CSV waits for 0.2 s."""
    end = time.monotonic() + 10 * PATIENCE
    before = cpu_ns(pid)
    while time.monotonic() < end:
        readable, _, _ = select.select([c.socket for c in connections], [], [], 0.3)
        assert not readable
        now = cpu_ns(pid)
        if now == before:
            return
        before = now
    raise AssertionError("the server does not come to rest")


@pytest.mark.skipif(
    os.environ.get("LUMEN_PRESET") == "tsan", reason="ThreadSanitizer has a thread of its own"
)
@pytest.mark.parametrize("queue", QUEUE_TYPES)
def test_idle_after_load(
    server: StartServer, small_repository: Path, tmp_path: Path, queue: str
) -> None:
    allocator = ALLOCATORS[QUEUE_TYPES.index(queue) % 2]
    one = server(
        *("--queue-type", queue, "--allocator-type", allocator, "--thread-count", "2"),
        *("--io-threads", "2", "--max-queue-delay-us", "500"),
        *("--telemetry-csv-path", str(tmp_path / "trace.csv")),
    )
    cases = make_cases(Reference(small_repository), "mlp", [1] * 16, seed=8)
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(one.address)) for _ in range(CONNECTIONS)]
        Load(lambda: Connection(one.address), cases, 8, 250).join().check(2000)
        for connection, case in zip(connections, cases * CONNECTIONS):
            assert connection.exchange(case.request).status == 200
        assert connections[0].exchange(get("/metrics")).status == 200
        wait_until_still(one.pid, connections)
        before = cpu_ns(one.pid)
        assert before > MAX_CPU_NS  # the load is counted, so the silence would be too
        # The silence itself is measured.
        readable, _, _ = select.select([c.socket for c in connections], [], [], SILENCE_S)
        assert not readable
        used = cpu_ns(one.pid) - before
        assert used <= MAX_CPU_NS, f"{used / 1e6:.3f} ms of CPU in {SILENCE_S} s of silence"
        # It has slept, and wakes.
        for connection, case in zip(connections, cases):
            assert connection.exchange(case.request).status == 200
