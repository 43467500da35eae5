"""A model of 200 MB of weights: the memory of each backend for several instances, and `auto` of the
one that it did not choose.

Pss: private pages and a share of those that processes share, so that weights in a mapped file count
once however many instances map them. The libraries' own pages are some 50 MB of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from integration.harness import MODELS, SANITIZED, Server
from integration.load import infer_bytes
from onnx import helper

sys.path.insert(0, str(MODELS))
import onnx_tools

StartServer = Callable[..., Server]
pytestmark = [
    pytest.mark.skipif(SANITIZED, reason="memory under a sanitizer is the sanitizer's"),
]

SIZE = 2048
PRODUCTS = 12
WEIGHTS_MB = PRODUCTS * SIZE * SIZE * 4 / 1e6
CALLS = 4  # of each client


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`heavy`: f32[rows,2048] in and out, a chain of products."""
    repository = tmp_path_factory.mktemp("heavy")
    rng = np.random.default_rng(1)
    weights, nodes = [], []
    for i in range(PRODUCTS):
        values = rng.standard_normal((SIZE, SIZE), np.float32) / np.float32(SIZE**0.5)
        weights.append(onnx_tools.initializer(f"w{i}", values))
        output = "y" if i == PRODUCTS - 1 else f"h{i + 1}"
        nodes.append(helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [output]))
    value = onnx_tools.value
    path = repository / "heavy" / "1" / "model.onnx"
    ports = [value("x", ["rows", SIZE])], [value("y", ["rows", SIZE])]
    onnx_tools.save(path, "heavy", nodes, *ports, weights)
    return repository


def pss_mb(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found is not None, rollup
    return int(found[1]) * 1024 / 1e6


def held_mb(server: StartServer, heavy: Path, backend: str, instances: int) -> float:
    """After each instance has run, if requests at the same time get that far."""
    arguments = ("--backend", backend, "--thread-count", str(instances))
    one = server(*arguments, "--backend-choices", "off", repository=heavy)
    requests = [infer_bytes("heavy", "x", np.ones((rows, SIZE), np.float32)) for rows in (1, 3)]

    def ask(_: int) -> None:
        with one.connect() as connection:
            for _ in range(CALLS):
                for request in requests:
                    assert connection.exchange(request).status == 200

    with ThreadPoolExecutor(instances) as pool:
        list(pool.map(ask, range(instances)))
    held = pss_mb(one.pid)
    one.stop()
    print(f"{backend}, {instances} instances: {held:.0f} MB")
    return held


def test_onnx_runtime_keeps_the_weights_once_for_all_instances(
    server: StartServer, heavy: Path
) -> None:
    one = held_mb(server, heavy, "onnxruntime", 1)
    assert one < 1.6 * WEIGHTS_MB
    for instances in (2, 4):
        assert held_mb(server, heavy, "onnxruntime", instances) <= 1.2 * one


def test_openvino_keeps_two_packed_copies_for_each_instance_and_no_more(
    server: StartServer, heavy: Path
) -> None:
    """One compiled for one row, one for any number; 2026.4 shares none between compiled models."""
    one = held_mb(server, heavy, "openvino", 1)
    assert held_mb(server, heavy, "openvino", 2) <= one + 2.2 * WEIGHTS_MB


def test_auto_leaves_nothing_of_the_backend_that_it_did_not_choose(
    server: StartServer, heavy: Path
) -> None:
    alone = max(held_mb(server, heavy, backend, 1) for backend in ("openvino", "onnxruntime"))
    assert held_mb(server, heavy, "auto", 1) <= 1.1 * alone
