"""Changes of the engine leave nothing behind: no memory, mappings, threads or files.

Forty changes, or five hundred where LUMEN_STRESS_SCALE says so (./dev soak), idle and under load.
"""

from __future__ import annotations

import os
import re
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest
from integration.harness import (
    CHANGE_TIMEOUT_S,
    SANITIZED,
    ServeProcess,
    UnixConnection,
)
from integration.load import ALLOCATORS, QUEUE_TYPES, Load, make_cases
from integration.raw_http import post_json
from integration.reference import reference_of

# Under ASan freed memory waits in a quarantine, so that the kernel's figures say nothing of Lumen;
# LeakSanitizer looks at the end of each server's life, and the other tests change engines there.
pytestmark = pytest.mark.skipif(SANITIZED, reason="RSS under a sanitizer is the sanitizer's")

CHANGES = 500 if int(os.environ.get("LUMEN_STRESS_SCALE", "1")) > 1 else 40
# By then each queue type has run with each number of workers that it gets here, twice.
SETTLED = 20
CYCLE = 10
THREAD_COUNTS = (3, 1, 2, 3, 1, 3, 2, 1, 3, 2)


@dataclass(frozen=True)
class Held:
    """The memory that a process holds, by the kernel."""

    rss_kib: int
    mappings: int
    threads: int
    files: int


# How much more than at the 20th change any later one may hold. Before, 40 changes left 950 mappings
# (17 and more each: memory that OpenVINO had bound to a node, which the kernel does not merge).
# Heaps of several threads move by a few mappings and MiB from change to change, either way.
TOLERANCE = Held(rss_kib=16 * 1024, mappings=100, threads=2, files=2)


def held_by(pid: int) -> Held:
    process = Path(f"/proc/{pid}")
    status = (process / "status").read_text()

    def number(key: str) -> int:
        found = re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE)
        assert found is not None, status
        return int(found[1])

    mappings = (process / "maps").read_text().count("\n")
    return Held(number("VmRSS"), mappings, number("Threads"), len(os.listdir(process / "fd")))


def change(serve: ServeProcess, number: int) -> None:
    document = {
        "queue_type": QUEUE_TYPES[number % len(QUEUE_TYPES)],
        "allocator_type": ALLOCATORS[number // len(QUEUE_TYPES) % len(ALLOCATORS)],
        "thread_count": THREAD_COUNTS[number % CYCLE],
    }
    with UnixConnection(serve.addresses["unix"]) as connection:
        connection.socket.settimeout(CHANGE_TIMEOUT_S)
        reply = connection.exchange(post_json("/v2/lumen/engine", document))
    assert reply.status == 200, reply


@pytest.mark.parametrize(
    ("backend", "loaded"),
    [
        pytest.param("openvino", False, id="openvino_idle"),
        pytest.param("openvino", True, id="openvino_under_load"),
        pytest.param("onnxruntime", True, id="onnxruntime_under_load"),
    ],
)
def test_the_servers_memory_is_flat_from_the_twentieth_change_on(
    tmp_path: Path, small_repository: Path, backend: str, loaded: bool
) -> None:
    serve = ServeProcess(
        *("--http", "127.0.0.1:0", "--unix", str(tmp_path / "lumen.sock")),
        *("--model-repository", str(small_repository), "--backend", backend),
    )
    with serve:
        cases = make_cases(reference_of(backend, small_repository), "mlp", [1, 1, 3], seed=7)
        load = Load(serve.connect, cases, clients=2) if loaded else None
        # Each at the same place of the cycle, so that the same configuration is looked at.
        series: dict[int, Held] = {}
        for number in range(1, CHANGES + 1):
            change(serve, number)
            if load is not None:
                load.wait_for(5)
            if number % CYCLE == 0 and number >= SETTLED:
                series[number] = held_by(serve.process.pid)
        if load is not None:
            outcome = load.end()
            outcome.check(len(outcome.ids))
    print({number: astuple(held) for number, held in series.items()})
    first = astuple(series[SETTLED])
    for number, held in series.items():
        for name, was, now, more in zip(
            Held.__annotations__, first, astuple(held), astuple(TOLERANCE), strict=True
        ):
            assert now <= was + more, f"{name} at change {number}: {now}, at {SETTLED}: {was}"
