#!/usr/bin/env python3
"""The question: what does the server cost while nobody asks, or few do?

Idle: for each queue type, with telemetry CSV and metrics on: 100 connections, a burst of load over
each, then silence: CPU time of all threads (schedstat, ns) over 10 s. The goal is 10 ms, the limit
0. Spinning: an open loop of 1,000 and of 2,100 requests a second, and one client in a closed loop,
each against a server that polls before it sleeps and one that does not (`--spin off`), in turn: the
cost of polling, in cores, and its gain in the median. The goal is a tenth of a core at both.
bench/idle.py [--quick] [--json] [--only idle|spin]: stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "python"))
# Last, not first: a bench may be called like one of Python's own modules (queue).
sys.path += [str(ROOT / "bench" / "load"), str(ROOT / "tools")]
import goals
import serving as bench
from lumen_engine import Server

QUEUE_TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
CONNECTIONS = 100
ROUNDS = 20  # of the burst: 2,000 requests, as fast as one thread can
GOAL_MS_A_SECOND = goals.value("idle", "CPU time", "at_most") / 10  # the goal is of 10 s
REST_S = 0.3
REST_TIMEOUT_S = 10.0
RATES = (1000, 2100)
GOAL_SPIN_CORES = goals.value("idle", "CPU", "over_rival_at_most")


def cpu_ms(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def burst(clients: list[socket.socket], request: bytes) -> None:
    """All ask before the first reply is read; a reply is small and comes in one piece or few."""
    for _ in range(ROUNDS):
        for client in clients:
            client.sendall(request)
        for client in clients:
            reply = client.recv(4096)
            head, _, body = reply.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"not answered: {head!r}")
            length = int(head.lower().split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0])
            while len(body) < length:
                body += client.recv(4096)


def wait_for_rest(pid: int) -> None:
    end = time.monotonic() + REST_TIMEOUT_S
    before = cpu_ms(pid)
    while time.monotonic() < end:
        time.sleep(REST_S)
        now = cpu_ms(pid)
        if now - before < 0.01:
            return
        before = now


def measure(queue_type: str, seconds: float, folder: Path) -> tuple[float, float]:
    """CPU of the silence and of the burst before it, in ms."""
    binary = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
    arguments = ["--queue-type", queue_type, "--unix", "off"]
    arguments += ["--telemetry-csv-path", str(folder / f"{queue_type}.csv")]
    request = bench.lumen_request(bench.WORKLOADS[1])
    with ExitStack() as stack:
        server = stack.enter_context(Server(ROOT / "models", arguments, executable=binary))
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            for _ in range(CONNECTIONS)
        ]
        begin = cpu_ms(server.pid)
        burst(clients, request)
        clients[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")
        clients[0].recv(1 << 20)
        wait_for_rest(server.pid)
        before = cpu_ms(server.pid)
        time.sleep(seconds)
        return cpu_ms(server.pid) - before, before - begin


def lumen_bench(server: Server, *arguments: str) -> tuple[float, float]:
    """CPU of all threads of the server in cores, and the median in us."""
    binary = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
    url = f"http://127.0.0.1:{server.port}"
    command = [binary, "bench", url, "--model", "mlp", "--json", "--warm-up", "0.3", *arguments]
    before, begin = cpu_ms(server.pid), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cores = (cpu_ms(server.pid) - before) / 1e3 / (time.monotonic() - begin)
    return cores, json.loads(done.stdout)["rows"][0]["latency_us"]["p50"]


def measure_spin(seconds: float, rounds: int, quiet: bool) -> list[dict[str, object]]:
    """Rounds of on and off in turn, so that disturbances of the machine meet both."""
    binary = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
    time_of = ("--duration", str(seconds))
    loads: dict[str, tuple[str, ...]] = {
        f"{rate} requests/s": ("--clients", "4", "--rate", str(rate), *time_of) for rate in RATES
    }
    loads["1 client, closed loop"] = ("--clients", "1", *time_of)
    # Both workers on one CPU: by themselves the two servers would take different ones.
    common = ["--unix", "off", "--pin-threads", str(max(os.sched_getaffinity(0)))]
    rows: list[dict[str, object]] = []
    with ExitStack() as stack:
        servers = {
            spin: stack.enter_context(
                Server(ROOT / "models", [*common, "--spin", spin], executable=binary)
            )
            for spin in ("auto", "off")
        }
        for name, load in loads.items():
            runs: dict[str, list[tuple[float, float]]] = {spin: [] for spin in servers}
            for _ in range(rounds):
                for spin, server in servers.items():
                    runs[spin].append(lumen_bench(server, *load))
            cores = {spin: statistics.median(run[0] for run in of) for spin, of in runs.items()}
            p50 = {spin: statistics.median(run[1] for run in of) for spin, of in runs.items()}
            spread = [max(run[1] for run in of) - min(run[1] for run in of) for of in runs.values()]
            is_open = "requests" in name
            cost = cores["auto"] - cores["off"]
            text = f"spin, {name:<22} cores {cores['auto']:.3f} with, {cores['off']:.3f} without; "
            text += f"p50 {p50['auto']:.1f} with, {p50['off']:.1f} us without (spread "
            text += f"{spread[0]:.1f} and {spread[1]:.1f})"
            if is_open:
                text += f"; cost {cost:.3f}, goal <= {GOAL_SPIN_CORES}: "
                text += "met" if cost <= GOAL_SPIN_CORES else "MISSED"
            if not quiet:
                print(text, file=sys.stderr)
            metric, unit = ("CPU", "cores") if is_open else ("p50", "us")
            ours, rival = (cores if is_open else p50)["auto"], (cores if is_open else p50)["off"]
            rows.append(
                {
                    "bench": "idle",
                    "row": f"spin, {name}",
                    "metric": metric,
                    "unit": unit,
                    "ours": round(ours, 4),
                    "rival": round(rival, 4),
                    "rival_name": "--spin off",
                    "ratio": round(rival / ours, 3) if ours else None,
                    "spread": None if is_open else round(spread[0] / ours, 3),
                    "limit": round(rival + GOAL_SPIN_CORES, 4) if is_open else None,
                    "rounds": {
                        spin: [run[0 if is_open else 1] for run in of] for spin, of in runs.items()
                    },
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time of an idle server.")
    parser.add_argument("--quick", action="store_true", help="2 s a kind instead of 10")
    parser.add_argument("--json", action="store_true", help="nothing on stderr")
    parser.add_argument("--only", choices=("idle", "spin"), help="one of the two questions")
    arguments = parser.parse_args()
    seconds = 2 if arguments.quick else 10
    rows = []
    if arguments.only != "idle":
        rows += measure_spin(
            1 if arguments.quick else 5, 3 if arguments.quick else 5, arguments.json
        )
    if arguments.only == "spin":
        print(json.dumps({"rows": rows}, indent=1))
        return 0
    with tempfile.TemporaryDirectory() as name:
        for queue_type in QUEUE_TYPES:
            used, burst_ms = measure(queue_type, seconds, Path(name))
            if not arguments.json:
                goal = GOAL_MS_A_SECOND * seconds
                verdict = "met" if used < goal else "MISSED"
                text = f"idle, {queue_type:<8}{used:8.3f} ms of CPU in {seconds} s, "
                text += f"goal < {goal:.0f}: {verdict} (the burst before took {burst_ms:.0f})"
                print(text, file=sys.stderr)
            rows.append(
                {
                    "bench": "idle",
                    "row": f"{queue_type}, {CONNECTIONS} connections after load, {seconds} s",
                    "metric": "CPU time",
                    "unit": "ms",
                    "ours": round(used, 3),
                    "rival": None,
                    "rival_name": None,
                    "ratio": None,
                    "spread": None,
                    "limit": None,
                    "rounds": {"lumen": [used]},
                }
            )
    print(json.dumps({"rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
