"""The kernel's figures of a process without perf: those of getrusage(), from /proc/PID.

CPU time and page faults of the whole process; context switches and migrations of the threads that
are alive. Threads: any. Errors: PerfError when the process is gone; None for a figure that a kernel
lacks.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lumen_engine.perf.programs import PerfError

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessFigures:
    user_s: float
    system_s: float
    minor_faults: float
    major_faults: float
    voluntary_switches: float
    involuntary_switches: float
    migrations: float | None  # /proc/PID/sched is there with CONFIG_SCHED_DEBUG only

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s

    def since(self, before: ProcessFigures) -> ProcessFigures:
        parts: dict[str, Any] = {}
        for one in fields(self):
            now, then = getattr(self, one.name), getattr(before, one.name)
            parts[one.name] = None if now is None or then is None else now - then
        return ProcessFigures(**parts)


def parse_stat(text: str) -> tuple[float, float, float, float]:
    """Minor and major faults, user and system seconds; the name may hold blanks and brackets."""
    after = text[text.rindex(")") + 2 :].split()
    minor, major, user, system = (float(after[index]) for index in (7, 9, 11, 12))
    return minor, major, user / TICKS_A_SECOND, system / TICKS_A_SECOND


def number_after(name: str, text: str) -> float | None:
    found = re.search(rf"^{re.escape(name)}\s*:\s*([\d.]+)", text, re.MULTILINE)
    return float(found[1]) if found else None


def read(pid: int, proc: Path = Path("/proc")) -> ProcessFigures:
    folder = proc / str(pid)
    try:
        minor, major, user_s, system_s = parse_stat((folder / "stat").read_text())
        tasks = list((folder / "task").iterdir())
    except (OSError, ValueError) as error:
        raise PerfError(f"{folder}: {error}: has the server ended?") from error
    voluntary = involuntary = 0.0
    migrations: float | None = 0.0
    for task in tasks:
        with suppress(OSError):  # a thread that has just ended
            status = (task / "status").read_text()
            voluntary += number_after("voluntary_ctxt_switches", status) or 0.0
            involuntary += number_after("nonvoluntary_ctxt_switches", status) or 0.0
        try:
            moved = number_after("se.nr_migrations", (task / "sched").read_text())
        except OSError:
            moved = None
        migrations = None if moved is None or migrations is None else migrations + moved
    return ProcessFigures(user_s, system_s, minor, major, voluntary, involuntary, migrations)
