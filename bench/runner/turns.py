"""Contenders that are programs: measured in turns, near or far, one sample a round.

Two virtual CPUs move: a hand-off takes 25 to 65 ns ("near") or 100 to 300 ("far"), and that flips
within seconds. So each measurement of two CPUs is probed before and after. One that was near at
both ends belongs to the near rows, one that was far to the far ones; others are dropped and
counted. Threads: one. Errors: a contender that fails is left out from then on, and said so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.runner.places import BenchError, left_out, program, run_json
from bench.runner.rows import Row, make_row
from bench.runner.run import Run, rotated

NEAR_NS = 75.0  # between the times of the two kinds
KINDS = ("near", "far")
LEAST_ROUNDS = 2  # fewer make no row, and no rival

Sample = dict[str, float]
Kind = str | None  # None: one CPU takes part, so there are no kinds


@dataclass
class Contender:
    name: str
    command: list[str]  # prints one JSON object
    pick: Callable[[Any], Sample] = dict  # the figures of that object
    every: int = 1  # takes part in each round whose number this divides
    samples: dict[Kind, list[Sample]] = field(default_factory=dict)
    dropped: int = 0  # the CPUs moved meanwhile
    failed: str = ""

    def values(self, metric: str, kind: Kind) -> list[float]:
        return [sample[metric] for sample in self.samples.get(kind, [])]

    def counts(self, kind: Kind) -> bool:
        """It was measured often enough; a slow one is in few rounds anyway."""
        least = LEAST_ROUNDS if self.every == 1 else 1
        return len(self.samples.get(kind, [])) >= least

    def middle(self, metric: str, kind: Kind) -> float | None:
        values = self.values(metric, kind)
        return median(values) if values else None

    def sample(self) -> Sample | None:
        try:
            return self.pick(run_json(self.command))
        except (BenchError, OSError, KeyError, ValueError) as error:
            self.failed = str(error)
            left_out(self.name, error)
            return None


def listed(name: str) -> dict[str, list[str]]:
    """The contenders that the program has for each row: its output for --list."""
    done = subprocess.run([program(name), "--list"], capture_output=True, text=True, check=True)
    names: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        row, contender = line.split(maxsplit=1)
        names.setdefault(row, []).append(contender)
    return names


def probe_ns() -> float:
    """One way between CPU 0 and 1, now."""
    return float(run_json([program("bench_queue"), "--probe"])["one_way_ns"])


def kind_of(before_ns: float, after_ns: float) -> str | None:
    """None: the CPUs moved in between."""
    before, after = ("near" if ns < NEAR_NS else "far" for ns in (before_ns, after_ns))
    return before if before == after else None


def measure(contenders: Sequence[Contender], rounds: int, is_probed: bool = True) -> None:
    """Every contender once a round. `is_probed`: two CPUs take part."""
    for number in range(rounds):
        before_ns = probe_ns() if is_probed else 0.0
        for contender in rotated(contenders, number):
            if contender.failed or number % contender.every != 0:
                continue
            sample = contender.sample()
            if sample is None:
                continue
            after_ns = probe_ns() if is_probed else 0.0
            kind = kind_of(before_ns, after_ns) if is_probed else None
            if is_probed and kind is None:
                contender.dropped += 1
            else:
                contender.samples.setdefault(kind, []).append(sample)
            before_ns = after_ns


Limit = float | str | Callable[[Kind], float | None] | None


def rows_by_kind(
    name: str,
    metric: str,
    unit: str,
    ours: Contender,
    others: Sequence[Contender],
    *,
    more_is_better: bool = False,
    limit: Limit = None,
) -> list[Row]:
    """A row for each kind that ours was measured in. `limit`: a figure, a contender's name, whose
    median it is, or a function of the kind."""
    rows = []
    for kind in (*KINDS, None):
        if not ours.counts(kind):
            continue
        present = [contender for contender in (ours, *others) if contender.counts(kind)]
        if isinstance(limit, str) and limit not in [contender.name for contender in present]:
            continue
        row = make_row(
            name,
            metric,
            unit,
            {contender.name: contender.values(metric, kind) for contender in present},
            more_is_better=more_is_better,
            limit=limit(kind) if callable(limit) else limit,
            dropped=sum(contender.dropped for contender in (ours, *others)),
            **({"cpus": kind} if kind is not None else {}),
        )
        rows.append(row)
    return rows


def named(contenders: Sequence[Contender], name: str) -> Contender:
    return next(contender for contender in contenders if contender.name == name)


def race(
    run: Run,
    rows: Sequence[tuple[str, str, str, bool]],
    contenders: Sequence[Contender],
    *,
    ours: str = "lumen",
    limit: Limit = None,
    rounds: int = 0,
) -> None:
    """Measures all and adds `rows`: name, metric, unit, whether more is better. The contenders
    whose names begin with `ours` are no rivals of it."""
    if not any(run.wants(row[0]) for row in rows):
        return
    measure(contenders, rounds or run.rounds)
    mine = named(contenders, ours)
    rivals = [one for one in contenders if not one.name.startswith(ours)]
    for name, metric, unit, is_more in rows:
        run.add(
            *rows_by_kind(name, metric, unit, mine, rivals, more_is_better=is_more, limit=limit)
        )
