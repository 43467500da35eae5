"""The question: what does it cost that a model is a program in Python instead of a graph?

  lumen bench (HTTP and the bus) --> lumen, a model in Python that gives its input back
  lumen bench (HTTP and the bus) --> lumen, an ONNX graph of one addition

The two take turns on one server. Beside the clients' latency: how long a request is with the Python
process, by the server's own clock (stage "inference"): two hand-overs between processes, the copies
of the tensors, and the code around run(). The time of run() itself comes on top.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from lumen_engine import Server
from onnx import helper

from bench.runner import ROOT, Bench, Goal, Run, make_row
from bench.runner.places import lumen_bench, program

sys.path.insert(0, str(ROOT / "models"))
import onnx_tools

PYTHON, GRAPH = "python", "graph"
SIZES = {"4 numbers": 4, "a picture of 224 x 224": 3 * 224 * 224}
CLIENTS = (1, 16)
PROGRAM = "def run(inputs):\n    return {'y': inputs['x']}\n"


def make_models(models: Path, numbers: int) -> None:
    folder = models / PYTHON / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(PROGRAM)
    tensors = {
        key: [{"name": name, "data_type": "TYPE_FP32", "dims": [numbers]}]
        for key, name in (("input", "x"), ("output", "y"))
    }
    (folder.parent / "config.json").write_text(json.dumps(tensors))
    onnx_tools.save(
        models / GRAPH / "1" / "model.onnx",
        GRAPH,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [onnx_tools.value("x", [numbers])],
        [onnx_tools.value("y", [numbers])],
        [],
    )


def measure_size(run: Run, size: str, numbers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models, bus = Path(folder) / "models", Path(folder) / "bus"
        make_models(models, numbers)
        words = ["--unix", "off", "--python", "on"]
        with Server(models, words, executable=program("lumen"), bus=bus) as server:
            for transport, url in (("HTTP", f"http://{server.url}"), ("the bus", f"bus:{bus}")):
                for clients in CLIENTS:
                    load = ("--clients", str(clients), "--duration", str(run.seconds))
                    found: dict[str, list[float]] = {PYTHON: [], GRAPH: []}
                    inside: list[float] = []
                    for turn in run.turns([PYTHON, GRAPH]):
                        for name in turn:
                            row = lumen_bench(url, name, *load)
                            found[name].append(row["latency_us"]["p50"])
                            if name == PYTHON:
                                inside.append(row["server"]["stages_us"]["inference"])
                    of = f"{size}, {transport}, {clients} client{'s' if clients > 1 else ''}"
                    run.add(make_row(of, "p50", "us", found))
                    run.add(make_row(of, "with its process", "us", {PYTHON: inside}))


def measure(run: Run) -> None:
    for size, numbers in SIZES.items():
        measure_size(run, size, numbers)


BENCH = Bench(
    title="Models in Python",
    measure=measure,
    minutes=2.5,
    quick_minutes=0.6,
    rounds=(5, 2),
    seconds=(0.7, 0.4),
    sources=("include/**", "src/**", "apps/**", "python/lumen_engine/*.py"),
    goals=(
        Goal(
            "^4 numbers, .*, 1 client$",
            "at_most",
            30.0,
            "30 us with its process",
            metric="with its process",
        ),
    ),
    is_kept=False,
)
