#!/usr/bin/env python3
"""The question: what lets a short run in beside a long one on the same CPU, and at which cost?

  load (core 1): convnet, squeezenet --HTTP--> one Lumen server, auto, one worker (core 0)

The server runs the light convnet (0.3 ms) in the express worker, which shares the CPU of the
worker that runs squeezenet (3 to 5 ms). Both threads are given each of MEANS in turn, from outside,
by calls of the kernel that an ordinary user may make for its own threads; nothing else differs. An
ordinary user can't take a nice level or a policy back, so this bench needs root for them: a means
that the kernel refuses is left out, and said so. The limit of a latency is convnet alone, that of a
throughput the model alone, of the same round.

  bench/time_slice.py [--quick] [--json] [--rounds N] [--seconds S]
                                          stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

BENCH = Path(__file__).resolve().parent
# Last, not first: a bench may be called like one of Python's own modules (queue).
sys.path += [str(BENCH / "load"), str(BENCH / "rivals"), str(BENCH / "mixed")]
import mixed_rows  # noqa: E402
import mixed_servers  # noqa: E402
import serving  # noqa: E402
from mixed_phases import Load, Phase  # noqa: E402
from serving import ROOT  # noqa: E402

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


def start(stack: ExitStack, folder: Path) -> mixed_servers.Contender:
    works = mixed_servers.workloads(folder / "models")
    configuration = mixed_servers.Configuration("auto", ("--queue-type", "auto"), (HEAVY,))
    targets = mixed_servers.start_lumen(stack, folder, configuration, list(works.values()))
    contender = mixed_servers.Contender("auto", {t.workload.model: t for t in targets}, True)
    for target in targets:
        serving.wait_for_answer(target)
    return contender


def make_rows(results: dict[str, dict[str, list[Any]]]) -> list[dict[str, Any]]:
    rows = []

    def series(means: str, phase: Phase, model: str, key: str) -> list[float]:
        return [float(run[model][key]) for run in results[means][phase.name]]

    def add(means: str, phase: Phase, model: str, metric: str, alone: Phase) -> None:
        key = {**mixed_rows.LATENCIES, "throughput": "per_second"}[metric]
        rounds = {means: series(means, phase, model, key)}
        unit = "requests/s" if metric == "throughput" else "µs"
        limits = series(means, alone, model, key)
        row = mixed_rows.make_row(f"{phase.name}, {means}", f"{model} {metric}", unit, rounds, None)
        # Not paired: a model that is starved has no ratio.
        row["limit"] = round(median(limits), 4)
        label = f"{row['metric']}, {unit}, {'both saturated' if phase is BOTH else 'beside'}"
        rows.append({**row, "bench": "time_slice", "means": means, "label": label})

    for means in results:
        for metric in mixed_rows.LATENCIES:
            add(means, BESIDE, LIGHT, metric, ALONE_LIGHT)
        add(means, BESIDE, HEAVY, "throughput", ALONE_HEAVY)
        add(means, BOTH, LIGHT, "throughput", ALONE_LIGHT)
        add(means, BOTH, HEAVY, "throughput", ALONE_HEAVY)
    return rows


def run_all(
    contender: mixed_servers.Contender, rounds: int, seconds: float
) -> tuple[dict[str, dict[str, list[Any]]], dict[str, str]]:
    process = next(iter(contender.targets.values())).process.pid
    heavy, express = workers_of(process)
    os.sched_setaffinity(express, {serving.SERVER_CORE})  # where it would be if no CPU were idle
    results: dict[str, dict[str, list[Any]]] = {}
    refused: dict[str, str] = {}
    for number in range(rounds):
        turn = number % len(MEANS)
        for means in MEANS[turn:] + MEANS[:turn]:
            try:
                means.heavy.set_for(heavy)
                means.express.set_for(express)
            except OSError as error:
                refused[means.name] = str(error)
                continue
            runs = results.setdefault(means.name, {})
            for phase in PHASES:
                run = mixed_servers.measure(contender, phase, seconds, {})
                runs.setdefault(phase.name, []).append(run)
    return results, refused


def show(rows: list[dict[str, Any]]) -> None:
    form: Callable[..., str] = "{:<88}{:<24}{:>12}{:>12}".format
    print(form("row", "metric", "measured", "alone"), file=sys.stderr)
    for r in rows:
        print(
            form(r["row"], r["metric"], f"{r['ours']:,.1f}", f"{r['limit']:,.1f}"), file=sys.stderr
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="What lets a short run in beside a long one.")
    parser.add_argument("--quick", action="store_true", help="1 short round")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 5, quick 1")
    parser.add_argument("--seconds", type=float, help="a measurement; default 1, quick 0.3")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two cores are needed", file=sys.stderr)
        return 1
    make = [sys.executable, str(ROOT / "models" / HEAVY / "make.py"), "--if-missing"]
    subprocess.run(make, check=True, stdout=sys.stderr)
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    seconds = arguments.seconds or (0.3 if arguments.quick else 1.0)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        contender = start(stack, Path(name))
        results, refused = run_all(contender, rounds, seconds)
    for means, why in refused.items():
        print(
            f"bench: going on without '{means}', which the kernel refuses: {why}", file=sys.stderr
        )
    rows = make_rows(results)
    if not arguments.json:
        show(rows)
    print(json.dumps({"rows": rows, "left_out": refused}, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
