#!/usr/bin/env python3
"""The question: what do connections cost on which nothing happens?

Two servers alike, one of which has 10,000 connections that have each had one request answered and
are silent since: their memory (Pss of /proc/PID/smaps_rollup), and the latency of four other
clients of the MLP (`lumen bench`, closed loop), in turn.
bench/connections.py [--quick] [--json]: stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "python"))
from lumen_engine import Server

BINARY = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
IDLE = 10_000
SPARE_FILES = 500
METRICS = {"memory": "MiB", "p50": "us", "p99": "us", "throughput": "requests/s"}
WITH, WITHOUT = f"{IDLE:,} idle connections", "none"
READY = b"GET /v2/health/ready HTTP/1.1\r\nHost: bench\r\n\r\n"


def allow_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        raise SystemExit(f"bench: {count} open files are needed, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def memory_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]) / 1024


def open_idle(port: int, stack: ExitStack) -> None:
    for _ in range(IDLE):
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
        connection.sendall(READY)
        reply = connection.recv(4096)
        if not reply.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"not answered: {reply[:100]!r}")


def load(server: Server, seconds: float) -> dict[str, float]:
    words = [BINARY, "bench", f"http://127.0.0.1:{server.port}", "--model", "mlp", "--json"]
    words += ["--clients", "4", "--duration", str(seconds), "--warm-up", "0.3"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)["rows"][0]
    return {
        "memory": memory_mib(server.pid),
        "p50": row["latency_us"]["p50"],
        "p99": row["latency_us"]["p99"],
        "throughput": row["per_second"],
    }


def measure(rounds: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    runs: dict[str, list[dict[str, float]]] = {WITH: [], WITHOUT: []}
    flags = ["--backend", "openvino", "--max-connections", str(IDLE + 100), "--unix", "off"]
    flags += ["--pin-threads", "off"]  # by themselves the two would take different CPUs
    with ExitStack() as stack:
        servers = {
            kind: stack.enter_context(Server(ROOT / "models", flags, executable=BINARY))
            for kind in runs
        }
        open_idle(servers[WITH].port, stack)
        for number in range(rounds):
            for kind, server in servers.items():
                runs[kind].append(load(server, seconds))
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return runs


def make_row(runs: dict[str, list[dict[str, float]]], metric: str) -> dict[str, Any]:
    mine, bare = ([run[metric] for run in runs[kind]] for kind in (WITH, WITHOUT))
    more_is_better = metric == "throughput"
    ratio = median(mine) / median(bare)
    return {
        "bench": "connections",
        "row": WITH,
        "metric": metric,
        "unit": METRICS[metric],
        "ours": round(median(mine), 2),
        "rival": round(median(bare), 2),
        "rival_name": WITHOUT,
        "ratio": round(ratio if more_is_better else 1 / ratio, 3),
        "spread": round(max((max(of) - min(of)) / median(of) for of in (mine, bare)), 3),
        "limit": None,
        "rounds": {WITH: mine, WITHOUT: bare},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="What idle connections cost.")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 0.5 s")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    arguments = parser.parse_args()
    allow_files(IDLE + SPARE_FILES)
    runs = measure(2, 0.5) if arguments.quick else measure(5, 2.0)
    rows = [make_row(runs, metric) for metric in METRICS]
    for row in () if arguments.json else rows:
        text = f"{row['metric']:<11}{row['ours']:>12,.1f} {row['unit']:<11} with {row['row']}, "
        text += f"{row['rival']:,.1f} without; spread {row['spread']:.0%}"
        print(text, file=sys.stderr)
    print(json.dumps({"rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
