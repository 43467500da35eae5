#!/usr/bin/env python3
# Writes 1/model.onnx: f32[-1,1,28,28] -> 3x3 convolutions with ReLU, 1 -> 32 and then 32 -> 32
# channels at full size -> mean of each channel -> 10, seeded weights. Trained on nothing: it is the
# model between mlp (a few microseconds) and squeezenet (milliseconds), about 300 µs on one core.
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from onnx import NodeProto, helper

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import onnx_tools

SEED = 28
SIZE = 28
CHANNELS = 32
LAYERS = 6  # of 3x3, the first from one channel
CLASSES = 10


def main() -> None:
    rng = np.random.default_rng(SEED)
    weights: dict[str, np.ndarray] = {}
    nodes: list[NodeProto] = []
    source, inputs = "image", 1
    for layer in range(1, LAYERS + 1):
        shape = (CHANNELS, inputs, 3, 3)
        weights[f"w{layer}"] = rng.standard_normal(shape) * np.sqrt(2 / (9 * inputs))
        weights[f"b{layer}"] = rng.standard_normal(CHANNELS) * 0.1
        names = [source, f"w{layer}", f"b{layer}"]
        nodes.append(helper.make_node("Conv", names, [f"conv{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"conv{layer}"], [f"active{layer}"]))
        source, inputs = f"active{layer}", CHANNELS
    weights["w"] = rng.standard_normal((CHANNELS, CLASSES)) * np.sqrt(2 / CHANNELS)
    weights["b"] = rng.standard_normal(CLASSES) * 0.1
    nodes += [
        helper.make_node("GlobalAveragePool", [source], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
        helper.make_node("Gemm", ["features", "w", "b"], ["logits"]),
    ]
    onnx_tools.save(
        HERE / "1" / "model.onnx",
        "convnet",
        nodes,
        [onnx_tools.value("image", ["batch", 1, SIZE, SIZE])],
        [onnx_tools.value("logits", ["batch", CLASSES])],
        [onnx_tools.initializer(k, v.astype(np.float32)) for k, v in weights.items()],
    )


if __name__ == "__main__":
    main()
