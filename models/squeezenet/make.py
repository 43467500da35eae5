#!/usr/bin/env python3
# Writes 1/model.onnx: SqueezeNet 1.1 exactly (Iandola et al. 2016, arXiv 1602.07360, and the 1.1
# revision in its authors' repository): 1,235,496 weights, input data f32[-1,3,224,224], output
# logits f32[-1,1000]. Weights are seeded He noise unless a trained set is given, so by default its
# answers mean nothing; its cost is that of the trained net. Not in the tree: 5 MB made in a second.
#
#   make.py [--weights squeezenet1_1.npz] [--if-missing]
#
# The .npz holds arrays named as torchvision names them: "features.0.weight", "features.0.bias",
# "features.3.squeeze.weight", ..., "classifier.1.bias". Errors: exits 1 naming the array.
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import onnx_tools

SEED = 11
PARAMETERS = 1_235_496
# Fire modules by torchvision's index: (in, squeeze, expand 1x1 = expand 3x3). Pools follow the
# stem, fire 4 and fire 7.
FIRES = {
    3: (64, 16, 64),
    4: (128, 16, 64),
    6: (128, 32, 128),
    7: (256, 32, 128),
    9: (256, 48, 192),
    10: (384, 48, 192),
    11: (384, 64, 256),
    12: (512, 64, 256),
}
POOLS_BEFORE = {3, 6, 9}


class Builder:
    """Adds nodes one after the other; `head` is the name of the last output."""

    def __init__(self, given: dict[str, np.ndarray] | None) -> None:
        self.given = given
        self.rng = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.count = 0

    def weight(self, name: str, shape: tuple[int, ...], deviation: float) -> str:
        if self.given is None:
            array = self.rng.standard_normal(shape) * deviation
        elif name not in self.given:
            raise SystemExit(f"weights: no array {name!r}; wanted shape {list(shape)}")
        else:
            array = self.given[name]
            if array.shape != shape:
                raise SystemExit(f"weights: {name!r} is {list(array.shape)}, wanted {list(shape)}")
        self.count += int(np.prod(shape))
        self.constants.append(onnx_tools.initializer(name, array.astype(np.float32)))
        return name

    def conv_relu(
        self,
        source: str,
        name: str,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        pad: int = 0,
    ) -> str:
        deviation = np.sqrt(2 / (inputs * kernel * kernel))
        weight = self.weight(f"{name}.weight", (outputs, inputs, kernel, kernel), deviation)
        bias = self.weight(f"{name}.bias", (outputs,), 0.0)
        self.nodes.append(
            helper.make_node(
                "Conv",
                [source, weight, bias],
                [f"{name}.out"],
                kernel_shape=[kernel, kernel],
                strides=[stride, stride],
                pads=[pad] * 4,
            )
        )
        self.nodes.append(helper.make_node("Relu", [f"{name}.out"], [f"{name}.relu"]))
        return f"{name}.relu"

    def pool(self, source: str, name: str) -> str:
        # ceil_mode as in the original: 111 -> 55, 55 -> 27, 27 -> 13.
        self.nodes.append(
            helper.make_node(
                "MaxPool", [source], [name], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1
            )
        )
        return name

    def fire(self, source: str, index: int) -> str:
        inputs, squeeze, expand = FIRES[index]
        name = f"features.{index}"
        squeezed = self.conv_relu(source, f"{name}.squeeze", inputs, squeeze, 1)
        one = self.conv_relu(squeezed, f"{name}.expand1x1", squeeze, expand, 1)
        three = self.conv_relu(squeezed, f"{name}.expand3x3", squeeze, expand, 3, pad=1)
        self.nodes.append(helper.make_node("Concat", [one, three], [f"{name}.out"], axis=1))
        return f"{name}.out"


def build(given: dict[str, np.ndarray] | None) -> Builder:
    b = Builder(given)
    head = b.conv_relu("data", "features.0", 3, 64, 3, stride=2)
    for index in FIRES:
        if index in POOLS_BEFORE:
            head = b.pool(head, f"pool.{index}")
        head = b.fire(head, index)
    head = b.conv_relu(head, "classifier.1", 512, 1000, 1)
    b.nodes.append(helper.make_node("GlobalAveragePool", [head], ["average"]))
    b.nodes.append(helper.make_node("Flatten", ["average"], ["logits"]))
    return b


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, help=".npz of trained weights, torchvision's names")
    parser.add_argument("--if-missing", action="store_true", help="keep a model that is there")
    arguments = parser.parse_args()
    path = HERE / "1" / "model.onnx"
    if arguments.if_missing and path.exists():
        return 0
    given = dict(np.load(arguments.weights)) if arguments.weights else None
    b = build(given)
    if b.count != PARAMETERS:
        print(f"{b.count:,} weights, SqueezeNet 1.1 has {PARAMETERS:,}", file=sys.stderr)
        return 1
    onnx_tools.save(
        path,
        "squeezenet1_1",
        b.nodes,
        [onnx_tools.value("data", ["batch", 3, 224, 224])],
        [onnx_tools.value("logits", ["batch", 1000])],
        b.constants,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
