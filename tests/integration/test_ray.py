"""Ray Serve, unmodified, with lumen_engine.ray: replicas share a server, which may be killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from integration.harness import MODELS, PATIENCE, ROOT, copy_models, lumen_binary

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

CALLS = Path(__file__).with_name("ray_calls.py")
SEEN = ["three replicas, one server", "a refusal", "a server that was killed", "the end"]
# Ray's own installation and start are most of two minutes.
pytestmark = [pytest.mark.tool, pytest.mark.long]


def test_replicas_of_ray_serve_share_a_server_and_lose_no_request_as_it_is_killed(
    tmp_path: Path,
) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "identity"])
    # The paths of Ray's sockets are longer than a unix socket's may be, below a folder of pytest's.
    short = tempfile.mkdtemp(prefix="ray-")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "LUMEN_BINARY": str(lumen_binary()),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": short,
    }
    try:
        done = subprocess.run(
            [judge_programs.interpreter("ray"), CALLS, models],
            env=environment,
            capture_output=True,
            text=True,
            timeout=400 * PATIENCE,
        )
    finally:
        shutil.rmtree(short, ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.splitlines() == SEEN
