"""The question: how much does the server add to a run on a device, and is the device kept busy?

The rival is a bare loop of ONNX Runtime's Python interface over the same device in the same run:
one thread for one client, as many threads as streams for many. Without a GPU the device is the
plugin of tests/device, whose runs take 2 ms without the CPU: then the figures show the cost of the
hand-over, and nothing of a GPU. LUMEN_DEVICE=cuda (or tensorrt) measures that one, with squeezenet
and a transformer, and beside it the same models on 2 to 16 workers of the CPU.
LUMEN_DEVICE_MODELS and LUMEN_DEVICE_WORKERS name others ("mlp transformer", "1 2").

mean           one client (the load's histogram tells times of 2 ms apart by 30 us only)
throughput     8 clients, one worker: against the bare loop, and 4 streams against 1 (mpmc); of the
               CPU's workers two clients each
p99 to p50     an open loop at 70 % of that rate
gap            the answers against those of the CPU, of the largest number: 0.001 at most
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import onnxruntime
from lumen_engine import Server
from lumen_engine.client import Client

from bench.device_models import place
from bench.runner import BUILD, Bench, BenchError, Goal, Run, make_row
from bench.runner.places import lumen_bench, program

DEVICE = os.environ.get("LUMEN_DEVICE", "plugin")
PLUGIN = BUILD / "liblumen_test_device.so"
RUN_US = 2_000
STREAMS = 4
CLIENTS = 8
SHARE_OF_LOAD = 0.7
ADDED_US = 30
IS_PLUGIN = DEVICE == "plugin"
MODELS = os.environ.get(
    "LUMEN_DEVICE_MODELS", "mlp" if IS_PLUGIN else "squeezenet transformer"
).split()
CPUS = os.cpu_count() or 1
WORKERS = os.environ.get(
    "LUMEN_DEVICE_WORKERS",
    "" if IS_PLUGIN else " ".join(str(n) for n in (2, 4, 8, 16) if n <= CPUS),
).split()
PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
# Streams and queue type: the default, which packs requests; and one that does not, by which the
# runs that are under way at once show.
LUMEN = "lumen"
SERVERS = {LUMEN: (STREAMS, "auto"), "4 streams": (STREAMS, "mpmc"), "1 stream": (1, "mpmc")}
BARE = "bare loop"

Figures = dict[str, list[float]]  # by the name of the contender


@cache
def register_plugin() -> list[Any]:
    """Its devices. It stays: a session must not outlive it."""
    if not PLUGIN.exists():
        raise BenchError(f"{PLUGIN} is not there: the build of ./dev bench makes it")
    onnxruntime.register_execution_provider_library(DEVICE, str(PLUGIN))
    return [one for one in onnxruntime.get_ep_devices() if one.ep_name == "LumenTestDevice"]


def open_session(file: Path) -> onnxruntime.InferenceSession:
    """On the device, as the server opens it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if IS_PLUGIN:
        options.add_provider_for_devices(register_plugin(), {"run_us": str(RUN_US)})
        return onnxruntime.InferenceSession(str(file), options)
    providers = [PROVIDERS[DEVICE]]
    if DEVICE == "tensorrt":
        providers.append(PROVIDERS["cuda"])
    return onnxruntime.InferenceSession(str(file), options, providers=providers)


def made_up(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    first = session.get_inputs()[0]
    shape = [1 if not isinstance(size, int) else size for size in first.shape]
    random = np.random.default_rng(1)
    return {first.name: random.uniform(-1, 1, shape).astype(np.float32)}


@contextmanager
def serving(folder: Path, model: str, contender: str) -> Iterator[Server]:
    """Of a model of `folder`; `contender`: one of SERVERS, or a number of workers on the CPU."""
    repository = folder / f"of_{model}" / contender.replace(" ", "_")  # no other model beside it
    target = repository / model
    place(model, target)
    words = ["--unix", "off"]
    if contender in SERVERS:
        streams, queue_type = SERVERS[contender]
        (target / "config.json").write_text(json.dumps({"device": {"streams": streams}}))
        words += ["--thread-count", "1", "--queue-type", queue_type]
        words += ["--backend", "device" if IS_PLUGIN else DEVICE]
    else:
        words += ["--thread-count", contender]
    if IS_PLUGIN and contender in SERVERS:
        setting = {"name": "device", "library": str(PLUGIN), "options": {"run_us": RUN_US}}
        words += ["--execution-providers", json.dumps([setting])]
    with Server(repository, words, executable=program("lumen")) as server:
        yield server


def bare_latencies(
    session: onnxruntime.InferenceSession, inputs: dict[str, np.ndarray], seconds: float
) -> list[float]:
    taken = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        session.run(None, inputs)
        taken.append((time.perf_counter() - begin) * 1e6)
    return taken


def bare_rate(
    session: onnxruntime.InferenceSession, inputs: dict[str, np.ndarray], seconds: float
) -> float:
    counts: list[int] = []

    def loop() -> None:
        counts.append(len(bare_latencies(session, inputs, seconds)))

    threads = [threading.Thread(target=loop) for _ in range(STREAMS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def gap_to_cpu(server: Server, model: str, file: Path, inputs: dict[str, np.ndarray]) -> float:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    with Client(f"http://{server.url}") as client:
        got = client.infer(model, inputs)
    gaps = []
    for output, one in zip(session.get_outputs(), wanted):
        gaps.append(float(np.abs(got[output.name] - one).max() / np.abs(one).max()))
    return max(gaps)


class OfModel:
    """The figures of one model, gathered turn by turn."""

    def __init__(self, run: Run, model: str, folder: Path) -> None:
        self.run, self.model, self.folder = run, model, folder
        self.file = place(model, folder / "bare" / model)
        self.one_client: Figures = defaultdict(list)
        self.rate: Figures = defaultdict(list)
        self.tail: list[float] = []
        self.gap: list[float] = []

    def load(self, server: Server, *words: str) -> Any:
        much = ("--duration", str(self.run.seconds), "--warm-up", "0.2")
        return lumen_bench(f"http://{server.url}", self.model, *words, *much)

    def ask(self, contender: str, session: onnxruntime.InferenceSession) -> None:
        seconds, inputs = self.run.seconds, made_up(session)
        if contender == BARE:
            self.one_client[BARE].append(mean(bare_latencies(session, inputs, seconds)))
            self.rate[BARE].append(bare_rate(session, inputs, seconds))
            return
        clients = str(CLIENTS if contender in SERVERS else 2 * int(contender))
        with serving(self.folder, self.model, contender) as server:
            if contender == LUMEN:
                self.gap.append(gap_to_cpu(server, self.model, self.file, inputs))
                one = self.load(server, "--clients", "1")
                self.one_client[LUMEN].append(one["latency_us"]["mean"])
            found = self.load(server, "--clients", clients)
            self.rate[contender].append(found["per_second"])
            if contender == LUMEN:
                at = str(int(SHARE_OF_LOAD * found["per_second"]))
                words = ("--clients", clients, "--rate", at)
                open_loop = self.load(server, *words)["latency_us"]
                self.tail.append(open_loop["p99"] / open_loop["p50"])

    def add_rows(self) -> None:
        of = f"{DEVICE}, {self.model}"
        add, rate = self.run.add, self.rate
        add(make_row(f"{of}, 1 client, mean time", "mean", "µs", self.one_client))
        pairs = [(f"{of}, {CLIENTS} clients", LUMEN, BARE)]
        pairs += [(f"{of}, 4 streams to 1, mpmc", "4 streams", "1 stream")]
        pairs += [(f"{of}, to CPU x {n}", LUMEN, n) for n in WORKERS]
        for row, ours, rival in pairs:
            name = f"CPU x {rival}" if rival in WORKERS else rival
            rounds = {ours: rate[ours], name: rate[rival]}
            add(make_row(row, "throughput", "requests/s", rounds, more_is_better=True))
        tail, gap = {LUMEN: self.tail}, {LUMEN: self.gap}
        add(make_row(f"{of}, 70 % load, p99 to p50", "p99 to p50", "ratio", tail, spread=None))
        add(make_row(f"{of}, gap to the CPU's answers", "gap", "share", gap, spread=None))


def measure(run: Run) -> None:
    with tempfile.TemporaryDirectory() as name:
        for model in MODELS:
            figures = OfModel(run, model, Path(name))
            session = open_session(figures.file)
            for turn in run.turns([*SERVERS, *WORKERS, BARE]):
                for contender in turn:
                    figures.ask(contender, session)
            figures.add_rows()


BENCH = Bench(
    title="On a device",
    measure=measure,
    minutes=0.7,
    quick_minutes=0.2,
    rounds=(5, 2),
    seconds=(1.5, 0.5),
    sources=("include/**", "src/**", "apps/**", "tests/device/**"),
    goals=(
        Goal("1 client", "over_rival_at_most", ADDED_US, "the bare loop + 30 µs", metric="mean"),
        Goal(f"{CLIENTS} clients", "ratio_at_least", 0.95, "0.95 of the bare loop"),
        Goal("4 streams to 1", "ratio_at_least", 3.5, "3.5 times one stream"),
        Goal("70 % load", "at_most", 1.5, "1.5"),
        Goal("gap to the CPU", "at_most", 1e-3, "0.001"),
    ),
    has_a_row_for_each_goal=True,
)
