"""Triton's own perf_analyzer, unmodified: over HTTP, gRPC and with system shared memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.harness import MODELS, PATIENCE, ROOT, Server, copy_models
from integration.raw_http import get
from onnx import helper

sys.path[:0] = [str(ROOT / "tools"), str(MODELS)]
import onnx_tools
import perf_analyzer

TIMES = ("queue", "compute input", "compute infer", "compute output")
REQUESTS = 400
ATTEMPTS = 4


@pytest.fixture(scope="module")
def program() -> Path:
    return perf_analyzer.prepare()


def make_ensemble(models: Path) -> None:
    """`ranked`: the MLP, and a softmax of its numbers."""
    onnx_tools.save(
        models / "softmax" / "1" / "model.onnx",
        "softmax",
        [helper.make_node("Softmax", ["numbers"], ["shares"], axis=1)],
        [onnx_tools.value("numbers", ["rows", 10])],
        [onnx_tools.value("shares", ["rows", 10])],
        [],
    )
    steps = [{"model": "mlp"}, {"model": "softmax", "inputs": {"numbers": "output"}}]
    (models / "ranked").mkdir()
    (models / "ranked" / "config.json").write_text(json.dumps({"ensemble": {"steps": steps}}))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = copy_models(
        tmp_path_factory.mktemp("models") / "models", [MODELS / "mlp", MODELS / "digits"]
    )
    (models / "digits" / "config.json").write_text('{"response_cache": {"enable": true}}')
    make_ensemble(models)
    unix = str(models.parent / "s.sock")
    with Server(models, "--tcp-shm", "on", "--tcp-control", "on", unix=unix) as server:
        yield server


def answered(served: Server, model: str) -> int:
    with served.connect() as connection:
        reply = connection.exchange(get(f"/v2/models/{model}/stats")).json()
    return int(reply["model_stats"][0]["inference_stats"]["success"]["count"])


def measure(served: Server, words: list[str], model: str) -> subprocess.CompletedProcess[str]:
    """If all requests are answered before the program looks for the first time, it sleeps for ever:
    then it is run again."""
    for _ in range(ATTEMPTS):
        before = answered(served, model)
        try:
            return subprocess.run(
                words,
                env=perf_analyzer.environment(),
                capture_output=True,
                text=True,
                timeout=30 * PATIENCE,
            )
        except subprocess.TimeoutExpired:
            if answered(served, model) - before < REQUESTS:
                raise
    raise AssertionError(f"{ATTEMPTS} times all requests were answered, and it did not end")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-i", "grpc", "-m", "mlp"],
        ["-i", "grpc", "-m", "mlp", "-b", "8", "--concurrency-range", "4"],
        ["-i", "grpc", "-m", "mlp", "-a", "--streaming", "--concurrency-range", "8"],
        ["-i", "grpc", "-m", "mlp", "--shared-memory", "system"],
        ["-i", "grpc", "-m", "mlp", "-u", "unix"],
        ["-i", "grpc", "-m", "digits", "-b", "2", "--grpc-compression-algorithm", "gzip"],
        ["-m", "mlp"],
        ["-m", "mlp", "-b", "8", "--concurrency-range", "4"],
        ["-m", "mlp", "-b", "8", "--shared-memory", "system"],
        ["-m", "mlp", "-a", "--concurrency-range", "3", "--shared-memory", "system"],
        ["-m", "digits", "-b", "2"],
        ["-m", "digits", "--shared-memory", "system"],
        ["-m", "ranked", "-b", "4", "--concurrency-range", "4"],
        ["-i", "grpc", "-m", "ranked", "--shared-memory", "system"],
    ],
    ids=" ".join,
)
def test_it_measures_a_model_and_shows_the_servers_times(
    served: Server, program: Path, arguments: list[str]
) -> None:
    # By the count of requests: how long these take is the machine's, not Lumen's.
    words = [str(program), "-u", served.url, "--request-count", str(REQUESTS), *arguments]
    words = [f"unix:{served.unix_path}" if word == "unix" else word for word in words]
    done = measure(served, words, arguments[arguments.index("-m") + 1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" not in done.stderr.lower(), done.stderr
    count = re.search(r"Successful request count: (\d+)", done.stdout)
    # Its window may begin or end within a request.
    assert count and int(count[1]) >= REQUESTS - 10, done.stdout
    assert float(re.search(r"Throughput: ([\d.]+) infer/sec", done.stdout)[1]) > 0
    server_side = re.search(r"Avg request latency: \d+ usec \((.*)\)", done.stdout)
    assert server_side and all(time in done.stdout for time in TIMES), done.stdout
    if "--shared-memory" in arguments:
        with served.connect() as connection:
            connection.send(b"GET /v2/systemsharedmemory/status HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.reply().json() == [], "it has unregistered what it registered"
