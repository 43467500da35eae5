"""The question: how do throughput and latency go with the number of clients, ours and the others'?

  load generator (core 1) --HTTP keep-alive--> server (core 0): one worker, one model thread

The small MLP, one row a request, raw binary both ways, 1 to 64 clients in a closed loop, by Lumen's
queue types mpmc and inline, against FastAPI (over ONNX Runtime and over OpenVINO), Mosec and hyper.
All take turns round by round. Of each: requests a second, and p50, p90, p99 and p99.9 as the
client saw them. The servers and their settings are those of bench/server.py.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.load import serving
from bench.load.serving import WORKLOADS, Target
from bench.runner import Bench, Option, Row, Run
from bench.runner.rows import Document, spread
from bench.runner.tables import table

MLP = next(work for work in WORKLOADS if work.model == "mlp")
QUEUE_TYPES = ("mpmc", "inline")
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
QUICK_CLIENTS = (1, 4, 16, 64)
PERCENTILES = ("p50", "p90", "p99", "p99.9")
SHOWN = ("p50", "p99", "p99.9")  # of the table: a fourth would not fit the cell
ROW = re.compile(r"^mlp, (\d+) clients?, (\S+)$")


def start(stack: ExitStack, folder: Path, rivals: str) -> list[Target]:
    """Each has given the model's answer once, and is stopped until its turn."""
    targets: list[Target] = []
    for queue_type in QUEUE_TYPES:
        started = serving.start_lumen(stack, folder, queue_type)
        targets += [target for target in started if target.workload == MLP]
    targets += serving.start_rivals(stack, folder, rivals, [MLP])
    for target in targets:
        serving.wait_for_answer(target)
    serving.stop(targets)
    return targets


def measure(run: Run) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        targets = start(stack, Path(name), run.options.rivals)
        for turn in run.turns(targets):
            for clients in run.pick(CLIENTS, QUICK_CLIENTS):
                for target in turn:
                    serving.measure(target, clients, run.seconds)
    rivals = [target for target in targets if not serving.is_ours(target)]
    for ours in filter(serving.is_ours, targets):
        for clients in ours.results:
            run.add(*(serving.http_row(ours, rivals, clients, m) for m in serving.METRICS))


# --- the table ------------------------------------------------------------------------------------

Samples = dict[str, dict[int, list[float]]]  # by contender, ours first, and by clients: the rounds


def samples(rows: Sequence[Row], metric: str) -> Samples:
    """KeyError: the rows are of another bench."""
    found: Samples = {}
    of_metric = [row for row in rows if row["metric"] == metric]
    for is_ours in (True, False):
        for row in of_metric:
            match = ROW.match(row["row"])
            if match is None:
                raise KeyError(f"{row['row']}: not a row of ./dev bench clients")
            for name, values in row["rounds"].items():
                if name.startswith("lumen") == is_ours:
                    found.setdefault(name, {})[int(match[1])] = values
    return found


def middle(values: Sequence[float]) -> str:
    found = median(values)
    return f"{found:,.0f}" if found >= 100 else f"{found:,.1f}"


def draw(document: Document) -> str:
    rates = samples(document["rows"], "throughput")
    latencies = {p: samples(document["rows"], f"{p} latency") for p in SHOWN}
    counts = sorted({clients for found in rates.values() for clients in found})
    heads = ["clients", *rates]
    said = "Requests a second, the small MLP, medians; in brackets (largest - smallest) / median:\n"
    lines = [
        [str(n), *(f"{middle(of[n])} ({spread(of[n]) or 0:.0%})" for of in rates.values())]
        for n in counts
    ]
    said += "\n" + table(heads, lines, 0)
    said += f"\nLatency of the same: {', '.join(SHOWN)}, µs:\n\n"
    lines = [
        [str(n), *(", ".join(middle(latencies[p][name][n]) for p in SHOWN) for name in rates)]
        for n in counts
    ]
    return said + table(heads, lines, 0)


BENCH = Bench(
    title="Throughput and latency by clients",
    measure=measure,
    minutes=5.0,
    quick_minutes=1.0,
    rounds=(5, 3),
    options=(Option("--rivals", "fastapi,fastapi-openvino,mosec,hyper", "some of, or empty"),),
    sources=("include/**", "src/**", "apps/**", "bench/load/*", "bench/rivals/*.py"),
    packages=("cargo-web | cargo", "rustc-web | rustc"),
    tables={"": draw},
)
