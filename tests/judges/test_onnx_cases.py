"""A fixed tenth of ONNX's backend suite through the server; ./dev judge asks all of it."""

from __future__ import annotations

import pytest
from judges.asking import DEVICE
from judges.onnx_cases import Case, all_cases
from judges.onnx_judge import (
    BACKENDS,
    changes,
    device_changes,
    judge_all,
    read_expected,
    side,
)


@pytest.fixture(scope="module")
def tenth() -> list[Case]:
    return [case for case in all_cases() if case.is_of_the_tenth and not case.unspoken]


@pytest.mark.tool
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_case_of_onnx_own_suite_changes_sides(tenth: list[Case], backend: str) -> None:
    found = {name: side(verdicts) for name, verdicts in judge_all(tenth, backend).items()}
    assert len(found) > 200
    problems = changes(found, read_expected(), backend)
    assert not problems, "\n".join(problems)


@pytest.mark.tool
def test_no_case_is_wrong_on_a_device_alone(tenth: list[Case]) -> None:
    found = {name: side(verdicts) for name, verdicts in judge_all(tenth, DEVICE).items()}
    assert sum(one == "right" for one in found.values()) > 150
    problems = device_changes(found, read_expected())
    assert not problems, "\n".join(problems)
