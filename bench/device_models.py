"""The models of ./dev bench device: those of models/, and an encoder that is made here.

`transformer`: four layers of attention with 8 heads and a feed-forward part, 256 wide, over 128
places, with random weights: 13 MB of matrices, as a small sentence encoder has.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from bench.runner.places import ROOT

sys.path.append(str(ROOT / "models"))
import onnx_tools

WIDTH, HEADS, PLACES, LAYERS = 256, 8, 128, 4


class Encoder:
    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(onnx_tools.initializer(name, array))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def dense(self, x: str, name: str, rows: int, columns: int) -> str:
        scale = 1 / np.sqrt(rows)
        matrix = self.random.normal(0, scale, (rows, columns)).astype(np.float32)
        product = self.node("MatMul", [x, self.weight(f"{name}.w", matrix)], f"{name}.product")
        bias = self.weight(f"{name}.b", np.zeros(columns, np.float32))
        return self.node("Add", [product, bias], name)

    def heads(self, x: str, name: str, order: list[int]) -> str:
        dense = self.dense(x, f"{name}.dense", WIDTH, WIDTH)
        shape = np.array([0, PLACES, HEADS, WIDTH // HEADS], np.int64)
        split = self.node("Reshape", [dense, self.weight(f"{name}.shape", shape)], f"{name}.split")
        return self.node("Transpose", [split], name, perm=order)

    def normalized(self, x: str, name: str) -> str:
        scale = self.weight(f"{name}.scale", np.ones(WIDTH, np.float32))
        bias = self.weight(f"{name}.bias", np.zeros(WIDTH, np.float32))
        return self.node("LayerNormalization", [x, scale, bias], name)

    def attention(self, x: str, name: str) -> str:
        query = self.heads(x, f"{name}.query", [0, 2, 1, 3])
        key = self.heads(x, f"{name}.key", [0, 2, 3, 1])
        value = self.heads(x, f"{name}.value", [0, 2, 1, 3])
        scores = self.node("MatMul", [query, key], f"{name}.scores")
        scale = self.weight(f"{name}.scale", np.array(1 / np.sqrt(WIDTH // HEADS), np.float32))
        scaled = self.node("Mul", [scores, scale], f"{name}.scaled")
        shares = self.node("Softmax", [scaled], f"{name}.shares", axis=-1)
        mixed = self.node("MatMul", [shares, value], f"{name}.mixed")
        turned = self.node("Transpose", [mixed], f"{name}.turned", perm=[0, 2, 1, 3])
        shape = self.weight(f"{name}.shape", np.array([0, PLACES, WIDTH], np.int64))
        return self.dense(self.node("Reshape", [turned, shape], f"{name}.joined"), name,
                          WIDTH, WIDTH)  # fmt: skip

    def layer(self, x: str, name: str) -> str:
        attended = self.node("Add", [x, self.attention(x, f"{name}.attention")], f"{name}.sum")
        middle = self.normalized(attended, f"{name}.middle")
        wide = self.dense(middle, f"{name}.wide", WIDTH, 4 * WIDTH)
        active = self.node("Relu", [wide], f"{name}.active")
        narrow = self.dense(active, f"{name}.narrow", 4 * WIDTH, WIDTH)
        return self.normalized(self.node("Add", [middle, narrow], f"{name}.end"), name)


def make_transformer(path: Path) -> None:
    encoder, x = Encoder(), "x"
    for number in range(LAYERS):
        x = encoder.layer(x, f"layer{number}")
    encoder.node("Identity", [x], "y")
    shape: list[int | str] = ["rows", PLACES, WIDTH]
    onnx_tools.save(path, "transformer", encoder.nodes, [onnx_tools.value("x", shape)],
                    [onnx_tools.value("y", shape)], encoder.weights)  # fmt: skip


def place(name: str, target: Path) -> Path:
    """The model's version 1 below `target`; the path of its file."""
    file = target / "1" / "model.onnx"
    if not file.exists() and name == "transformer":
        make_transformer(file)
    elif not file.exists():
        shutil.copytree(ROOT / "models" / name / "1", target / "1")
    return file
