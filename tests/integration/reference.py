"""The answers of the runtimes themselves, each set up as the server sets it up: f32, one thread.

OpenVINO: a static shape for the sizes of the first axis in `batch_sizes` where all other axes are
static, the model as it is otherwise; the two may differ in the last bit, so the reference must
choose alike.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import openvino

OPTIONS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
DEFAULT_BATCH_SIZES = (1,)


class Reference:
    """OpenVINO."""

    tolerance = 0.0

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.core = openvino.Core()
        self.compiled: dict[tuple[str, int | None], openvino.CompiledModel] = {}

    def read(self, model: str) -> openvino.Model:
        return self.core.read_model(self.repository / model / "1" / "model.onnx")

    def first_input(self, model: str) -> tuple[str, list[int]]:
        """Its name, and its axes but the first, which must be static."""
        first = self.read(model).input(0)
        return first.any_name, [axis.get_length() for axis in list(first.partial_shape)[1:]]

    def compile(self, model: str, rows: int) -> openvino.CompiledModel:
        graph = self.read(model)
        shapes = {i.any_name: i.partial_shape for i in graph.inputs}
        batchable = all(
            len(s) and s[0].is_dynamic and all(d.is_static for d in list(s)[1:])
            for s in shapes.values()
        )
        size = rows if batchable and rows in DEFAULT_BATCH_SIZES else None
        if (model, size) not in self.compiled:
            if size is not None:
                graph.reshape(
                    {n: [size, *[d.get_length() for d in list(s)[1:]]] for n, s in shapes.items()}
                )
            self.compiled[model, size] = self.core.compile_model(graph, "CPU", OPTIONS)
        return self.compiled[model, size]

    def infer(self, model: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = next(iter(inputs.values())).shape[0]
        results = self.compile(model, rows)(inputs)
        return {output.any_name: array.copy() for output, array in results.items()}


class OnnxRuntimeReference:
    def __init__(self, repository: Path, tolerance: float = 0) -> None:
        self.repository = repository
        self.tolerance = tolerance
        self.sessions: dict[str, onnxruntime.InferenceSession] = {}

    def session(self, model: str) -> onnxruntime.InferenceSession:
        if model not in self.sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            file = self.repository / model / "1" / "model.onnx"
            self.sessions[model] = onnxruntime.InferenceSession(file, options)
        return self.sessions[model]

    def first_input(self, model: str) -> tuple[str, list[int]]:
        first = self.session(model).get_inputs()[0]
        return first.name, first.shape[1:]

    def infer(self, model: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = self.session(model)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


def reference_of(backend: str, repository: Path) -> Reference | OnnxRuntimeReference:
    """Of a server with that backend. ONNX Runtime: equal here, but a CPU may have other kernels for
    one row than for several that were packed."""
    if backend == "openvino":
        return Reference(repository)
    return OnnxRuntimeReference(repository, tolerance=1e-5)
