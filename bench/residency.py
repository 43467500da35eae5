#!/usr/bin/env python3
"""The question: how long does a request wait between the I/O thread and the worker?

  lumen bench (CPU 0) --HTTP--> I/O thread (CPU 0) --queue--> worker (last CPU), the MLP

The column queue_us of the telemetry CSV, request by request, for each queue type, in three phases:
1 client whose worker spins between its requests; 1 client that asks so seldom that the worker has
parked; 16 clients. The goal holds where a worker is free and spins: mean <= 10 us, p99 <= 20 us.
The parks of a worker are counted, so that each phase is true to its name. The rival is the
queue type `naive` of the same run (mutex and condition variable; it never spins).

  bench/residency.py [--quick] [--json]      stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "python"), str(ROOT / "tools")]
import goals
from lumen_engine import Server

BINARY = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
QUEUE_TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
RIVAL = "naive"
LOAD_CPU = 0
# Ten milliseconds and more lie between two requests: twenty times the longest spin.
SELDOM_A_SECOND = 90
GOAL_MEAN_US = goals.value("residency", "queue residency, mean", "at_most")
GOAL_P99_US = goals.value("residency", "queue residency, p99", "at_most")
METRICS = ("mean", "p99")


@dataclass(frozen=True)
class Phase:
    name: str
    words: tuple[str, ...]
    has_goal: bool = False


PHASES = (
    Phase("1 client, spinning", ("--clients", "1"), has_goal=True),
    Phase("1 client, parked", ("--clients", "1", "--rate", str(SELDOM_A_SECOND))),
    Phase("16 clients", ("--clients", "16")),
)


@dataclass
class Results:
    mean: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    parks: list[float] = field(default_factory=list)  # a request


def pin_io_threads(pid: int) -> None:
    """Beside the client; workers, and I/O threads that run models, have pinned themselves."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("lumen-io"):
            os.sched_setaffinity(int(task.name), {LOAD_CPU})


def parks_so_far(server: Server) -> int:
    with urllib.request.urlopen(f"http://{server.url}/metrics") as reply:
        text = reply.read().decode()
    match = re.search(r"^lumen_worker_parks_total (\d+)$", text, re.MULTILINE)
    assert match
    return int(match[1])


def load(server: Server, phase: Phase, seconds: float) -> None:
    words = ["taskset", "-c", str(LOAD_CPU), BINARY, "bench", f"http://{server.url}"]
    words += ["--model", "mlp", *phase.words, "--json"]
    words += ["--duration", str(seconds), "--warm-up", "0"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"lumen bench: {done.stderr.strip()}")
    (row,) = json.loads(done.stdout)["rows"]
    if row["errors"]["count"] > 0:
        raise RuntimeError(f"lumen bench: {row['errors']}")


def residencies(file: Path, begin: datetime, end: datetime) -> list[float]:
    with file.open(newline="") as opened:
        return [
            float(line["queue_us"])
            for line in csv.DictReader(opened)
            if begin <= datetime.fromisoformat(line["timestamp"]) <= end
        ]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(queue_type: str, seconds: float, folder: Path) -> dict[str, Results]:
    """One server, each phase once; the file is read when the server has ended and all is in it."""
    file = folder / f"{queue_type}.csv"
    file.unlink(missing_ok=True)
    arguments = ["--queue-type", queue_type, "--unix", "off", "--telemetry-csv-path", str(file)]
    spans = []
    with Server(ROOT / "models", arguments, executable=BINARY) as server:
        load(server, PHASES[0], seconds / 4)  # warm-up, and an inline I/O thread finds its CPU
        if queue_type != "inline":
            pin_io_threads(server.pid)
        for phase in PHASES:
            load(server, phase, seconds / 4)
            parked, begin = parks_so_far(server), datetime.now().astimezone()
            load(server, phase, seconds)
            spans.append((begin, datetime.now().astimezone(), parks_so_far(server) - parked))
    results = {}
    for phase, (begin, end, parks) in zip(PHASES, spans):
        times = residencies(file, begin, end)
        share = parks / len(times)
        results[phase.name] = Results([mean(times)], [percentile(times, 0.99)], [share])
    return results


def make_row(
    queue_type: str, phase: Phase, metric: str, results: dict[tuple[str, str], Results]
) -> dict[str, object]:
    values = getattr(results[queue_type, phase.name], metric)
    others = getattr(results[RIVAL, phase.name], metric)
    has_rival = queue_type != RIVAL
    ours, rival = median(values), median(others)
    spreads = [(max(v) - min(v)) / median(v) for v in (values, others)]
    return {
        "bench": "residency",
        "row": f"{queue_type}, {phase.name}",
        "metric": f"queue residency, {metric}",
        "unit": "µs",
        "ours": round(ours, 3),
        "rival": round(rival, 3) if has_rival else None,
        "rival_name": RIVAL if has_rival else None,
        "ratio": round(rival / ours, 3) if has_rival else None,
        "spread": round(max(spreads), 3),
        "limit": None,
        "rounds": {queue_type: values, RIVAL: others},
    }


def show(results: dict[tuple[str, str], Results]) -> None:
    def line(*cells: object) -> None:
        print("{:<10}{:<22}{:>10}{:>10}{:>16}  {}".format(*cells), file=sys.stderr)

    line("queue", "phase", "mean µs", "p99 µs", "parks a request", "goal")
    for (queue_type, phase_name), one in results.items():
        phase = next(phase for phase in PHASES if phase.name == phase_name)
        mean_us, p99_us, parks = median(one.mean), median(one.p99), median(one.parks)
        goal = ""
        if phase.has_goal and queue_type != RIVAL:
            met = mean_us <= GOAL_MEAN_US and p99_us <= GOAL_P99_US
            goal = f"mean <= {GOAL_MEAN_US:.0f}, p99 <= {GOAL_P99_US:.0f}: "
            goal += "met" if met else "MISSED"
        cells = (f"{mean_us:.2f}", f"{p99_us:.2f}", f"{parks:.3f}")
        line(queue_type, phase_name, *cells, goal)


def main() -> int:
    parser = argparse.ArgumentParser(description="How long requests wait for a free worker.")
    parser.add_argument("--quick", action="store_true", help="2 short rounds")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 5, quick 2")
    parser.add_argument("--seconds", type=float, help="a phase; default 3, quick 0.6")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two CPUs are needed, one for the worker, one for the rest", file=sys.stderr)
        return 1
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    seconds = arguments.seconds or (0.6 if arguments.quick else 3.0)
    results = {(queue, phase.name): Results() for queue in QUEUE_TYPES for phase in PHASES}
    with tempfile.TemporaryDirectory() as name:
        for number in range(rounds):
            for queue_type in QUEUE_TYPES[number % 5 :] + QUEUE_TYPES[: number % 5]:
                for phase_name, one in measure(queue_type, seconds, Path(name)).items():
                    for metric in (*METRICS, "parks"):
                        getattr(results[queue_type, phase_name], metric).extend(
                            getattr(one, metric)
                        )
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    if not arguments.json:
        show(results)
    rows = [
        make_row(queue_type, phase, metric, results)
        for queue_type in QUEUE_TYPES
        for phase in PHASES
        for metric in METRICS
    ]
    print(json.dumps({"rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
