#!/usr/bin/env python3
"""Finds the operators of ONNX Runtime that survive tensors of no elements: runs each case of ONNX's
suite with each axis of each input at 0, and with the same axis of all inputs, in a child process.

  tools/empty_tensors.py           writes src/backends/onnxruntime/empty_operators.inc
  tools/empty_tensors.py --check   exit status 1 where the file would be another; two minutes

An operator survives if each of its cases of one node ends in time and by itself. An error of the
library is an answer. Prints each case that did not survive.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "src" / "backends" / "onnxruntime" / "empty_operators.inc"
MOST_SECONDS = 20
# Their graphs are not looked through, for any of their own cases.
WITH_SUBGRAPHS = {"If", "Loop", "Scan", "SequenceMap"}
# No case is of one node: a convolution and a recurrent network of other types and attributes than
# those that fail.
LIKE_OTHERS = {"ConvInteger", "DeformConv", "QLinearConv", "RNN"}


def variants(arrays: list[np.ndarray]) -> list[dict[int, int]]:
    """Input: its axis that is 0."""
    single = [{i: axis} for i, array in enumerate(arrays) for axis in range(array.ndim)]
    most = min((array.ndim for array in arrays), default=0)
    return single + [dict.fromkeys(range(len(arrays)), axis) for axis in range(most)]


def run_all(model: onnx.ModelProto, arrays: list[np.ndarray]) -> None:
    free = onnx.ModelProto()
    free.CopyFrom(model)
    for value in (*free.graph.input, *free.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        free.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_inputs()]
    for variant in variants(arrays):
        given = list(arrays)
        for i, axis in variant.items():
            given[i] = np.delete(arrays[i], np.s_[:], axis)
        try:
            session.run(None, dict(zip(names, given, strict=False)))
        except Exception:  # noqa: S112 (the library refuses it)
            continue


def survives(model: onnx.ModelProto, arrays: list[np.ndarray]) -> bool:
    child = os.fork()
    if child == 0:
        signal.alarm(MOST_SECONDS)
        try:
            run_all(model, arrays)
        except Exception:
            os._exit(3)  # this build does not load it: not tried
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) == 3:
        raise NotImplementedError
    return status == 0


def main(arguments: list[str]) -> int:
    onnxruntime.set_default_logger_severity(4)
    tried: set[str] = set()
    died: set[str] = set()
    for case in collect_testcases(None):
        if case.model is None or len(case.model.graph.node) != 1 or not case.data_sets:
            continue
        (node,), given = case.model.graph.node, case.data_sets[0][0]
        arrays = [numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else a for a in given]
        if not all(isinstance(array, np.ndarray) for array in arrays):
            continue
        name = f"{node.domain}:{node.op_type}" if node.domain else node.op_type
        try:
            good = survives(case.model, arrays)
        except NotImplementedError:
            continue
        tried.add(name)
        if not good:
            died.add(name)
            print(f"did not survive: {case.name}", flush=True)
    good_ones = sorted(tried - died - WITH_SUBGRAPHS - LIKE_OTHERS)
    lines = [
        "// Made by tools/empty_tensors.py: operators that survive tensors of no elements.",
        f'constexpr std::string_view kVersion = "{onnxruntime.__version__}";',
        "constexpr std::string_view kTakeEmpty[] = {",
        *(f'    "{name}",' for name in good_ones),
        "};",
    ]
    text = "\n".join(lines) + "\n"
    print(f"{len(good_ones)} operators survive, not: {', '.join(sorted(died))}")
    if "--check" in arguments:
        return 0 if FILE.read_text() == text else 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
