"""The benches of a report: their arguments, and their time.

`./dev report --quick` has to stay below QUICK_LIMIT_MINUTES on two cores (rivals installed and
built); a test adds the table up. Times are of a quiet machine with two virtual CPUs. No state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

QUICK_LIMIT_MINUTES = 20.0


@dataclass(frozen=True)
class Bench:
    """One entry; several may be parts of one baseline, whose rows are then put together."""

    name: str
    title: str
    full: tuple[str, ...]
    full_minutes: float
    # None: a quick report leaves it out, because another entry has its quick rows.
    quick: tuple[str, ...] | None = ("--quick",)
    quick_minutes: float = 1.0
    baseline: str = ""  # the name in bench/sources.toml; empty: that of the bench
    script: str = ""  # bench/SCRIPT.py; empty: that of the baseline

    @property
    def keeps(self) -> str:
        return self.baseline or self.name

    def minutes(self, is_quick: bool) -> float:
        return self.quick_minutes if is_quick else self.full_minutes

    def command(self, is_quick: bool, python: str, root: Path, build: Path) -> list[str]:
        words = self.quick if is_quick else self.full
        assert words is not None
        if self.script == "lumen":
            return [str(build / "lumen"), *words]
        script = root / "bench" / f"{self.script or self.keeps}.py"
        # -P: Python's own libraries must not find bench/queue.py when they import queue.
        return [python, "-P", str(script), "--json", *words]

    def is_there(self, root: Path) -> bool:
        """A bench may come later than its row here."""
        return (
            self.script == "lumen" or (root / "bench" / f"{self.script or self.keeps}.py").exists()
        )


def matrix(rounds: int) -> tuple[str, ...]:
    return ("matrix", "--model", "mlp", "--rounds", str(rounds), "--json", "--out", "{scratch}")


def cache(group: str, title: str, minutes: float, *more: str) -> Bench:
    """A part of bench cache: all of them take most of an hour, and a report goes on between two."""
    words = ("--only", group, *more)
    return Bench(f"cache_{group}", f"ChronoCache: {title}", words, minutes, None, 0, "cache")


# Of those that draw the charts first. Minutes as measured on machines with two CPUs.
PLAN = (
    Bench("clients", "Throughput and latency by clients", (), 5.0),
    Bench("queue", "Queues", ("--rounds", "5"), 2.6),
    Bench("matrix_mlp", "Queue types and allocators", matrix(5), 0.3, matrix(2), 0.2, "", "lumen"),
    Bench(
        "server",
        "The server against its peers",
        ("--rounds", "5", "--seconds", "1"),
        7.0,
        quick_minutes=3.0,
    ),
    Bench("residency", "In the queue", ("--rounds", "2", "--seconds", "1"), 1.0),
    Bench("overload", "Overload", ("--rounds", "2", "--seconds", "2"), 1.2),
    Bench("over_concurrency", "More clients than can be served", (), 5.0, quick_minutes=0.7),
    Bench(
        "mixed",
        "Light and heavy models in one server",
        ("--rounds", "3", "--seconds", "1"),
        9.0,
        quick_minutes=1.0,
    ),
    Bench(
        "queue_types",
        "auto against each queue type",
        (),
        15.0,
        ("--quick", "--models", "mlp"),
        0.3,
    ),
    Bench("time_slice", "A short run beside a long one on one CPU", (), 4.0, quick_minutes=0.3),
    Bench("connections", "Connections", (), 0.5, quick_minutes=0.3),
    Bench("idle", "Idle", (), 3.7),
    Bench(
        "starts",
        "Starts",
        ("--rounds", "7", "--choices", "20"),
        1.4,
        ("--quick", "--choices", "5"),
        0.5,
    ),
    Bench("breakdown", "Where a request's time goes", (), 1.0, quick_minutes=0.5),
    Bench("watching", "What watching costs", (), 5.0, quick_minutes=1.5),
    Bench("memory", "Memory", (), 0.5, quick_minutes=0.3),
    Bench("pipeline", "Pipeline", (), 20.0),
    Bench("bus", "The bus", ("--rounds", "7"), 3.3),
    Bench("bus_infer", "Inference over the bus", (), 3.0),
    Bench("response_cache", "The response cache", (), 3.5, quick_minutes=0.7),
    # One entry for a quick report, seven for a full one.
    Bench("cache", "ChronoCache", (), 0, ("--quick",), 1.5),
    cache("five", "five rows", 7.5, "--rounds", "3"),
    cache("kinds", "keys and values", 4.0, "--rounds", "2"),
    cache("memory", "memory", 2.5),
    cache("threads", "threads", 6.5),
    cache("ticks", "the background tick", 1.0),
    cache("story", "the steps", 2.5, "--rounds", "2"),
    cache("counts", "instructions and misses", 15.0),
    Bench("hit_ratio", "Hit ratios", (), 9.0, quick_minutes=1.2),
)


def chosen(is_quick: bool, only: Sequence[str] = (), plan: Sequence[Bench] = PLAN) -> list[Bench]:
    """ValueError: a name in `only` that no entry and no baseline has."""
    for name in only:
        if not any(name in (bench.name, bench.keeps) for bench in plan):
            known = " ".join(dict.fromkeys(bench.keeps for bench in plan))
            raise ValueError(f"no bench '{name}' in the report; wanted some of: {known}")
    found = [
        bench for bench in plan if (bench.quick is not None if is_quick else bench.full_minutes > 0)
    ]
    return [bench for bench in found if not only or bench.name in only or bench.keeps in only]


def total_minutes(benches: Sequence[Bench], is_quick: bool) -> float:
    return sum(bench.minutes(is_quick) for bench in benches)
