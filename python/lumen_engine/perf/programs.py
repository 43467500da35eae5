"""Programs that `lumen perf` runs: in groups of their own, ended in any case.

Threads: the main thread only, because signals are taken there. A child gets SIGTERM from the kernel
when we die without a word (SIGKILL). Errors: PerfError with the program, its output and the fix.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

# The time in which a server drains 16 requests of a large model, and more.
END_TIMEOUT_S = 20.0
# A program that prints a page and ends; builds and recordings name their own limit.
SAID_TIMEOUT_S = 60.0
# Enough of a program's last output to see why it failed.
LAST_WORDS = 400
PR_SET_PDEATHSIG = 1
POLL_S = 0.02

_libc = ctypes.CDLL(None, use_errno=True)


class PerfError(RuntimeError):
    """The fault, the place, and the fix."""


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP. Not an Exception: nobody below main() is to handle it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """`with Interrupts() as interrupts:` turns the first of three signals into Interrupted.

    Within `interrupts.held()` it is raised at the end of the block, so that no clean-up is cut
    short. Further signals change nothing: the clean-up is under way, and each step of it has a
    time limit. A signal that was ignored when we came (nohup, a background job) stays ignored.
    """

    def __init__(self) -> None:
        self._holding = 0
        self._pending: int | None = None
        self._taken = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._taken:
            return
        self._taken = True
        if self._holding:
            self._pending = number
        else:
            raise Interrupted(number)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            if self._holding == 0 and self._pending is not None:
                number, self._pending = self._pending, None
                raise Interrupted(number)


class DieWithUs:
    """For `preexec_fn`: the kernel ends the child when the thread that made it is gone."""

    def __init__(self) -> None:
        self._parent = os.getpid()

    def __call__(self) -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self._parent:  # died before the call
            os._exit(1)


def has_ended(process: subprocess.Popen[str]) -> bool:
    """Without reaping it: as long as its id is taken, its group's is nobody else's."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    """Signals the group that `process` leads, waits, and kills the rest of it."""
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    end = time.monotonic() + END_TIMEOUT_S
    while not has_ended(process) and time.monotonic() < end:
        time.sleep(POLL_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def group(
    words: Sequence[str], interrupts: Interrupts, stop: int = signal.SIGTERM, **popen: Any
) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own (setsid): Ctrl-C reaches us alone, and we end it."""
    with ExitStack() as stack:
        with interrupts.held():
            try:
                process = subprocess.Popen(
                    [str(word) for word in words],
                    stdin=subprocess.DEVNULL,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                    preexec_fn=DieWithUs(),
                    **popen,
                )
            except OSError as error:
                raise PerfError(f"{words[0]}: {error.strerror or error}") from error
            stack.callback(_end_held, process, interrupts, stop)
        yield process


def _end_held(process: subprocess.Popen[str], interrupts: Interrupts, stop: int) -> None:
    with interrupts.held():
        end_group(process, stop)


def said(
    words: Sequence[str],
    interrupts: Interrupts | None = None,
    timeout_s: float = SAID_TIMEOUT_S,
    **popen: Any,
) -> str:
    """The standard output of a program that must succeed."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
    with group(words, interrupts or Interrupts(), **pipes) as process:
        try:
            out, error = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise PerfError(f"{words[0]}: no end within {timeout_s:g} s") from None
    if process.returncode != 0:
        last = (error or out or "").strip()[-LAST_WORDS:]
        named = " ".join(str(word) for word in words[:3])
        raise PerfError(f"{named}: exit status {process.returncode}: {last}")
    return out or ""
