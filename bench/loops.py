"""The question: does an I/O thread answer more requests over io_uring than over epoll?

  lumen bench (one thread, closed loop) --TCP loopback--> lumen --queue-type inline: one I/O thread

Two servers alike, `--loop io_uring` and `--loop epoll`, in turn: the MLP (1 KiB of tensor) with 1,
16, 256, 1,000 and 10,000 connections, all active, with 16 beside 5,000 silent ones, and the
model `identity` with bodies of 600 KB on 4 connections. Of each: throughput, p50 and p99, CPU of
the server a request, its system calls for sockets a request (its own count), and the longest wait
in medians. The limit of p99 with 10,000 connections is Little's: connections / throughput.
"""

from __future__ import annotations

import tempfile
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lumen_engine import Server

from bench.connections import SPARE_FILES, allow_files, open_idle
from bench.runner import ROOT, Bench, Goal, Run, make_row
from bench.runner.places import cpu_ns, lumen_bench, program

OURS, RIVAL = "io_uring", "epoll"
MOST = 10_000
SILENT = 5_000  # of each server: the bench itself has all of both
WARM_UP_S = 0.3
BODY_FLOATS = 150_000  # 600 KB
# Little's law: with so many clients in a closed loop the mean latency is clients / throughput.
OVER_LITTLE = 1.2
MOST_WAITS = 3  # medians


@dataclass(frozen=True)
class Load:
    name: str
    model: str
    clients: int
    has_silent: bool = False


LOADS = (
    *(Load(f"mlp, {n:,} active", "mlp", n) for n in (1, 16, 256, 1_000, MOST)),
    Load("identity 600 KB, 4 active", "identity", 4),
    # The last, since the silent connections stay.
    Load(f"mlp, 16 active, {SILENT:,} silent", "mlp", 16, has_silent=True),
)
QUICK_LOADS = LOADS[1:3]
# By metric: its unit, and whether more is better.
METRICS: dict[str, tuple[str, bool]] = {
    "throughput": ("requests/s", True),
    "p50": ("us", False),
    "p99": ("us", False),
    "CPU": ("us a request", False),
    "system calls": ("a request", False),
    "longest wait": ("medians", False),
}


def counted(server: Server) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()

    def total(name: str) -> float:
        return sum(float(line.split()[1]) for line in lines if line.startswith(name))

    return {
        "calls": total("lumen_loop_system_calls_total"),
        "requests": total("lumen_requests_total"),
        "cpu": cpu_ns(server.pid),
    }


def measure_once(server: Server, load: Load, seconds: float, body: Path) -> dict[str, float]:
    words = ["--clients", str(load.clients), "--duration", str(seconds)]
    words += ["--warm-up", str(WARM_UP_S), "--timeout", "60"]
    if load.model == "identity":
        words += ["--input", str(body)]
    before = counted(server)
    row = lumen_bench(f"http://127.0.0.1:{server.port}", load.model, *words)
    more = {name: value - before[name] for name, value in counted(server).items()}
    latency = row["latency_us"]
    return {
        "throughput": row["per_second"],
        "p50": latency["p50"],
        "p99": latency["p99"],
        "CPU": more["cpu"] / 1e3 / more["requests"],
        "system calls": more["calls"] / more["requests"],
        "longest wait": latency["max"] / latency["p50"],
    }


def add_rows(run: Run, load: Load, found: dict[str, list[dict[str, float]]]) -> None:
    for metric, (unit, more_is_better) in METRICS.items():
        rounds = {loop: [one[metric] for one in found[loop]] for loop in (OURS, RIVAL)}
        made = make_row(load.name, metric, unit, rounds, more_is_better=more_is_better)
        if made is not None and metric == "p99" and load.clients == MOST:
            fastest = max(one["throughput"] for one in found[OURS])
            made["limit"] = round(1e6 * MOST / fastest, 1)
        run.add(made)


def measure_load(run: Run, load: Load, servers: dict[str, Server], body: Path) -> None:
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for turn in run.turns((OURS, RIVAL)):
        for loop in turn:
            found[loop].append(measure_once(servers[loop], load, run.seconds, body))
    add_rows(run, load, found)


def measure(run: Run) -> None:
    allow_files(MOST + SPARE_FILES)
    flags = ["--backend", "openvino", "--queue-type", "inline", "--unix", "off"]
    flags += ["--max-connections", str(MOST + 100), "--queue-capacity", "16384"]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        body = Path(folder) / "body.npy"
        np.save(body, np.random.default_rng(1).random((1, BODY_FLOATS), dtype=np.float32))
        servers = {}
        for loop in (OURS, RIVAL):
            words = [*flags, "--loop", loop]
            server = Server(ROOT / "models", words, executable=program("lumen"))
            servers[loop] = stack.enter_context(server)
        for load in run.pick(LOADS, QUICK_LOADS):
            if not run.wants(load.name):
                continue
            if load.has_silent:
                for server in servers.values():
                    open_idle(server.port, stack, SILENT)
            measure_load(run, load, servers, body)


BENCH = Bench(
    title="Loops",
    measure=measure,
    minutes=3.0,
    quick_minutes=0.3,
    seconds=(2.0, 0.5),
    sources=(
        "include/lumen/net/**",
        "src/net/**",
        "src/server/io_thread*",
        "src/transports/http/**",
    ),
    goals=(
        Goal("^mlp, (16|256) active", "ratio_at_least", 1.15, "1.15 of epoll", metric="throughput"),
        Goal("^mlp, (16|256) active", "at_most", 0.5, "0.5 a request", metric="system calls"),
        Goal("10,000 active", "at_most", MOST_WAITS, "3 medians", metric="longest wait"),
        Goal(
            "10,000 active",
            "of_limit_at_most",
            OVER_LITTLE,
            "1.2 times Little's floor",
            metric="p99",
        ),
    ),
)
