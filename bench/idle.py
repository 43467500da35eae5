#!/usr/bin/env python3
"""The question: what does the server cost while nobody asks?

For each queue kind, with telemetry CSV and metrics on: 100 connections, a burst of load over each,
then silence: CPU time of all threads (schedstat, ns) over 10 s. The goal is 10 ms, the limit 0.
bench/idle.py [--quick] [--json]: stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "python"))
# Last, not first: a bench may be called like one of Python's own modules (queue).
sys.path.append(str(ROOT / "bench"))
import server as bench
from lumen_engine import Server

QUEUE_TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
CONNECTIONS = 100
ROUNDS = 20  # of the burst: 2,000 requests, as fast as one thread can
GOAL_MS_A_SECOND = 1.0
REST_S = 0.3
REST_TIMEOUT_S = 10.0


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


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time of an idle server.")
    parser.add_argument("--quick", action="store_true", help="2 s a kind instead of 10")
    parser.add_argument("--json", action="store_true", help="nothing on stderr")
    arguments = parser.parse_args()
    seconds = 2 if arguments.quick else 10
    rows = []
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
