#!/usr/bin/env python3
"""The question: what does Lumen add to the model, and how much do others add? HTTP on one core.

  load generator (core 1) --HTTP keep-alive--> server (core 0): one worker, one model thread
  "split, 2 cores":  load generator and I/O thread (core 1) --> worker (core 0); the load sleeps

SqueezeNet 1.1 and a small MLP, one row a request, raw binary both ways, at 1 and at 16 clients, by
Lumen's queue types mpmc, batched and inline, against FastAPI, Mosec and hyper over ONNX Runtime and
FastAPI over OpenVINO, interleaved round by round in this one run. The limit is the bare OpenVINO
loop. Then `inline` with the MLP by wrk, binary and as JSON, against nginx's empty answer to the
same bytes, the floor of HTTP (floor.py). Then the backends against each other, against `auto` and
against the frameworks (backend_rows.py). Rivals' settings: docs/benchmarking.md.

  bench/server.py [--quick] [--json]      stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path += [str(BENCH / "load"), str(BENCH / "rivals")]
import backend_rows  # noqa: E402
import floor  # noqa: E402
import serving  # noqa: E402
from build_hyper import build_hyper  # noqa: E402
from serving import BUILD, ROOT, WORKLOADS, Target  # noqa: E402

PARTS = ("queues", "wrk", "backends")
QUEUE_TYPES = ("mpmc", "batched", "inline")
RIVALS_BY_DEFAULT = "fastapi,fastapi-openvino,mosec,hyper"
CLIENT_IS_BUSY = 0.9  # of its core: from here on the figure may be the client's


def run_round(targets: list[Target], number: int, seconds: float) -> None:
    """Everything once, so that a slow minute of the machine hits all alike."""
    for work in {target.workload: None for target in targets}:
        mine = [t for t in targets if t.workload == work]
        # Another contender comes first in each round.
        for target in mine[number % len(mine) :] + mine[: number % len(mine)]:
            for clients in target.clients:
                run = serving.measure(target, clients, seconds)
                target.results.setdefault(clients, []).append(run)


def show(rows: list[dict[str, Any]], targets: list[Target], bodies: list[floor.WrkBody]) -> None:
    def line(*cells: object) -> None:
        print("{:<58}{:<13}{:>12}{:>13}  {:<20}{:>7}{:>8}{:>12}".format(*cells), file=sys.stderr)

    print(file=sys.stderr)
    line("row", "metric", "ours", "rival", "rival_name", "ratio", "spread", "limit")
    for r in rows:
        ours, rival, limit = (f"{r[k]:,.0f}" for k in ("ours", "rival", "limit"))
        ratio, width = f"{r['ratio']:.2f}", f"{r['spread']:.1%}"
        line(r["row"], r["metric"], ours, rival, r["rival_name"], ratio, width, limit)
    show_servers(targets, bodies)


def show_servers(targets: list[Target], bodies: list[floor.WrkBody]) -> None:
    def line(*cells: object) -> None:
        print("{:<28}{:<12}{:>6}{:>13}{:>14}{:>18}{:>20}".format(*cells), file=sys.stderr)

    print("\neach server (median); the client's share is of its own core", file=sys.stderr)
    heads = ("1 client/s", "16 clients/s", "p50 µs, 1 client", "client's share, 16")
    line("", "model", "cores", *heads)
    for found in map(serving.describe, targets):
        one, many = found["clients"][1], found["clients"][16]
        rates = [f"{run['per_second']:,.0f}" for run in (one, many)]
        share = share_of(many)
        line(
            found["server"], found["model"], found["cores"], *rates, f"{one['p50_us']:,.1f}", share
        )
    for body in bodies:
        for name, run in ((name, floor.describe_wrk(body)[name]) for name in ("ours", "floor")):
            server = body.ours.name if name == "ours" else floor.FLOOR
            rate, share = f"{run['per_second']:,.0f}", share_of(run)
            line(server, f"wrk {body.name.split(',')[0]}", 1, "", rate, "", share)


def share_of(run: dict[str, float]) -> str:
    busy = " (its limit?)" if run["client_share"] >= CLIENT_IS_BUSY else ""
    return f"{run['client_share']:.0%}{busy}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Lumen's HTTP path against FastAPI and Mosec.")
    parser.add_argument("--quick", action="store_true", help="3 short rounds, in two minutes")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 7, quick 3")
    parser.add_argument("--seconds", type=float, help="a measurement; default 3, quick 0.3")
    parser.add_argument("--rivals", default=RIVALS_BY_DEFAULT, help="comma-separated")
    parser.add_argument("--only", choices=PARTS, action="append", help="of the rows; default: all")
    return parser.parse_args()


def start_queues(stack: ExitStack, folder: Path, rivals: str) -> list[Target]:
    """Every server of WORKLOADS, each of which has given the model's answer once."""
    targets = [serving.start_split_lumen(stack, folder)]
    for queue_type in QUEUE_TYPES:
        targets += serving.start_lumen(stack, folder, queue_type)
    for rival in rivals.split(","):
        if rival != "hyper":
            targets += [serving.start_rival(stack, folder, rival, work) for work in WORKLOADS]
        elif program := build_hyper(BUILD.parent):
            targets += [serving.start_hyper(stack, folder, program, work) for work in WORKLOADS]
    for target in targets:
        serving.wait_for_answer(target)
    return targets


def main() -> int:
    arguments = parse_arguments()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two cores are needed, one for the server, one for the load", file=sys.stderr)
        return 1
    rounds = arguments.rounds or (3 if arguments.quick else 7)
    seconds = arguments.seconds or (0.3 if arguments.quick else 3.0)
    parts = arguments.only or PARTS
    make = [sys.executable, str(ROOT / "models" / "squeezenet" / "make.py"), "--if-missing"]
    subprocess.run(make, check=True, stdout=sys.stderr)
    limits: dict[str, list[dict[str, float]]] = {work.model: [] for work in WORKLOADS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        queues = start_queues(stack, folder, arguments.rivals) if "queues" in parts else []
        bodies = floor.start(stack, folder) if "wrk" in parts else []
        backends = backend_rows.start(stack, folder) if "backends" in parts else []
        for target in [*queues, *backends, *(t for body in bodies for t in body.targets)]:
            serving.signal_group(target.process, signal.SIGSTOP)
        for number in range(rounds):
            for work in WORKLOADS if queues else ():
                limits[work.model].append(serving.measure_limit(work, seconds))
            run_round(queues, number, seconds)
            for body in bodies:
                floor.measure_by_wrk(body, number, seconds)
            run_round(backends, number, seconds)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    rows = serving.make_rows(queues, limits) + [floor.make_wrk_row(body) for body in bodies]
    rows += backend_rows.make_rows(backends)
    targets = [*queues, *backends]
    if not arguments.json:
        show(rows, targets, bodies)
    document = {
        "rows": rows,
        "servers": [serving.describe(target) for target in targets],
        "wrk": [floor.describe_wrk(body) for body in bodies],
    }
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
