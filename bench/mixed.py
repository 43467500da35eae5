#!/usr/bin/env python3
"""The question: what does a light model pay for a heavy one beside it, and the heavy one for it?

  load (core 1) --HTTP keep-alive--> servers (cores 0 and 1), one worker (core 0)

mlp (2 µs), convnet (300 µs) and squeezenet (3 to 5 ms), one row a request, raw binary both ways,
all on the same two cores with the load: one Lumen server for all three by each of CONFIGURATIONS;
a Lumen process a model (`processes`: the kernel's own isolation); FastAPI and Mosec over ONNX
Runtime, a process a model each. A latency is held against that of the same server with nothing
beside it.

One client of a light model beside four of squeezenet; all pairs and all three with 1 and 16 clients
each, and in an open loop at 0.8 of the server's own rate, alone and with 16 clients, divided
evenly; squeezenet beside a steady 1,000 requests/s to mlp; the shares of the CPU when all
saturate; a flood of 256 clients on one model and its effect on another.

  bench/mixed.py [--quick] [--json] [--rounds N] [--seconds S] [--contenders A,B]
                                          stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
# Last, not first: a bench may be called like one of Python's own modules (queue).
sys.path += [str(BENCH / "load"), str(BENCH / "rivals"), str(BENCH / "mixed")]
import mixed_phases as phases  # noqa: E402
import mixed_rows  # noqa: E402
import mixed_servers  # noqa: E402
from mixed_servers import PROCESSES, RIVALS, Configuration, Contender  # noqa: E402
from serving import ROOT  # noqa: E402

# Our ways to serve all models in one process. One that the server does not know is left out, and
# said so. The first that is there has the rows of all combinations.
CONFIGURATIONS = (
    Configuration("auto", ("--queue-type", "auto"), ("convnet", "squeezenet")),
    # Without a choice of policy every queue is one.
    Configuration("fifo", ("--queue-type", "mpmc"), phases.MODELS, ("--policy", "fifo")),
)
NAMES = (*(one.name for one in CONFIGURATIONS), PROCESSES, *RIVALS)


def run_round(contenders: list[Contender], number: int, seconds: float) -> None:
    """Everything once, phase by phase, so that a slow minute of the machine hits all alike."""
    for phase in phases.PHASES:
        # Another contender comes first in each round.
        for one in contenders[number % len(contenders) :] + contenders[: number % len(contenders)]:
            capacities: dict[str, float] = {}
            if any(load.part for load in phase.loads):
                for model in phase.models:
                    name = phases.alone(model, phases.MANY).name
                    capacities[model] = one.throughput(name, model)
            run = mixed_servers.measure(one, phase, seconds, capacities)
            one.results.setdefault(phase.name, []).append(run)


def make_rows(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    processes = next((one.results for one in contenders if one.name == PROCESSES), None)
    rows: list[dict[str, Any]] = []
    for one in contenders:
        if one.is_lumen:
            # The first is recommended: our own other ways are its rivals, too.
            is_first = one.name == CONFIGURATIONS[0].name
            rivals = {
                other.name: other.results
                for other in contenders
                if other is not one and (is_first or not other.is_lumen)
            }
            table = mixed_rows.Table(one.name, one.results, rivals, one.on_workers, processes)
            rows += mixed_rows.make_rows(table)
    return rows


def failures(contenders: Sequence[Contender]) -> list[str]:
    """Requests that were neither answered nor refused, and the first of them."""
    return [
        f"{one.name}, {phase}, {model}: {run[model]['failed']} failed: {run[model]['error']}"
        for one in contenders
        for phase, runs in one.results.items()
        for run in runs
        for model in phases.MODELS
        if model in run and run[model]["failed"]
    ]


def show(rows: Sequence[dict[str, Any]]) -> None:
    def line(*cells: object) -> None:
        print("{:<72}{:<21}{:>12}{:>12} {:<9}{:>8}{:>12}".format(*cells), file=sys.stderr)

    print(file=sys.stderr)
    line("row", "metric", "ours", "rival", "", "ratio", "limit")
    for r in rows:
        numbers = ["–" if r[k] is None else f"{r[k]:,.2f}" for k in ("ours", "rival", "limit")]
        ratio = "–" if r["ratio"] is None else f"{r['ratio']:.2f}"
        metric = f"{r['metric']}, {r['unit']}"
        name = r["rival_name"] or ""
        line(r["row"], metric, numbers[0], numbers[1], name, ratio, numbers[2])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Light and heavy models in one server.")
    parser.add_argument("--quick", action="store_true", help="1 short round")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 5, quick 1")
    parser.add_argument("--seconds", type=float, help="a measurement; default 1.5, quick 0.3")
    parser.add_argument("--contenders", default=",".join(NAMES), help="default: all")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two cores are needed", file=sys.stderr)
        return 1
    names = arguments.contenders.split(",")
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        print(f"bench: no contender {unknown[0]!r}; wanted some of: {' '.join(NAMES)}")
        return 2
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    seconds = arguments.seconds or (0.3 if arguments.quick else 1.5)
    make = [sys.executable, str(ROOT / "models" / "squeezenet" / "make.py"), "--if-missing"]
    subprocess.run(make, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        contenders, refused = mixed_servers.start_all(stack, Path(name), CONFIGURATIONS, names)
        for one, why in refused.items():
            print(f"bench: going on without {one}, which does not start: {why}", file=sys.stderr)
        for number in range(rounds):
            run_round(contenders, number, seconds)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    rows = make_rows(contenders)
    if not arguments.json:
        show(rows)
    for text in failures(contenders):
        print(f"bench: {text}", file=sys.stderr)
    cells = {one.name: one.results for one in contenders}
    document = {"rows": rows, "cells": cells, "left_out": refused, "seconds": seconds}
    print(json.dumps(document, indent=1, ensure_ascii=False))
    return 1 if failures([one for one in contenders if one.is_lumen]) else 0


if __name__ == "__main__":
    sys.exit(main())
