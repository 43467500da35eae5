"""What OpenVINO itself answers, compiled as the server compiles: f32, one thread, one stream.

A static shape for the sizes of the first axis in `batch_sizes` where all other axes are static, the
model as it is otherwise; the two may differ in the last bit, so the reference must choose alike.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino

OPTIONS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
DEFAULT_BATCH_SIZES = (1,)


class Reference:
    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.core = openvino.Core()
        self.compiled: dict[tuple[str, int | None], openvino.CompiledModel] = {}

    def read(self, model: str) -> openvino.Model:
        return self.core.read_model(self.repository / model / "1" / "model.onnx")

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
