#!/usr/bin/env python3
"""The question: how does the server do with more clients than it can serve at once, how
much can queue type, pinning, a second worker or admission change?

  lumen bench (any CPU) --HTTP--> lumen: I/O thread, worker (pinned by default), SqueezeNet

1, 4 and 16 clients in a closed loop against each configuration, a fresh server each time, `perf
stat` attached where there is perf. Rounds are interleaved. The finding that is looked at: from 4 to
16 clients p99 grew by 133 % while throughput barely moved. The rival is the origin's configuration,
`naive` x `standard`. A budget is BUDGET_SERVICE_TIMES times the model's own time, of the same run;
its clients wait as Retry-After says.

  bench/over_concurrency.py [--quick] [--json]       stdout is one JSON object
  ./dev bench over_concurrency | tools/keep_baseline.py over_concurrency
                          keeps the figures and draws docs/reports/over_concurrency.md anew
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "python")]
os.environ.setdefault("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
from lumen_engine.perf import process_figures
from lumen_engine.perf.load import run_load, warm_up
from lumen_engine.perf.measured_server import one_model, serving
from lumen_engine.perf.options import PhasePlan
from lumen_engine.perf.perf_program import Recording, Support, attached, probe
from lumen_engine.perf.programs import Interrupts, PerfError
from lumen_engine.perf.result import Phase

MODEL = "squeezenet"
CLIENTS = (1, 4, 16)
BUDGET_SERVICE_TIMES = 8  # 4 clients fit in, 16 don't
WARM_UP_EACH = 4
# 16 clients that are refused begin with a second of waiting for all but a few: enough requests are
# to follow.
REQUESTS, QUICK_REQUESTS = 600, 80
ROUNDS, QUICK_ROUNDS = 3, 1
# Of all requests, by 1 client: its latency needs fewer, and it is the slowest phase.
ONE_CLIENT_PART = 4


@dataclass(frozen=True)
class Configuration:
    name: str
    words: tuple[str, ...]
    has_budget: bool = False


def engine(queue_type: str, allocator_type: str, *more: str) -> tuple[str, ...]:
    return ("--queue-type", queue_type, "--allocator-type", allocator_type, *more)


RIVAL = "naive × standard"
OURS = "mpmc × lumen_arena"
CONFIGURATIONS = (
    Configuration(RIVAL, engine("naive", "standard")),
    Configuration(OURS, engine("mpmc", "lumen_arena")),
    Configuration("spsc × lumen_arena", engine("spsc", "lumen_arena")),
    Configuration("batched × lumen_arena", engine("batched", "lumen_arena")),
    Configuration("inline × lumen_arena", engine("inline", "lumen_arena")),
    Configuration(f"{OURS}, not pinned", engine("mpmc", "lumen_arena", "--pin-threads", "off")),
    Configuration(f"{OURS}, a worker a CPU", engine("mpmc", "lumen_arena", "--thread-count", "0")),
    Configuration(f"{OURS}, latency budget", engine("mpmc", "lumen_arena"), has_budget=True),
)
# Figure of a cell, its unit, and how it is had from a phase. None: not measured.
FIGURES: dict[str, tuple[str, Any]] = {
    "throughput": ("requests/s", lambda p: p.load.per_second),
    "p50 latency": ("ms", lambda p: p.load.p50_ms),
    "p99 latency": ("ms", lambda p: p.load.p99_ms),
    "in the queue": ("ms", lambda p: p.load.stages_ms.get("queue")),
    "inference": ("ms", lambda p: p.load.stages_ms.get("inference")),
    "refused": ("share", lambda p: p.load.errors / (p.load.requests + p.load.errors)),
    "context switches": ("a request", lambda p: p.context_switches / max(1, p.load.requests)),
    "migrations": ("in all", lambda p: p.migrations),
    "IPC": ("instructions a cycle", lambda p: p.derived.instructions_per_cycle),
    "LLC misses": ("share", lambda p: p.derived.llc_miss_rate),
}
MORE_IS_BETTER = ("throughput",)
ROWS = ("throughput", "p99 latency")


@dataclass
class Cell:
    """All rounds of one configuration with one number of clients."""

    configuration: str
    clients: int
    rounds: dict[str, list[float | None]] = field(
        default_factory=lambda: {name: [] for name in FIGURES}
    )

    def add(self, phase: Phase) -> None:
        for name, (_, get) in FIGURES.items():
            found = get(phase)
            self.rounds[name].append(None if found is None else round(found, 5))

    def values(self, name: str) -> list[float]:
        return [value for value in self.rounds[name] if value is not None]


Cells = Mapping[tuple[str, int], Cell]


def requests_of(clients: int, requests: int) -> int:
    return max(clients, requests // ONE_CLIENT_PART if clients == 1 else requests)


def measure(
    one: Configuration, repository: Path, service_ms: float, requests: int, run: Run
) -> None:
    words = [*one.words, "--backend", "openvino"]
    if one.has_budget:
        words += ["--latency-budget-us", str(round(1e3 * BUDGET_SERVICE_TIMES * service_ms))]
    more = ("--obey-retry-after",) if one.has_budget else ()
    with serving(repository, words, run.interrupts) as server:
        for clients in CLIENTS:
            plan = PhasePlan(clients, requests_of(clients, requests) // clients)
            warm_up(server, MODEL, plan, WARM_UP_EACH, run.interrupts)
            pid, support = server.pid, run.support
            counting = (
                attached(pid, support, run.interrupts) if support else nullcontext(Recording())
            )
            with counting as recording:
                before = process_figures.read(pid)
                load = run_load(server, MODEL, clients, plan.requests, run.interrupts, more)
                process = process_figures.read(pid).since(before)
            run.cells[one.name, clients].add(Phase(plan, load, process, recording.counts))


@dataclass
class Run:
    interrupts: Interrupts
    support: Support | None
    cells: dict[tuple[str, int], Cell]

    def service_ms(self) -> float:
        """The model itself, with one client; before the first round a long one, refusing nobody."""
        found = self.cells[OURS, 1].values("inference")
        return median(found) if found else 1e3


def make_row(cells: Cells, name: str, clients: int, metric: str) -> dict[str, Any]:
    mine, others = cells[name, clients].values(metric), cells[RIVAL, clients].values(metric)
    ours, rival = median(mine), median(others)
    is_rival = name == RIVAL
    ratio = ours / rival if metric in MORE_IS_BETTER else rival / ours
    spreads = [(max(v) - min(v)) / median(v) for v in (mine, others)]
    return {
        "bench": "over_concurrency",
        "row": f"{name}, {clients} client{'s' if clients > 1 else ''}",
        "metric": metric,
        "unit": FIGURES[metric][0],
        "ours": ours,
        "rival": None if is_rival else rival,
        "rival_name": None if is_rival else RIVAL,
        "ratio": None if is_rival else round(ratio, 3),
        "spread": round(max(spreads), 3),
        "limit": None,
        "rounds": {name: mine, RIVAL: others},
    }


def show(cells: Cells) -> None:
    print(f"{'':36}{'clients':>8}{'req/s':>9}{'p99 ms':>9}{'queue ms':>10}", file=sys.stderr)
    for (name, clients), cell in cells.items():
        shown = [median(cell.values(key)) for key in ("throughput", "p99 latency", "in the queue")]
        numbers = f"{shown[0]:9.1f}{shown[1]:9.2f}{shown[2]:10.2f}"
        print(f"{name:36}{clients:8}{numbers}", file=sys.stderr)


def measure_all(run: Run, rounds: int, requests: int) -> None:
    with one_model(ROOT / "models", MODEL) as repository:
        for turn in range(rounds):
            # The budget needs the model's time of this run: the first two come first once.
            shift = turn % len(CONFIGURATIONS)
            for one in CONFIGURATIONS[shift:] + CONFIGURATIONS[:shift]:
                measure(one, repository, run.service_ms(), requests, run)
            print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="What more clients than a server can serve bring.")
    parser.add_argument("--quick", action="store_true", help="1 short round")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 3, quick 1")
    parser.add_argument("--requests", type=int, help="a phase; default 600, quick 80")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    requests = arguments.requests or (QUICK_REQUESTS if arguments.quick else REQUESTS)
    names = [one.name for one in CONFIGURATIONS]
    cells = {(name, clients): Cell(name, clients) for name in names for clients in CLIENTS}
    with Interrupts() as interrupts:
        try:
            support: Support | None = probe(interrupts)
        except PerfError as error:
            print(f"bench: {error}", file=sys.stderr)
            support = None
        run = Run(interrupts, support, cells)
        measure_all(run, rounds, requests)
    if not arguments.json:
        show(cells)
    rows = [make_row(cells, n, c, m) for n in names for c in CLIENTS for m in ROWS]
    document = {
        "rows": rows,
        "cells": [
            {"configuration": cell.configuration, "clients": cell.clients, **cell.rounds}
            for cell in cells.values()
        ],
        "requests": requests,
        "budget_ms": round(BUDGET_SERVICE_TIMES * run.service_ms(), 2),
        "hardware_counters": support is not None and support.has_counters,
    }
    print(json.dumps(document, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
