"""Shared by the groups of bench/cache.py: contenders, interleaved rounds, rows.

Rows of one thread have no kind; where two CPUs take part, near and far are apart, as
bench/queue/interleave.py says. A contender may take part in every third round only. Errors: a
contender that fails is left out from then on, and a line on stderr says so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "queue"))
from interleave import kind_of, probe_ns, spread_of  # noqa: E402

TIMEOUT_S = 300


@dataclass
class Contender:
    name: str
    command: list[str]
    pick: Callable[[Any], dict[str, float]] = dict
    every: int = 1  # takes part in each round whose number this divides
    samples: dict[str | None, list[dict[str, float]]] = field(default_factory=dict)
    dropped: int = 0
    failed: str = ""

    def values(self, metric: str, kind: str | None) -> list[float]:
        return [sample[metric] for sample in self.samples.get(kind, [])]


@dataclass
class Row:
    name: str
    metric: str
    unit: str
    ours: str
    more_is_better: bool = False
    # Whose median is the row's limit, which is no rival.
    limit: str = ""
    rivals: Sequence[str] = ()


def google_ns(document: Any) -> dict[str, float]:
    (one,) = document["benchmarks"]
    return {"ns": one["real_time"], "longest_us": one.get("longest_us", 0.0)}


def run(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return json.loads(done.stdout)


def run_one(contender: Contender) -> dict[str, float] | None:
    try:
        return contender.pick(run(contender.command))
    except (subprocess.SubprocessError, ValueError, KeyError) as error:
        said = getattr(error, "stderr", None) or ""
        contender.failed = f"{error} {said[-300:]}".strip()
        print(f"bench: {contender.name} left out: {contender.failed}", file=sys.stderr)
        return None


def measure(contenders: list[Contender], rounds: int, probed: bool) -> None:
    """Every round each contender once, in an order that rotates. Where two CPUs take part, near or
    far is probed around each measurement, as bench/queue/interleave.py does."""
    for turn in range(rounds):
        order = contenders[turn % len(contenders) :] + contenders[: turn % len(contenders)]
        before_ns = probe_ns() if probed else 0.0
        for contender in order:
            if contender.failed or turn % contender.every != 0:
                continue
            sample = run_one(contender)
            if sample is None:
                continue
            after_ns = probe_ns() if probed else 0.0
            kind = kind_of(before_ns, after_ns)
            if probed and kind is None:
                contender.dropped += 1
            else:
                contender.samples.setdefault(kind if probed else None, []).append(sample)
            before_ns = after_ns


def make_row(row: Row, kind: str | None, contenders: dict[str, Contender]) -> dict[str, Any] | None:
    rounds = {
        name: contenders[name].values(row.metric, kind)
        for name in dict.fromkeys((row.ours, *row.rivals, *([row.limit] if row.limit else [])))
        if name in contenders and len(contenders[name].values(row.metric, kind)) > 0
    }
    if len(rounds.get(row.ours, [])) < 2 or (row.limit and row.limit not in rounds):
        return None
    middle = {name: median(values) for name, values in rounds.items()}
    present = [name for name in row.rivals if name in rounds]
    best: Callable[..., str] = max if row.more_is_better else min
    rival = best(present, key=lambda name: middle[name]) if present else None
    ours = middle[row.ours]
    ratio = None
    if rival is not None:
        ratio = ours / middle[rival] if row.more_is_better else middle[rival] / ours
    return {
        "bench": "cache",
        "row": row.name,
        "metric": row.metric,
        "unit": row.unit,
        "ours": round(ours, 3),
        "rival": None if rival is None else round(middle[rival], 3),
        "rival_name": rival,
        "ratio": None if ratio is None else round(ratio, 3),
        "spread": round(max(spread_of(rounds[name]) for name in (row.ours, rival or row.ours)), 3),
        "limit": round(middle[row.limit], 3) if row.limit else None,
        "rounds": {name: [round(v, 4) for v in values] for name, values in rounds.items()},
        **({"cpus": kind} if kind is not None else {}),
        "dropped": sum(contender.dropped for contender in contenders.values()),
    }


def show(row: dict[str, Any]) -> None:
    limit = f"   (limit {row['limit']:g})" if row["limit"] is not None else ""
    cores = f", {row['cpus']} cores, {row['dropped']} dropped" if row.get("cpus") else ""
    print(f"\n{row['row']}, {row['unit']}{cores}{limit}", file=sys.stderr)
    for name, values in sorted(row["rounds"].items(), key=lambda item: median(item[1])):
        net = f"net {median(values) - row['limit']:8.3g}" if row["unit"] == "ns" and limit else ""
        spread = f"spread {100 * spread_of(values):4.0f} %   {len(values)} rounds"
        print(f"  {name:28} {median(values):12.4g}   {net:14} {spread}", file=sys.stderr)
