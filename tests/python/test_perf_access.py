"""The one setting that `lumen perf` may change, and the programs that it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from lumen_engine.perf import counter_access, flame, perf_program
from lumen_engine.perf.counter_access import is_exempt, unblocked
from lumen_engine.perf.measured_server import copy_model
from lumen_engine.perf.programs import Interrupted, Interrupts, PerfError, group, said

NOBODY = "CapEff:\t0000000000000000\n"


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A setting that is in the way, root to be had, and no capability of our own."""
    path = tmp_path / "perf_event_paranoid"
    path.write_text("2\n")
    monkeypatch.setattr(counter_access, "root_words", lambda: [])
    monkeypatch.setattr(counter_access, "is_exempt", lambda status: False)
    return path


def test_the_setting_is_lowered_told_and_put_back(setting: Path) -> None:
    with unblocked(Interrupts(), setting) as access:
        assert setting.read_text() == "1\n"
        assert access.notes == ["kernel.perf_event_paranoid set from 2 to 1 for this run"]
    assert setting.read_text() == "2\n"
    assert access.notes[-1] == "kernel.perf_event_paranoid set back to 2"


def test_it_is_put_back_after_an_error_and_after_a_signal(setting: Path) -> None:
    for error in (PerfError("no"), Interrupted(signal.SIGINT)):
        with pytest.raises(type(error)):
            with unblocked(Interrupts(), setting):
                assert setting.read_text() == "1\n"
                raise error
        assert setting.read_text() == "2\n"


def test_a_value_that_somebody_else_set_meanwhile_is_left(setting: Path) -> None:
    with unblocked(Interrupts(), setting) as access:
        setting.write_text("3\n")
    assert setting.read_text() == "3\n"
    assert access.notes is not None and "somebody else" in access.notes[-1]


def test_a_setting_that_is_no_hindrance_is_not_touched(setting: Path) -> None:
    setting.write_text("1\n")
    with unblocked(Interrupts(), setting) as access:
        assert access.set_to is None and access.notes is None
    assert setting.read_text() == "1\n"


def test_without_root_it_names_the_missing_rights(
    setting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_access, "root_words", lambda: None)
    with unblocked(Interrupts(), setting) as access:
        assert setting.read_text() == "2\n"
        (note,) = access.notes or []
    assert "sudo sysctl kernel.perf_event_paranoid=1" in note and "user side" in note


def test_a_setting_that_root_can_not_write_is_told(
    setting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter_access, "root_words", lambda: ["false"])
    with unblocked(Interrupts(), setting) as access:
        (note,) = access.notes or []
    assert "can't be written" in note and setting.read_text() == "2\n"


def test_a_kernel_without_the_setting_is_told(tmp_path: Path) -> None:
    with unblocked(Interrupts(), tmp_path / "none") as access:
        assert access.notes is not None and "no perf events" in access.notes[0]


def test_a_user_that_may_count_anyway_is_known_by_its_capabilities() -> None:
    assert not is_exempt(NOBODY) and not is_exempt("")
    assert is_exempt(f"CapEff:\t{1 << 38:016x}\n") and is_exempt(f"CapEff:\t{1 << 21:016x}\n")


def test_it_is_put_back_when_we_are_killed_in_the_middle(setting: Path) -> None:
    """The shell that keeps the old value sees the end of its pipe, and nobody else's hand."""
    program = textwrap.dedent(f"""
        import sys, pathlib
        from lumen_engine.perf import counter_access
        from lumen_engine.perf.programs import Interrupts
        counter_access.root_words = lambda: []
        counter_access.is_exempt = lambda status: False
        with counter_access.unblocked(Interrupts(), pathlib.Path({str(setting)!r})):
            print("lowered", flush=True)
            sys.stdin.read()
        """)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None and process.stdout.readline() == "lowered\n"
    assert setting.read_text() == "1\n"
    (keeper,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    keeper_end = os.pidfd_open(int(keeper))
    process.kill()
    process.wait()
    assert select.select([keeper_end], [], [], 20)[0], "the keeper did not end"
    os.close(keeper_end)
    assert setting.read_text() == "2\n"


def test_a_group_is_ended_with_all_that_its_leader_started() -> None:
    script = "sleep 1000 & echo $!; trap '' TERM; exec sleep 1000"
    with group(["sh", "-c", script], Interrupts(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert os.getpgid(child) == process.pid != os.getpgid(0)
        child_end = os.pidfd_open(child)
        process.kill()
    # The signal is sent by now; the kernel ends the child when it next runs.
    assert select.select([child_end], [], [], 20)[0], "the child did not end"
    os.close(child_end)


def test_a_signal_during_clean_up_waits_for_its_end() -> None:
    steps = []
    with pytest.raises(Interrupted):
        with Interrupts() as interrupts:
            with interrupts.held():
                signal.raise_signal(signal.SIGTERM)
                steps.append("cleaned")
            steps.append("never")
    assert steps == ["cleaned"]


def test_a_second_signal_does_not_cut_the_clean_up_short() -> None:
    steps = []
    with Interrupts():
        try:
            signal.raise_signal(signal.SIGTERM)
        except Interrupted as taken:
            signal.raise_signal(signal.SIGTERM)
            steps.append(taken.number)
    assert steps == [signal.SIGTERM]


def test_a_program_that_fails_is_told_with_its_last_words() -> None:
    with pytest.raises(PerfError, match="exit status 3: broken"):
        said(["sh", "-c", "echo broken >&2; exit 3"])
    with pytest.raises(PerfError, match="no-such-program: No such file"):
        said(["no-such-program"])
    with pytest.raises(PerfError, match="no end within 0.1 s"):
        said(["sleep", "1000"], timeout_s=0.1)


def test_without_perf_the_package_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PerfError, match="apt-get install linux-perf"):
        perf_program.probe(Interrupts())


def test_a_perf_of_another_kernel_is_told_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ubuntu's /usr/bin/perf is a script that looks for the running kernel's."""
    fake = tmp_path / "perf"
    fake.write_text("#!/bin/sh\necho 'WARNING: perf not found for kernel 6.8.0-31' >&2\nexit 2\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PerfError, match="not found for kernel 6.8.0-31.*linux-tools-"):
        perf_program.probe(Interrupts())


def test_events_that_perf_refuses_altogether_leave_the_software_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "perf"
    fake.write_text(
        "#!/bin/sh\n"
        "test $1 = --version && { echo perf version 9; exit; }\n"
        "case $4 in *cycles*) echo 'event syntax error' >&2; exit 129;; esac\n"
        "echo 1.5,msec,task-clock,1,100.00,, >&2\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    support = perf_program.probe(Interrupts())
    assert support.software == ["task-clock"] and not support.has_counters
    assert any("event syntax error" in note for note in support.notes)


def test_a_missing_model_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "mlp" / "1").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PerfError, match="no model 'mpl' in .*: there are empty, mlp"):
        copy_model(tmp_path, "mpl", tmp_path / "out")
    with pytest.raises(PerfError, match="has no version"):
        copy_model(tmp_path, "empty", tmp_path / "out")


def test_kernels_made_at_run_time_stand_on_a_frame_of_their_own() -> None:
    folded = "lumen-w0;jit_brgemm.41 7\nlumen-w0;start;run 2\n"
    assert flame.named(folded) == (
        "lumen-w0;kernels that the backend compiled;jit_brgemm.41 7\nlumen-w0;start;run 2\n"
    )


@pytest.mark.parametrize("status, words", [(0, ["sudo", "-n"]), (1, None)])
def test_root_is_had_by_sudo_only_where_it_asks_for_no_password(
    status: int, words: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text(f'#!/bin/sh\nprintf "%s " "$@" > {tmp_path}/asked\nexit {status}\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = counter_access.root_words()
    assert (found and [Path(found[0]).name, *found[1:]]) == words
    assert (tmp_path / "asked").read_text() == "-n true "
    sudo.unlink()
    assert counter_access.root_words() is None
