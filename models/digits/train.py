#!/usr/bin/env python3
# Trains the digit classifier and writes 1/model.onnx: two 3x3 convolutions, one pooling, two dense
# layers, in NumPy alone (no framework to install for 38,000 weights; about ten seconds on a core).
# Seeded; the held-out third is looked at once, at the end. Errors: exits 1 below 97 %.
#
#   .venv/bin/python models/digits/train.py
from __future__ import annotations

import os
import sys
from pathlib import Path

# One BLAS thread: the sums, and with them the weights, do not depend on how many cores there are.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
import data
import onnx_tools
from onnx import helper

SEED = 7
EPOCHS = 40
BATCH = 32
RATE = 2e-3
REQUIRED_ACCURACY = 0.97

Weights = dict[str, np.ndarray]


def make_weights(rng: np.random.Generator) -> Weights:
    shapes = {
        "conv1": (16, 1, 3, 3),
        "conv2": (32, 16, 3, 3),
        "dense1": (512, 64),
        "dense2": (64, 10),
    }
    weights: Weights = {}
    for name, shape in shapes.items():
        fan_in = int(np.prod(shape[1:])) if name.startswith("conv") else shape[0]
        weights[name] = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        size = shape[0] if name.startswith("conv") else shape[1]
        weights[name + "_bias"] = np.zeros(size, np.float32)
    return weights


def patches(x: np.ndarray) -> np.ndarray:
    """[n,c,8,8] -> [n,8,8,c*9]: the 3x3 neighbourhood of each pixel, zero-padded."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    n, c, h, w = x.shape
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def fold(grad: np.ndarray, channels: int) -> np.ndarray:
    """The transpose of patches(): adds each patch's gradient back where it came from."""
    n, h, w, _ = grad.shape
    grad = grad.reshape(n, h, w, channels, 3, 3)
    padded = np.zeros((n, channels, h + 2, w + 2), np.float32)
    for i in range(3):
        for j in range(3):
            padded[:, :, i : i + h, j : j + w] += grad[..., i, j].transpose(0, 3, 1, 2)
    return padded[:, :, 1:-1, 1:-1]


def forward(p: Weights, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    s: dict[str, np.ndarray] = {"in1": patches(images / np.float32(16))}
    pre1 = s["in1"] @ p["conv1"].reshape(16, -1).T + p["conv1_bias"]
    s["act1"] = np.maximum(pre1, 0).transpose(0, 3, 1, 2)
    s["in2"] = patches(s["act1"])
    pre2 = s["in2"] @ p["conv2"].reshape(32, -1).T + p["conv2_bias"]
    s["act2"] = np.maximum(pre2, 0).transpose(0, 3, 1, 2)
    n = len(images)
    blocks = (
        s["act2"].reshape(n, 32, 4, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, 32, 4, 4, 4)
    )
    s["winner"] = blocks.argmax(axis=-1)
    s["flat"] = blocks.max(axis=-1).reshape(n, 512)
    s["act3"] = np.maximum(s["flat"] @ p["dense1"] + p["dense1_bias"], 0)
    return s["act3"] @ p["dense2"] + p["dense2_bias"], s


def backward(p: Weights, s: dict[str, np.ndarray], grad: np.ndarray, keep: np.ndarray) -> Weights:
    g: Weights = {"dense2": (s["act3"] * keep).T @ grad, "dense2_bias": grad.sum(0)}
    grad = (grad @ p["dense2"].T) * keep * (s["act3"] > 0)
    g["dense1"], g["dense1_bias"] = s["flat"].T @ grad, grad.sum(0)
    n = len(grad)
    pooled = (grad @ p["dense1"].T).reshape(n, 32, 4, 4, 1)
    blocks = pooled * (s["winner"][..., np.newaxis] == np.arange(4))
    grad = blocks.reshape(n, 32, 4, 4, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, 32, 8, 8)
    grad = (grad * (s["act2"] > 0)).transpose(0, 2, 3, 1)
    g["conv2"] = (grad.reshape(-1, 32).T @ s["in2"].reshape(-1, 144)).reshape(32, 16, 3, 3)
    g["conv2_bias"] = grad.sum((0, 1, 2))
    grad = fold(grad @ p["conv2"].reshape(32, -1), 16)
    grad = (grad * (s["act1"] > 0)).transpose(0, 2, 3, 1)
    g["conv1"] = (grad.reshape(-1, 16).T @ s["in1"].reshape(-1, 9)).reshape(16, 1, 3, 3)
    g["conv1_bias"] = grad.sum((0, 1, 2))
    return g


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by at most one pixel: the cheapest way to more data than 1,198 scans."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = rng.choice(3, size=(len(images), 2), p=[0.15, 0.7, 0.15])
    return np.stack([padded[i, :, dy : dy + 8, dx : dx + 8] for i, (dy, dx) in enumerate(moves)])


def train(images: np.ndarray, labels: np.ndarray) -> Weights:
    rng = np.random.default_rng(SEED)
    p = make_weights(rng)
    mean = {k: np.zeros_like(v) for k, v in p.items()}
    square = {k: np.zeros_like(v) for k, v in p.items()}
    steps_total = EPOCHS * (len(images) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            _, s = forward(p, shifted(images[chosen], rng))
            # Dropout of one half on the dense layer, scaled so that inference needs no change.
            keep = (rng.random(s["act3"].shape) < 0.5).astype(np.float32) * 2
            logits = (s["act3"] * keep) @ p["dense2"] + p["dense2_bias"]
            logits -= logits.max(1, keepdims=True)
            grad = np.exp(logits)
            grad /= grad.sum(1, keepdims=True)
            grad[np.arange(BATCH), labels[chosen]] -= 1
            gradients = backward(p, s, (grad / BATCH).astype(np.float32), keep)
            step += 1
            rate = RATE * 0.5 * (1 + np.cos(np.pi * step / steps_total))
            for name, gradient in gradients.items():  # Adam
                mean[name] += np.float32(0.1) * (gradient - mean[name])
                square[name] += np.float32(0.001) * (gradient * gradient - square[name])
                corrected = square[name] / (1 - 0.999**step)
                update = rate / (1 - 0.9**step) * mean[name] / (np.sqrt(corrected) + 1e-8)
                p[name] -= update.astype(np.float32)
    return p


def write_onnx(p: Weights, path: Path) -> None:
    nodes = [
        # Scaling lives in the model: clients send the pixels as the data set has them.
        helper.make_node("Mul", ["image", "scale"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "conv1", "conv1_bias"], ["pre1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["pre1"], ["act1"]),
        helper.make_node("Conv", ["act1", "conv2", "conv2_bias"], ["pre2"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["pre2"], ["act2"]),
        helper.make_node("MaxPool", ["act2"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense1", "dense1_bias"], ["pre3"]),
        helper.make_node("Relu", ["pre3"], ["act3"]),
        helper.make_node("Gemm", ["act3", "dense2", "dense2_bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    constants = [onnx_tools.initializer("scale", np.array(1 / 16, np.float32))]
    constants += [onnx_tools.initializer(name, array) for name, array in p.items()]
    onnx_tools.save(
        path,
        "digits",
        nodes,
        [onnx_tools.value("image", ["batch", 1, 8, 8])],
        [onnx_tools.value("probabilities", ["batch", 10])],
        constants,
    )


def main() -> int:
    train_images, test_images, train_labels, test_labels = data.split()
    p = train(train_images, train_labels)
    accuracy = float((forward(p, test_images)[0].argmax(1) == test_labels).mean())
    print(f"held-out third: {accuracy:.2%} of {len(test_labels)} right")
    if accuracy < REQUIRED_ACCURACY:
        print(f"below {REQUIRED_ACCURACY:.0%}: model not written", file=sys.stderr)
        return 1
    write_onnx(p, HERE / "1" / "model.onnx")
    return 0


if __name__ == "__main__":
    sys.exit(main())
