"""Instructions and simulated cache misses by valgrind's callgrind: totals of its output, a server
under it, and the build that it can run.

Counts are those of a simulated CPU with caches of a fixed size, so they are the same on each
machine; times say nothing. Used by bench/cache too. Threads: the main one. Errors: PerfError.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from lumen_engine.perf.measured_server import serving
from lumen_engine.perf.one_request import Request
from lumen_engine.perf.options import source_root
from lumen_engine.perf.programs import Interrupts, PerfError, said

# Caches of a fixed size: the machine's own would be simulated otherwise, which are anything from 2
# to 500 MiB, and figures of two machines could not be compared.
CACHES = {"I1": "32768,8,64", "D1": "32768,8,64", "LL": "33554432,16,64"}
# It counts a `rep movsb` as an instruction for each byte: memcpy is to do without.
NO_REP_MOVSB = "GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000"
# 50 times slower: a large model is compiled for minutes.
START_TIMEOUT_S = 900.0
BUILD_TIMEOUT_S = 3600.0
CALLS = 2
# Each request has 144 MiB of address space reserved, of which valgrind 3.19 has little.
FEW_REQUESTS = ("--max-active-requests", "8", "--queue-capacity", "4")
SUMMARY = re.compile(r"^(?:summary|totals): ([\d ]+)$", re.MULTILINE)
EVENTS = re.compile(r"^events: ([\w ]+)$", re.MULTILINE)
DUMP_TIMEOUT_S = 120.0
POLL_S = 0.1


@dataclass(frozen=True)
class Totals:
    instructions: float
    data_accesses: float
    d1_misses: float
    ll_misses: float

    def by(self, requests: int) -> Totals:
        return Totals(
            self.instructions / requests,
            self.data_accesses / requests,
            self.d1_misses / requests,
            self.ll_misses / requests,
        )


def parse_totals(text: str) -> Totals:
    """Of a callgrind.out file that was made with --cache-sim=yes."""
    events, summary = EVENTS.search(text), SUMMARY.search(text)
    if events is None or summary is None:
        raise PerfError(
            "callgrind's output has no events or no summary: got "
            f"{text[:80]!r}, wanted a callgrind.out file; did the program end early?"
        )
    names = events[1].split()
    # Zeros at the end are left out.
    numbers = [float(number) for number in summary[1].split()]
    found = dict(zip(names, numbers + [0.0] * (len(names) - len(numbers)), strict=True))
    missing = {"Ir", "Dr", "Dw", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw"} - found.keys()
    if missing:
        raise PerfError(f"callgrind's output lacks {sorted(missing)}: run it with --cache-sim=yes")
    return Totals(
        instructions=found["Ir"],
        data_accesses=found["Dr"] + found["Dw"],
        d1_misses=found["D1mr"] + found["D1mw"],
        ll_misses=found["ILmr"] + found["DLmr"] + found["DLmw"],
    )


def words(out: Path, *options: str) -> list[str]:
    """The words in front of a program whose instructions are to be counted."""
    tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", f"--callgrind-out-file={out}"]
    return ["env", NO_REP_MOVSB, *tool, *options]


def cache_options() -> list[str]:
    return [f"--{name}={size}" for name, size in CACHES.items()]


def describe_caches() -> str:
    sizes = {name: int(size.split(",")[0]) >> 10 for name, size in CACHES.items()}
    return f"L1 {sizes['I1']} + {sizes['D1']} KiB, LL {sizes['LL'] >> 10} MiB"


def build_server(interrupts: Interrupts) -> Path:
    """`lumen` for x86-64-v3: valgrind 3.19 does not know AVX-512, which -march=native may use."""
    root = source_root()
    if root is None:
        raise PerfError("callgrind needs a build for x86-64-v3, and this is no checkout of Lumen")
    folder = root / ".build" / "v3"
    if not os.access(root, os.W_OK):
        if (folder / "lumen").is_file():
            return folder / "lumen"
        raise PerfError(f"{root} is not ours to build in: its owner has to run this once")
    missing = [name for name in ("cmake", "ninja") if shutil.which(name) is None]
    if missing:
        raise PerfError(f"no program {' and '.join(missing)}: run ./dev setup")
    jobs = str(len(os.sched_getaffinity(0)))
    said(["cmake", "--preset", "v3", "--log-level=WARNING"], interrupts, BUILD_TIMEOUT_S, cwd=root)
    said(["ninja", "-C", str(folder), "-j", jobs, "lumen"], interrupts, BUILD_TIMEOUT_S, cwd=root)
    return folder / "lumen"


def check_tools() -> None:
    missing = [n for n in ("valgrind", "callgrind_control") if shutil.which(n) is None]
    if missing:
        raise PerfError(f"no program {' and '.join(missing)}: apt-get install valgrind")


def count_requests(
    executable: Path,
    repository: Path,
    model: str,
    backend: str | None,
    interrupts: Interrupts,
    folder: Path,
) -> Totals:
    """A request's share of CALLS, one client, behind one that fills the simulated caches."""
    out = folder / "callgrind.out"
    under = words(out, "--instr-atstart=no", *cache_options())
    # Under valgrind a thread that waits in an io_uring keeps all others from running.
    arguments = ["--spin", "off", "--pin-threads", "off", "--loop", "epoll", *FEW_REQUESTS]
    arguments += ["--backend", backend] if backend is not None else []
    with serving(
        repository,
        arguments,
        interrupts,
        under=under,
        executable=executable,
        start_timeout_s=START_TIMEOUT_S,
    ) as server:
        request = Request(server.host, server.port, model)

        def control(*arguments: str) -> None:
            said(["callgrind_control", *arguments, str(server.pid)], interrupts, DUMP_TIMEOUT_S)

        control("-i", "on")
        request.send()
        control("-z")
        for _ in range(CALLS):
            request.send()
        control("-d")
        return parse_totals(dumped(out)).by(CALLS)


def dumped(out: Path) -> str:
    """The first dump is OUT.1; it is there in full once the lines of its totals are."""
    file = out.with_name(out.name + ".1")
    end = time.monotonic() + DUMP_TIMEOUT_S
    while time.monotonic() < end:
        text = file.read_text() if file.exists() else ""
        if "\ntotals:" in text:
            return text
        time.sleep(POLL_S)
    raise PerfError(f"callgrind wrote no {file.name} within {DUMP_TIMEOUT_S:g} s")
