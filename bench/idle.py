"""The question: what does the server cost while nobody asks, or few do?

idle   for each queue type, with telemetry CSV and metrics on: 100 connections, a burst of load
       over each, then silence: CPU time of all threads (schedstat, ns) over 10 s. The goal is 10
       ms, the limit 0
spin   an open loop of 1,000 and of 2,100 requests a second, and one client in a closed loop, each
       against a server that polls before it sleeps and one that does not (`--spin off`), in turn:
       the cost of polling, in cores, and its gain in the median. The goal is a tenth of a core
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from lumen_engine import Server

from bench.load import serving
from bench.runner import ROOT, Bench, BenchError, Goal, Run, make_row
from bench.runner.places import cpu_ns, lumen_bench, program, say

QUEUE_TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
CONNECTIONS = 100
BURST_ROUNDS = 20  # 2,000 requests, as fast as one thread can
SILENCE_S, QUICK_SILENCE_S = 10, 2
REST_S = 0.3
REST_NS = 10_000
REST_TIMEOUT_S = 10.0
RATES = (1000, 2100)
COST_OF_SPINNING = 0.1  # cores


def burst(clients: list[socket.socket], request: bytes) -> None:
    """All ask before the first reply is read; a reply is small and comes in one piece or few."""
    for _ in range(BURST_ROUNDS):
        for client in clients:
            client.sendall(request)
        for client in clients:
            reply = client.recv(4096)
            head, _, body = reply.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise BenchError(f"not answered: {head!r}")
            length = int(head.lower().split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0])
            while len(body) < length:
                body += client.recv(4096)


def wait_for_rest(pid: int) -> None:
    end = time.monotonic() + REST_TIMEOUT_S
    before = cpu_ns(pid)
    while time.monotonic() < end:
        time.sleep(REST_S)
        now = cpu_ns(pid)
        if now - before < REST_NS:
            return
        before = now


def measure_silence(queue_type: str, seconds: float, folder: Path) -> tuple[float, float]:
    """CPU of the silence and of the burst before it, in ms."""
    words = ["--queue-type", queue_type, "--unix", "off"]
    words += ["--telemetry-csv-path", str(folder / f"{queue_type}.csv")]
    request = serving.lumen_request(serving.WORKLOADS[1])
    with ExitStack() as stack:
        server = stack.enter_context(Server(ROOT / "models", words, executable=program("lumen")))
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            for _ in range(CONNECTIONS)
        ]
        begin = cpu_ns(server.pid)
        burst(clients, request)
        clients[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")
        clients[0].recv(1 << 20)
        wait_for_rest(server.pid)
        before = cpu_ns(server.pid)
        time.sleep(seconds)
        return (cpu_ns(server.pid) - before) / 1e6, (before - begin) / 1e6


def idle(run: Run) -> None:
    seconds = run.pick(SILENCE_S, QUICK_SILENCE_S)
    with tempfile.TemporaryDirectory() as name:
        for queue_type in QUEUE_TYPES:
            used_ms, burst_ms = measure_silence(queue_type, seconds, Path(name))
            say(f"{queue_type}: {used_ms:.3f} ms of CPU; the burst before took {burst_ms:.0f}")
            row = f"{queue_type}, {CONNECTIONS} connections after load, {seconds} s"
            run.add(make_row(row, "CPU time", "ms", {"lumen": [used_ms]}, spread=None))


def spin(run: Run) -> None:
    """Rounds of on and off in turn, so that disturbances of the machine meet both."""
    much = ("--duration", str(run.seconds), "--warm-up", "0.3")
    loads: dict[str, tuple[str, ...]] = {
        f"{rate} requests/s": ("--clients", "4", "--rate", str(rate), *much) for rate in RATES
    }
    loads["1 client, closed loop"] = ("--clients", "1", *much)
    # Both workers on one CPU: by themselves the two servers would take different ones.
    common = ["--unix", "off", "--pin-threads", str(max(os.sched_getaffinity(0)))]
    with ExitStack() as stack:
        servers = {
            value: stack.enter_context(
                Server(ROOT / "models", [*common, "--spin", value], executable=program("lumen"))
            )
            for value in ("auto", "off")
        }
        for name, words in loads.items():
            cores: dict[str, list[float]] = {value: [] for value in servers}
            p50: dict[str, list[float]] = {value: [] for value in servers}
            for _ in run.turns([]):
                for value, server in servers.items():
                    before, begin = cpu_ns(server.pid), time.monotonic()
                    found = lumen_bench(f"http://{server.url}", "mlp", *words)
                    used = (cpu_ns(server.pid) - before) / 1e9
                    cores[value].append(used / (time.monotonic() - begin))
                    p50[value].append(found["latency_us"]["p50"])
            add_spin_row(run, name, cores, p50)


def add_spin_row(
    run: Run, name: str, cores: dict[str, list[float]], p50: dict[str, list[float]]
) -> None:
    is_open = "requests" in name
    if is_open:
        bound = median(cores["off"]) + COST_OF_SPINNING
        row = make_row(f"spin, {name}", "CPU", "cores", cores, limit=bound, is_bound=True)
    else:
        row = make_row(f"spin, {name}", "p50", "us", p50)
    run.add(row | {"rival_name": "--spin off"})


GROUPS = {"spin": spin, "idle": idle}


def measure(run: Run) -> None:
    for name in run.groups:
        GROUPS[name](run)


BENCH = Bench(
    title="Idle",
    measure=measure,
    minutes=3.7,
    quick_minutes=0.6,
    rounds=(5, 2),
    seconds=(5.0, 1.0),
    groups=tuple(GROUPS),
    sources=("include/**", "src/**", "apps/**", "bench/load/*"),
    goals=(
        Goal("after load, 10 s$", "at_most", 10, "10 ms", metric="CPU time"),
        Goal(
            "^spin",
            "over_rival_at_most",
            COST_OF_SPINNING,
            "a tenth of a core more than without polling",
            metric="CPU",
        ),
    ),
)
