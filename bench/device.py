"""The question: how much does the server add to a run on a device, and is the device kept busy?

The rival is a bare loop of ONNX Runtime's Python interface over the same device in the same run:
one thread for one client, as many threads as streams for many. Without a GPU the device is the
plugin of tests/device, whose runs take 2 ms without the CPU: then the figures show the cost of the
hand-over, and nothing of a GPU. LUMEN_DEVICE=cuda (or tensorrt) measures that one, with
squeezenet.

mean           one client (the load's histogram tells times of 2 ms apart by 30 us only)
throughput     8 clients, one worker: against the bare loop, and 4 streams against 1 (mpmc)
p99 to p50     an open loop at 70 % of that rate
gap            the answers against those of the CPU, of the largest number: 0.001 at most
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import onnxruntime
from lumen_engine import Server
from lumen_engine.client import Client

from bench.runner import BUILD, ROOT, Bench, BenchError, Goal, Run, make_row
from bench.runner.places import lumen_bench, program

DEVICE = os.environ.get("LUMEN_DEVICE", "plugin")
PLUGIN = BUILD / "liblumen_test_device.so"
RUN_US = 2_000
STREAMS = 4
CLIENTS = 8
SHARE_OF_LOAD = 0.7
ADDED_US = 30
MODEL = "mlp" if DEVICE == "plugin" else "squeezenet"
PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
# Streams and queue type: the default, which packs requests; and one that does not, by which the
# runs that are under way at once show.
LUMEN = "lumen"
SERVERS = {LUMEN: (STREAMS, "auto"), "4 streams": (STREAMS, "mpmc"), "1 stream": (1, "mpmc")}
BARE = "bare loop"

Figures = dict[str, list[float]]  # by the name of the contender


def open_session() -> onnxruntime.InferenceSession:
    """On the device, as the server opens it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    file = str(ROOT / "models" / MODEL / "1" / "model.onnx")
    if DEVICE != "plugin":
        return onnxruntime.InferenceSession(file, options, providers=[PROVIDERS[DEVICE]])
    if not PLUGIN.exists():
        raise BenchError(f"{PLUGIN} is not there: the build of ./dev bench makes it")
    onnxruntime.register_execution_provider_library("device", str(PLUGIN))
    found = [one for one in onnxruntime.get_ep_devices() if one.ep_name == "LumenTestDevice"]
    options.add_provider_for_devices(found, {"run_us": str(RUN_US)})
    return onnxruntime.InferenceSession(file, options)


def made_up(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    first = session.get_inputs()[0]
    shape = [1 if not isinstance(size, int) else size for size in first.shape]
    random = np.random.default_rng(1)
    return {first.name: random.uniform(-1, 1, shape).astype(np.float32)}


@contextmanager
def serving(folder: Path, streams: int, queue_type: str) -> Iterator[Server]:
    repository = folder / f"streams{streams}"
    target = repository / MODEL
    if not target.exists():
        shutil.copytree(ROOT / "models" / MODEL / "1", target / "1")
        (target / "config.json").write_text(json.dumps({"device": {"streams": streams}}))
    words = ["--unix", "off", "--thread-count", "1", "--queue-type", queue_type]
    words += ["--backend", "device" if DEVICE == "plugin" else DEVICE]
    if DEVICE == "plugin":
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


def gap_to_cpu(server: Server, inputs: dict[str, np.ndarray]) -> float:
    file = str(ROOT / "models" / MODEL / "1" / "model.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    wanted = session.run(None, inputs)
    with Client(f"http://{server.url}") as client:
        got = client.infer(MODEL, inputs)
    gaps = []
    for output, one in zip(session.get_outputs(), wanted):
        gaps.append(float(np.abs(got[output.name] - one).max() / np.abs(one).max()))
    return max(gaps)


def load(server: Server, seconds: float, *words: str) -> Any:
    much = ("--duration", str(seconds), "--warm-up", "0.2")
    return lumen_bench(f"http://{server.url}", MODEL, *words, *much)


def measure(run: Run) -> None:
    one_client: Figures = defaultdict(list)
    rate: Figures = defaultdict(list)
    tail: list[float] = []
    gap: list[float] = []
    session = open_session()
    inputs = made_up(session)
    with tempfile.TemporaryDirectory() as name:
        for turn in run.turns([*SERVERS, BARE]):
            for contender in turn:
                if contender == BARE:
                    one_client[BARE].append(mean(bare_latencies(session, inputs, run.seconds)))
                    rate[BARE].append(bare_rate(session, inputs, run.seconds))
                    continue
                with serving(Path(name), *SERVERS[contender]) as server:
                    if contender == LUMEN:
                        gap.append(gap_to_cpu(server, inputs))
                        one = load(server, run.seconds, "--clients", "1")
                        one_client[LUMEN].append(one["latency_us"]["mean"])
                    found = load(server, run.seconds, "--clients", str(CLIENTS))
                    rate[contender].append(found["per_second"])
                    if contender == LUMEN:
                        at = str(int(SHARE_OF_LOAD * found["per_second"]))
                        words = ("--clients", str(CLIENTS), "--rate", at)
                        open_loop = load(server, run.seconds, *words)["latency_us"]
                        tail.append(open_loop["p99"] / open_loop["p50"])
    of = f"{DEVICE}, {MODEL}"
    run.add(make_row(f"{of}, 1 client, mean time", "mean", "µs", one_client))
    for row, ours, rival in (
        (f"{of}, {CLIENTS} clients", LUMEN, BARE),
        (f"{of}, 4 streams to 1, mpmc", "4 streams", "1 stream"),
    ):
        rounds = {ours: rate[ours], rival: rate[rival]}
        run.add(make_row(row, "throughput", "requests/s", rounds, more_is_better=True))
    run.add(
        make_row(f"{of}, 70 % load, p99 to p50", "p99 to p50", "ratio", {LUMEN: tail}, spread=None)
    )
    run.add(make_row(f"{of}, gap to the CPU's answers", "gap", "share", {LUMEN: gap}, spread=None))


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
