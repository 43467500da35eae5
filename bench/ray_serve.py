"""The question: how many calls does a replica of Ray Serve answer by Lumen, and a client alone?

  16 threads --handle--> one replica --bus--> lumen, the MLP     (lumen_engine.ray)
  16 threads --handle--> one replica with ONNX Runtime inside
  one client --bus--> lumen, the MLP: one call after the other, and 64 in flight

Ray Serve is the PyPI package, unmodified, on the same node; all share the machine's CPUs. The
deployments take turns, after a warm-up each. Where Ray's own calls are the whole time, both rows
are level, and the client's rows say how much they cost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from lumen_engine import Client, Server

from bench.runner import ROOT, Bench, Goal, Run, make_row
from bench.runner.places import BenchError, program

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

MODELS = ROOT / "models"
MODEL = MODELS / "mlp" / "1" / "model.onnx"
LOAD = ROOT / "bench" / "rivals" / "ray_serve_load.py"
REPLICAS = ("lumen", "onnxruntime inside")
CLIENTS = ("client, one by one", "client, 64 in flight")
PACKAGES = sysconfig.get_paths()["purelib"]
IN_FLIGHT = 64
WARM_UP_S = 1.0


class Replicas:
    """Ray's deployments, in a process of their own."""

    def __init__(self) -> None:
        # The paths of Ray's sockets are long, and a unix socket's may not be.
        self._folder = tempfile.mkdtemp(prefix="ray-")
        more = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": self._folder}
        more |= {"PYTHONPATH": str(ROOT / "python"), "LUMEN_BINARY": program("lumen")}
        self._process = subprocess.Popen(
            [judge_programs.interpreter("ray"), str(LOAD), str(MODELS), str(MODEL), PACKAGES],
            env={**os.environ, **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say("ready")

    def _say(self, wanted: str = "") -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line or (wanted and line != wanted):
            raise BenchError(f"Ray Serve: got {line!r}, wanted {wanted or 'a number'}; see above")
        return line

    def calls_a_second(self, name: str, seconds: float) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name} {seconds}\n")
        self._process.stdin.flush()
        return float(self._say())

    def close(self) -> None:
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)


def rate(calls: Callable[[], int], seconds: float) -> float:
    begin = time.monotonic()
    count = 0
    while time.monotonic() < begin + seconds:
        count += calls()
    return count / (time.monotonic() - begin)


def one_by_one(client: Client, row: np.ndarray) -> int:
    client.infer("mlp", {"input": row})
    return 1


def in_flight(client: Client, row: np.ndarray) -> int:
    return len(client.infer_batch("mlp", [{"input": row}] * IN_FLIGHT))


def measure(run: Run) -> None:
    taken: dict[str, list[float]] = defaultdict(list)
    row = np.ones((1, 256), np.float32)
    replicas = Replicas()
    try:
        for name in REPLICAS:
            replicas.calls_a_second(name, WARM_UP_S)
        for turn in run.turns(REPLICAS):
            for name in turn:
                taken[name].append(replicas.calls_a_second(name, run.seconds))
    finally:
        replicas.close()
    with tempfile.TemporaryDirectory() as folder:
        bus = Path(folder) / "bus"
        words = ["--backend", "onnxruntime"]
        with (
            Server(MODELS, words, executable=program("lumen"), http="off", bus=bus),
            Client(f"bus:{bus}") as client,
        ):
            for turn in run.turns(CLIENTS):
                for name in turn:
                    calls = one_by_one if name == CLIENTS[0] else in_flight
                    taken[name].append(rate(partial(calls, client, row), run.seconds))
    rounds = {name: taken[name] for name in REPLICAS}
    run.add(make_row("a replica", "calls", "/s", rounds, more_is_better=True))
    for name in CLIENTS:
        run.add(make_row(name, "calls", "/s", {"lumen": taken[name]}, more_is_better=True))


BENCH = Bench(
    title="Behind Ray Serve",
    measure=measure,
    minutes=1.5,
    quick_minutes=0.6,
    seconds=(3.0, 1.0),
    sources=("include/**", "src/**", "apps/**", "python/lumen_engine/*.py"),
    goals=(Goal("^a replica$", "ratio_at_least", 5.0, "5 x a replica with ONNX Runtime inside"),),
    is_kept=False,
)
