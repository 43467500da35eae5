"""tools/keep_baseline.py: the output of a bench is kept with its machine, anything else is not."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import baselines
import keep_baseline
import pytest

CPUINFO = """processor\t: 0
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu avx2 avx512f amx_tile hypervisor

processor\t: 1
model name\t: another
flags\t\t: fpu
"""


def keep(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> int:
    monkeypatch.setattr(keep_baseline, "BASELINES", folder)
    monkeypatch.setattr(keep_baseline, "draw_documents", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["keep_baseline.py", "queue"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return keep_baseline.main()


ROW = {"row": "a", "ours": 1, "rounds": {"lumen": [1, 2, 1]}}


def kept(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "queue.json").read_text())["measurements"]
    return found


def test_machine_day_commit_code_and_raw_rounds_stand_beside_the_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert keep(monkeypatch, tmp_path, json.dumps({"rows": [ROW], "model": "mlp"})) == 0
    (measurement,) = kept(tmp_path)
    assert measurement["rows"] == [ROW] and measurement["model"] == "mlp"
    assert set(measurement["machine"]) == {"cpu", "cpus", "kernel", "day"}
    assert measurement["machine"]["cpus"] >= 1
    assert measurement["commit"]
    assert measurement["sources"] == baselines.content_hash("queue")
    assert "[1, 2, 1]" in (tmp_path / "queue.json").read_text()


def test_each_kind_of_machine_is_kept_apart_and_the_other_kind_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    near, far = ({**ROW, "cpus": kind} for kind in ("near", "far"))
    assert keep(monkeypatch, tmp_path, json.dumps({"rows": [near, far]})) == 0
    assert [m["kind"] for m in kept(tmp_path)] == ["far", "near"]
    newer = {**near, "ours": 2}
    assert keep(monkeypatch, tmp_path, json.dumps({"rows": [newer]})) == 0
    assert [m["rows"][0]["ours"] for m in kept(tmp_path)] == [1, 2]
    monkeypatch.setattr(baselines, "content_hash", lambda name: "other code")
    assert keep(monkeypatch, tmp_path, json.dumps({"rows": [near]})) == 0
    assert [(m["kind"], m["sources"] == "other code") for m in kept(tmp_path)] == [
        ("far", False),
        ("near", True),
    ]


def test_figures_without_their_raw_rounds_are_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keep(monkeypatch, tmp_path, json.dumps({"rows": [{"row": "a", "ours": 1}]})) == 1
    assert "1 rows have no raw rounds, the first is a" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "usage: bench", "[]", '{"rows": []}', '{"row": 1}'])
def test_text_that_no_bench_printed_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert keep(monkeypatch, tmp_path, text) == 1
    assert "nothing kept" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_cpu_is_told_by_its_name_and_its_instructions() -> None:
    assert keep_baseline.describe_cpu(CPUINFO) == "Intel Xeon, AMX, AVX-512, virtual"
    assert keep_baseline.describe_cpu("") == "unknown CPU"
