"""The question: what does a hit of the response cache cost, and how much does the cache gain?

  lumen bench (last CPU) --HTTP, unix socket--> I/O thread (CPU 0) that runs the model (inline)

A hit against a no-op request: the same request to `identity` of a server without a cache, the
cheapest inference that there is. The bound is that, 1 us, and the hash of the input at 10 GB/s.
Then SqueezeNet, 80 % of the requests repeating an earlier input, with and without a cache. And the
two hashes of an input against memcpy of it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from lumen_engine import Server

from bench.runner import ROOT, Bench, Run, make_row
from bench.runner.places import lumen_bench, make_squeezenet, program, run_json

CACHE = {"response_cache": {"enable": True, "ttl_ms": 3_600_000, "max_bytes": 256 << 20}}
SIZES = {"1 KiB": 256, "588 KiB": 150_528}  # of the input: how many numbers
HASHES = ("xxh3", "highway")
HASHED_GB_S = 10.0  # the least that is wanted


def make_repository(folder: Path, cached: bool) -> Path:
    for model in ("identity", "squeezenet"):
        shutil.copytree(ROOT / "models" / model / "1", folder / model / "1")
        if cached:
            (folder / model / "config.json").write_text(json.dumps(CACHE))
    return folder


@contextmanager
def served_on_first_cpu(repository: Path, words: list[str]) -> Iterator[Server]:
    """All of the server on one CPU, which it inherits, and the client on another: with nothing said
    the thread that answers hits may meet the client that polls."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with Server(repository, words, executable=program("lumen")) as server:
            os.sched_setaffinity(0, allowed)
            yield server
    finally:
        os.sched_setaffinity(0, allowed)


def load(server: Server, model: str, seconds: float, *words: str) -> dict[str, Any]:
    much = ("--clients", "1", "--poll", "--duration", str(seconds))
    cpu = max(os.sched_getaffinity(0))
    return lumen_bench(f"unix:{server.unix_path}", model, *much, *words, cpu=cpu)


def hash_rates() -> dict[str, float]:
    """GB/s of each hash, and of memcpy, by bytes."""
    found = run_json([program("bench_response_hash"), "--benchmark_format=json"])
    return {one["name"]: one["bytes_per_second"] / 1e9 for one in found["benchmarks"]}


Taken = dict[tuple[str, bool], list[float]]  # by model or size, and whether there is a cache


def measure_one(
    run: Run, repository: Path, socket: Path, files: dict[str, Path], cached: bool, taken: Taken
) -> None:
    words = ["--queue-type", "inline", "--unix", str(socket)]
    with served_on_first_cpu(repository, words) as server:
        for name, file in files.items():
            got = load(server, "identity", run.seconds, "--input", str(file))
            taken[name, cached].append(got["latency_us"]["p50"])
        got = load(server, "squeezenet", 2 * run.seconds, "--repeat-ratio", "0.8")
        taken["squeezenet", cached].append(got["per_second"])


def measure(run: Run) -> None:
    make_squeezenet()
    taken: Taken = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    files = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size, count in SIZES.items():
            files[size] = folder / f"{count}.npy"
            np.save(files[size], np.random.default_rng(1).random((1, count), dtype=np.float32))
        repositories = {c: make_repository(folder / f"cached_{c}", c) for c in (True, False)}
        for number, turn in enumerate(run.turns((True, False))):
            for cached in turn:
                socket = folder / f"{number}_{cached}.sock"
                measure_one(run, repositories[cached], socket, files, cached, taken)
            for name_of, rate in hash_rates().items():
                rates[name_of].append(rate)
    for size, count in SIZES.items():
        samples = {"lumen, a hit": taken[size, True], "lumen, a no-op run": taken[size, False]}
        bound = median(taken[size, False]) + 1 + count * 4 / (HASHED_GB_S * 1e3)
        row = make_row(f"a hit, {size}", "p50 latency", "us", samples, limit=bound, is_bound=True)
        run.add(row)
    samples = {"lumen, cached": taken["squeezenet", True]}
    samples["lumen, no cache"] = taken["squeezenet", False]
    name = "squeezenet, 80 % repeated"
    run.add(make_row(name, "throughput", "requests/s", samples, more_is_better=True))
    for name in HASHES:
        samples = {name: rates[f"{name}/602112"], "memcpy": rates["memcpy/602112"]}
        run.add(
            make_row(
                f"{name}, 588 KiB",
                "bytes hashed",
                "GB/s",
                samples,
                more_is_better=True,
                limit=HASHED_GB_S,
                is_bound=True,
            )
        )


BENCH = Bench(
    title="The response cache",
    measure=measure,
    minutes=3.5,
    quick_minutes=0.7,
    rounds=(5, 1),
    seconds=(3.0, 1.0),
    sources=("include/**", "src/**", "apps/**", "bench/micro/response_hash.cc"),
)
