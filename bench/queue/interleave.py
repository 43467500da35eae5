"""What bench/queue.py and bench/pipeline.py share: interleaved measurements, near or far, rows.

The two virtual CPUs move: a hand-off takes 25 to 45 ns ("near") or 100 and more ("far") and flips
within seconds. So each measurement is probed before and after, contenders take turns round by
round, and a figure from far CPUs is used only where no near one was seen, and says so.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("LUMEN_BUILD", ROOT / ".build" / "native"))
NEAR_NS = 75.0
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
    command: list[str]  # prints one line of JSON
    near: list[dict[str, float]] = field(default_factory=list)
    far: list[dict[str, float]] = field(default_factory=list)
    failed: str = ""

    def values(self, metric: str) -> list[float]:
        samples = self.near if len(self.near) >= 2 or not self.far else self.near + self.far
        return [sample[metric] for sample in samples]

    def is_near(self) -> bool:
        return len(self.near) >= 2 or not self.far


def program(name: str) -> Path:
    path = BUILD / name
    if not path.exists():
        sys.exit(f"{path} is not there: ./dev bench builds it, or set LUMEN_BUILD to another build")
    return path


def run_json(command: list[str]) -> dict[str, float]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=MEASUREMENT_TIMEOUT_S,
        check=True,
    )
    return json.loads(done.stdout)


class Prober:
    """Waits for near CPUs, as long as its patience lasts over the whole run.

    Where a minute of waiting has shown none at all, the machine has none and it waits no more.
    """

    FIRST_SIGN_S = 60.0

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.first_sign_s = self.FIRST_SIGN_S
        self.binary = str(program("bench_queue"))

    def probe(self, wait: bool) -> float:
        wait_ms = int(min(2.0, self.patience_s) * 1000) if wait and self.patience_s > 0 else 0
        start = time.monotonic()
        one_way = run_json([self.binary, "--probe", str(wait_ms)])["one_way_ns"]
        if wait_ms:
            waited_s = max(0.0, time.monotonic() - start - 0.05)
            self.patience_s -= waited_s
            self.first_sign_s = math.inf if one_way < NEAR_NS else self.first_sign_s - waited_s
            if self.first_sign_s <= 0:
                self.patience_s = 0.0
        return one_way


def measure(contenders: list[Contender], rounds: int, prober: Prober) -> None:
    for turn in range(rounds):
        # Another order each round, so that nobody always follows the same neighbour.
        order = contenders[turn % len(contenders) :] + contenders[: turn % len(contenders)]
        for contender in order:
            if contender.failed:
                continue
            before = prober.probe(wait=True)
            try:
                sample = run_json(contender.command)
            except (subprocess.SubprocessError, json.JSONDecodeError) as error:
                contender.failed = str(error)
                print(f"bench: {contender.name} left out: {error}", file=sys.stderr)
                continue
            near = max(before, prober.probe(wait=False)) < NEAR_NS
            (contender.near if near else contender.far).append(sample)


def spread_of(values: list[float]) -> float:
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def result(bench: str, row: Row, ours: Contender, rivals: list[Contender]) -> dict[str, Any] | None:
    """One row of the report; the best rival by median is the one that counts."""
    rivals = [rival for rival in rivals if rival.values(row.metric)]
    if not ours.values(row.metric):
        return None
    our_value = median(ours.values(row.metric))
    best: Callable[..., Contender] = max if row.more_is_better else min
    rival = best(rivals, key=lambda r: median(r.values(row.metric))) if rivals else None
    rival_value = median(rival.values(row.metric)) if rival else None
    ratio = None
    if rival_value and our_value:
        ratio = our_value / rival_value if row.more_is_better else rival_value / our_value
    near = ours.is_near() and (rival is None or rival.is_near())
    return {
        "bench": bench,
        "row": row.name,
        "metric": row.metric,
        "unit": row.unit,
        "ours": round(our_value, 3),
        "rival": None if rival_value is None else round(rival_value, 3),
        "rival_name": rival.name if rival else None,
        "ratio": None if ratio is None else round(ratio, 3),
        "spread": round(max(spread_of(c.values(row.metric)) for c in (ours, rival or ours)), 3),
        "limit": row.limit,
        "cpus": "near" if near else "far",
    }


def show(row: Row, contenders: list[Contender], ours: str) -> None:
    better = [c for c in contenders if c.values(row.metric)]
    better.sort(key=lambda c: median(c.values(row.metric)), reverse=row.more_is_better)
    limit = f"   (limit {row.limit:g})" if row.limit else ""
    print(f"\n{row.name}, {row.unit}{limit}", file=sys.stderr)
    for contender in better:
        values = contender.values(row.metric)
        mark = "*" if contender.name == ours else " "
        cpus = "" if contender.is_near() else "   far"
        print(
            f"  {mark} {contender.name:24} {median(values):12.4g}   "
            f"spread {100 * spread_of(values):4.0f} %{cpus}",
            file=sys.stderr,
        )
