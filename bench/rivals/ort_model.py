"""The model as Python rivals run it: ONNX Runtime, f32, one thread, one row of raw bytes a call."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before it is loaded
import onnxruntime as ort  # noqa: E402


class OrtModel:
    def __init__(self, path: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0]
        self.outputs = [os.environ.get("BENCH_OUTPUT") or self.session.get_outputs()[0].name]
        self.row_shape = self.input.shape[1:]

    def run(self, rows: np.ndarray) -> np.ndarray:
        return self.session.run(self.outputs, {self.input.name: rows})[0]

    def rows(self, body: bytes) -> np.ndarray:
        """The bytes as one row; a view, no copy."""
        return np.frombuffer(body, np.float32).reshape(1, *self.row_shape)


def from_environment() -> Any:
    """BENCH_RUNTIME=openvino: the same over OpenVINO, so that runtime and server come apart;
    framework: the model as it was trained."""
    if os.environ.get("BENCH_RUNTIME") == "openvino":
        from openvino_model import OpenVinoModel

        return OpenVinoModel(os.environ["BENCH_MODEL"])
    if os.environ.get("BENCH_RUNTIME") == "framework":
        from framework_model import FrameworkModel

        return FrameworkModel(os.environ["BENCH_MODEL"])
    return OrtModel(os.environ["BENCH_MODEL"])
