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

Every contender has deadlines and answers a miss once they have passed. Those with a cached tick,
ours too, advance it in the loop, every 2,000 operations (threads: thread 0, every 1,000). Every row
names the parts of ours. Rivals: maps of std, boost, absl, oneTBB; locks around
boost's; Rust's quick_cache, moka, papaya, segcache, foyer; Java's Caffeine. The slow ones take part
in every third round. A quick run has the packaged C++ rivals only.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import cache_counts, cache_tables
from bench.rivals.build import build_caffeine, build_rust_caches
from bench.runner import ROOT, Bench, Goal, Option, Part, Run, make_row, tables
from bench.runner.places import program
from bench.runner.turns import KINDS, Contender, measure

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
MEMORY_ROUNDS, STORY_ROUNDS = 2, 3  # memory is no matter of speed
FLAME = ROOT / "docs" / "reports" / "put_stress.svg"


def google_ns(document: Any) -> dict[str, float]:
    (one,) = document["benchmarks"]
    return {"ns": one["real_time"], "longest_us": one.get("longest_us", 0.0)}


class Rows:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.chrono = program("bench_chronocache")
        self.threads = program("bench_cache_threads")
        words = [self.chrono, "--benchmark_list_tests"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        self.listed = set(listed.split())
        self.external = run.pick(self.build_external, dict)()

    @staticmethod
    def build_external() -> dict[str, list[str]]:
        commands = build_rust_caches(ROOT / ".build")
        java = build_caffeine(ROOT / ".build")
        return commands | ({"caffeine": [*java, "Timing"]} if java is not None else {})

    def every(self, name: str) -> int:
        return 3 if name in SLOW else 1

    def add(
        self, name: str, metric: str, unit: str, ours: str, contenders: Sequence[Contender],
        rivals: Sequence[str] = (), limit: str | None = None,
    ) -> None:  # fmt: skip
        """A row of these measurements for each kind of cores, if ours has two rounds there."""
        by_name = {contender.name: contender for contender in contenders}
        wanted = dict.fromkeys((ours, *rivals, *([limit] if limit else [])))
        for kind in (*KINDS, None):
            found = {n: by_name[n].values(metric, kind) for n in wanted if n in by_name}
            rounds = {n: values for n, values in found.items() if values}
            if len(rounds.get(ours, [])) < 2 or (limit and limit not in rounds):
                continue
            row = make_row(
                name,
                metric,
                unit,
                rounds,
                more_is_better=unit.endswith("/s"),
                rivals=rivals,
                limit=limit,
                dropped=sum(contender.dropped for contender in contenders),
                **({"cpus": kind} if kind is not None else {}),
            )
            self.run.add(row)

    def google(self, row: str, contender: str, kind: str = "") -> Contender | None:
        """None: the program has no such row, because a package or the library is missing."""
        name = f"bm_{row}" + (f"/{contender}" if contender else "") + (f"/{kind}" if kind else "")
        if name not in self.listed:
            return None
        words = ["taskset", "-c", "0", self.chrono, f"--benchmark_filter=^{name}$"]
        words += ["--benchmark_min_time=0", "--benchmark_format=json"]
        words += ["--part=0.1"] if self.run.is_quick else []
        shown = f"lumen {contender}".strip() if contender in FLAVOURS else contender
        return Contender(shown, words, google_ns)

    def one_thread(self, row: str, names: Sequence[str], kind: str = "") -> list[Contender]:
        found = [self.google(row, name, kind) for name in names]
        contenders = [contender for contender in found if contender is not None]
        if kind == "" and row in FIVE:
            count = str(EXTERNAL_OPS.get(row, 5_000_000))
            for name, command in self.external.items():
                words = [*command, "--row", row, "--count", count]
                contenders.append(Contender(name, words, every=self.every(name)))
        return contenders

    # --- the groups -------------------------------------------------------------------------------

    def five(self) -> None:
        packaged = (*PLAIN_RIVALS, *LOCKED_RIVALS)
        safe = ("naive", *LOCKED_RIVALS, *self.external)
        for row, kind in (*((row, "") for row in FIVE), ("getHit", "random10M")):
            if not self.run.wants(row):
                continue
            flavours = self.run.pick(tuple(FLAVOURS), ("", "default"))
            contenders = self.one_thread(row, ("floor", *flavours, *packaged), kind)
            measure(contenders, self.run.rounds, is_probed=False)
            for flavour in flavours:
                # A contender without a lock competes with others without one.
                rivals = (*packaged, *self.external) if not flavour else safe
                name, ours = f"{row} {kind}".strip(), f"lumen {flavour}".strip()
                name = f"{name}; {FLAVOURS[flavour]}"
                self.add(name, "ns", "ns", ours, contenders, rivals, "floor")
        if self.run.wants("longest put"):
            self.longest_put(packaged)

    def longest_put(self, rivals: Sequence[str]) -> None:
        contenders = self.one_thread("putStressLongest", ("floor", "", "default", *rivals))
        measure(contenders, self.run.rounds, is_probed=False)
        for flavour in ("", "default"):
            name, ours = f"longest put of putStress; {FLAVOURS[flavour]}", f"lumen {flavour}"
            self.add(name, "longest_us", "µs", ours.strip(), contenders, rivals, "floor")

    def kinds(self) -> None:
        for kind in ("string16", "value64"):
            for row in FIVE:
                for flavour, rivals in (("", PLAIN_RIVALS), ("default", LOCKED_RIVALS)):
                    name = f"{row} {kind}; {FLAVOURS[flavour]}"
                    if self.run.wants(name):
                        contenders = self.one_thread(row, ("floor", flavour, *rivals), kind)
                        measure(contenders, self.run.rounds, is_probed=False)
                        ours = f"lumen {flavour}".strip()
                        self.add(name, "ns", "ns", ours, contenders, rivals, "floor")

    def peak(self, name: str, entries: int) -> Contender:
        words = [program("bench_cache_memory"), "--contender", name, "--entries", str(entries)]

        def pick(found: Any) -> dict[str, float]:
            if found["found"] != entries:
                raise ValueError(f"{entries - found['found']} entries were not found again")
            return {
                "MiB": found["peak_bytes"] / MIB,
                "reserved": found["reserved_bytes"] / MIB,
                "allocations": found["allocations"],
            }

        return Contender(name, words, pick)

    def memory(self) -> None:
        for millions in self.run.pick((1, 10, 50), (10,)):
            entries = millions * 1_000_000
            flavours = {"lumen": ONE_THREAD, "lumen default": FLAVOURS["default"]}
            contenders = [self.peak(name, entries) for name in (*flavours, *MEMORY_RIVALS)]
            measure(contenders, MEMORY_ROUNDS, is_probed=False)
            for ours, flavour in flavours.items():
                name = f"memory of {millions} M entries; {flavour}"
                self.add(name, "MiB", "MiB", ours, contenders, MEMORY_RIVALS)
        if self.run.is_quick:
            return
        # Those that keep records have a bound of twice the entries, which is never reached.
        flavours = {"lumen concurrent": FLAVOURS["concurrent_tick"]} | {
            name: f"OneThread, {policy}, tick by the caller" for name, policy in POLICIES.items()
        }
        contenders = [self.peak(name, 10_000_000) for name in flavours]
        measure(contenders, MEMORY_ROUNDS, is_probed=False)
        for ours, what in flavours.items():
            self.add(f"memory of 10 M entries; {what}", "MiB", "MiB", ours, contenders)
        self.curve()

    def curve(self) -> None:
        """Peak bytes at every 0.2 M entries up to 12.8 M, a process each; the worst an entry."""
        counts = [n * 200_000 for n in range(5, 65)]
        curve: dict[str, list[list[float]]] = {}
        for name in ("lumen", "boost_flat", "naive"):
            for entries in counts if name == "lumen" else counts[::5]:
                sample = self.peak(name, entries).sample()
                if sample is None:
                    break
                point = [entries, round(sample["MiB"], 2), round(sample["reserved"], 2)]
                curve.setdefault(name, []).append(point)
        self.run.more["curve"] = curve
        an_entry = {entries: mib * MIB / entries for entries, mib, _ in curve.get("lumen", [])}
        if not an_entry:
            return
        # One process for each size: its own rounds are the points of the curve.
        name = f"memory, worst bytes an entry of 1 to 12.8 M; {ONE_THREAD}"
        rounds = {"lumen": list(an_entry.values())}
        row = make_row(name, "bytes", "bytes", rounds, limit=an_entry[10_000_000], spread=0.0)
        self.run.add(row | {"ours": round(max(an_entry.values()), 3)})

    def thread_contenders(self, words: list[str]) -> list[Contender]:
        listing = [self.threads, "--list"]
        listed = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        names = [line.split(maxsplit=1)[1] for line in listed.splitlines()]
        found = [
            Contender(name, [self.threads, "--contender", name, *words])
            for name in names
            if not re.match(r"v\d", name)
        ]
        return found + [
            Contender(name, [*command, *words], every=self.every(name))
            for name, command in self.external.items()
        ]

    def thread_row(
        self, title: str, words: list[str], threads: int, base: list[str] | None, limit: str
    ) -> None:
        """`base` are the arguments of our own limit: without the writer, with one thread."""
        if not self.run.wants(title):
            return
        ms = ["--ms", self.run.pick("200", "50")]
        contenders = self.thread_contenders([*words, *ms])
        # Without a lock there is nothing to say where anyone writes.
        is_read = base is None and limit == "unlocked flat map"
        contenders = [c for c in contenders if is_read or c.name != "unlocked flat map"]
        names = sorted(contender.name for contender in contenders)
        flavours = {
            "lumen": FLAVOURS["concurrent_tick"],
            "lumen default": FLAVOURS["default"],
            "lumen background tick": FLAVOURS["background_tick"],
        }
        limits = dict.fromkeys(flavours, limit)
        for ours in flavours if base is not None else ():
            limits[ours] = f"{ours}, {limit}"
            if ours in names:
                own = [self.threads, "--contender", ours, *(base or []), *ms]
                contenders.append(Contender(limits[ours], own))
        measure(contenders, self.run.rounds, is_probed=threads > 1 or "--writer" in words)
        rivals = [n for n in names if not n.startswith(("lumen", "unlocked"))]
        for ours, flavour in flavours.items():
            name = f"{title}; {flavour}"
            self.add(name, "mops", "M/s", ours, contenders, rivals, limits[ours] or None)

    def thread_rows(self) -> None:
        sizes = ((1_000, "1,000"), (1_000_000, "1 M"))
        for keys, shown in self.run.pick(sizes, sizes[:1]):
            for threads in (1, 2):
                reads = ["--row", "reads", "--keys", str(keys), "--threads", str(threads)]
                title = f"reads of {shown} keys, {threads} thread{'s' * (threads - 1)}"
                self.thread_row(title, reads, threads, None, "unlocked flat map")
                writers = (("100000", "100,000 puts/s"), ("max", "all it can"))
                for writer, what in self.run.pick(writers, writers[:1]):
                    words = [*reads, "--writer", writer]
                    self.thread_row(f"{title}, a writer, {what}", words, 2, reads, "no writer")
        for row, shown in (("fresh", "fresh puts"), ("mixed", "half puts, half gets of 1 M keys")):
            count = self.run.pick("4000000", "1000000")
            words = ["--row", row, "--keys", "1000000", "--count", count, "--threads"]
            self.thread_row(f"{shown}, 1 thread", [*words, "1"], 1, None, "")
            self.thread_row(f"{shown}, 2 threads", [*words, "2"], 2, [*words, "1"], "1 thread")

    def counts(self) -> None:
        names = ("", "concurrent_tick", "boost_flat", "std_map")
        rows = (*cache_counts.PARTS, "putStress")
        self.run.more["counted"] = cache_counts.counted(self.chrono, rows, names)
        self.run.more["massif"] = cache_counts.massif(10_000_000)
        if self.run.options.flame:
            drawn = cache_counts.flame_graph("bm_putStress", f"putStress; {ONE_THREAD}")
            if drawn is not None:
                Path(self.run.options.flame).write_text(drawn)

    def ticks(self) -> None:
        """The time that a thread of the cache advances, looked at while others want the CPUs."""
        for busy, what in ((0, "nothing else"), (2, "2 busy threads"), (8, "8 busy threads")):
            ours = Contender("lumen", [program("bench_cache_tick"), "--busy", str(busy)])
            measure([ours], self.run.rounds, is_probed=False)
            for metric in ("p50", "p99", "max"):
                name = f"BackgroundTick beside {what}, late by, {metric}"
                self.add(name, metric, "µs", "lumen", [ours])

    def story(self) -> None:
        """Five rows, memory and shared reads of every step; medians of the rounds."""
        found = [re.fullmatch(r"bm_putStress/(v\d.*)", name) for name in sorted(self.listed)]
        steps = [match[1] for match in found if match is not None]
        story: dict[str, dict[str, list[float]]] = {step: {} for step in steps}

        def add(contenders: list[Contender], rounds: int, columns: dict[str, str]) -> None:
            measure(contenders, rounds, is_probed=False)
            for contender in contenders:
                for column, metric in columns.items():
                    story[contender.name][column] = contender.values(metric, None)

        rounds = min(self.run.rounds, STORY_ROUNDS)
        for row in (*FIVE, "putStressLongest"):
            contenders = [c for step in steps if (c := self.google(row, step)) is not None]
            metric = "longest_us" if row == "putStressLongest" else "ns"
            add(contenders, rounds, {row: metric})
        peaks = [self.peak(step, 10_000_000) for step in steps]
        add(peaks, 1, {"MiB": "MiB", "allocations": "allocations"})
        for threads in (1, 2):
            words = ["--row", "reads", "--keys", "1000", "--threads", str(threads), "--ms", "200"]
            readers = [
                Contender(step, [self.threads, "--contender", step, *words])
                for step in steps
                if step.startswith("v3")
            ]
            add(readers, rounds, {f"reads{threads}": "mops"})
        self.run.more["story"] = story


GROUPS = {
    "five": Rows.five,
    "kinds": Rows.kinds,
    "memory": Rows.memory,
    "threads": Rows.thread_rows,
    "ticks": Rows.ticks,
    "story": Rows.story,
    "counts": Rows.counts,
}


def measure_all(run: Run) -> None:
    rows = Rows(run)
    for name in run.groups:
        GROUPS[name](rows)


def part(group: str, title: str, minutes: float, *words: str) -> Part:
    """All groups take most of an hour, and a report goes on between two."""
    return Part(f"cache_{group}", f"ChronoCache: {title}", minutes, ("--only", group, *words))


TICK_BY_CALLER = "Concurrent, TtlOnly, tick by the caller"
# Raw figures are held against the best rival, net ones are above the floor, the limit of these
# rows. Rows with a kind of cores are in tables of their own, so that no table has all.
GOALS = (
    Goal("^putSingle;", "ratio_at_least", 0.833, "1.2 times the best rival of its kind"),
    Goal("^putSingle; OneThread", "at_most", 1.0, "1 ns"),
    Goal("^putStress; OneThread", "ratio_at_least", 1.667, "0.6 times the best rival's time"),
    Goal("^putStress; OneThread", "at_most", 20, "20 ns"),
    Goal("^putStress; Concurrent", "ratio_at_least", 1.429, "0.7 times the best rival's time"),
    Goal("^longest put of putStress; OneThread", "at_most", 500, "0.5 ms"),
    Goal(
        "^(getHit|getRandomKeys); OneThread",
        "ratio_at_least",
        0.952,
        "1.05 times the best rival of its kind",
    ),
    Goal(
        "^(getHit|getRandomKeys); Concurrent, TtlOnly, exact clock",
        "ratio_at_least",
        0.952,
        "1.05 times the best rival of its kind",
    ),
    Goal("^getHit; OneThread", "over_limit_at_most", 1.5, "1.5 ns more than the floor"),
    Goal("^GetMiss; OneThread", "over_limit_at_most", 1.0, "1 ns more than the floor"),
    Goal("^getHit; Concurrent, TtlOnly, exact clock", "at_most", 12, "12 ns"),
    Goal("^(GetMiss|getHit random10M);", "level", 0.05, "ahead of the best rival or level with it"),
    Goal("^memory of 10 M entries; .*TtlOnly", "at_most", 120, "at most 120 MiB"),
    Goal("^memory of 50 M entries; OneThread, TtlOnly", "at_most", 650, "less than 650 MiB"),
    Goal("^memory, worst bytes an entry", "of_limit_at_most", 1.1, "1.1 times that at 10 M"),
    Goal(
        f"^reads of [^,]*(,000)? (M )?keys, [12] threads?; {TICK_BY_CALLER}",
        "of_limit_at_least",
        0.7,
        "0.7 times the flat map without a lock",
    ),
    Goal(
        "^reads of 1,000 keys, 1 thread; Concurrent, TtlOnly, exact clock",
        "ratio_at_least",
        1.2,
        "1.2 times the best rival",
    ),
    Goal(
        f"100,000 puts/s; {TICK_BY_CALLER}",
        "of_limit_at_least",
        0.9,
        "90 % of the same without a writer",
    ),
    Goal("^(fresh|half) puts.*, 2 threads;", "of_limit_at_least", 1.6, "1.6 times one thread"),
    Goal("^half puts.*, [12] threads?;", "ratio_at_least", 1.2, "1.2 times the best rival"),
    Goal("^fresh puts, 1 thread;", "ratio_at_least", 1.0, "ahead of every rival"),
    Goal("^fresh puts, 2 threads;", "ratio_at_least", 1.5, "1.5 times the best rival"),
)
BENCH = Bench(
    title="ChronoCache",
    measure=measure_all,
    minutes=40.0,
    quick_minutes=1.5,
    rounds=(3, 2),
    groups=tuple(GROUPS),
    quick_groups=("five", "memory", "threads"),
    parts=(
        part("five", "five rows", 7.5),
        part("kinds", "keys and values", 5.0, "--rounds", "2"),
        part("memory", "memory", 2.5),
        part("threads", "threads", 6.5, "--rounds", "7"),
        part("ticks", "the background tick", 1.0, "--rounds", "7"),
        part("story", "the steps", 2.5, "--rounds", "2"),
        part("counts", "instructions and misses", 15.0),
    ),
    options=(Option("--flame", "", f"of counts: an SVG of putStress, as {FLAME.name}"),),
    sources=(
        "include/lumen/cache/**",
        "include/lumen/memory/asymmetric_fence.h",
        "include/lumen/base/{clock,idle_strategy,cache_line}.h",
        "bench/cache_counts.py",
        "bench/cache/*.h",
        "bench/cache/variants/*.h",
        "bench/cache/{bench_chronocache,memory_bench,threads_bench,tick_error}.cc",
        "bench/cache/rows_*.cc",
        "bench/queue/harness.h",
        "python/lumen_engine/perf/{callgrind,flame,perf_stat}.py",
        "bench/rivals/build.py",
        "bench/rivals/cache_rust/**",
        "bench/rivals/caffeine/*",
    ),
    packages=(
        "libboost1.81-dev | libboost1.83-dev",
        *("libtbb-dev", "cargo-web | cargo", "rustc-web | rustc"),
        *("default-jdk-headless", "maven", "libabsl-dev", "valgrind"),
    ),
    goals=GOALS,
    tables={
        "": tables.compared,
        "story": cache_tables.story,
        "counts": cache_tables.counts,
    },
)
