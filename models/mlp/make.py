#!/usr/bin/env python3
# Writes 1/model.onnx: f32[-1,256] -> 64 ReLU -> 10, seeded weights. Trained on nothing: it is the
# model whose run costs about as much as a request may, so that the server's own cost shows.
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnx import helper

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import onnx_tools

SEED = 256


def main() -> None:
    rng = np.random.default_rng(SEED)
    weights = {
        "w1": rng.standard_normal((256, 64)) * np.sqrt(2 / 256),
        "b1": rng.standard_normal(64) * 0.1,
        "w2": rng.standard_normal((64, 10)) * np.sqrt(2 / 64),
        "b2": rng.standard_normal(10) * 0.1,
    }
    nodes = [
        helper.make_node("Gemm", ["input", "w1", "b1"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "w2", "b2"], ["output"]),
    ]
    onnx_tools.save(
        HERE / "1" / "model.onnx",
        "mlp",
        nodes,
        [onnx_tools.value("input", ["batch", 256])],
        [onnx_tools.value("output", ["batch", 10])],
        [onnx_tools.initializer(k, v.astype(np.float32)) for k, v in weights.items()],
    )


if __name__ == "__main__":
    main()
