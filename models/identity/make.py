#!/usr/bin/env python3
# Writes 1/model.onnx: gives back the FP32 tensor it is sent, both axes dynamic. For clients that
# want to see their own bytes return, and for measuring the server with no model in it.
from __future__ import annotations

import sys
from pathlib import Path

from onnx import helper

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import onnx_tools


def main() -> None:
    onnx_tools.save(
        HERE / "1" / "model.onnx",
        "identity",
        [helper.make_node("Identity", ["input"], ["output"])],
        [onnx_tools.value("input", ["rows", "columns"])],
        [onnx_tools.value("output", ["rows", "columns"])],
        [],
    )


if __name__ == "__main__":
    main()
