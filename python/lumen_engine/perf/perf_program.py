"""`perf` itself: which events this machine counts, and `perf stat` attached to a running server.

Threads: the main one. Errors: PerfError where perf can't be used at all, with the fix; that a
machine has no hardware counters is no error, but stands in Support.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE

from lumen_engine.perf import perf_stat
from lumen_engine.perf.figures import TOP_DOWN
from lumen_engine.perf.perf_stat import Count
from lumen_engine.perf.programs import (
    LAST_WORDS,
    Interrupts,
    PerfError,
    end_group,
    group,
    has_ended,
)

HARDWARE = (
    "cycles",
    "instructions",
    "branches",
    "branch-misses",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
    "LLC-loads",
    "LLC-load-misses",
    "cache-references",
    "cache-misses",
)
SOFTWARE = ("task-clock", "context-switches", "cpu-migrations", "page-faults")
CPU_EVENTS = Path("/sys/bus/event_source/devices/cpu/events")
# It opens its events within milliseconds; a machine that is overloaded may take longer.
ATTACH_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 20.0
POLL_S = 0.01


@dataclass
class Support:
    """The events that are worth asking for, and why others are not."""

    hardware: list[str] = field(default_factory=list)
    software: list[str] = field(default_factory=list)
    top_down: bool = False
    version: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def has_counters(self) -> bool:
        return "instructions" in self.hardware

    def events(self) -> str:
        """For `perf stat -e`. The slots lead the group of top-down: else the kernel refuses it."""
        plain = [*self.hardware, *self.software]
        grouped = "{" + ",".join(["slots", *TOP_DOWN.values()]) + "}"
        return ",".join([*plain, grouped] if self.top_down else plain)


def has_top_down(folder: Path = CPU_EVENTS) -> bool:
    """Intel since Ice Lake; on a hybrid CPU and on AMD there is no such group for all cores."""
    return all((folder / name).exists() for name in ("slots", *TOP_DOWN.values()))


def environment() -> dict[str, str]:
    """Numbers with points, for any language of the user."""
    return {**os.environ, "LC_ALL": "C"}


def how_to_get_perf() -> str:
    return (
        "install it: apt-get install linux-perf (Debian) or "
        f"linux-tools-{platform.release()} (Ubuntu)"
    )


def probe(interrupts: Interrupts) -> Support:
    """Counts a program that does nothing: counters that work there work for the server."""
    if shutil.which("perf") is None:
        raise PerfError(f"no program perf: {how_to_get_perf()}")
    support = Support(version=version(interrupts))
    wanted = Support(list(HARDWARE), list(SOFTWARE), has_top_down())
    counts = try_events(wanted, interrupts, support.notes)
    if counts is None:
        support.notes.append("perf refused the hardware events altogether; only the kernel's own")
        counts = try_events(Support([], list(SOFTWARE)), interrupts, support.notes) or {}

    def is_counted(event: str) -> bool:
        return event in counts and counts[event].status != perf_stat.NOT_SUPPORTED

    support.hardware = [event for event in HARDWARE if is_counted(event)]
    support.software = [event for event in SOFTWARE if is_counted(event)]
    support.top_down = wanted.top_down and all(is_counted(event) for event in TOP_DOWN.values())
    if not support.software:
        raise PerfError("; ".join(["perf counts nothing here", *support.notes]))
    return support


def version(interrupts: Interrupts) -> str:
    """Ubuntu's /usr/bin/perf is a script that fails where the kernel's own perf is missing."""
    with group(["perf", "--version"], interrupts, stdout=PIPE, stderr=PIPE) as process:
        out, error = process.communicate(timeout=PROBE_TIMEOUT_S)
    if process.returncode != 0:
        said = (error or out).strip()[-LAST_WORDS:]
        raise PerfError(f"perf does not run ({said}): {how_to_get_perf()}")
    return out.strip()


def try_events(
    wanted: Support, interrupts: Interrupts, notes: list[str]
) -> dict[str, Count] | None:
    words = ["perf", "stat", "-x,", "-e", wanted.events(), "true"]
    with group(words, interrupts, stdout=PIPE, stderr=PIPE, env=environment()) as process:
        _, text = process.communicate(timeout=PROBE_TIMEOUT_S)
    try:
        return perf_stat.parse(text)
    except perf_stat.PerfStatError:
        lines = [line for line in text.splitlines() if line.strip()]
        notes.append("perf stat: " + " ".join(lines)[:LAST_WORDS])
        return None


def is_attached(process: subprocess.Popen[str]) -> bool:
    """perf has opened its events once descriptors of them are there; or it has ended."""
    if has_ended(process):
        return True
    with suppress(OSError):  # a descriptor that was closed meanwhile: look again
        links = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
        return "anon_inode:[perf_event]" in links
    return False


class Recording:
    """Filled when the block of `attached` has ended; `problem` says why it has no counts."""

    def __init__(self) -> None:
        self.counts: dict[str, Count] = {}
        self.problem = ""


@contextmanager
def attached(pid: int, support: Support, interrupts: Interrupts) -> Iterator[Recording]:
    """`perf stat` on all threads of `pid` within the block; SIGINT makes it print. That it fails
    (a kernel that lets nobody attach) costs the counts, and not the block's own measurements."""
    recording = Recording()
    with tempfile.TemporaryDirectory(prefix="lumen-perf-") as folder:
        out, log = Path(folder) / "stat.csv", Path(folder) / "log"
        words = ["perf", "stat", "-x,", "-o", str(out), "-e", support.events(), "-p", str(pid)]
        with log.open("w") as errors:
            with group(
                words, interrupts, signal.SIGINT, stdout=errors, stderr=errors, env=environment()
            ) as process:
                try:
                    wait_until_attached(process, log)
                except PerfError as error:
                    recording.problem = str(error)
                yield recording
                with interrupts.held():
                    end_group(process, signal.SIGINT)
        if not recording.problem:
            read_counts(out, log, recording)


def read_counts(out: Path, log: Path, recording: Recording) -> None:
    try:
        recording.counts = perf_stat.parse(out.read_text())
    except (OSError, perf_stat.PerfStatError) as error:
        last = log.read_text().strip()[-LAST_WORDS:]
        recording.problem = f"perf stat: {error} {last}".strip()


def wait_until_attached(process: subprocess.Popen[str], log: Path) -> None:
    end = time.monotonic() + ATTACH_TIMEOUT_S
    while not is_attached(process):
        if time.monotonic() > end:
            raise PerfError(f"perf stat opened no events within {ATTACH_TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    if has_ended(process):
        raise PerfError(f"perf stat ended at once: {log.read_text().strip()[-LAST_WORDS:]}")
