"""The question: how much faster is INT8 here than f32 and bf16, and how far off are its answers?

  lumen quantize MODEL --data rows.npz --dry-run: all candidates in both backends, one CPU, in turn

Of the project's own models, a perceptron with 67 MB of weights, and `digits` with its held-out
images: the time of one row in INT8 (its faster backend) against the faster f32 and against bf16,
the signal to error, the points of accuracy that `digits` loses, and the time of the whole command
with 100 samples of squeezenet. These models but digits have random weights and random rows: their
times are those of trained ones, their signal to error is a figure of kernels. Of models from
packages (int8_third_party.py) also the form that the command chooses. Memory: an instance of the
large perceptron, as the server measures it, in f32 and in INT8; and callgrind's simulation of the
misses of the last cache level for a request to it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from lumen_engine import Server
from lumen_engine._control import UnixHttpConnection
from onnx import TensorProto, helper, numpy_helper

from bench import int8_third_party
from bench.runner import ROOT, Bench, Goal, Run, make_row
from bench.runner.places import TIMEOUT_S, program, run_json

SAMPLES = 100
WIDE, WIDE_LAYERS = 2048, 4
SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "squeezenet": ("data", (3, 224, 224)),
    "convnet": ("image", (1, 28, 28)),
    "mlp": ("input", (256,)),
}
MODELS = (*SHAPES, "wide", "digits", *int8_third_party.MODELS)
QUICK_MODELS = ("convnet",)
MEMORY = "wide, an instance of INT8 to f32"
MISSES = "wide, last-level misses of INT8 to f32, simulated"
ACCURACY = """\
def metric(inputs, outputs, more):
    return float((outputs["probabilities"].argmax(axis=1) == more["labels"]).mean())
"""


def make_wide(folder: Path) -> None:
    """f32[-1,2048] -> 4 x (2048 ReLU)."""
    rng = np.random.default_rng(5)
    nodes, weights, before = [], [], "x"
    for layer in range(WIDE_LAYERS):
        values = rng.standard_normal((WIDE, WIDE)).astype(np.float32) * np.sqrt(2 / WIDE)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [before, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"]))
        before = f"r{layer}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDE])
        for name in ("x", before)
    ]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / "1").mkdir(parents=True)
    onnx.save(model, folder / "1" / "model.onnx")


def prepare(name: str, folder: Path) -> list[str]:
    """The command's words for a model; its samples are written to `folder`."""
    data, model, more = folder / f"{name}.npz", ROOT / "models" / name, []
    rng = np.random.default_rng(1)
    if name in int8_third_party.MODELS:
        model, data = int8_third_party.prepare(name, folder)
    elif name == "wide":
        model = folder / "models" / name
        make_wide(model)
        np.savez(data, x=rng.standard_normal((SAMPLES, WIDE)).astype(np.float32))
    elif name == "digits":
        sys.path.insert(0, str(ROOT / "models" / "digits"))
        from data import split  # noqa: PLC0415

        trained, held_out, labels, held_out_labels = split()
        images = np.concatenate([held_out, trained[:200]])
        np.savez(data, image=images, labels=np.concatenate([held_out_labels, labels[:200]]))
        (folder / "accuracy.py").write_text(ACCURACY)
        more = ["--metric", str(folder / "accuracy.py")]
    else:
        tensor, shape = SHAPES[name]
        rows: dict[str, Any] = {tensor: rng.standard_normal((SAMPLES, *shape)).astype(np.float32)}
        np.savez(data, **rows)
    return [str(program("lumen")), "quantize", str(model), "--data", str(data), *more]


def compare_once(words: list[str]) -> dict[str, Any]:
    done = subprocess.run([*words, "--dry-run", "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def fastest(found: dict[str, Any], name: str) -> dict[str, Any]:
    entries = [one for one in found["candidates"] if one["candidate"] == name and "us" in one]
    return min(entries, key=lambda one: one["us"], default={})


def measure_model(run: Run, name: str, folder: Path) -> None:
    words = prepare(name, folder)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(run.rounds):
        found = compare_once(words)
        entries = {form: fastest(found, form) for form in ("int8", "f32", "bf16", "weights")}
        for form, entry in entries.items():
            if entry:
                times[form].append(entry["us"])
        times["seconds"].append(found["seconds"])
        times["decibels"].append(entries["int8"].get("sqnr_db", np.nan))
        if entries["int8"].get("metric") is not None:
            lost = entries["f32"]["metric"] - entries["int8"]["metric"]
            times["points"].append(100 * lost)
    refused = " (refused)" if entries["int8"].get("verdict") == "refused" else ""
    for form in ("f32", "bf16", "weights"):
        if times[form]:
            rounds = {"int8": times["int8"], form: times[form]}
            run.add(make_row(f"{name}, INT8{refused} to {form}", "one row", "us", rounds))
    if name in int8_third_party.MODELS:
        choice = found["choice"]
        row = f"{name}, the choice: {choice['candidate']}"
        rounds = {choice["candidate"]: [choice["us"]], "f32": times["f32"]}
        run.add(make_row(row, "one row", "us", rounds))
    run.add(_alone(name, "signal to error", "dB", times["decibels"]))
    run.add(_alone(name, "lumen quantize", "s", times["seconds"]))
    if times["points"]:
        run.add(_alone(name, "accuracy lost", "points", times["points"]))


def _alone(name: str, metric: str, unit: str, values: list[float]) -> Any:
    return make_row(name, metric, unit, {"int8": values}, more_is_better=None)


def instance_megabytes(repository: Path, folder: Path) -> float:
    """Of the only model, as the server measures it with its defaults."""
    socket = str(folder / "s")
    with Server(repository, (), executable=program("lumen"), http=None, unix=socket):
        connection = UnixHttpConnection(socket, TIMEOUT_S)
        connection.request("GET", "/v2/lumen/engine")
        (model,) = json.loads(connection.getresponse().read())["models"]
        connection.close()
    return float(model["instance_bytes"]) / 1e6


def simulated_misses(repository: Path) -> float:
    words = [program("lumen"), "perf", "--callgrind", "--json", "--model", "wide"]
    words += ["--model-repository", str(repository), "--clients", "1x8", "--warm-up", "2"]
    words += ["--", "--thread-count", "1", "--queue-type", "mpmc"]
    # Minutes where callgrind's build has to be made first.
    found = run_json(words, timeout_s=10 * TIMEOUT_S)
    return float(found["simulated_a_request"]["ll_misses"])


def measure_memory(run: Run, folder: Path) -> None:
    model = folder / "models" / "wide"
    subprocess.run(prepare("wide", folder), capture_output=True, check=True)
    repositories = {}
    for form, version in (("int8", "2"), ("f32", "1")):
        repositories[form] = folder / form
        shutil.copytree(model / version, folder / form / "wide" / version)
    megabytes: dict[str, list[float]] = defaultdict(list)
    for turn in run.turns(tuple(repositories)):
        for form in turn:
            megabytes[form].append(instance_megabytes(repositories[form], folder))
    run.add(make_row(MEMORY, "MB", "MB", {form: megabytes[form] for form in repositories}))
    misses = {form: [simulated_misses(at)] for form, at in repositories.items()}
    run.add(make_row(MISSES, "a request", "misses", misses))


def measure(run: Run) -> None:
    with tempfile.TemporaryDirectory(prefix="lumen-int8-") as folder:
        for name in run.pick(MODELS, QUICK_MODELS):
            if run.wants(name):
                measure_model(run, name, Path(folder))
    if not run.is_quick and run.wants("wide"):
        with tempfile.TemporaryDirectory(prefix="lumen-int8-") as folder:
            measure_memory(run, Path(folder))


BENCH = Bench(
    title="INT8",
    measure=measure,
    minutes=8.0,
    quick_minutes=0.2,
    seconds=(0.3, 0.3),
    sources=("python/lumen_engine/quantize/**",),
    goals=(
        Goal("^(squeezenet|convnet), INT8 to f32", "ratio_at_least", 3.0, "3.0 x f32"),
        Goal("^squeezenet, INT8 to bf16", "ratio_at_least", 1.6, "1.6 x bf16"),
        Goal("^wide, INT8 to f32", "ratio_at_least", 8.0, "8 x f32"),
        Goal(MEMORY, "ratio_at_least", 2.5, "0.4 of the memory"),
        Goal("^digits$", "at_most", 0.2, "0.2 points", metric="accuracy lost"),
        Goal("^squeezenet$", "at_most", 10, "10 s with 100 samples", metric="lumen quantize"),
    ),
)
