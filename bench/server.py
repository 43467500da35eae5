"""The question: what does Lumen add to the model, and how much do others add? HTTP on one core.

  load generator (core 1) --HTTP keep-alive--> server (core 0): one worker, one model thread
  "split, 2 cores":  load generator and I/O thread (core 1) --> worker (core 0); the load sleeps

SqueezeNet 1.1 and a small MLP, one row a request, raw binary both ways, at 1 and at 16 clients, by
Lumen's queue types mpmc, batched and inline, against FastAPI, Mosec and hyper over ONNX Runtime and
FastAPI over OpenVINO, interleaved round by round in this one run. The limit is the bare OpenVINO
loop. Then `inline` with the MLP by wrk, binary and as JSON, against nginx's empty answer to the
same bytes, the floor of HTTP (floor.py). Then the backends against each other, against `auto` and
against the frameworks (backend_rows.py). Rivals' settings: docs/benchmarking.md.

A client that uses 90 % of its core or more may be the limit itself: the table says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.load import backend_rows, floor, serving
from bench.load.serving import WORKLOADS, Target
from bench.runner import Bench, Goal, Option, Run
from bench.runner.places import make_squeezenet, say
from bench.runner.run import rotated

QUEUE_TYPES = ("mpmc", "batched", "inline")
CLIENT_IS_BUSY = 0.9  # of its core: from here on the figure may be the client's


def start_queues(stack: ExitStack, folder: Path, rivals: str) -> list[Target]:
    """Every server of WORKLOADS, each of which has given the model's answer once."""
    targets = [serving.start_split_lumen(stack, folder)]
    for queue_type in QUEUE_TYPES:
        targets += serving.start_lumen(stack, folder, queue_type)
    targets += serving.start_rivals(stack, folder, rivals, WORKLOADS)
    for target in targets:
        serving.wait_for_answer(target)
    return targets


def measure_round(targets: list[Target], number: int, seconds: float) -> None:
    """Everything once, so that a slow minute of the machine hits all alike."""
    for work in {target.workload: None for target in targets}:
        for target in rotated([t for t in targets if t.workload == work], number):
            for clients in target.clients:
                serving.measure(target, clients, seconds)


Limits = dict[str, list[dict[str, float]]]  # by model


def rows_of_queues(targets: Sequence[Target], limits: Limits) -> list[dict[str, Any]]:
    rows = []
    for ours in filter(serving.is_ours, targets):
        mine = [t for t in targets if t.workload == ours.workload]
        rivals = [t for t in mine if not serving.is_ours(t)]
        bare = limits[ours.workload.model]
        rows += [serving.http_row(ours, rivals, n, "throughput", bare) for n in ours.clients]
        rows.append(serving.http_row(ours, rivals, 1, "p50 latency", bare))
    return sorted(rows, key=lambda row: str(row["row"]))


def warn_of_busy_clients(targets: Sequence[Target]) -> None:
    for target in targets:
        for clients in target.results:
            share = median(serving.column(target, clients, "client_share"))
            if share >= CLIENT_IS_BUSY:
                said = f"{target.name}, {target.workload.model}, {serving.plural(clients)}"
                say(f"{said}: the client used {share:.0%} of its core, so it may be the limit")


def measure(run: Run) -> None:
    make_squeezenet()
    limits: Limits = {work.model: [] for work in WORKLOADS}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        rivals = run.options.rivals
        queues = start_queues(stack, folder, rivals) if "queues" in run.groups else []
        bodies = floor.start(stack, folder) if "wrk" in run.groups else []
        backends = backend_rows.start(stack, folder) if "backends" in run.groups else []
        serving.stop([*queues, *backends, *(t for body in bodies for t in body.targets)])
        for number, _ in enumerate(run.turns([])):
            for work in WORKLOADS if queues else ():
                limits[work.model].append(serving.measure_limit(work, run.seconds))
            measure_round(queues, number, run.seconds)
            for body in bodies:
                floor.measure_by_wrk(body, number, run.seconds)
            measure_round(backends, number, run.seconds)
    run.add(*rows_of_queues(queues, limits))
    run.add(*(floor.make_wrk_row(body) for body in bodies))
    run.add(*backend_rows.make_rows(backends))
    warn_of_busy_clients([*queues, *backends])


WITHIN = "within 3 % of the better backend"
BENCH = Bench(
    title="The server against its peers",
    measure=measure,
    minutes=7.0,
    quick_minutes=3.0,
    rounds=(5, 3),
    groups=("queues", "wrk", "backends"),
    options=(Option("--rivals", "fastapi,fastapi-openvino,mosec,hyper", "some of"),),
    sources=("include/**", "src/**", "apps/**", "bench/load/*", "bench/rivals/*.py"),
    packages=("nginx", "wrk", "cargo-web | cargo", "rustc-web | rustc"),
    goals=(
        Goal(
            "^squeezenet, (4|16) clients, split",
            "of_limit_at_least",
            0.95,
            "95 % of the limit",
            metric="throughput",
        ),
        Goal(
            "^squeezenet, 1 client, split",
            "over_limit_at_most",
            250,
            "within 250 µs of the limit",
            metric="p50 latency",
        ),
        Goal(", auto$", "of_limit_at_least", 0.97, WITHIN, metric="throughput"),
        Goal(", auto$", "of_limit_at_most", 1.03, WITHIN, metric="p50 latency"),
    ),
)
