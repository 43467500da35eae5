"""The question: what happens when more clients ask than the server can serve?

  lumen bench (CPU 1) --HTTP--> lumen: I/O thread (CPU 1), one worker (CPU 0), SqueezeNet

4, 16, 64 and 256 clients in a closed loop at the default queue capacity: nobody is refused (goal
0), throughput stays within 3 % of that with 4 clients, and p99 within 1.3 x clients x service time
/ workers, the cost of a fair queue. Then the same with a latency budget of 12 service
times: p99 of the accepted requests stays within it, and all others are told so at once. Once with
clients that wait as the refusal's Retry-After says, once with an open loop of 1.5 times the
server's rate, and once with clients that ask again the moment they are refused, each time with
600 KB: then most of the load's and the I/O thread's core goes into refusals, and a client
also measures its own delay in reading the reply.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lumen_engine import Server

from bench.runner import ROOT, Bench, BenchError, Goal, Option, Run, make_row
from bench.runner.places import make_squeezenet, program, run_json
from bench.runner.tables import pivot

MODEL = "squeezenet"
CLIENTS = (4, 16, 64, 256)
WORKERS = 1
BUDGET_SERVICE_TIMES = 12
OPEN_LOOP_CLIENTS, OPEN_LOOP_LOAD = 64, 1.5
OVERLOAD_STATUS = "429"
DRAIN_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Phase:
    clients: int
    has_budget: bool = False
    is_open_loop: bool = False
    retries_at_once: bool = False

    @property
    def name(self) -> str:
        words = [f"{self.clients} clients"]
        words += [f"{OPEN_LOOP_LOAD} x the capacity"] if self.is_open_loop else []
        words += ["retrying at once"] if self.retries_at_once else []
        return ", ".join(words + (["latency budget"] if self.has_budget else []))


FREE = tuple(Phase(clients) for clients in CLIENTS)
BUDGETED = (
    *(Phase(clients, has_budget=True) for clients in CLIENTS),
    Phase(OPEN_LOOP_CLIENTS, has_budget=True, is_open_loop=True),
    *(Phase(clients, has_budget=True, retries_at_once=True) for clients in CLIENTS[1:]),
)

Figures = dict[str, float]  # of one round


def pin(pid: int, cpu_io: int, cpu_worker: int) -> None:
    """The worker by itself (by default it has the last CPU), all others beside the load."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        is_worker = (task / "comm").read_text().startswith("lumen-w")
        os.sched_setaffinity(int(task.name), {cpu_worker if is_worker else cpu_io})


def load(server: Server, phase: Phase, rate: float, seconds: float, cpu: int) -> dict[str, Any]:
    """`rate`: of an open loop."""
    words = [program("lumen"), "bench", f"http://{server.url}", "--json", "--model", MODEL]
    words += ["--clients", str(phase.clients), "--duration", str(seconds)]
    words += ["--warm-up", str(seconds / 3)]
    if phase.is_open_loop:
        words += ["--rate", str(rate)]
    elif not phase.retries_at_once:
        words += ["--obey-retry-after"]
    end = time.monotonic() + DRAIN_TIMEOUT_S
    while True:
        try:
            (row,) = run_json(words, cpu)["rows"]
            return dict(row)
        except BenchError as error:
            # Requests of the clients before are still in the queue.
            if f"a first request failed ({OVERLOAD_STATUS}" not in str(error):
                raise
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def figures_of(row: dict[str, Any], budget_us: float) -> Figures:
    refused = int(row["errors"]["by_status"].get(OVERLOAD_STATUS, 0))
    return {
        "per_second": row["per_second"],  # answered with 200
        "p99_us": row["latency_us"]["p99"],
        "refused": refused / max(1, refused + row["requests"]),
        "failed": row["errors"]["count"] - refused,  # neither 200 nor refused
        "service_us": row["server"]["stages_us"]["inference"],
        "budget_us": budget_us,
    }


Results = dict[Phase, list[Figures]]


def measure_round(run: Run, results: Results) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    cpu_worker, cpu_load = cpus[0], cpus[1]
    queue_type = run.options.queue_type
    words = ["--queue-type", queue_type, "--unix", "off", "--thread-count", str(WORKERS)]
    budget_us = 0.0
    for phases in (FREE, BUDGETED):
        if phases is BUDGETED:
            budget_us = BUDGET_SERVICE_TIMES * results[FREE[0]][-1]["service_us"]
            words += ["--latency-budget-us", str(round(budget_us))]
        with Server(ROOT / "models", words, executable=program("lumen")) as server:
            if queue_type != "inline":
                pin(server.pid, cpu_load, cpu_worker)
            for phase in phases:
                rate = 0.0
                if phase.is_open_loop:
                    rate = OPEN_LOOP_LOAD * middle(results[FREE[0]], "per_second")
                row = load(server, phase, rate, run.seconds, cpu_load)
                results[phase].append(figures_of(row, budget_us))


def middle(rounds: Sequence[Figures], key: str) -> float:
    return median(one[key] for one in rounds)


def add_rows(run: Run, name: str, phase: Phase, rounds: Sequence[Figures]) -> None:
    def add(metric: str, unit: str, key: str, limit: float | None, is_bound: bool = False) -> None:
        samples = {"lumen": [one[key] for one in rounds]}
        run.add(make_row(name, metric, unit, samples, limit=limit) | {"is_bound": is_bound})

    service_us = middle(rounds, "service_us")
    add("refused", "share", "refused", None)
    # No queue can do better than the model, nor answer the last of a full circle sooner.
    add("throughput", "requests/s", "per_second", 1e6 * WORKERS / service_us)
    fair_us = phase.clients * service_us / WORKERS
    limit = middle(rounds, "budget_us") if phase.has_budget else fair_us
    add("p99 latency", "µs", "p99_us", limit, phase.has_budget)
    failed = sum(one["failed"] for one in rounds)
    if failed:
        run.failures.append(f"{name}: {failed:.0f} requests failed")


def measure(run: Run) -> None:
    make_squeezenet()
    results: Results = defaultdict(list)
    for _ in run.turns([]):
        measure_round(run, results)
    for phase, rounds in results.items():
        add_rows(run, f"{run.options.queue_type}, {phase.name}", phase, rounds)


BENCH = Bench(
    title="Overload",
    measure=measure,
    minutes=1.2,
    quick_minutes=0.5,
    rounds=(2, 1),
    seconds=(2.0, 1.5),
    options=(Option("--queue-type", "mpmc", "of the server"),),
    sources=("include/**", "src/**", "apps/**"),
    has_a_row_for_each_goal=True,
    goals=(
        Goal("clients$", "at_most", 0, "none", metric="refused"),
        Goal(
            "clients$",
            "of_first_at_least",
            0.97,
            "97 % of that with 4 clients",
            metric="throughput",
        ),
        Goal("clients$", "of_limit_at_most", 1.3, "1.3 times the limit", metric="p99 latency"),
        Goal(
            "budget$", "of_limit_at_most", 1, "within the budget, the limit", metric="p99 latency"
        ),
    ),
    tables={
        "": pivot(
            {
                "throughput": "answered a second",
                "p99 latency": "p99, µs",
                "refused": "share refused",
            }
        )
    },
)
