"""The question: what do connections cost on which nothing happens?

Two servers alike, one of which has 10,000 connections that have each had one request answered and
are silent since: their memory (Pss of /proc/PID/smaps_rollup), and the latency of four other
clients of the MLP (`lumen bench`, closed loop), in turn.
"""

from __future__ import annotations

import re
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

from lumen_engine import Server

from bench.runner import ROOT, Bench, BenchError, Run, make_row
from bench.runner.places import lumen_bench, program

IDLE = 10_000
SPARE_FILES = 500
METRICS = {"memory": "MiB", "p50": "us", "p99": "us", "throughput": "requests/s"}
WITH, WITHOUT = f"{IDLE:,} idle connections", "none"
READY = b"GET /v2/health/ready HTTP/1.1\r\nHost: bench\r\n\r\n"


def allow_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        raise BenchError(f"{count} open files are needed, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def memory_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]) / 1024


def open_idle(port: int, stack: ExitStack, count: int = IDLE) -> None:
    for _ in range(count):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        connection.sendall(READY)
        reply = connection.recv(4096)
        if not reply.startswith(b"HTTP/1.1 200"):
            raise BenchError(f"not answered: {reply[:100]!r}")


def load(server: Server, seconds: float) -> dict[str, float]:
    words = ("--clients", "4", "--duration", str(seconds), "--warm-up", "0.3")
    row = lumen_bench(f"http://127.0.0.1:{server.port}", "mlp", *words)
    return {
        "memory": memory_mib(server.pid),
        "p50": row["latency_us"]["p50"],
        "p99": row["latency_us"]["p99"],
        "throughput": row["per_second"],
    }


def measure(run: Run) -> None:
    allow_files(IDLE + SPARE_FILES)
    found: dict[str, list[dict[str, float]]] = {WITH: [], WITHOUT: []}
    flags = ["--backend", "openvino", "--max-connections", str(IDLE + 100), "--unix", "off"]
    flags += ["--pin-threads", "off"]  # by themselves the two would take different CPUs
    with ExitStack() as stack:
        servers = {
            kind: stack.enter_context(Server(ROOT / "models", flags, executable=program("lumen")))
            for kind in found
        }
        open_idle(servers[WITH].port, stack)
        for turn in run.turns(list(servers)):
            for kind in turn:
                found[kind].append(load(servers[kind], run.seconds))
    for metric, unit in METRICS.items():
        rounds = {kind: [one[metric] for one in found[kind]] for kind in found}
        run.add(make_row(WITH, metric, unit, rounds, more_is_better=metric == "throughput"))


BENCH = Bench(
    title="Connections",
    measure=measure,
    minutes=0.5,
    quick_minutes=0.3,
    seconds=(2.0, 0.5),
    sources=("include/**", "src/**", "apps/**"),
)
