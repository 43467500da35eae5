#!/usr/bin/env python3
"""The question: the cost of put and get in ChronoCache, its memory, and how do threads share it?

  five      the five rows of bench_chronocache, one thread on CPU 0, raw; the limit is the floor,
            the same loop without a cache. Nothing is reserved
  kinds     the same with 16-character strings as keys, and with 64-byte values
  memory    growth of VmHWM of a fresh process that puts N entries, and its curve
  threads   reads, with and without a writer, fresh puts, puts and gets, on CPU 0 and 1; the limit
            of reads is the flat map without any lock
  counts    instructions and misses an operation (hardware counters or callgrind), mapped pages by
            massif, a flame graph of putStress; no times
  ticks     how late the background tick is under load
  story     every step from the naive cache to the library

bench/cache_report.py writes docs/reports/chrono_cache.md of all results that are kept.

Every contender has deadlines and answers a miss once they have passed. Those with a cached tick,
ours too, advance it in the loop, every 2,000 operations (threads: thread 0, every 1,000). Every row
names the parts of ours. Rivals: maps of std, boost, absl, oneTBB; locks around
boost's; Rust's quick_cache, moka, papaya, segcache, foyer; Java's Caffeine. The slow ones take part
in every third round.

  bench/cache.py [--quick] [--json] [--rounds N] [--only GROUP,...] [--rows REGEX]
                                          stdout is one JSON object, the table is on stderr
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path += [str(BENCH / folder) for folder in ("queue", "rivals", "cache")]
import build_caffeine  # noqa: E402
import counted  # noqa: E402
from build_cache import build_rust  # noqa: E402
from interleave import ROOT, program  # noqa: E402
from rounds import Contender, Row, google_ns, make_row, measure, run_one, show  # noqa: E402

FIVE = ("putSingle", "putStress", "getHit", "getRandomKeys", "GetMiss")
# Those of bench_chronocache by the end of their names.
PLAIN_RIVALS = ("std_map", "boost_flat", "absl_flat", "naive")
LOCKED_RIVALS = ("mutex_flat", "shared_mutex_flat", "tbb")
# Flavour, policy, clock, and the thread that advances it: parts of the rows' names.
ONE_THREAD = "OneThread, TtlOnly, tick by the caller"
FLAVOURS = {
    "": ONE_THREAD,
    "default": "Concurrent, TtlOnly, exact clock",
    "concurrent_tick": "Concurrent, TtlOnly, tick by the caller",
    "background_tick": "Concurrent, TtlOnly, tick by its thread",
}
# A call of these takes so long that fewer make a row; they take part in every third round.
SLOW = ("moka", "papaya", "segcache", "foyer", "caffeine")
EXTERNAL_OPS = {"putStress": 12_800_000, "getRandomKeys": 100_000}
MEMORY_RIVALS = ("boost_flat", "absl_flat", "std_map", "naive", "tbb")
POLICIES = {"lumen Lru": "Lru", "lumen Lfu": "Lfu", "lumen S3Fifo": "S3Fifo"}
MIB = 1 << 20


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.quick: bool = options.quick
        self.rounds: int = options.rounds or (2 if options.quick else 7)
        self.report: list[dict[str, Any]] = []
        self.more: dict[str, Any] = {}  # beside the rows: the curve, the story
        self.chrono = str(program("bench_chronocache"))
        self.threads = str(program("bench_cache_threads"))
        self.memory = str(program("bench_cache_memory"))
        words = [self.chrono, "--benchmark_list_tests"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        self.listed = set(listed.split())
        self.external = {} if self.quick else self.build_external()

    @staticmethod
    def build_external() -> dict[str, list[str]]:
        commands = build_rust(ROOT / ".build")
        java = build_caffeine.command(ROOT / ".build")
        if java is not None:
            commands["caffeine"] = [*java, "Timing"]
        return commands

    def keep(self, rows: list[Row], contenders: list[Contender], probed: bool = False) -> None:
        measure(contenders, self.rounds, probed)
        by_name = {contender.name: contender for contender in contenders}
        for row in rows:
            for kind in ("near", "far") if probed else (None,):
                made = make_row(row, kind, by_name)
                if made is None:
                    continue
                self.report.append(made)
                if not self.options.json:
                    show(made)

    def wants(self, name: str) -> bool:
        return re.search(self.options.rows, name) is not None

    def google(self, row: str, contender: str, kind: str = "") -> Contender | None:
        """None: the program has no such row, because a package or the library is missing."""
        name = f"bm_{row}" + (f"/{contender}" if contender else "") + (f"/{kind}" if kind else "")
        if name not in self.listed:
            return None
        words = ["taskset", "-c", "0", self.chrono, f"--benchmark_filter=^{name}$"]
        words += ["--benchmark_min_time=0", "--benchmark_format=json"]
        if self.quick:
            words.append("--part=0.1")
        shown = f"lumen {contender}".strip() if contender in FLAVOURS else contender
        return Contender(shown, words, google_ns)

    def one_thread_row(self, row: str, names: Sequence[str], kind: str = "") -> list[Contender]:
        found = [self.google(row, name, kind) for name in names]
        contenders = [contender for contender in found if contender is not None]
        if kind == "" and row in FIVE:
            for name, command in self.external.items():
                count = str(EXTERNAL_OPS.get(row, 5_000_000))
                every = 3 if name in SLOW else 1
                words = [*command, "--row", row, "--count", count]
                contenders.append(Contender(name, words, every=every))
        return contenders

    def five(self) -> None:
        packaged = (*PLAIN_RIVALS, *LOCKED_RIVALS)
        safe = ("naive", *LOCKED_RIVALS, *self.external)
        for row, kind in (*((row, "") for row in FIVE), ("getHit", "random10M")):
            if not self.wants(row):
                continue
            flavours = ("", "default") if self.quick else tuple(FLAVOURS)
            contenders = self.one_thread_row(row, ("floor", *flavours, *packaged), kind)
            title = f"{row} {kind}".strip()
            rows = []
            for flavour in flavours:
                # A contender without a lock competes with others without one.
                rivals = (*packaged, *self.external) if not flavour else safe
                name, ours = f"{title}; {FLAVOURS[flavour]}", f"lumen {flavour}".strip()
                rows.append(Row(name, "ns", "ns", ours, limit="floor", rivals=rivals))
            self.keep(rows, contenders)
        if self.wants("longest put"):
            row = "putStressLongest"
            contenders = self.one_thread_row(row, ("floor", "", "default", *packaged))
            rows = [
                Row(f"longest put of putStress; {FLAVOURS[flavour]}", "longest_us", "µs",
                    f"lumen {flavour}".strip(), limit="floor", rivals=packaged)
                for flavour in ("", "default")
            ]  # fmt: skip
            self.keep(rows, contenders)

    def kinds(self) -> None:
        for kind in ("string16", "value64"):
            for row in FIVE:
                name = f"{row} {kind}; {ONE_THREAD}"
                if not self.wants(name):
                    continue
                contenders = self.one_thread_row(row, ("floor", "", *PLAIN_RIVALS), kind)
                made = Row(name, "ns", "ns", "lumen", limit="floor", rivals=PLAIN_RIVALS)
                self.keep([made], contenders)

    def peak(self, name: str, entries: int) -> Contender:
        words = [self.memory, "--contender", name, "--entries", str(entries)]

        def pick(found: Any) -> dict[str, float]:
            if found["found"] != entries:
                raise ValueError(f"{entries - found['found']} entries were not found again")
            return {
                "MiB": found["peak_bytes"] / MIB,
                "bytes": found["peak_bytes"] / entries,
                "reserved": found["reserved_bytes"] / MIB,
                "allocations": found["allocations"],
            }

        return Contender(name, words, pick)

    def memory_rows(self) -> None:
        """Memory is no matter of speed: two rounds."""
        self.rounds, rounds = 2, self.rounds
        for millions in (10,) if self.quick else (1, 10, 50):
            title = f"memory of {millions} M entries"
            contenders = [
                self.peak(name, millions * 1_000_000) for name in ("lumen", *MEMORY_RIVALS)
            ]
            self.keep(
                [Row(f"{title}; {ONE_THREAD}", "MiB", "MiB", "lumen", rivals=MEMORY_RIVALS)],
                contenders,
            )
        if not self.quick:
            # Those that keep records have a bound of twice the entries, which is never reached.
            flavours = {
                "lumen concurrent": FLAVOURS["concurrent_tick"],
                **{name: f"OneThread, {policy}, tick by the caller"
                   for name, policy in POLICIES.items()},
            }  # fmt: skip
            contenders = [self.peak(name, 10_000_000) for name in flavours]
            rows = [
                Row(f"memory of 10 M entries; {what}", "MiB", "MiB", name)
                for name, what in flavours.items()
            ]
            self.keep(rows, contenders)
            self.curve()
        self.rounds = rounds

    def curve(self) -> None:
        """Peak bytes at every 0.2 M entries up to 12.8 M, a process each; the worst an entry."""
        counts = [n * 200_000 for n in range(5, 65)]
        curve: dict[str, list[list[float]]] = {}
        for name in ("lumen", "boost_flat", "naive"):
            for entries in counts if name == "lumen" else counts[::5]:
                sample = run_one(self.peak(name, entries))
                if sample is None:
                    break
                point = [entries, round(sample["MiB"], 2), round(sample["reserved"], 2)]
                curve.setdefault(name, []).append(point)
        self.more["curve"] = curve
        if "lumen" not in curve:
            return
        an_entry = {entries: mib * MIB / entries for entries, mib, _ in curve["lumen"]}
        worst, at_10_m = max(an_entry.values()), an_entry[10_000_000]
        name = f"memory, worst bytes an entry of 1 to 12.8 M; {ONE_THREAD}"
        # One process for each size: its own rounds are the points of the curve.
        self.report.append(
            {"bench": "cache", "row": name, "metric": "bytes", "unit": "bytes",
             "ours": round(worst, 3), "rival": None, "rival_name": None, "ratio": None,
             "spread": 0.0, "limit": round(at_10_m, 3),
             "rounds": {"lumen": [round(value, 3) for value in an_entry.values()]}}
        )  # fmt: skip

    def thread_contenders(self, arguments: list[str]) -> list[Contender]:
        words = [self.threads, "--list"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = []
        for line in listed.splitlines():
            _, name = line.split(maxsplit=1)
            if not re.match(r"v\d", name):
                found.append(Contender(name, [self.threads, "--contender", name, *arguments]))
        for name, command in self.external.items():
            every = 3 if name in SLOW else 1
            found.append(Contender(name, [*command, *arguments], every=every))
        return found

    def thread_row(
        self, title: str, arguments: list[str], threads: int, base: list[str] | None, limit: str
    ) -> None:
        """`base` are the arguments of our own limit: without the writer, with one thread."""
        if not self.wants(title):
            return
        ms = ["--ms", "50" if self.quick else "200"]
        contenders = self.thread_contenders([*arguments, *ms])
        # Without a lock there is nothing to say where anyone writes.
        is_read = base is None and limit == "unlocked flat map"
        contenders = [c for c in contenders if is_read or c.name != "unlocked flat map"]
        rows = []
        names = {contender.name for contender in contenders}
        rivals = [n for n in names if not n.startswith(("lumen", "unlocked"))]
        flavours = {
            "lumen": FLAVOURS["concurrent_tick"],
            "lumen default": FLAVOURS["default"],
            "lumen background tick": FLAVOURS["background_tick"],
        }
        for ours, flavour in flavours.items():
            own_limit = limit
            if base is not None:
                own_limit = f"{ours}, {limit}"
                words = [self.threads, "--contender", ours, *base, *ms]
                if ours in names:
                    contenders.append(Contender(own_limit, words))
            rows.append(
                Row(f"{title}; {flavour}", "mops", "M/s", ours, True, own_limit, sorted(rivals))
            )
        self.keep(rows, contenders, probed=threads > 1 or "--writer" in arguments)

    def thread_rows(self) -> None:
        sizes = ((1_000, "1,000"), (1_000_000, "1 M"))
        for keys, shown in sizes[: 1 if self.quick else 2]:
            for threads in (1, 2):
                reads = ["--row", "reads", "--keys", str(keys), "--threads", str(threads)]
                title = f"reads of {shown} keys, {threads} thread{'s' * (threads - 1)}"
                self.thread_row(title, reads, threads, None, "unlocked flat map")
                writers = (("100000", "100,000 puts/s"), ("max", "all it can"))
                for writer, what in writers[:1] if self.quick else writers:
                    words = [*reads, "--writer", writer]
                    self.thread_row(f"{title}, a writer, {what}", words, 2, reads, "no writer")
        for row, shown in (("fresh", "fresh puts"), ("mixed", "half puts, half gets of 1 M keys")):
            count = "1000000" if self.quick else "4000000"
            words = ["--row", row, "--keys", "1000000", "--count", count, "--threads"]
            self.thread_row(f"{shown}, 1 thread", [*words, "1"], 1, None, "")
            self.thread_row(f"{shown}, 2 threads", [*words, "2"], 2, [*words, "1"], "1 thread")

    def counts(self) -> None:
        names = ("", "concurrent_tick", "boost_flat", "std_map")
        self.more["counted"] = counted.counted(self.chrono, (*counted.PARTS, "putStress"), names)
        self.more["massif"] = counted.massif(10_000_000)
        if self.options.flame:
            drawn = counted.flame_graph("bm_putStress", f"putStress; {ONE_THREAD}")
            if drawn is not None:
                Path(self.options.flame).write_text(drawn)

    def ticks(self) -> None:
        """The time that a thread of the cache advances, looked at while others want the CPUs."""
        program_of_it = str(program("bench_cache_tick"))
        for busy, what in ((0, "nothing else"), (2, "2 busy threads"), (8, "8 busy threads")):
            name = f"BackgroundTick beside {what}"
            contenders = [Contender("lumen", [program_of_it, "--busy", str(busy)])]
            metrics = ("p50", "p99", "max")
            rows = [Row(f"{name}, late by, {metric}", metric, "µs", "lumen") for metric in metrics]
            self.keep(rows, contenders)

    def story(self) -> None:
        """Five rows, memory and shared reads of every step; medians of the rounds."""
        steps = [
            name.partition("/")[2]
            for name in sorted(self.listed)
            if re.fullmatch(r"bm_putStress/v\d.*", name)
        ]
        story: dict[str, dict[str, list[float]]] = {step: {} for step in steps}
        for row in (*FIVE, "putStressLongest"):
            contenders = [c for step in steps if (c := self.google(row, step)) is not None]
            measure(contenders, min(self.rounds, 3), probed=False)
            metric = "longest_us" if row == "putStressLongest" else "ns"
            for contender in contenders:
                story[contender.name][row] = contender.values(metric, None)
        contenders = [self.peak(step, 10_000_000) for step in steps]
        measure(contenders, 1, probed=False)
        for contender in contenders:
            story[contender.name]["MiB"] = contender.values("MiB", None)
            story[contender.name]["allocations"] = contender.values("allocations", None)
        for threads in (1, 2):
            words = ["--row", "reads", "--keys", "1000", "--threads", str(threads), "--ms", "200"]
            contenders = [
                Contender(step, [self.threads, "--contender", step, *words])
                for step in steps
                if step.startswith("v3")
            ]
            measure(contenders, min(self.rounds, 3), probed=False)
            for contender in contenders:
                story[contender.name][f"reads{threads}"] = contender.values("mops", None)
        self.more["story"] = story


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="about a minute, packaged C++ rivals")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--only", default="", help="one or some of the groups")
    parser.add_argument("--flame", default="", help="counts: an SVG of where putStress spends time")
    parser.add_argument("--rows", default="", help="only rows whose name matches")
    options = parser.parse_args()
    bench = Bench(options)
    groups: dict[str, Callable[[], None]] = {
        "five": bench.five,
        "kinds": bench.kinds,
        "memory": bench.memory_rows,
        "threads": bench.thread_rows,
        "counts": bench.counts,
        "ticks": bench.ticks,
        "story": bench.story,
    }
    wanted = options.only.split(",") if options.only else list(groups)
    if options.quick and not options.only:
        wanted = ["five", "memory", "threads"]
    for name in wanted:
        if name not in groups:
            parser.error(f"--only {name}: wanted some of {', '.join(groups)}")
        groups[name]()
    print(json.dumps({"rows": bench.report, **bench.more}, indent=1))
    return 0


if __name__ == "__main__":
    # One CPU only would give nothing but the rows of one thread.
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two CPUs are needed", file=sys.stderr)
        sys.exit(2)
    sys.exit(main())
