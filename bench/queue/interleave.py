"""Shared by bench/queue.py and bench/pipeline.py: interleaved measurements, near or far, rows.

The two virtual CPUs move: a hand-off takes 25 to 65 ns ("near") or 100 to 300 ("far"), and it
flips within seconds. So each measurement is probed before and after. A measurement that was near
at both ends belongs to the near table, one that was far to the far one; others are dropped and
counted. Contenders take turns round by round. Every sample stays in the row, so that a baseline
keeps its raw rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("LUMEN_BUILD", ROOT / ".build" / "native"))
NEAR_NS = 75.0  # between the times of the two kinds of machine
KINDS = ("near", "far")
LEAST_ROUNDS = 2  # fewer of a kind are no table
MEASUREMENT_TIMEOUT_S = 60


@dataclass
class Row:
    name: str
    metric: str  # the key of the program's JSON
    unit: str
    more_is_better: bool
    limit: float | None = None


@dataclass
class Contender:
    name: str
    command: list[str]  # prints one JSON object
    # The metrics of the object that count.
    pick: Callable[[Any], dict[str, float]] = dict
    samples: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: {kind: [] for kind in KINDS}
    )
    dropped: int = 0  # the CPUs moved meanwhile
    failed: str = ""

    def values(self, metric: str, kind: str) -> list[float]:
        return [sample[metric] for sample in self.samples[kind]]

    def counts(self, kind: str) -> bool:
        return len(self.samples[kind]) >= LEAST_ROUNDS


def program(name: str) -> Path:
    path = BUILD / name
    if not path.exists():
        sys.exit(f"{path} is not there: ./dev bench builds it, or set LUMEN_BUILD to another build")
    return path


def run_json(command: list[str]) -> Any:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=MEASUREMENT_TIMEOUT_S,
        check=True,
    )
    return json.loads(done.stdout)


def probe_ns() -> float:
    """One way between CPU 0 and 1, now."""
    return run_json([str(program("bench_queue")), "--probe"])["one_way_ns"]


def kind_of(before_ns: float, after_ns: float) -> str | None:
    """None: the CPUs moved in between."""
    before, after = ("near" if ns < NEAR_NS else "far" for ns in (before_ns, after_ns))
    return before if before == after else None


def measure(contenders: list[Contender], rounds: int) -> None:
    for turn in range(rounds):
        # Another order each round, so that nobody always follows the same neighbour.
        order = contenders[turn % len(contenders) :] + contenders[: turn % len(contenders)]
        before_ns = probe_ns()
        for contender in order:
            if contender.failed:
                continue
            try:
                sample = contender.pick(run_json(contender.command))
            except (subprocess.SubprocessError, json.JSONDecodeError, ValueError) as error:
                said = getattr(error, "stderr", None) or getattr(error, "stdout", None) or ""
                contender.failed = f"{error} {said[-500:]}".strip()
                print(f"bench: {contender.name} left out: {contender.failed}", file=sys.stderr)
                continue
            after_ns = probe_ns()
            kind = kind_of(before_ns, after_ns)
            if kind is None:
                contender.dropped += 1
            else:
                contender.samples[kind].append(sample)
            before_ns = after_ns


def spread_of(values: list[float]) -> float:
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def result(
    bench: str, row: Row, kind: str, ours: Contender, rivals: list[Contender]
) -> dict[str, Any] | None:
    """One row of one kind's table; the best rival by median is the one that counts."""
    if not ours.counts(kind):
        return None
    present = [contender for contender in (ours, *rivals) if contender.counts(kind)]
    rounds = {contender.name: contender.values(row.metric, kind) for contender in present}
    middle = {name: median(values) for name, values in rounds.items()}
    best: Callable[..., Contender] = max if row.more_is_better else min
    rival = best(present[1:], key=lambda r: middle[r.name]) if len(present) > 1 else None
    our_value = middle[ours.name]
    rival_value = middle[rival.name] if rival else None
    ratio = None
    if rival_value and our_value:
        ratio = our_value / rival_value if row.more_is_better else rival_value / our_value
    return {
        "bench": bench,
        "row": row.name,
        "metric": row.metric,
        "unit": row.unit,
        "ours": round(our_value, 3),
        "rival": None if rival_value is None else round(rival_value, 3),
        "rival_name": rival.name if rival else None,
        "ratio": None if ratio is None else round(ratio, 3),
        "spread": round(max(spread_of(rounds[c.name]) for c in (ours, rival or ours)), 3),
        "limit": row.limit,
        "cpus": kind,
        "rounds": rounds,
        "dropped": sum(contender.dropped for contender in (ours, *rivals)),
    }


def results(bench: str, row: Row, ours: Contender, rivals: list[Contender]) -> list[dict[str, Any]]:
    """The row in the table of each kind that was met."""
    found = [result(bench, row, kind, ours, rivals) for kind in KINDS]
    return [line for line in found if line is not None]


def show(row: Row, contenders: list[Contender], ours: str) -> None:
    """One table for each kind."""
    limit = f"   (limit {row.limit:g})" if row.limit else ""
    dropped = sum(contender.dropped for contender in contenders)
    for kind in KINDS:
        present = [c for c in contenders if c.counts(kind)]
        if not present:
            continue
        present.sort(key=lambda c: median(c.values(row.metric, kind)), reverse=row.more_is_better)
        used = sum(len(c.samples[kind]) for c in contenders)
        print(
            f"\n{row.name}, {row.unit}{limit}: {kind} cores, {used} measurements used, "
            f"{dropped} dropped because the CPUs moved",
            file=sys.stderr,
        )
        for contender in present:
            values = contender.values(row.metric, kind)
            mark = "*" if contender.name == ours else " "
            print(
                f"  {mark} {contender.name:24} {median(values):12.4g}   "
                f"spread {100 * spread_of(values):4.0f} %   {len(values)} rounds",
                file=sys.stderr,
            )
