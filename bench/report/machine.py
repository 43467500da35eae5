"""The machine of a report, and how much of it others took meanwhile.

Everything comes from /proc and /sys of `root`, so that tests have a machine of their own. Threads:
one. Errors: a fact that can't be read is said as "not readable" or "not visible", never left out.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.runner.store import describe_cpu

# Fields of the first line of /proc/stat: user nice system idle iowait irq softirq steal ...
BUSY_FIELDS = (0, 1, 2, 5, 6)
STEAL_FIELD = 7
NOISE_WORDS = r"\((R|TM)\)|\bProcessor\b|\bCPU\b|@.*|\b\d+-Core\b"


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def model_name(root: Path = Path("/")) -> str:
    found = re.search(r"^model name\s*: (.*)$", read(root / "proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else "unknown CPU"


def slug(name: str, cpus: int) -> str:
    """A part of file names: "Intel(R) Xeon(R) Processor" with two is intel-xeon-2cpu."""
    words = re.sub(NOISE_WORDS, " ", name)
    return re.sub(r"[^a-z0-9]+", "-", f"{words} {cpus}cpu".lower()).strip("-")


def caches(root: Path) -> str:
    """Of CPU 0: "L1d 48 KiB, L2 2 MiB, L3 260 MiB shared by CPUs 0-1"."""
    said = []
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (read(index / name) for name in ("level", "type", "size"))
        if kind == "Instruction" or not size:
            continue
        kib = int(size.rstrip("K"))
        amount = f"{kib // 1024} MiB" if kib % 1024 == 0 else f"{kib} KiB"
        shared = read(index / "shared_cpu_list")
        others = f" shared by CPUs {shared}" if re.search(r"[-,]", shared) else ""
        said.append(f"L{level}{'d' if kind == 'Data' else ''} {amount}{others}")
    return ", ".join(said) or "not visible"


def governor(root: Path) -> str:
    found = {
        read(file)
        for file in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    return ", ".join(sorted(found - {""})) or "not visible (the host's)"


def hypervisor(root: Path) -> str:
    if " hypervisor" not in read(root / "proc/cpuinfo"):
        return "none"
    names = [read(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    said = " ".join(name for name in names if name) or read(root / "sys/hypervisor/type")
    return said or "yes, which is not visible"


def memory(root: Path) -> str:
    found = re.search(r"^MemTotal:\s+(\d+) kB", read(root / "proc/meminfo"), re.MULTILINE)
    return f"{int(found[1]) / (1 << 20):.1f} GiB" if found else "not readable"


def facts(root: Path = Path("/")) -> dict[str, str]:
    """The rows of the page's first table, in its order."""
    thp = re.search(r"\[(\w+)\]", read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return {
        "CPU": describe_cpu(read(root / "proc/cpuinfo")),
        "CPUs that may be used": str(len(os.sched_getaffinity(0))),
        "caches": caches(root),
        "memory": memory(root),
        "kernel": f"{platform.system()} {platform.release()}",
        "hypervisor": hypervisor(root),
        "frequency governor": governor(root),
        "transparent huge pages": thp[1] if thp else "not readable",
    }


@dataclass(frozen=True)
class Load:
    """Of the time between two looks: the machine's CPUs, and the part of them that was not ours."""

    seconds: float
    steal: float  # the part of the CPUs' time that the hypervisor gave to other machines
    others_cpus: float  # CPUs kept busy by processes that are not of this report
    load_average: float  # of the last minute, at the end

    def as_json(self) -> dict[str, float]:
        found: dict[str, Any] = vars(self)
        return {name: round(value, 4) for name, value in found.items()}


class LoadMeter:
    """Counts from its making on. Ours is the use of this process and its ended descendants; a
    descendant that nobody waited for counts among the others."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.begin = time.monotonic()
        self.busy, self.steal, self.whole = self.ticks()
        self.ours = self.own_seconds()

    def ticks(self) -> tuple[int, int, int]:
        """Busy, stolen and all ticks of all CPUs; zeros where /proc/stat can't be read."""
        lines = read(self.root / "proc/stat").splitlines() or ["cpu"]
        fields = [int(word) for word in lines[0].split()[1:9]]
        fields += [0] * (8 - len(fields))
        return sum(fields[at] for at in BUSY_FIELDS), fields[STEAL_FIELD], sum(fields)

    @staticmethod
    def own_seconds() -> float:
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        used = [resource.getrusage(one) for one in who]
        return sum(one.ru_utime + one.ru_stime for one in used)

    def read(self) -> Load:
        seconds = max(time.monotonic() - self.begin, 1e-9)
        busy, steal, whole = self.ticks()
        busy_seconds = (busy - self.busy) / os.sysconf("SC_CLK_TCK")
        ours = self.own_seconds() - self.ours
        return Load(
            seconds,
            (steal - self.steal) / max(whole - self.whole, 1),
            max(0.0, busy_seconds - ours) / seconds,
            float((read(self.root / "proc/loadavg") or "0").split()[0]),
        )
