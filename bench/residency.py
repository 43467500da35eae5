"""The question: how long does a request wait between the I/O thread and the worker?

  lumen bench (CPU 0) --HTTP--> I/O thread (CPU 0) --queue--> worker (last CPU), the MLP

The column queue_us of the telemetry CSV, request by request, for each queue type, in three phases:
1 client whose worker spins between its requests; 1 client that asks so seldom that the worker has
parked; 16 clients. The goal holds where a worker is free and spins: mean <= 10 us, p99 <= 20 us.
The parks of a worker are counted, so that each phase is true to its name. The rival is the
queue type `naive` of the same run (mutex and condition variable; it never spins).
"""

from __future__ import annotations

import csv
import os
import re
import tempfile
import urllib.request
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from statistics import mean

from lumen_engine import Server

from bench.runner import ROOT, Bench, Goal, Run, make_row
from bench.runner.places import lumen_bench, program
from bench.runner.tables import pivot

QUEUE_TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
RIVAL = "naive"
LOAD_CPU = 0
# Ten milliseconds and more lie between two requests: twenty times the longest spin.
SELDOM_A_SECOND = 90
PHASES = {
    "1 client, spinning": ("--clients", "1"),
    "1 client, parked": ("--clients", "1", "--rate", str(SELDOM_A_SECOND)),
    "16 clients": ("--clients", "16"),
}
METRICS = ("mean", "p99")

Figures = dict[str, float]  # of a phase: mean, p99, parks a request


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


def residencies(file: Path, begin: datetime, end: datetime) -> list[float]:
    with file.open(newline="") as opened:
        return [
            float(line["queue_us"])
            for line in csv.DictReader(opened)
            if begin <= datetime.fromisoformat(line["timestamp"]) <= end
        ]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure_one(queue_type: str, seconds: float, folder: Path) -> dict[str, Figures]:
    """One server, each phase once; the file is read when the server has ended and all is in it."""
    file = folder / f"{queue_type}.csv"
    file.unlink(missing_ok=True)
    words = ["--queue-type", queue_type, "--unix", "off", "--telemetry-csv-path", str(file)]
    spans = {}
    with Server(ROOT / "models", words, executable=program("lumen")) as server:

        def load(phase: str, length: float) -> None:
            much = ("--duration", str(length), "--warm-up", "0")
            lumen_bench(f"http://{server.url}", "mlp", *PHASES[phase], *much, cpu=LOAD_CPU)

        load("1 client, spinning", seconds / 4)  # and an inline I/O thread finds its CPU
        if queue_type != "inline":
            pin_io_threads(server.pid)
        for phase in PHASES:
            load(phase, seconds / 4)
            parked, begin = parks_so_far(server), datetime.now().astimezone()
            load(phase, seconds)
            spans[phase] = (begin, datetime.now().astimezone(), parks_so_far(server) - parked)
    found = {}
    for phase, (begin, end, parks) in spans.items():
        times = residencies(file, begin, end)
        figures = {"mean": mean(times), "p99": percentile(times, 0.99)}
        found[phase] = figures | {"parks": parks / len(times)}
    return found


def measure(run: Run) -> None:
    found: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        for turn in run.turns(QUEUE_TYPES):
            for queue_type in turn:
                for phase, figures in measure_one(queue_type, run.seconds, Path(name)).items():
                    found[queue_type, phase].append(figures)
    for queue_type in QUEUE_TYPES:
        for phase in PHASES:
            names = dict.fromkeys((queue_type, RIVAL))
            for metric in METRICS:
                rounds = {name: [one[metric] for one in found[name, phase]] for name in names}
                parks = [round(one["parks"], 4) for one in found[queue_type, phase]]
                metric_name = f"queue residency, {metric}"
                row = make_row(f"{queue_type}, {phase}", metric_name, "µs", rounds)
                run.add(row | {"parks": parks})


SPINNING = "^(?!naive).*spinning"  # naive is the rival
BENCH = Bench(
    title="In the queue",
    measure=measure,
    minutes=1.0,
    quick_minutes=1.0,
    rounds=(2, 2),
    seconds=(1.0, 0.6),
    sources=("include/**", "src/**", "apps/**"),
    has_a_row_for_each_goal=True,
    goals=(
        Goal(SPINNING, "at_most", 10, "10 µs", metric="queue residency, mean"),
        Goal(SPINNING, "at_most", 20, "20 µs", metric="queue residency, p99"),
    ),
    tables={
        "": pivot(
            {
                "queue residency, mean": "in the queue, mean, µs",
                "queue residency, p99": "p99, µs",
            }
        )
    },
)
