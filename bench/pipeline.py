"""The question: what does a hop through a staged pipeline cost, under load, after idle, at rest?

  producer --> stage 0 --> stage 1 [--> stage 2]     one thread each, pinned in turn to CPU 0 and 1

Ours is one ring with one waiting place; the rivals chain a queue before each stage, whose threads
take batches as ours do: our own blocking spsc and mpmc queues, moodycamel's
BlockingReaderWriterQueue and BlockingConcurrentQueue (bulk), a mutex with condition variables,
with and without spinning. Then the ablation (--rows ablation): the server's no-op path over 16
socket pairs, with one decision of the pipeline changed at a time, for 20 s each. Its rows compare
the pipeline with the best of the other decisions in that metric. These are variants of our own, no
rivals, and none of them is the best in all metrics.
"""

from __future__ import annotations

from bench.runner import Bench, Goal, Option, Run, tables
from bench.runner.places import program
from bench.runner.turns import Contender, listed, measure, named, rows_by_kind

# Metric: its unit, and whether more is better.
ABLATION_METRICS = {
    "rps": ("requests/s", True),
    "stage0_left_ns": ("ns of stage 0 left a request", True),
    "cpu_percent": ("% of a core", False),
    "idle_cpu_percent": ("% of a core, idle", False),
    "worst_us": ("µs, the worst", False),
    "futex_per_request": ("futex calls a request", False),
}
ABLATION_ROUNDS = 3

PlainRow = tuple[str, str, str, bool]  # name, metric, unit, whether more is better


def plain_rows(run: Run) -> list[tuple[list[PlainRow], list[str]]]:
    """Rows that come out of the same measurement, and its arguments."""
    found: list[tuple[list[PlainRow], list[str]]] = []
    for stages in ("2", "3"):
        rows = [
            (f"{stages} stages, items/s", "mops", "M/s", True),
            (f"{stages} stages, a hop", "ns_hop", "ns", False),
            (f"{stages} stages, futex calls under load", "futex_10k", "a 10,000 items", False),
        ]
        words = ["--row", "throughput", "--stages", stages, "--ms", run.pick("400", "60")]
        found.append((rows, words))
    for stages in ("2", "3"):
        name = f"{stages} stages, push to processed after idle"
        rows = [(name, "p50_ns", "ns", False), (f"{name}, p99", "p99_ns", "ns", False)]
        words = ["--row", "wake", "--stages", stages, "--ms", run.pick("3000", "300")]
        found.append((rows, words))
    idle = ("2 stages, CPU of 10 s idle", "cpu_ms_10s", "ms", False)
    words = ["--row", "idle", "--stages", "2", "--ms", run.pick("10000", "500")]
    return [*found, ([idle], words)]


def contenders_of(words: list[str], names: list[str]) -> list[Contender]:
    return [Contender(n, [program("bench_pipeline"), *words, "--queue", n]) for n in names]


def run_plain(run: Run, names: dict[str, list[str]]) -> None:
    for rows, words in plain_rows(run):
        if not any(run.wants(row[0]) for row in rows):
            continue
        contenders = contenders_of(words, names[words[1]])
        measure(contenders, run.rounds)
        ours = named(contenders, "lumen")
        for name, metric, unit, is_more in rows:
            # Chains don't count their futex calls, so that row has no rival.
            rivals = [] if metric == "futex_10k" else [c for c in contenders if c is not ours]
            run.add(*rows_by_kind(name, metric, unit, ours, rivals, more_is_better=is_more))


def run_ablation(run: Run, names: list[str]) -> None:
    if not run.wants("ablation"):
        return
    ms = run.options.ablation_ms or run.pick(20_000, 400)
    contenders = contenders_of(["--row", "ablation", "--ms", str(ms)], names)
    measure(contenders, min(run.rounds, ABLATION_ROUNDS))
    base = named(contenders, "every-stage")
    others = [one for one in contenders if one is not base]
    for metric, (unit, is_more) in ABLATION_METRICS.items():
        name = f"ablation, against other decisions: {metric}"
        run.add(*rows_by_kind(name, metric, unit, base, others, more_is_better=is_more))


def measure_all(run: Run) -> None:
    names = listed("bench_pipeline")
    run_plain(run, names)
    run_ablation(run, names["ablation"])


BENCH = Bench(
    title="Pipeline",
    measure=measure_all,
    minutes=20.0,
    quick_minutes=1.0,
    rounds=(7, 3),
    options=(Option("--ablation-ms", 0, "of one ablation measurement"),),
    sources=(
        "include/lumen/queue/*.h",
        "src/queue/*",
        "include/lumen/base/{backoff,core_distance,doorbell,idle_strategy,clock,cache_line}.h",
        "src/base/{core_distance,doorbell,idle_strategy}.cc",
        "bench/queue/{harness.h,pipeline_bench.cc,pipeline_ablation.h,queue.cmake}",
    ),
    packages=(
        "libboost1.81-dev | libboost1.83-dev",
        *("libconcurrentqueue-dev", "libreaderwriterqueue-dev", "libtbb-dev"),
    ),
    has_a_row_for_each_goal=True,
    goals=(
        Goal("", "at_most", 1, "fewer than 1", metric="futex_10k"),
        Goal("", "at_most", 1, "less than 1 ms", metric="cpu_ms_10s"),
    ),
    # The ablation has no rival: it stands in ADR 0008.
    tables={"": tables.without("ablation")},
)
