"""`./run_perf_test.sh` as a process, and all that it has started, known by a word in their
environment: as root and as an ordinary user.

Errors: assertions with its output.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from integration.harness import ROOT, eventually, lumen_binary

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
TIMEOUT_S = 120.0
WORD = "LUMEN_PERF_TEST"
# nobody: no root, no sudo.
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
# Root, where the kernel does not grant it perf: it has to change the setting, and may.
AS_PLAIN_ROOT = (
    "setpriv",
    "--inh-caps=-sys_admin,-perfmon",
    "--bounding-set=-sys_admin,-perfmon",
)
# Longer than any test waits: an interrupt always comes in the middle.
ENDLESS = "2x100000000"


def can_run_as_nobody() -> bool:
    """Only root may become another user, which has to be able to read the checkout."""
    if os.geteuid() != 0:
        return False
    words = [*AS_NOBODY, sys.executable, "-c", f"open({str(lumen_binary())!r}).close()"]
    return subprocess.run(words, capture_output=True).returncode == 0


def prepare(on_a_terminal: bool) -> None:
    """In the child: where a shell runs the tests in the background, SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if on_a_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class PerfRun:
    """Each program of it becomes the next (sh, lumen, python), so the process id stays the same."""

    def __init__(
        self,
        *arguments: str,
        user: Sequence[str] = (),
        on_a_terminal: bool = False,
        folder: Path = Path("/tmp"),
    ) -> None:
        """`folder` is for temporary files. On a terminal it leads a session, as from a shell;
        `press()` types there."""
        self.terminal, side = os.openpty() if on_a_terminal else (-1, subprocess.DEVNULL)
        self.word = uuid.uuid4().hex
        words = [*user, str(ROOT / "run_perf_test.sh"), "--no-callgrind"]
        words += ["--model", "mlp", "--model-repository", str(ROOT / "models"), *arguments]
        self.process = subprocess.Popen(
            words,
            stdin=side,
            start_new_session=on_a_terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/tmp",
            env={
                **os.environ,
                WORD: self.word,
                "LUMEN_BINARY": str(lumen_binary()),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": "/tmp",
                "TMPDIR": str(folder),
            },
            preexec_fn=partial(prepare, on_a_terminal),
        )
        if on_a_terminal:
            os.close(side)
        self.log: list[str] = []

    def press(self, keys: bytes) -> None:
        os.write(self.terminal, keys)

    def processes(self) -> dict[int, list[str]]:
        """Those that are alive, by their command lines; zombies have no environment left."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    environment = (folder / "environ").read_bytes()
                    command = (folder / "cmdline").read_text().split("\0")
                except OSError:
                    continue
                if f"{WORD}={self.word}".encode() in environment.split(b"\0"):
                    found[int(folder.name)] = command
        return found

    def wait_for_line(self, text: str) -> None:
        """A line of the standard error, which tells of each step."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if text in line:
                return
        raise AssertionError(f"no line with {text!r}:\n{''.join(self.log)}")

    def wait_for_program(self, *words: str) -> int:
        """Until a process with these words in its command line is there; its id."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [
                pid
                for pid, command in self.processes().items()
                if all(word in command for word in words)
            ]
            return bool(found)

        eventually(is_there, lambda: f"no {words} among {self.processes()}", TIMEOUT_S)
        return found[0]

    def wait(self) -> int:
        out, error = self.process.communicate(timeout=TIMEOUT_S)
        self.out = out
        self.log.append(error)
        return self.process.returncode

    def wait_until_all_are_gone(self) -> None:
        """After a SIGKILL: the kernel tells the others, which end by themselves."""
        for pid in self.processes():
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            gone = select.select([descriptor], [], [], TIMEOUT_S)[0]
            os.close(descriptor)
            assert gone, f"{pid} is still there: {self.processes().get(pid)}"

    def end(self) -> None:
        """For the end of a test that has failed."""
        self.process.kill()
        self.process.communicate()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        if self.terminal >= 0:
            os.close(self.terminal)
