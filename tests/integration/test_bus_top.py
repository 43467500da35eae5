"""`lumen bus top`: the figures of a bus that another program of the build has filled."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def top(lumen_binary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [lumen_binary, "bus", "top", *arguments], capture_output=True, text=True, timeout=60
    )


def test_a_ring_is_shown_with_its_fill_and_its_types(lumen_binary: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "bus")
    program = lumen_binary.parent / "c_abi_filled_ring"
    pipe = subprocess.PIPE
    with subprocess.Popen([program, path], stdin=pipe, stdout=pipe, text=True) as bus:
        assert bus.stdout
        assert bus.stdout.readline() == "filled\n"
        done = top(lumen_binary, path, "--count", "1", "--interval", "0.05")
    assert bus.returncode == 0
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"bus {path}: 1 ring;")
    assert re.search(r"publisher +0 +0\.0 +75 % +0\.0 +0 +0$", lines[2])
    assert sorted(line.split()[1] for line in lines[3:]) == ["7", "9"]
    done = top(lumen_binary, path)
    assert done.returncode == 1
    assert re.search(rf"lumen bus top: bus {path}: .*nobody listens there", done.stderr)


def test_an_interval_that_makes_no_sense_is_refused(lumen_binary: Path) -> None:
    done = top(lumen_binary, "/nowhere/bus", "--interval", "0")
    assert done.returncode == 2
    assert "--interval" in done.stderr
