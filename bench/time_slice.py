"""The question: what lets a short run in beside a long one on the same CPU, and at which cost?

  load (core 1): convnet, squeezenet --HTTP--> one Lumen server, auto, one worker (core 0)

The server runs the light convnet (0.3 ms) in the express worker, which shares the CPU of the
worker that runs squeezenet (3 to 5 ms). Both threads are given each of MEANS in turn, from outside,
by calls of the kernel that an ordinary user may make for its own threads; nothing else differs. An
ordinary user can't take a nice level or a policy back, so this bench needs root for them: a means
that the kernel refuses is left out, and said so. The limit of a latency is convnet alone, that of a
throughput the model alone, of the same round.
"""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.load import mixed_servers, serving
from bench.load.mixed_servers import Configuration, Contender, Load, Phase
from bench.mixed import LATENCIES
from bench.runner import Bench, Row, Run, make_row
from bench.runner.places import left_out, make_squeezenet
from bench.runner.rows import Document
from bench.runner.tables import number, table

LIGHT, HEAVY = "convnet", "squeezenet"
SYS_SCHED_SETATTR = 314  # x86-64
SCHED_OTHER, SCHED_BATCH, SCHED_IDLE = 0, 3, 5
# A nice level of ten is a tenth of the weight.
NICE = 10
SHORT_SLICE_NS, LONG_SLICE_NS = (
    100_000,
    100_000_000,
)  # the least and the most that the kernel grants


@dataclass(frozen=True)
class Scheduling:
    policy: int = SCHED_OTHER
    nice: int = 0
    slice_ns: int = 0  # 0: the kernel's own

    def set_for(self, thread: int) -> None:
        """Errors: OSError."""
        attributes = struct.pack("IIQiIQQQ", 48, self.policy, 0, self.nice, 0, self.slice_ns, 0, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(SYS_SCHED_SETATTR, thread, attributes, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


@dataclass(frozen=True)
class Means:
    name: str
    express: Scheduling
    heavy: Scheduling


PLAIN = Scheduling()
MEANS = (
    Means("none", PLAIN, PLAIN),
    Means("short slice", Scheduling(slice_ns=SHORT_SLICE_NS), PLAIN),
    Means("long slice of the heavy", PLAIN, Scheduling(slice_ns=LONG_SLICE_NS)),
    Means(f"nice {NICE} of the heavy", PLAIN, Scheduling(nice=NICE)),
    Means(
        f"short slice, nice {NICE} of the heavy",
        Scheduling(slice_ns=SHORT_SLICE_NS),
        Scheduling(nice=NICE),
    ),
    Means("SCHED_BATCH of the heavy", PLAIN, Scheduling(policy=SCHED_BATCH)),
    Means("SCHED_IDLE of the heavy", PLAIN, Scheduling(policy=SCHED_IDLE)),
)
ALONE_LIGHT = Phase(f"{LIGHT}, 1 client", (Load(LIGHT, 1),))
ALONE_HEAVY = Phase(f"{HEAVY}, 4 clients", (Load(HEAVY, 4),))
BESIDE = Phase(f"{LIGHT}, 1 client, beside {HEAVY}", (Load(LIGHT, 1), Load(HEAVY, 4)))
# Both want all of the CPU: the cost of the means for the heavy one.
BOTH = Phase(f"{LIGHT}, 4 clients, and {HEAVY}, 4 clients", (Load(LIGHT, 4), Load(HEAVY, 4)))
PHASES = (ALONE_LIGHT, ALONE_HEAVY, BESIDE, BOTH)


def workers_of(process: int) -> tuple[int, int]:
    """The threads of the first worker and of the express worker, the one behind the last."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        found[(task / "comm").read_text().strip()] = int(task.name)
    return found["lumen-w0"], found["lumen-w1"]


def start(stack: ExitStack, folder: Path) -> Contender:
    works = mixed_servers.workloads(folder / "models")
    configuration = Configuration("auto", ("--queue-type", "auto"), (HEAVY,))
    contender = mixed_servers.start_lumen(stack, folder, configuration, list(works.values()))
    for target in contender.targets.values():
        serving.wait_for_answer(target)
    return contender


Results = dict[str, dict[str, list[Any]]]  # by means and phase: the runs


def measure_all(run: Run, contender: Contender) -> Results:
    process = next(iter(contender.targets.values())).process.pid
    heavy, express = workers_of(process)
    os.sched_setaffinity(express, {serving.SERVER_CORE})  # where it would be if no CPU were idle
    results: Results = {}
    for turn in run.turns(MEANS):
        for means in turn:
            try:
                means.heavy.set_for(heavy)
                means.express.set_for(express)
            except OSError as error:
                left_out(means.name, f"the kernel refuses it: {error}")
                continue
            runs = results.setdefault(means.name, {})
            for phase in PHASES:
                found = mixed_servers.measure(contender, phase, run.seconds, {})
                runs.setdefault(phase.name, []).append(found)
    return results


def make_rows(results: Results) -> list[Row]:
    rows = []

    def series(means: str, phase: Phase, model: str, key: str) -> list[float]:
        return [float(run[model][key]) for run in results[means][phase.name]]

    def add(means: str, phase: Phase, model: str, metric: str, alone: Phase) -> None:
        key = {**LATENCIES, "throughput": "per_second"}[metric]
        unit = "requests/s" if metric == "throughput" else "µs"
        # Not paired: a model that is starved has no ratio.
        limit = median(series(means, alone, model, key))
        rounds = {means: series(means, phase, model, key)}
        name = f"{model} {metric}"
        row = make_row(f"{phase.name}, {means}", name, unit, rounds, limit=limit)
        label = f"{name}, {unit}, {'both saturated' if phase is BOTH else 'beside'}"
        rows.append(row | {"means": means, "label": label})

    for means in results:
        for metric in LATENCIES:
            add(means, BESIDE, LIGHT, metric, ALONE_LIGHT)
        add(means, BESIDE, HEAVY, "throughput", ALONE_HEAVY)
        add(means, BOTH, LIGHT, "throughput", ALONE_LIGHT)
        add(means, BOTH, HEAVY, "throughput", ALONE_HEAVY)
    return rows


def measure(run: Run) -> None:
    make_squeezenet()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        run.add(*make_rows(measure_all(run, start(stack, Path(name)))))


def draw(document: Document) -> str:
    """One line for each way to schedule the two threads, against each model alone."""
    lines: dict[str, list[str]] = {}
    heads = ["", *dict.fromkeys(row["label"] for row in document["rows"])]
    for row in document["rows"]:
        cells = lines.setdefault(row["means"], [row["means"]])
        cells.append(f"{number(row['ours'])} ({row['ours'] / row['limit']:.2f})")
    return table(heads, list(lines.values()), 1)


BENCH = Bench(
    title="A short run beside a long one on one CPU",
    measure=measure,
    minutes=4.0,
    quick_minutes=0.3,
    rounds=(5, 1),
    sources=(
        *("include/**", "src/**", "apps/**"),
        *("bench/load/{serving,mixed_servers}.py", "bench/load/mixed_load.cc"),
        "models/convnet/1/model.onnx",
    ),
    tables={"": draw},
)
