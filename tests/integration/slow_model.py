"""A model that runs for 50 ms or more and whose request is 4 bytes.

A request that has to wait for a worker in a test can wait for this model, on a busy machine too:
six products of 1024 x 1024 matrices are 13 GFLOP, and a core of today does 50 to 250 in a second.
It runs a few times in each of a hundred tests, so three times as many were minutes of CI.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from integration.harness import MODELS
from onnx import helper

sys.path.insert(0, str(MODELS))
import onnx_tools

SIZE = 1024
PRODUCTS = 6


def make_slow_model(repository: Path) -> None:
    """`slow`: f32[1,1] in and out; 1 gives 1."""
    shape = onnx_tools.initializer("shape", np.array([SIZE, SIZE], np.int64))
    scale = onnx_tools.initializer("scale", np.array(1 / SIZE, np.float32))
    nodes = [
        helper.make_node("Expand", ["input", "shape"], ["all"]),
        helper.make_node("Mul", ["all", "scale"], ["m0"]),
    ]
    for i in range(PRODUCTS):
        nodes += [
            helper.make_node("MatMul", [f"m{i}", "all"], [f"p{i}"]),
            helper.make_node("Mul", [f"p{i}", "scale"], [f"m{i + 1}"]),
        ]
    nodes += [
        helper.make_node("ReduceSum", [f"m{PRODUCTS}"], ["sum"], keepdims=1),
        helper.make_node("Mul", ["sum", "scale"], ["output"]),
    ]
    value = onnx_tools.value
    onnx_tools.save(
        repository / "slow" / "1" / "model.onnx",
        "slow",
        nodes,
        [value("input", [1, 1])],
        [value("output", [1, 1])],
        [shape, scale],
    )
