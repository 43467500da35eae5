#!/usr/bin/env python3
"""The question: what does the server cost while nobody asks?

100 connections, each used once, then silence: CPU time of all threads (schedstat, ns) over 10 s.
The limit is 0. bench/idle.py [--quick] [--json]: stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "python"))
from lumen_engine import Server

CONNECTIONS = 100
REQUEST = b"GET /v2/health/live HTTP/1.1\r\nHost: bench\r\n\r\n"


def cpu_ms(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time of an idle server.")
    parser.add_argument("--quick", action="store_true", help="2 s instead of 10")
    parser.add_argument("--json", action="store_true", help="nothing on stderr")
    arguments = parser.parse_args()
    seconds = 2 if arguments.quick else 10
    binary = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
    with Server(ROOT / "models", executable=binary) as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CONNECTIONS)]
        for client in clients:
            client.sendall(REQUEST)
            client.recv(4096)
        time.sleep(0.5)  # until what the requests woke sleeps again
        before = cpu_ms(server.pid)
        time.sleep(seconds)
        used = cpu_ms(server.pid) - before
        for client in clients:
            client.close()
    row = {
        "bench": "idle",
        "row": f"{CONNECTIONS} connections, {seconds} s",
        "metric": "CPU time",
        "unit": "ms",
        "ours": round(used, 3),
        "rival": None,
        "rival_name": None,
        "ratio": None,
        "spread": None,
        "limit": 0,
    }
    if not arguments.json:
        print(f"idle: {used:.3f} ms of CPU in {seconds} s", file=sys.stderr)
    print(json.dumps({"rows": [row]}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
