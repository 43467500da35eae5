"""Fifty random models against ONNX's reference, and each one that was ever answered wrongly."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from judges.asking import DEVICE, NUMPY, JudgedServer
from judges.onnx_judge import side
from judges.random_judge import judge_chunk, models_of, problem_of
from judges.random_models import make
from numpy.typing import NDArray

CASES = Path(__file__).with_name("cases")
MODELS = 50

Arrays = dict[str, NDArray[Any]]


@dataclass
class KeptCase:
    name: str
    model: bytes
    inputs: Arrays
    outputs: Arrays
    datatypes: dict[str, str]
    rtol: float = 1e-4
    atol: float = 1e-5
    neighbours: list[Arrays] = field(default_factory=list)


def read_cases() -> list[KeptCase]:
    cases = []
    for folder in sorted(one for one in CASES.iterdir() if one.is_dir()):
        document = json.loads((folder / "case.json").read_text())
        datatypes: dict[str, str] = {}
        requests: list[dict[str, Arrays]] = []
        for one in document["requests"]:
            sides: dict[str, Arrays] = {"inputs": {}, "outputs": {}}
            for name, arrays in sides.items():
                for tensor in one[name]:
                    datatypes[tensor["name"]] = tensor["datatype"]
                    array = np.array(tensor["data"], NUMPY[tensor["datatype"]])
                    arrays[tensor["name"]] = array.reshape(tensor["shape"])
            requests.append(sides)
        model = (folder / "model.onnx").read_bytes()
        first, *others = requests
        neighbours = [one["inputs"] for one in others]
        cases.append(
            KeptCase(
                folder.name,
                model,
                first["inputs"],
                first["outputs"],
                datatypes,
                1e-4,
                1e-5,
                neighbours,
            )
        )
    return cases


def test_the_same_seed_makes_the_same_valid_model_of_3_to_12_operators() -> None:
    for seed in range(20):
        model = make(seed)
        assert model.model == make(seed).model
        onnx.checker.check_model(model.proto, full_check=True)
        assert len(model.operators) <= 12


@pytest.mark.tool
@pytest.mark.parametrize("backend", ["auto", DEVICE])
def test_random_models_answer_as_the_reference_of_onnx_does(backend: str) -> None:
    models = models_of(range(MODELS))
    found = judge_chunk(models, backend)
    problems = {name: problem_of(ways) for name, ways in found.items()}
    wrong = [f"{name}: {problem}" for name, problem in problems.items() if problem]
    assert not wrong, "\n".join(wrong)
    served = [name for name, ways in found.items() if "load" not in ways]
    assert len(served) > MODELS / 2, "most models are refused: nothing was judged"


@pytest.mark.tool
def test_models_that_were_answered_wrongly_once_are_answered_rightly() -> None:
    cases = read_cases()
    with JudgedServer(cases, "auto") as server:
        sides = {case.name: side(server.judge(case)) for case in cases}
    assert cases and set(sides.values()) <= {"right", "refused"}, sides
