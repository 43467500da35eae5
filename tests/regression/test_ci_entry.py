"""The build machine runs `bash .ci/run`: a Python file there stops at its first line."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_ci_run_is_a_shell_script_that_bash_reads() -> None:
    script = ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", script], check=True)
    assert script.read_text().splitlines()[0] == "#!/usr/bin/env bash"
