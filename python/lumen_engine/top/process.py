"""The kernel's figures of a server's process: memory, CPU time, state, throttling of its cgroup.

Of the counters file only the process id and when it started are needed: by the latter a process
that has the id now is known to be the server.
Threads: any. Errors: none; a figure that can't be read is None.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Throttling:
    """Of the cgroup's CPU quota; all 0 where it has none."""

    periods: int
    throttled_periods: int
    throttled_us: int


@dataclass(frozen=True, slots=True)
class Process:
    state: str  # as in /proc/PID/stat: R, S, D, T, Z
    cpu_ns: int
    rss_bytes: int
    throttling: Throttling | None


def read_process(pid: int, start_ticks: int, proc: Path = PROC) -> Process | None:
    """None if the id is by now another process's, or of another namespace than ours."""
    try:
        stat = (proc / str(pid) / "stat").read_text()
        pages = int((proc / str(pid) / "statm").read_text().split()[1])
        # The name, in parentheses, may hold anything; fields are numbered from behind it.
        fields = stat.rpartition(")")[2].split()
        state, user, system, ticks = fields[0], fields[11], fields[12], int(fields[19])
        cpu_ns = (int(user) + int(system)) * (1_000_000_000 // TICKS_PER_S)
    except (OSError, ValueError, IndexError):
        return None
    if ticks != start_ticks:
        return None
    return Process(state, cpu_ns, pages * PAGE_BYTES, read_throttling(pid, proc))


def read_throttling(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> Throttling | None:
    for folder in _cgroup_folders(pid, proc, cgroups):
        try:
            lines = (folder / "cpu.stat").read_text().splitlines()
            values = {key: int(value) for key, value in (line.split() for line in lines)}
        except (OSError, ValueError):
            continue
        # Version 1 counts ns.
        us = values.get("throttled_usec", values.get("throttled_time", 0) // 1_000)
        return Throttling(values.get("nr_periods", 0), values.get("nr_throttled", 0), us)
    return None


def _cgroup_folders(pid: int, proc: Path, cgroups: Path) -> list[Path]:
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inner = path.lstrip("/")
        if controllers == "":
            folders += [cgroups / inner, cgroups / "unified" / inner]
        elif "cpu" in controllers.split(","):
            # In a container the path is the host's, and its own group is mounted at the top.
            folders += [cgroups / controllers / inner, cgroups / "cpu" / inner, cgroups / "cpu"]
    return [*folders, cgroups]
