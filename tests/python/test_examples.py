"""The examples in Python, as a user runs them; those in C++ and Lisp are run by CTest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_live_swap_serves_by_all_ten_combinations_and_fails_nobody(
    project_root: Path, lumen_binary: Path
) -> None:
    done = subprocess.run(
        [sys.executable, project_root / "examples" / "live_swap" / "live_swap.py"],
        env={**os.environ, "LUMEN_BINARY": str(lumen_binary)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(\w+) +(\w+) +(\d+) requests, +[\d.]+ µs$", done.stdout, re.MULTILINE)
    assert len({(queue, allocator) for queue, allocator, _ in rows}) == 10
    assert all(int(count) >= 100 for _, _, count in rows)
    assert done.stdout.endswith("\n0 failed or different\n")
