"""The flight recorder in a server's counters file, read by Python, held against the CSV."""

from __future__ import annotations

import csv
import dataclasses
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from integration.harness import Server
from integration.load import Case, Load, make_cases, read_csv
from integration.raw_http import Connection
from integration.reference import Reference
from lumen_engine import slow
from lumen_engine.counters_file import CountersFile, Request

StartServer = Callable[..., Server]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STAGES = "connect parse queue preprocess inference postprocess write total".split()


@pytest.fixture
def cases(small_repository: Path) -> list[Case]:
    """Every second request belongs to a trace."""
    plain = make_cases(Reference(small_repository), "mlp", [1, 3], seed=7)
    header = f"\r\ntraceparent: {TRACE}\r\n".encode()
    traced = dataclasses.replace(plain[1], request=plain[1].request.replace(b"\r\n", header, 1))
    return [plain[0], traced]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "requests.csv"


def line_of(request: Request) -> dict[str, str]:
    """As the CSV has it."""
    when = EPOCH + timedelta(microseconds=request.first_byte_ns // 1000)
    line = {
        "request_id": request.id,
        "timestamp": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "model": request.model,
        "queue_type": request.queue_type,
        "allocator_type": request.allocator_type,
        "worker": "" if request.worker is None else str(request.worker),
        "rows": str(request.rows),
        "status": str(request.status),
        "cache": request.cache,
        "transport": request.transport,
        "lane": request.lane,
    }
    for stage in STAGES:
        ns = request.stages[stage]
        line[f"{stage}_us"] = "" if ns is None else f"{ns // 1000}.{ns % 1000:03}"
    return line


def test_the_last_and_the_slowest_requests_are_those_of_the_csv(
    server: StartServer, cases: list[Case], file: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "counters"
    one = server(
        *("--io-threads", "2", "--stats", str(stats), "--telemetry-csv-path", str(file)),
        *("--queue-type", "spsc"),
    )
    Load(lambda: Connection(one.address), cases, 4, 100).join().check(400)
    with CountersFile(stats) as counters:
        # A reply goes out before it is recorded.
        end = time.monotonic() + 10
        while len(recent := counters.recent()) < 400:
            assert time.monotonic() < end, len(recent)
        slowest, lately = counters.slow(), counters.slow(since_start=False)
    one.stop()
    lines = {line["request_id"]: line for line in read_csv(file)}
    assert len(lines) == len(recent) == 400
    for request in recent:
        assert line_of(request) == lines[request.id]
    with file.with_name("requests.traceparent.csv").open(newline="") as opened:
        traces = {row["request_id"]: row["traceparent"] for row in csv.DictReader(opened)}
    assert len(traces) == 200 and set(traces.values()) == {TRACE}
    assert {r.id: r.traceparent for r in recent if r.traceparent} == traces
    # 32 of each I/O thread: the 32 slowest of all are among them.
    totals = sorted((request.total_ns for request in recent), reverse=True)
    assert [request.total_ns for request in slowest][:32] == totals[:32]
    assert [request.total_ns for request in lately][:32] == totals[:32]
    for request in slowest:
        assert line_of(request) == lines[request.id]


def test_the_last_requests_of_a_killed_server_are_still_there(
    server: StartServer, cases: list[Case], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = tmp_path / "counters"
    one = server("--stats", str(stats))
    load = Load(lambda: Connection(one.address), cases, 4)
    load.wait_for(2000)
    one.signal(signal.SIGKILL)
    one.wait()
    outcome = load.end()
    with CountersFile(stats) as counters:
        assert not counters.is_alive()
        recent = counters.recent()
    # At most the one that it was writing is not whole.
    assert len(recent) in (1023, 1024)
    numbers = sorted(request.number for request in recent)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    # Of each client the last but one that was answered is there: the last may not be recorded.
    ids = {request.id for request in recent}
    for client in range(4):
        answered = sorted(one for one in outcome.ids if one.startswith(f"c{client:02}-"))
        assert answered[-2] in ids
    for request in recent:
        parts = [ns for stage, ns in request.stages.items() if stage not in ("connect", "total")]
        assert sum(ns or 0 for ns in parts) <= request.total_ns
        assert (request.model, request.status) == ("mlp", 200)
    assert slow.main([str(stats), "--count", "3"]) == 0
    assert "mlp" in capsys.readouterr().out
