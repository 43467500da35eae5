"""The two backends, called as Lumen's server calls them: one thread, one row, the same options.

Threads: one. Errors: QuantizeError; a run in OpenVINO raises that one's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime
import openvino

from lumen_engine.quantize.errors import QuantizeError, told_by
from lumen_engine.quantize.samples import Array, Call

# The quantiser makes sessions of its own, which would warn of each weight that is not read.
onnxruntime.set_default_logger_severity(3)
LEAST_TURNS = 3
MOST_TURNS = 30
TURN_S = 0.005
# Of one candidate in one backend. Ten of them take 3 s, which the goal of 10 s for all allows.
MEASURED_S = 0.3


class Runner(Protocol):
    def run(self, call: Call) -> dict[str, Array]: ...

    def bind(self, call: Call) -> None:
        """The next run_bound() is of this call, whose arrays it reads where they lie."""

    def run_bound(self) -> None:
        """As little Python as there can be around the model: 1 to 2 us."""


class OnnxRuntime:
    def __init__(self, model: onnx.ModelProto | bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 4
        data = model if isinstance(model, bytes) else model.SerializeToString()
        try:
            self._session = onnxruntime.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise QuantizeError(f"ONNX Runtime can't load the model: {told_by(error)}") from error
        self._names = [one.name for one in self._session.get_outputs()]

    def run(self, call: Call) -> dict[str, Array]:
        try:
            return dict(zip(self._names, self._session.run(self._names, call)))
        except Exception as error:  # of the binding's own types, which are no RuntimeError
            raise QuantizeError(f"ONNX Runtime fails on a sample: {told_by(error)}") from error

    def bind(self, call: Call) -> None:
        self._binding = self._session.io_binding()
        for name, array in call.items():
            self._binding.bind_cpu_input(name, array)
        for name in self._names:
            self._binding.bind_output(name)

    def run_bound(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def run_all(self, calls: Sequence[Call]) -> list[dict[str, Array]]:
        return [self.run(call) for call in calls]


class OpenVino:
    """Compiled for one row of one shape, as the server's single requests run."""

    def __init__(
        self,
        model: onnx.ModelProto | bytes,
        precision: str,
        shapes: dict[str, tuple[int, ...]] | None,
    ) -> None:
        data = model if isinstance(model, bytes) else model.SerializeToString()
        core = openvino.Core()
        try:
            read = core.read_model(data)
            if shapes is not None:
                read.reshape(shapes)
            self._compiled = core.compile_model(
                read,
                "CPU",
                {
                    "INFERENCE_NUM_THREADS": 1,
                    "NUM_STREAMS": 1,
                    "PERFORMANCE_HINT": "THROUGHPUT",
                    "EXCLUSIVE_ASYNC_REQUESTS": True,
                    "INFERENCE_PRECISION_HINT": precision,
                },
            )
        except Exception as error:
            raise QuantizeError(f"OpenVINO can't load the model: {told_by(error)}") from error
        self._request = self._compiled.create_infer_request()
        self._names = [one.get_any_name() for one in self._compiled.outputs]

    def run(self, call: Call) -> dict[str, Array]:
        results: Any = self._request.infer(call, share_inputs=True, share_outputs=False)
        return {name: np.array(results[i]) for i, name in enumerate(self._names)}

    def bind(self, call: Call) -> None:
        for name, array in call.items():
            self._request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run_bound(self) -> None:
        self._request.infer()


def common_shapes(calls: Sequence[Call]) -> dict[str, tuple[int, ...]] | None:
    """The shapes of all calls; None: they differ."""
    first = {name: array.shape for name, array in calls[0].items()}
    same = all(all(call[name].shape == first[name] for name in first) for call in calls)
    return first if same else None


def has_bf16() -> bool:
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


@contextmanager
def one_cpu() -> Iterator[None]:
    """This thread stays on one of its CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(
    runners: Mapping[tuple[str, str], Runner], calls: Sequence[Call]
) -> dict[tuple[str, str], float]:
    """The median time of a call of each, us; turn by turn, so that noise meets all.

    A turn is several calls, the first of which is not counted: a served model finds its weights in
    the caches, where the candidate before has left its own.
    """
    times: dict[tuple[str, str], list[float]] = {name: [] for name in runners}
    spent = dict.fromkeys(runners, 0.0)
    for number in range(MOST_TURNS):
        going = [n for n in runners if number < LEAST_TURNS or spent[n] < MEASURED_S]
        if not going:
            break
        call = calls[number % len(calls)]
        for name in going:
            runners[name].bind(call)
            runners[name].run_bound()
            taken = turn_of(runners[name])
            times[name] += taken
            spent[name] += sum(taken)
    return {name: float(np.median(each)) * 1e6 for name, each in times.items()}


def turn_of(runner: Runner) -> list[float]:
    taken: list[float] = []
    spent = 0.0
    while spent < TURN_S:
        begin = time.perf_counter()
        runner.run_bound()
        taken.append(time.perf_counter() - begin)
        spent += taken[-1]
    return taken
