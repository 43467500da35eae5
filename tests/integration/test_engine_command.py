"""`lumen engine` against a running server, and without one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.harness import Server, lumen_binary

StartServer = Callable[..., Server]


def engine(*words: str, unix: str | None = None) -> subprocess.CompletedProcess[str]:
    more = ["--unix", unix] if unix else []
    environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    return subprocess.run(
        [str(lumen_binary()), "engine", *words, *more],
        capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip


def test_settings_are_shown_and_changed_while_it_serves(
    server: StartServer, tmp_path: Path
) -> None:
    one = server("--queue-type", "mpmc", "--unix", str(tmp_path / "s.sock"))
    shown = engine(unix=one.unix_path)
    assert shown.returncode == 0, shown.stderr
    before = dict(line.split(maxsplit=1) for line in shown.stdout.splitlines())
    assert before["queue_type"] == "mpmc"
    done = engine("queue_type=batched", "batch_size=8", "--json", unix=one.unix_path)
    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    assert (after["queue_type"], after["batch_size"]) == ("batched", 8)
    assert after["queue_capacity"] == int(before["queue_capacity"])


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["batch_size=0", "queue_type=inline"], 1, "batch_size"),
        (["batchsize=8"], 1, "nearest is 'batch_size'"),
        (["batch_size"], 2, "wanted KEY=VALUE"),
        (["=8"], 2, "wanted KEY=VALUE"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(
    server: StartServer, tmp_path: Path, words: list[str], status: int, told: str
) -> None:
    one = server("--queue-type", "mpmc", "--unix", str(tmp_path / "s.sock"))
    before = engine("--json", unix=one.unix_path).stdout
    done = engine(*words, unix=one.unix_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert told in done.stderr
    assert engine("--json", unix=one.unix_path).stdout == before


def test_without_a_socket_the_fix_is_named() -> None:
    done = engine()
    assert done.returncode == 1
    assert "start it with --unix PATH" in done.stderr
