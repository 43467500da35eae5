"""Small models whose answers NumPy knows, and random ensembles of them.

A model has inputs and outputs of the shape [rows, 4]; `twice` and `halves` change the rows, so that
nobody knows the size of an output before it is there.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from integration.harness import MODELS
from onnx import TensorProto, helper

sys.path.insert(0, str(MODELS))
import onnx_tools

Arrays = dict[str, np.ndarray]
WIDTH = 4


def affine(x: np.ndarray, factor: float, offset: float) -> np.ndarray:
    return x * np.float32(factor) + np.float32(offset)


# Inputs, outputs and the answer of each kind of model. All numbers are exact in FP32.
KINDS: dict[str, tuple[list[str], list[str], Callable[..., tuple[np.ndarray, ...]]]] = {
    "plus": (["x"], ["y"], lambda x: (affine(x, 1, 3),)),
    "scale": (["x"], ["y"], lambda x: (affine(x, -0.5, 0),)),
    "join": (["a", "b"], ["c"], lambda a, b: (a - 2 * b,)),
    "fork": (["x"], ["low", "high"], lambda x: (x - 8, x + 8)),
    "twice": (["x"], ["y"], lambda x: (np.concatenate([x, x + 1]),)),
}


def make_model(
    folder: Path, kind: str, name: str | None = None, offset: float | None = None
) -> None:
    """`offset`: the number that `plus` adds, where it is not 3."""
    inputs, outputs, _ = KINDS[kind]
    constants = {
        "three": np.float32(3 if offset is None else offset),
        "factor": np.float32(-0.5),
        "two": np.float32(2),
        "eight": np.float32(8),
        "one": np.float32(1),
    }
    node = helper.make_node
    nodes = {
        "plus": [node("Add", ["x", "three"], ["y"])],
        "scale": [node("Mul", ["x", "factor"], ["y"])],
        "join": [node("Mul", ["b", "two"], ["twice_b"]), node("Sub", ["a", "twice_b"], ["c"])],
        "fork": [node("Sub", ["x", "eight"], ["low"]), node("Add", ["x", "eight"], ["high"])],
        "twice": [
            node("Add", ["x", "one"], ["more"]),
            node("Concat", ["x", "more"], ["y"], axis=0),
        ],
    }[kind]
    used = {one for each in nodes for one in each.input}
    out_rows = "more" if kind == "twice" else "rows"
    onnx_tools.save(
        folder / (name or kind) / "1" / "model.onnx",
        kind,
        nodes,
        [onnx_tools.value(one, ["rows", WIDTH], TensorProto.FLOAT) for one in inputs],
        [onnx_tools.value(one, [out_rows, WIDTH], TensorProto.FLOAT) for one in outputs],
        [
            onnx_tools.initializer(one, np.array(number))
            for one, number in constants.items()
            if one in used
        ],
    )


@dataclass
class Ensemble:
    """Steps in the order of their making, which is an order in which they can run."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def answer(self, inputs: Arrays) -> Arrays:
        tensors = dict(inputs)
        for step in self.steps:
            names, made, function = KINDS[step["model"]]
            answers = function(*(tensors[step["inputs"][name]] for name in names))
            for name, array in zip(made, answers, strict=True):
                tensors[step["outputs"][name]] = array
        return {name: tensors[name] for name in self.outputs}

    def write(self, folder: Path, rng: random.Random) -> None:
        """The configuration names the steps in any order."""
        steps = self.steps[:]
        rng.shuffle(steps)
        folder.mkdir(parents=True)
        document = {"ensemble": {"steps": steps, "outputs": self.outputs}}
        (folder / "config.json").write_text(json.dumps(document))


def random_ensemble(rng: random.Random) -> Ensemble:
    """Of 1 to 12 steps over the inputs `in0` and `in1`, which have the same number of rows."""
    made = Ensemble()
    rows = {"in0": 1, "in1": 1}  # of each tensor, in rows of the request
    for number in range(rng.randint(1, 12)):
        kind = rng.choice([one for one in KINDS if one != "twice" or max(rows.values()) < 8])
        names, outputs, _ = KINDS[kind]
        first = rng.choice(list(rows))
        same = [one for one in rows if rows[one] == rows[first]]
        inputs = {name: rng.choice(same) if i else first for i, name in enumerate(names)}
        tensors = {name: f"t{number}_{name}" for name in outputs}
        for name in tensors.values():
            rows[name] = rows[first] * (2 if kind == "twice" else 1)
        made.steps.append({"model": kind, "inputs": inputs, "outputs": tensors})
    candidates = [name for step in made.steps for name in step["outputs"].values()]
    made.outputs = rng.sample(candidates, rng.randint(1, min(4, len(candidates))))
    return made


def inputs_of(ensemble: Ensemble) -> list[str]:
    read = {name for step in ensemble.steps for name in step["inputs"].values()}
    return [name for name in ("in0", "in1") if name in read]
