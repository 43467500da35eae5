#!/usr/bin/env python3
"""The question: what does a hit of the response cache cost, and how much does the cache gain?

  lumen bench (last CPU) --HTTP, unix socket--> I/O thread (CPU 0) that runs the model (inline)

A hit against a no-op request: the same request to `identity` of a server without a cache, the
cheapest inference that there is. `limit` is that, 1 us, and the hash of the input at 10 GB/s. Then
SqueezeNet, 80 % of the requests repeating an earlier input, with and without a cache. And the two
hashes of an input against memcpy of it.

  bench/response_cache.py [--quick] [--json]   stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "python")]
from lumen_engine import Server

BINARY = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
BUILD = Path(BINARY).parent
CACHE = {"response_cache": {"enable": True, "ttl_ms": 3_600_000, "max_bytes": 256 << 20}}
SIZES = {"1 KiB": 256, "588 KiB": 150_528}
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
        server = Server(repository, words, executable=BINARY)
        with server:
            os.sched_setaffinity(0, allowed)
            yield server
    finally:
        os.sched_setaffinity(0, allowed)


def load(server: Server, words: list[str], seconds: float) -> dict[str, Any]:
    cpu = str(max(os.sched_getaffinity(0)))
    command = ["taskset", "-c", cpu, BINARY, "bench", f"unix:{server.unix_path}", "--json"]
    command += ["--clients", "1", "--poll", "--duration", str(seconds), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"lumen bench: {done.stderr.strip()}")
    (row,) = json.loads(done.stdout)["rows"]
    return row


def hash_rates() -> dict[str, float]:
    """GB/s of each hash, and of memcpy, by bytes."""
    command = [str(BUILD / "bench_response_hash"), "--benchmark_format=json"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {one["name"]: one["bytes_per_second"] / 1e9 for one in json.loads(text)["benchmarks"]}


def row(name: str, metric: str, unit: str, samples: dict[str, list[float]], **more: Any) -> Any:
    (ours_name, ours), (rival_name, rival) = samples.items()
    better = unit in ("us", "ns")
    ratio = median(rival) / median(ours) if better else median(ours) / median(rival)
    spreads = [(max(v) - min(v)) / median(v) for v in (ours, rival)]
    return {
        "bench": "response_cache",
        "row": name,
        "metric": metric,
        "unit": unit,
        "ours": median(ours),
        "rival": median(rival),
        "rival_name": rival_name,
        "ratio": ratio,
        "spread": max(spreads),
        "limit": more.get("limit"),
        "rounds": {ours_name: ours, rival_name: rival},
    }


def measure(rounds: int, seconds: float, folder: Path) -> list[Any]:
    taken: dict[str, dict[bool, list[float]]] = {}
    rates: dict[str, list[float]] = {}
    files = {}
    for name, count in SIZES.items():
        files[name] = folder / f"{count}.npy"
        np.save(files[name], np.random.default_rng(1).random((1, count), dtype=np.float32))
    repositories = {c: make_repository(folder / f"cached_{c}", c) for c in (True, False)}
    for number in range(rounds):
        for cached in (True, False) if number % 2 == 0 else (False, True):
            words = ["--queue-type", "inline", "--unix", str(folder / f"{number}_{cached}.sock")]
            with served_on_first_cpu(repositories[cached], words) as server:
                for name, file in files.items():
                    got = load(server, ["--model", "identity", "--input", str(file)], seconds)
                    taken.setdefault(name, {}).setdefault(cached, []).append(
                        got["latency_us"]["p50"]
                    )
                words = ["--model", "squeezenet", "--repeat-ratio", "0.8"]
                got = load(server, words, 2 * seconds)
                taken.setdefault("squeezenet", {}).setdefault(cached, []).append(got["per_second"])
        for name, rate in hash_rates().items():
            rates.setdefault(name, []).append(rate)
    rows = []
    for name, count in SIZES.items():
        samples = {"lumen, a hit": taken[name][True], "lumen, a no-op run": taken[name][False]}
        limit = median(taken[name][False]) + 1 + count * 4 / (HASHED_GB_S * 1e3)
        rows.append(row(f"a hit, {name}", "p50 latency", "us", samples, limit=limit))
    of_net = taken["squeezenet"]
    samples = {"lumen, cached": of_net[True], "lumen, no cache": of_net[False]}
    rows.append(row("squeezenet, 80 % repeated", "throughput", "requests/s", samples))
    for name in HASHES:
        samples = {name: rates[f"{name}/602112"], "memcpy": rates["memcpy/602112"]}
        rows.append(row(f"{name}, 588 KiB", "bytes hashed", "GB/s", samples, limit=HASHED_GB_S))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds, seconds = (1, 1.0) if arguments.quick else (5, 3.0)
        rows = measure(rounds, seconds, Path(folder))
    print(json.dumps({"rows": rows}, indent=1))
    for one in () if arguments.json else rows:
        limit = "" if one["limit"] is None else f", limit {one['limit']:.2f}"
        print(
            f"{one['row']:28} {one['ours']:10.2f} {one['unit']} against {one['rival']:10.2f} of "
            f"{one['rival_name']}: {one['ratio']:.2f}{limit}",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
