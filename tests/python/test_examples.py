"""The examples in Python, as a user runs them; those in C++ and Lisp are run by CTest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from integration import harness
from lumen_engine import Server

Run = Callable[..., str]


@pytest.fixture
def run(project_root: Path, lumen_binary: Path) -> Run:
    """What the example prints; it must exit with 0."""

    def run_example(script: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, project_root / "examples" / script, *arguments],
            env={**os.environ, "LUMEN_BINARY": str(lumen_binary)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_example


def test_an_example_is_read_at_one_sitting(project_root: Path) -> None:
    for file in (project_root / "examples").rglob("*.*"):
        if file.suffix in (".py", ".cc") and file.parent.name != "demo":
            assert len(file.read_text().splitlines()) <= 80, file


def test_the_http_client_gets_the_same_numbers_as_json_and_as_bytes(
    run: Run, server: Callable[..., Server], models_path: Path
) -> None:
    said = run("http_client/client.py")
    assert "identity takes input FP32 [-1, -1]\n" in said
    assert "as JSON:  [1, 2.5, -3]\nas bytes: [1.0, 2.5, -3.0]\n" in said
    assert run("http_client/client.py", server(models_path).url) == said


def test_what_is_late_is_answered_504_and_what_is_too_many_429(run: Run) -> None:
    said = run("deadlines/deadlines.py")
    assert re.search(r"^within 10 s: 200; within 1 µs: 504 .*expired", said, re.MULTILINE)
    found = re.search(r"(\d+) answered, (\d+) refused, other: \{\}", said)
    assert found and int(found[1]) > 0 and int(found[1]) + int(found[2]) == 800


def test_the_metrics_tell_the_mean_of_each_stage(run: Run) -> None:
    said = run("metrics/metrics.py")
    rows = dict(re.findall(r"^  (\w+) +([\d.]+)$", said, re.MULTILINE))
    assert {"parse", "queue", "inference", "write", "total"} <= rows.keys()
    assert float(rows["inference"]) < float(rows["total"])


@harness.needs_onnxruntime
def test_a_pipeline_of_scikit_learn_answers_as_it_does_itself(run: Run) -> None:
    said = run("tabular/tabular.py")
    assert re.search(r"^9\d\.\d% of 45 held-out wines right$", said, re.MULTILINE)
    assert said.endswith("the answers are the pipeline's own\n")


def test_the_live_swap_serves_by_all_ten_combinations_and_fails_nobody(run: Run) -> None:
    said = run("live_swap/live_swap.py")
    rows = re.findall(r"^(\w+) +(\w+) +(\d+) requests, +[\d.]+ µs$", said, re.MULTILINE)
    assert len({(queue, allocator) for queue, allocator, _ in rows}) == 10
    assert all(int(count) >= 100 for _, _, count in rows)
    assert said.endswith("\n0 failed or different\n")
