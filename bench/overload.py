#!/usr/bin/env python3
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

  bench/overload.py [--quick] [--json] [--queue-type mpmc]    stdout is one JSON object
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "python"), str(ROOT / "tools")]
import goals
from lumen_engine import Server

BINARY = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
MODEL = "squeezenet"
CLIENTS = (4, 16, 64, 256)
WORKERS = 1
GOAL_THROUGHPUT = goals.value("overload", "throughput", "of_first_at_least")
GOAL_P99 = goals.value("overload", "p99 latency", "of_limit_at_most")
BUDGET_SERVICE_TIMES = 12
OPEN_LOOP_CLIENTS, OPEN_LOOP_LOAD = 64, 1.5
OVERLOAD_STATUS = "429"


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


@dataclass
class Results:
    per_second: list[float] = field(default_factory=list)  # answered with 200
    p99_us: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)  # of all that were answered
    failed: int = 0  # with anything else than 200 or a refusal
    service_us: list[float] = field(default_factory=list)  # the model itself, of the same run
    budget_us: list[float] = field(default_factory=list)


def pin(pid: int, cpu_io: int, cpu_worker: int) -> None:
    """The worker by itself (by default it has the last CPU), all others beside the load."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        is_worker = (task / "comm").read_text().startswith("lumen-w")
        os.sched_setaffinity(int(task.name), {cpu_worker if is_worker else cpu_io})


def load(server: Server, phase: Phase, rate: float, seconds: float, cpu: int) -> dict[str, object]:
    """`rate`: of an open loop."""
    words = ["taskset", "-c", str(cpu), BINARY, "bench", f"http://{server.url}", "--json"]
    words += ["--model", MODEL, "--clients", str(phase.clients), "--duration", str(seconds)]
    words += ["--warm-up", str(seconds / 3)]
    if phase.is_open_loop:
        words += ["--rate", str(rate)]
    elif not phase.retries_at_once:
        words += ["--obey-retry-after"]
    for _ in range(50):
        done = subprocess.run(words, capture_output=True, text=True)
        if f"a first request failed ({OVERLOAD_STATUS}" not in done.stderr:
            break
        time.sleep(0.1)  # requests of the clients before are still in the queue
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"lumen bench: {done.stderr.strip()}")
    (row,) = json.loads(done.stdout)["rows"]
    return row


def add(results: Results, row: dict) -> None:
    by_status = row["errors"]["by_status"]
    refused = int(by_status.get(OVERLOAD_STATUS, 0))
    results.per_second.append(row["per_second"])
    results.p99_us.append(row["latency_us"]["p99"])
    results.refused.append(refused / max(1, refused + row["requests"]))
    results.failed += row["errors"]["count"] - refused
    results.service_us.append(row["server"]["stages_us"]["inference"])


def measure_round(
    arguments: argparse.Namespace, seconds: float, results: dict[Phase, Results]
) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    cpu_worker, cpu_load = cpus[0], cpus[1]
    words = ["--queue-type", arguments.queue_type, "--unix", "off"]
    words += ["--thread-count", str(WORKERS)]
    first = results[FREE[0]]
    budget_us = 0.0
    for phases in (FREE, BUDGETED):
        if phases is BUDGETED:
            budget_us = BUDGET_SERVICE_TIMES * first.service_us[-1]
            words += ["--latency-budget-us", str(round(budget_us))]
        with Server(ROOT / "models", words, executable=BINARY) as server:
            if arguments.queue_type != "inline":
                pin(server.pid, cpu_load, cpu_worker)
            for phase in phases:
                rate = OPEN_LOOP_LOAD * median(first.per_second) if phase.is_open_loop else 0
                add(results[phase], load(server, phase, rate, seconds, cpu_load))
                results[phase].budget_us.append(budget_us)


def make_rows(results: dict[Phase, Results], queue_type: str) -> list[dict]:
    def row(name: str, metric: str, unit: str, values: list[float], limit: float | None) -> dict:
        ours = median(values)
        return {
            "bench": "overload",
            "row": f"{queue_type}, {name}",
            "metric": metric,
            "unit": unit,
            "ours": round(ours, 4 if unit == "share" else 1),
            "rival": None,
            "rival_name": None,
            "ratio": None,
            "spread": round((max(values) - min(values)) / ours, 3) if ours else None,
            "limit": None if limit is None else round(limit, 1),
            "rounds": {"lumen": values},
        }

    rows = []
    for phase, one in results.items():
        name, service_us = phase.name, median(one.service_us)
        rows.append(row(name, "refused", "share", one.refused, None))
        # No queue can do better than the model, nor answer the last of a full circle sooner.
        limit = 1e6 * WORKERS / service_us
        rows.append(row(name, "throughput", "requests/s", one.per_second, limit))
        fair_us = phase.clients * service_us / WORKERS
        limit = median(one.budget_us) if phase.has_budget else fair_us
        rows.append(row(name, "p99 latency", "µs", one.p99_us, limit))
    return rows


def verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def show(results: dict[Phase, Results]) -> None:
    base = median(results[FREE[0]].per_second)
    for phase, one in results.items():
        per_second, p99_us = median(one.per_second), median(one.p99_us)
        refused = median(one.refused)
        text = f"{phase.name:<45}{per_second:8.1f}/s  p99 {p99_us / 1e3:8.2f} ms"
        text += f"  refused {refused:6.1%}"
        if phase.has_budget:
            budget_us = median(one.budget_us)
            text += f"  goal p99 <= {budget_us / 1e3:.1f} ms: {verdict(p99_us <= budget_us)}"
        else:
            bound_us = GOAL_P99 * phase.clients * median(one.service_us) / WORKERS
            share = per_second / base
            text += f"  goals: refused 0: {verdict(refused == 0)}"
            text += f"; throughput {share:.3f} >= {GOAL_THROUGHPUT}: "
            text += verdict(share >= GOAL_THROUGHPUT)
            text += f"; p99 <= {bound_us / 1e3:.1f} ms: {verdict(p99_us <= bound_us)}"
        if one.failed:
            text += f"  {one.failed} FAILED"
        print(text, file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="More clients than the server can serve.")
    parser.add_argument("--quick", action="store_true", help="1 round of 1.5 s a measurement")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--queue-type", default="mpmc")
    parser.add_argument("--rounds", type=int, help="default 5, quick 1")
    parser.add_argument("--seconds", type=float, help="a measurement; default 6, quick 1.5")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two CPUs are needed, one for the worker, one for the rest", file=sys.stderr)
        return 1
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    seconds = arguments.seconds or (1.5 if arguments.quick else 6.0)
    make = [sys.executable, str(ROOT / "models" / MODEL / "make.py"), "--if-missing"]
    subprocess.run(make, check=True, stdout=sys.stderr)
    results = {phase: Results() for phase in (*FREE, *BUDGETED)}
    for number in range(rounds):
        measure_round(arguments, seconds, results)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    if not arguments.json:
        show(results)
    print(json.dumps({"rows": make_rows(results, arguments.queue_type)}, indent=1))
    return 1 if any(one.failed for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
