#!/usr/bin/env python3
"""The question: how do throughput and latency go with the number of clients, ours and the others'?

  load generator (core 1) --HTTP keep-alive--> server (core 0): one worker, one model thread

The small MLP, one row a request, raw binary both ways, 1 to 64 clients in a closed loop, by Lumen's
queue types mpmc and inline, against FastAPI (over ONNX Runtime and over OpenVINO), Mosec and hyper.
All take turns round by round. Of each: requests a second, and p50, p90, p99 and p99.9 as the
client saw them. The servers and their settings are those of bench/server.py.

  bench/clients.py [--quick] [--json] [--rounds N] [--seconds S] [--rivals A,B]
                                          stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

BENCH = Path(__file__).resolve().parent
# Last, not first: a bench may be called like one of Python's own modules (queue).
sys.path += [str(BENCH / "load"), str(BENCH / "rivals")]
import serving  # noqa: E402
from build_hyper import build_hyper  # noqa: E402
from serving import BUILD, WORKLOADS, Target  # noqa: E402

MLP = next(work for work in WORKLOADS if work.model == "mlp")
QUEUE_TYPES = ("mpmc", "inline")
RIVALS = "fastapi,fastapi-openvino,mosec,hyper"
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
QUICK_CLIENTS = (1, 4, 16, 64)
# Metric: the key that bench_http_load prints, the unit, and whether more is better.
METRICS = {
    "throughput": ("per_second", "requests/s", True),
    "p50 latency": ("p50_us", "µs", False),
    "p90 latency": ("p90_us", "µs", False),
    "p99 latency": ("p99_us", "µs", False),
    "p99.9 latency": ("p999_us", "µs", False),
}


def start(stack: ExitStack, folder: Path, rivals: str) -> list[Target]:
    """Each has given the model's answer once, and is stopped until its turn."""
    targets: list[Target] = []
    for queue_type in QUEUE_TYPES:
        started = serving.start_lumen(stack, folder, queue_type)
        targets += [target for target in started if target.workload == MLP]
    for rival in filter(None, rivals.split(",")):
        if rival != "hyper":
            targets.append(serving.start_rival(stack, folder, rival, MLP))
        elif program := build_hyper(BUILD.parent):
            targets.append(serving.start_hyper(stack, folder, program, MLP))
    for target in targets:
        serving.wait_for_answer(target)
        serving.signal_group(target.process, signal.SIGSTOP)
    return targets


def make_row(ours: Target, rivals: Sequence[Target], clients: int, metric: str) -> dict[str, Any]:
    key, unit, bigger = METRICS[metric]
    rounds = {t.name: [run[key] for run in t.results[clients]] for t in (ours, *rivals)}
    middle = {name: median(values) for name, values in rounds.items()}
    best = (max if bigger else min)((t.name for t in rivals), key=middle.__getitem__, default=None)
    mine, rival = middle[ours.name], middle[best] if best else None
    ratio = (mine / rival if bigger else rival / mine) if rival and mine else None
    return {
        "bench": "clients",
        "row": f"mlp, {clients} client{'s' if clients > 1 else ''}, "
        f"{ours.name.removeprefix('lumen ')}",
        "metric": metric,
        "unit": unit,
        "ours": round(mine, 2),
        "rival": None if rival is None else round(rival, 2),
        "rival_name": best,
        "ratio": None if ratio is None else round(ratio, 3),
        "spread": round(max(serving.spread(rounds[n]) for n in (ours.name, best or ours.name)), 3),
        "limit": None,
        "rounds": rounds,
    }


def make_rows(targets: Sequence[Target]) -> list[dict[str, Any]]:
    rivals = [target for target in targets if not serving.is_ours(target)]
    return [
        make_row(ours, rivals, clients, metric)
        for ours in filter(serving.is_ours, targets)
        for clients in ours.results
        for metric in METRICS
    ]


def show(targets: Sequence[Target]) -> None:
    for target in targets:
        for clients, runs in target.results.items():
            cells = [
                f"{name} {median(run[key] for run in runs):,.0f} {unit}"
                for name, (key, unit, _) in METRICS.items()
            ]
            print(f"{target.name:<20}{clients:>4} clients  {', '.join(cells)}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="Throughput and percentiles against clients.")
    parser.add_argument("--quick", action="store_true", help="1, 4, 16, 64 clients; 3 short rounds")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 5, quick 3")
    parser.add_argument("--seconds", type=float, help="a measurement; default 1, quick 0.3")
    parser.add_argument("--rivals", default=RIVALS, help="comma-separated; empty: none")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two cores are needed, one for the server, one for the load", file=sys.stderr)
        return 1
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    seconds = arguments.seconds or (0.3 if arguments.quick else 1.0)
    counts = QUICK_CLIENTS if arguments.quick else CLIENTS
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        targets = start(stack, Path(name), arguments.rivals)
        for number in range(rounds):
            for clients in counts:
                # Another contender comes first in each round.
                for target in targets[number % len(targets) :] + targets[: number % len(targets)]:
                    run = serving.measure(target, clients, seconds)
                    target.results.setdefault(clients, []).append(run)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    if not arguments.json:
        show(targets)
    print(json.dumps({"rows": make_rows(targets)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
