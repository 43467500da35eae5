"""`lumen perf` on a real server: complete, interrupted, as root and as an ordinary user. In each
case nothing that it started is left and no setting is changed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.harness import ROOT
from integration.perf_run import (
    AS_NOBODY,
    AS_PLAIN_ROOT,
    ENDLESS,
    PARANOID,
    PerfRun,
    can_run_as_nobody,
)

pytestmark = pytest.mark.tool

NOBODY = pytest.mark.skipif(
    not can_run_as_nobody(), reason="needs root, and a checkout that others can read"
)
IS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
USERS = [pytest.param((), id="self"), pytest.param(AS_NOBODY, id="nobody", marks=NOBODY)]
Start = Callable[..., PerfRun]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(
            *arguments: str, user: Sequence[str] = (), on_a_terminal: bool = False
        ) -> PerfRun:
            # pytest's folders are for their owner alone.
            folder = Path("/tmp") if user == AS_NOBODY else tmp_path
            run = PerfRun(*arguments, user=user, on_a_terminal=on_a_terminal, folder=folder)
            stack.callback(run.end)
            return run

        yield begin


@pytest.fixture
def paranoid() -> Iterator[str]:
    """The setting in the way, as it is by default; as it was at the end."""
    before = PARANOID.read_text()
    try:
        PARANOID.write_text("2")
    except OSError as error:
        # A container may show the settings read-only, to root too. Anything else is a failure.
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        pytest.skip(f"{PARANOID} can't be written here: {error}")
    try:
        yield PARANOID.read_text()
    finally:
        PARANOID.write_text(before)


@pytest.mark.parametrize("user", USERS)
def test_two_phases_are_measured_side_by_side(start: Start, user: Sequence[str]) -> None:
    before = PARANOID.read_text()
    run = start("--clients", "2x200,4x100", "--json", user=user)
    assert run.wait() == 0, run.log
    found = json.loads(run.out)
    first, second = found["phases"]
    assert (first["clients"], second["clients"]) == (2, 4)
    for phase in (first, second):
        assert phase["load"]["requests"] == 400 and phase["load"]["errors"] == 0
        rows = phase["rows"]
        assert rows["per_second"] > 0 and 0 < rows["p50_ms"] <= rows["p99_ms"]
        # A worker that waits for a request gives way: the server alone can't have none.
        assert rows["context_switches"] > 0
        assert phase["process"]["user_s"] + phase["process"]["system_s"] >= 0
    if not found["hardware_counters"]:
        assert first["rows"]["ipc"] is None
        assert any("hardware counters are not supported" in note for note in found["notes"])
    if user:
        assert any("sudo sysctl kernel.perf_event_paranoid=1" in n for n in found["notes"])
    assert run.processes() == {} and PARANOID.read_text() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("user", USERS)
def test_interrupted_in_the_middle_it_ends_all_that_it_started(
    start: Start, user: Sequence[str], number: signal.Signals, tmp_path: Path
) -> None:
    before = PARANOID.read_text()
    run = start("--clients", ENDLESS, "--warm-up", "1", user=user)
    run.wait_for_program("bench", "200000000")
    running = run.processes()
    kinds = [Path(command[0]).name for command in running.values()]
    assert "perf" in kinds and kinds.count("lumen") == 2, running
    leaders = {pid for pid in running if os.getsid(pid) == pid}
    assert len(leaders) == 3  # server, perf and bench are out of reach of the terminal's Ctrl-C
    run.process.send_signal(number)
    assert run.wait() == 128 + number, run.log
    assert run.processes() == {} and PARANOID.read_text() == before
    assert "what was changed is as it was" in run.log[-1]
    assert list(tmp_path.glob("lumen-perf-*")) == []  # ONNX Runtime leaves a .ses of its own


def test_interrupted_while_the_server_starts_it_ends_it_too(start: Start) -> None:
    run = start("--clients", "1x1")
    run.wait_for_program("serve")
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130, run.log
    assert run.processes() == {}


def test_ctrl_c_on_a_terminal_reaches_us_alone_and_ends_the_others_in_order(start: Start) -> None:
    """The terminal signals its foreground group: perf, server and bench are not in it."""
    run = start("--clients", ENDLESS, "--warm-up", "1", on_a_terminal=True)
    run.wait_for_program("bench", "200000000")
    group = os.getpgid(run.process.pid)
    assert [pid for pid in run.processes() if os.getpgid(pid) == group] == [run.process.pid]
    run.press(b"\x03\x03")  # impatient
    assert run.wait() == 130, run.log
    assert run.processes() == {}


def test_killed_in_the_middle_the_kernel_ends_its_processes(start: Start) -> None:
    run = start("--clients", ENDLESS, "--warm-up", "1")
    run.wait_for_program("bench", "200000000")
    run.process.kill()
    run.process.wait()
    run.wait_until_all_are_gone()
    assert run.processes() == {}


@pytest.mark.alone
@IS_ROOT
def test_the_setting_is_lowered_for_the_run_and_put_back_after_it(
    start: Start, paranoid: str
) -> None:
    run = start("--clients", "1x50", user=AS_PLAIN_ROOT)
    run.wait_for_line("perf_event_paranoid set from 2 to 1")
    assert run.wait() == 0, run.log
    assert PARANOID.read_text() == paranoid
    assert "kernel.perf_event_paranoid set back to 2" in run.out


@pytest.mark.alone
@IS_ROOT
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_setting_is_put_back_when_it_is_interrupted(
    start: Start, paranoid: str, number: signal.Signals
) -> None:
    run = start("--clients", ENDLESS, "--warm-up", "1", user=AS_PLAIN_ROOT)
    run.wait_for_program("bench", "200000000")
    assert PARANOID.read_text() == "1\n"
    run.process.send_signal(number)
    run.process.wait()
    run.wait_until_all_are_gone()
    assert PARANOID.read_text() == paranoid and run.processes() == {}


def test_a_server_that_refuses_its_arguments_is_told_with_its_own_words(start: Start) -> None:
    run = start("--clients", "1x1", "--", "--queue-type", "mpcm")
    assert run.wait() == 1
    assert "mpcm" in run.log[-1] and "mpmc" in run.log[-1]
    assert run.processes() == {}


def test_a_script_at_the_root_reaches_the_same_command() -> None:
    words = [str(ROOT / "run_perf_test.sh"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and "lumen perf" in done.stdout, done.stderr


def test_the_package_without_its_command_line_stays_cheap() -> None:
    """A client program does `import lumen_engine`."""
    code = "import sys, lumen_engine; sys.exit('lumen_engine.perf.command' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    assert subprocess.run([sys.executable, "-c", code], env=env).returncode == 0
