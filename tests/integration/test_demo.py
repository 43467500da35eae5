"""The demo as a user runs it: its output, and the server that --keep leaves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
import tritonclient.http as triton
from integration.harness import PATIENCE, ROOT, lumen_binary

pytestmark = pytest.mark.skipif(
    PATIENCE > 1, reason="the demo's server has its default limits: see harness.Server on memory"
)


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo" / "demo.py"), *arguments],
        env={**os.environ, "LUMEN_BINARY": str(lumen_binary())},
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
    )


def test_the_demo_reads_a_receipt_and_prints_accuracy_digits_and_a_table_of_latencies() -> None:
    done = run_demo()
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"(\d+) of 599 held-out images right", done.stdout)
    assert accuracy and int(accuracy[1]) >= 0.97 * 599
    assert "7 of 7 lines read" in done.stdout and "│ 1 x Oat Latte 4.10 " in done.stdout
    for model in ("digits", "ocr_detection", "ocr_recognition", "mlp", "identity"):
        assert re.search(rf"^  {model} +\d+ .*%$", done.stdout, re.MULTILINE), model
    # The server's banner tells paths, and why threads are not pinned: as long as they are.
    _, _, own = done.stdout.partition("lumen: ready http=")
    assert max(len(line) for line in own.splitlines()) <= 100


def test_keep_leaves_a_server_that_answers_until_it_is_told_to_stop() -> None:
    done = run_demo("--keep")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"the server stays: http=(\S+) pid=(\d+)", done.stdout)
    assert kept
    try:
        assert triton.InferenceServerClient(kept[1]).is_model_ready("digits")
    finally:
        os.kill(int(kept[2]), signal.SIGTERM)


def test_the_demo_fails_with_the_servers_words_when_it_does_not_start() -> None:
    environment = {**os.environ, "LUMEN_BINARY": "/bin/false"}
    script = str(ROOT / "examples" / "demo" / "demo.py")
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "before it was ready" in done.stderr
