"""The question: what does a request of an ensemble of two models cost, beside a request to each?

  lumen bench (1 client) --HTTP--> both   = front, then back, in the server
  lumen bench (1 client) --HTTP--> front, and then --HTTP--> back

The models are perceptrons of two layers, WIDTH numbers in and out: the small ones run on the I/O
thread (lane inline), the others on a worker. The three take turns on one server. A client that asks
one model after the other waits for the sum of both; that sum is the rival.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from lumen_engine import Server
from onnx import helper

from bench.runner import ROOT, Bench, Goal, Run, make_row
from bench.runner.places import lumen_bench, program

sys.path.insert(0, str(ROOT / "models"))
import onnx_tools

SIZES = {"small": 256, "on a worker": 1024, "with 32 MB of weights": 2048}
ASKED = ("both", "front", "back")
CLIENTS = (1, 16)


def make_perceptron(models: Path, name: str, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = [
        onnx_tools.initializer(f"w{i}", rng.standard_normal((width, width), np.float32) / width)
        for i in range(2)
    ]
    nodes = [
        helper.make_node("MatMul", ["input", "w0"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("MatMul", ["active", "w1"], ["output"]),
    ]
    onnx_tools.save(
        models / name / "1" / "model.onnx",
        name,
        nodes,
        [onnx_tools.value("input", ["rows", width])],
        [onnx_tools.value("output", ["rows", width])],
        weights,
    )


def make_models(models: Path, width: int) -> None:
    for seed, name in enumerate(("front", "back")):
        make_perceptron(models, name, width, seed)
    steps = [
        {"model": "front", "outputs": {"output": "between"}},
        {"model": "back", "inputs": {"input": "between"}},
    ]
    (models / "both").mkdir()
    (models / "both" / "config.json").write_text(json.dumps({"ensemble": {"steps": steps}}))


def measure_size(run: Run, size: str, width: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        make_models(models, width)
        with Server(models, ["--unix", "off"], executable=program("lumen")) as server:
            url = f"http://{server.url}"
            for clients in CLIENTS:
                words = ("--clients", str(clients), "--duration", str(run.seconds))
                found: dict[str, list[float]] = {"lumen": [], "two round trips": []}
                for name in ASKED:
                    lumen_bench(url, name, *words)
                for turn in run.turns(ASKED):
                    p50 = {
                        name: lumen_bench(url, name, *words)["latency_us"]["p50"] for name in turn
                    }
                    found["lumen"].append(p50["both"])
                    found["two round trips"].append(p50["front"] + p50["back"])
                of = "1 client" if clients == 1 else f"{clients} clients"
                run.add(make_row(f"{size}, {of}", "p50", "us", found))


def measure(run: Run) -> None:
    for size, width in SIZES.items():
        measure_size(run, size, width)


BENCH = Bench(
    title="Ensembles",
    measure=measure,
    minutes=2.2,
    quick_minutes=0.7,
    rounds=(7, 2),
    seconds=(1.5, 0.5),
    sources=("include/**", "src/**", "apps/**"),
    goals=(Goal(", 1 client$", "ratio_at_least", 1 / 1.1, "1.1 times both", metric="p50"),),
    is_kept=False,
)
