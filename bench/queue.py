"""The question: how many messages a second and what round trip, against the best known queues?

  producers (CPU 0, 1) --queue--> consumers (CPU 1, 0)    all spin: a pause, after 64 tries a yield

Rivals from packages: boost.lockfree, moodycamel's ReaderWriterQueue and ConcurrentQueue, oneTBB,
crossbeam (Rust, built for the same CPU), mutex+deque, with and without spinning, and the textbook
Vyukov ring. Batches: copies against copies, spans against spans. A table for each kind of
machine. Absolute figures hold for one machine in one hour; the figure to compare is the ratio,
interleaved round by round in this run.
"""

from __future__ import annotations

from bench.rivals.build import build_cargo
from bench.runner import ROOT, Bench, Goal, Run
from bench.runner.places import program
from bench.runner.turns import Contender, listed, race

BATCHES = {
    "spsc_copies": "spsc batch of 256, copies",
    "spsc_spans": "spsc batch of 256, spans",
    "mpmc_copies": "mpmc batch of 256, copies",
}
CAPACITIES = (1024, 65536)


def rows_of() -> dict[str, list[str]]:
    """Every row of throughput with the arguments of the program."""
    rows: dict[str, list[str]] = {}
    for kind in ("spsc", "mpmc"):
        for size in (8, 64):
            for slots in CAPACITIES:
                words = ["--row", kind, "--bytes", str(size), "--capacity", str(slots)]
                rows[f"{kind} 1:1 {size} B {slots} slots"] = words
    for kind, name in BATCHES.items():
        for slots in CAPACITIES:
            rows[f"{name}, 8 B {slots} slots"] = ["--row", kind, "--capacity", str(slots)]
    for pinned, how in ((1, "pinned"), (0, "unpinned")):
        for slots in CAPACITIES:
            words = ["--row", "mpmc", "--threads", "2", "--capacity", str(slots)]
            rows[f"mpmc 2:2 8 B {slots} slots {how}"] = [*words, "--pinned", str(pinned)]
    return rows


def measure(run: Run) -> None:
    crossbeam = build_cargo("crossbeam", ROOT / ".build")
    names = listed("bench_queue")

    def contenders(words: list[str]) -> list[Contender]:
        row = words[1]
        common = [*words, "--ms", str(round(1e3 * run.seconds))]
        found = [
            Contender(name, [program("bench_queue"), "--queue", name, *common])
            for name in names[row]
        ]
        if crossbeam is not None and row in ("mpmc", "mpmc_trip"):
            found.append(Contender("crossbeam", [str(crossbeam), *common]))
        return found

    for name, words in rows_of().items():
        race(run, [(name, "mops", "M/s", True)], contenders(words))
    for kind in ("spsc", "mpmc"):
        row = (f"{kind} round trip 8 B", "p50_ns", "ns", False)
        race(run, [row], contenders(["--row", f"{kind}_trip"]))


BENCH = Bench(
    title="Queues",
    measure=measure,
    minutes=2.6,
    quick_minutes=1.0,
    rounds=(5, 3),
    seconds=(0.2, 0.025),
    sources=(
        "include/lumen/queue/*.h",
        "src/queue/*",
        "include/lumen/base/{backoff,core_distance,doorbell,idle_strategy,clock,cache_line}.h",
        "src/base/{core_distance,doorbell,idle_strategy}.cc",
        "bench/queue/{harness.h,contenders.h,batches.h,queue_bench.cc,queue.cmake}",
        "bench/rivals/crossbeam/**",
    ),
    packages=(
        "libboost1.81-dev | libboost1.83-dev",
        *("libconcurrentqueue-dev", "libreaderwriterqueue-dev", "libtbb-dev"),
        *("cargo-web | cargo", "rustc-web | rustc"),
    ),
    has_a_row_for_each_goal=True,
    goals=(Goal("", "level", 0.25, "ahead of the best rival or level with it"),),
)
