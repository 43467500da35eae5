"""The counts of bench/cache.py beside time: instructions and misses an operation, pages by massif,
where the time of putStress goes.

Hardware counters (perf stat) where the machine has them. Else callgrind's instructions and
simulated misses, of a build for x86-64-v3, because valgrind 3.19 does not know AVX-512: those
figures are called simulated; lumen_engine.perf runs and reads these tools. A row is run twice with
different numbers of operations, and the difference counts, so that neither the start of the program
nor the filling of the cache is in it. Errors: None where a tool is missing or
fails, with a line on stderr.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from lumen_engine.perf import callgrind, flame, perf_program, perf_stat, programs

from bench.runner.places import ROOT, say

BUILD = ROOT / ".build" / "callgrind"
EVENTS = ("cycles", "instructions", "LLC-loads", "LLC-load-misses", "branch-misses")
# Operations of a whole row, and the two parts of them that are run under callgrind, which is 50
# times slower. The filling of the cache is the same in both. putStress has no parts: it is held
# against next to nothing.
PARTS = {"putSingle": (0.01, 0.03), "getHit": (0.01, 0.03), "GetMiss": (0.01, 0.03)}
WHOLE = {"putSingle": 50_000_000, "getHit": 50_000_000, "GetMiss": 50_000_000}
FRESH = 12_800_000
TIMEOUT_S = 550


def said(words: list[str], timeout: float = TIMEOUT_S) -> str | None:
    """Its standard output; None, and a line on stderr, where it fails."""
    try:
        return programs.said(words, timeout_s=timeout)
    except programs.PerfError as error:
        say(f"bench: {error}")
        return None


def counters_there() -> bool:
    try:
        return perf_program.probe(programs.Interrupts()).has_counters
    except programs.PerfError as error:
        say(f"bench: {error}")
        return False


def build_plain() -> Path | None:
    """bench_chronocache and bench_cache_memory for x86-64-v3."""
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DLUMEN_BENCHES=ON"]
    configure += ["-DCMAKE_BUILD_TYPE=Release", "-DLUMEN_ARCH=x86-64-v3"]
    configure += ["-DLUMEN_WITH_OPENVINO=OFF", "-DLUMEN_WITH_ONNXRUNTIME=OFF"]
    configure += ["-DCMAKE_CXX_FLAGS=-g1 -fno-omit-frame-pointer"]
    targets = ["bench_chronocache", "bench_cache_memory"]
    if said(configure) is None:
        return None
    return (
        BUILD if said(["cmake", "--build", str(BUILD), "--target", *targets]) is not None else None
    )


def simulated(build: Path, name: str, part: float | None) -> dict[str, float] | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = [*callgrind.words(out), str(build / "bench_chronocache")]
        words += [f"--benchmark_filter=^{name}$", "--benchmark_min_time=0"]
        words += [] if part is None else [f"--part={part}"]
        if said(words) is None:
            return None
        try:
            found = callgrind.parse_totals(out.read_text())
        except programs.PerfError as error:
            say(f"bench: {name}: {error}")
            return None
    return {
        "instructions": found.instructions,
        "D1 misses": found.d1_misses,
        "LL misses": found.ll_misses,
    }


def counted_by_perf(program: str, name: str, part: float | None) -> dict[str, float] | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = ["env", "LC_ALL=C", "perf", "stat", "-x,", "-o", str(out), "-e", ",".join(EVENTS)]
        words += ["taskset", "-c", "0", program]
        words += [f"--benchmark_filter=^{name}$", "--benchmark_min_time=0"]
        words += [] if part is None else [f"--part={part}"]
        if said(words) is None:
            return None
        counts = perf_stat.parse(out.read_text())
    found = {event: count.value for event, count in counts.items() if count.value is not None}
    return found or None


def an_operation(row: str, contender: str, count: Any) -> dict[str, float] | None:
    """count(name, part) -> totals of a run; their parts of one operation."""
    suffix = f"/{contender}" if contender else ""
    if row in PARTS:
        less, more = PARTS[row]
        operations = (more - less) * WHOLE[row]
        first, second = (count(f"bm_{row}{suffix}", part) for part in (less, more))
    else:
        operations = FRESH
        first = count(f"bm_putSingle{suffix}", 0.0001)
        second = count(f"bm_{row}{suffix}", None)
    if first is None or second is None:
        return None
    return {key: round((second[key] - first[key]) / operations, 3) for key in second}


def counted(
    program: str, rows: tuple[str, ...], contenders: tuple[str, ...]
) -> dict[str, Any] | None:
    """By row and contender; "how" names the counter."""
    hardware = counters_there()
    build = None if hardware else build_plain()
    if not hardware and build is None:
        return None

    def count(name: str, part: float | None) -> dict[str, float] | None:
        if hardware:
            return counted_by_perf(program, name, part)
        assert build is not None
        return simulated(build, name, part)

    how = "hardware counters" if hardware else "simulated by callgrind, x86-64-v3 build"
    found: dict[str, Any] = {"how": how}
    for row in rows:
        found[row] = {name or "lumen": an_operation(row, name, count) for name in contenders}
    return found


def massif_of(build: Path, entries: int) -> tuple[list[float], str] | None:
    """MiB of all mapped pages at each snapshot, and the program's own figure."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = ["valgrind", "--tool=massif", "--pages-as-heap=yes", f"--massif-out-file={out}"]
        words += [str(build / "bench_cache_memory"), "--contender", "lumen"]
        text = said([*words, "--entries", str(entries)])
        if text is None:
            return None
        snapshots = re.findall(r"^mem_heap_B=(\d+)$", out.read_text(), re.M)
        return [round(int(found) / (1 << 20), 2) for found in snapshots], text


def massif(entries: int) -> dict[str, Any] | None:
    """Mapped pages of the flavour of the memory rows, from the program with one entry on. Address
    space that was never touched counts here, and not in VmHWM."""
    build = build_plain()
    found = None if build is None else (massif_of(build, 1), massif_of(build, entries))
    if found is None or found[0] is None or found[1] is None:
        return None
    empty = max(found[0][0])
    curve = [round(mib - empty, 2) for mib in found[1][0]]
    return {"entries": entries, "curve_mib": curve, "grown_mib": max(curve)}


def flame_graph(name: str, title: str) -> str | None:
    """An SVG of where a row of bench_chronocache spends its time, by the software clock."""
    build = build_plain()
    if build is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        record = ["perf", "record", "--quiet", "-e", "cpu-clock", "-F", "2000", "-g"]
        record += ["-o", str(data), "taskset", "-c", "0", str(build / "bench_chronocache")]
        record += [f"--benchmark_filter=^{name}$", "--benchmark_min_time=0"]
        if said(record) is None:
            return None
        try:
            return flame.draw(flame.script(data), title, flame.inferno())
        except programs.PerfError as error:
            say(f"bench: {error}")
            return None
