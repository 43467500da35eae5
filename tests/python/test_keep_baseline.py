"""tools/keep_baseline.py: what a bench printed is kept with its machine, anything else is not."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

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
    monkeypatch.setattr(keep_baseline, "draw_readme", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["keep_baseline.py", "queue"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return keep_baseline.main()


def test_the_machine_and_the_day_stand_beside_the_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert keep(monkeypatch, tmp_path, json.dumps({"rows": [{"ours": 1}]})) == 0
    document = json.loads((tmp_path / "queue.json").read_text())
    assert document["rows"] == [{"ours": 1}]
    assert set(document["machine"]) == {"cpu", "cpus", "kernel", "day"}
    assert document["machine"]["cpus"] >= 1


@pytest.mark.parametrize("text", ["", "usage: bench", "[]", '{"rows": []}', '{"row": 1}'])
def test_what_no_bench_printed_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert keep(monkeypatch, tmp_path, text) == 1
    assert "nothing kept" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_cpu_is_told_by_its_name_and_what_its_kernels_may_use() -> None:
    assert keep_baseline.describe_cpu(CPUINFO) == "Intel Xeon, AMX, AVX-512, virtual"
    assert keep_baseline.describe_cpu("") == "unknown CPU"
