#!/usr/bin/env python3
"""Writes the tables of README.md from bench/baselines/*.json, so that no figure is typed by hand.

  tools/readme_figures.py            rewrites the tables in place
  tools/readme_figures.py --check    exit status 1 where one differs from its baseline

A table stands between `<!-- figures: NAME -->` and `<!-- end -->`. One thread; says no by its exit
status.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import baselines as kept

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "bench" / "baselines"
BLOCK = re.compile(r"(<!-- figures: (?P<name>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]

# Of what `lumen matrix` measures: heading, keys in its JSON, decimals.
MATRIX_COLUMNS = (
    ("requests/s", ("requests_per_second",), 0),
    (
        "round trip mean, p50, p99, µs",
        ("round_trip_mean_us", "round_trip_p50_us", "round_trip_p99_us"),
        0,
    ),
    ("connection mean, p99, µs", ("connection_mean_us", "connection_p99_us"), 0),
    ("in the queue mean, p99, µs", ("queue_mean_us", "queue_p99_us"), 1),
    ("heap calls a request", ("heap_calls_per_request",), 2),
    ("arena bytes a request", ("arena_bytes_per_request",), 0),
    ("rows an inference", ("rows_per_inference",), 2),
)


def number(value: float | None) -> str:
    """Three digits that count, more only before the point."""
    if value is None:
        return "–"
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 or size == 0 else 3
    return f"{value:,.{decimals}f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    rule = "|" + "---|" * text_columns + "---:|" * (len(heads) - text_columns)
    lines = [heads, *rows]
    drawn = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([drawn[0], rule, *drawn[1:]]) + "\n"


def verdict(row: Row) -> str:
    """A ratio closer to 1 than the spread is a tie: docs/benchmarking.md."""
    if row["ratio"] is None:
        return ""
    if abs(row["ratio"] - 1) < (row["spread"] or 0):
        return "tie"
    return "ahead" if row["ratio"] > 1 else "**behind**"


def compared(rows: Sequence[Row], ours: str) -> str:
    """Ours, the best rival, their ratio: the form of every ./dev bench."""
    heads = ["", "metric", ours, "best rival", "ratio", "spread", "", "limit"]
    lines = []
    for row in rows:
        unit = row["unit"]
        metric = unit if row["metric"].isidentifier() else f"{row['metric']}, {unit}"
        rival = f"{number(row['rival'])} ({row['rival_name']})" if row["rival"] is not None else "–"
        ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else "–"
        spread = f"{row['spread']:.0%}" if row["spread"] is not None else "–"
        numbers = [number(row["ours"]), rival, ratio, spread, verdict(row), number(row["limit"])]
        lines.append([row["row"], metric, *numbers])
    return table(heads, lines, 2)


@dataclass(frozen=True)
class Goal:
    """What the rows that match were to show."""

    rows: str  # a regular expression
    wanted: str
    is_reached: Callable[[Row, Sequence[Row]], bool]  # a row, and all rows of its table
    metric: str = ""  # empty: any
    is_required: bool = True  # a baseline without such a row is an error


def at_most(bound: float) -> Callable[[Row, Sequence[Row]], bool]:
    return lambda row, _: row["ours"] <= bound


def within(factor: float) -> Callable[[Row, Sequence[Row]], bool]:
    """Of the limit; lower is better."""
    return lambda row, _: row["ours"] <= factor * row["limit"]


def ahead(factor: float) -> Callable[[Row, Sequence[Row]], bool]:
    """Of the best rival."""
    return lambda row, _: row["ratio"] >= factor


def keeps_its_throughput(row: Row, rows: Sequence[Row]) -> bool:
    """Of the first row, which has the fewest clients."""
    first = next(other for other in rows if other["metric"] == row["metric"])
    return row["ours"] >= 0.97 * first["ours"]


# A spread above it says that nothing was measured, not that two are level.
LARGEST_TIE = 0.25


def level(row: Row, _: Sequence[Row]) -> bool:
    """Ahead of the best rival, or closer to it than the spread; nothing to hold it against where no
    rival was measured, which the table shows."""
    return row["ratio"] is None or row["ratio"] >= 1 - min(row["spread"], LARGEST_TIE)


GOALS = {
    # Baselines from before these rows existed have none of them.
    "server": (
        Goal(
            "^squeezenet, (4|16) clients, split",
            "95 % of the limit",
            lambda row, _: row["ours"] >= 0.95 * row["limit"],
            "throughput",
            is_required=False,
        ),
        Goal(
            "^squeezenet, 1 client, split",
            "within 250 µs of the limit",
            lambda row, _: row["ours"] <= row["limit"] + 250,
            "p50 latency",
            is_required=False,
        ),
    ),
    "queue": (Goal("", "ahead of the best rival or level with it", level),),
    "memory": (
        Goal("arena .* B$", "0.6 ns", at_most(0.6)),
        Goal("dense", "within 10 % of the bare fetch_add", within(1.1)),
        Goal("dense", "ahead of the best rival", ahead(1)),
        Goal("lane", "ahead of the best rival or level with it", level),
    ),
    "pipeline": (
        Goal("", "fewer than 1", at_most(1), "futex_10k"),
        Goal("", "less than 1 ms", at_most(1), "cpu_ms_10s"),
    ),
    # `naive` is the rival here.
    "residency": (
        Goal("^(?!naive).*spinning", "10 µs", at_most(10), "queue residency, mean"),
        Goal("^(?!naive).*spinning", "20 µs", at_most(20), "queue residency, p99"),
    ),
    "overload": (
        Goal("clients$", "none", at_most(0), "refused"),
        Goal("clients$", "97 % of that with 4 clients", keeps_its_throughput, "throughput"),
        Goal("clients$", "1.3 times the limit", within(1.3), "p99 latency"),
        Goal("budget$", "within the budget, the limit", within(1), "p99 latency"),
    ),
}


def unreached(name: str, rows: Sequence[Row]) -> str:
    """Where we fall short, said by the same baseline; a goal that no row stands for is a bug."""
    said, seen = [], 0
    for goal in GOALS[name]:
        found = [row for row in rows if re.search(goal.rows, row["row"])]
        found = [row for row in found if goal.metric in ("", row["metric"])]
        seen += len(found)
        if not found and goal.is_required:
            what = f"'{goal.rows}' {goal.metric}".strip()
            raise SystemExit(f"bench/baselines/{name}.json has no row for the goal {what}")
        for row in found:
            if not goal.is_reached(row, rows):
                got = f"{number(row['ours'])} {row['unit']}"
                if "rival" in goal.wanted:
                    got = f"{row['ratio']:.2f} times"
                elif not row["metric"].isidentifier():
                    got = f"{row['metric']} {got}"
                said.append(f"* {row['row']}: {got}; wanted: {goal.wanted}.")
    if seen == 0:
        return ""
    if not said:
        return "\nEvery goal that was set for these rows is reached.\n"
    return "\nGoals that are not reached:\n\n" + "\n".join(said) + "\n"


def pivot(name: str, heads: dict[str, str]) -> Callable[[dict[str, Any]], str]:
    """One line a row, one column a metric; `heads` has the metrics' headings."""

    def draw_pivot(document: dict[str, Any]) -> str:
        lines: dict[str, dict[str, str]] = {}
        for row in document["rows"]:
            limit = f" (limit {number(row['limit'])})" if row["limit"] is not None else ""
            lines.setdefault(row["row"], {})[row["metric"]] = number(row["ours"]) + limit
        cells = [[row, *[found[metric] for metric in heads]] for row, found in lines.items()]
        return table(["", *heads.values()], cells, 1) + unreached(name, document["rows"])

    return draw_pivot


def bench(name: str) -> Callable[[dict[str, Any]], str]:
    def draw_bench(document: dict[str, Any]) -> str:
        # The ablation has no rival: it stands in ADR 0008.
        rows = [row for row in document["rows"] if not row["row"].startswith("ablation")]
        return compared(rows, "Lumen") + (unreached(name, rows) if name in GOALS else "")

    return draw_bench


def matrix(document: dict[str, Any]) -> str:
    def cell(row: Row, keys: Sequence[str], decimals: int) -> str:
        if row["error"]:
            return "failed"
        values = [row[key] for key in keys]
        return ", ".join("n/a" if v is None else f"{v:,.{decimals}f}" for v in values)

    heads = ["queue", "allocator", *[heading for heading, _, _ in MATRIX_COLUMNS]]
    lines = [
        [row["queue_type"], row["allocator_type"]]
        + [cell(row, keys, decimals) for _, keys, decimals in MATRIX_COLUMNS]
        for row in document["rows"]
    ]
    said = (
        f"Model `{document['model']}`, {document['requests']:,} requests over "
        f"{document['clients']} connections, medians of {document['rounds']} rounds.\n\n"
    )
    return said + table(heads, lines, 2)


# Name of a table, which is that of its baseline file, and how it is drawn.
TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    **{name: bench(name) for name in ("server", "queue", "memory", "pipeline")},
    "matrix_mlp": matrix,
    "residency": pivot(
        "residency",
        {"queue residency, mean": "in the queue, mean, µs", "queue residency, p99": "p99, µs"},
    ),
    "overload": pivot(
        "overload",
        {"throughput": "answered a second", "p99 latency": "p99, µs", "refused": "share refused"},
    ),
}


def measured_on(name: str, measurement: kept.Measurement) -> str:
    """What tools/keep_baseline.py has written of it, and whether its code has changed since."""
    machine = measurement["machine"]
    cores = f", {measurement['kind']} cores" if measurement["kind"] else ""
    where = f"{machine['cpu']}, {machine['cpus']} CPUs{cores}, Linux {machine['kernel']}"
    said = f"\nMeasured on: {where}, {machine['day']}, commit {measurement['commit']}.\n"
    if kept.is_fresh(name, measurement):
        return said
    when = kept.due(name)
    return said + (
        "**Older than the code**: what is measured has changed since"
        f"{f', and is measured anew at {when}' if when else ''}.\n"
    )


def draw(name: str, baselines: Path) -> str:
    if name not in TABLES:
        raise SystemExit(f"README.md has a table '{name}'; wanted one of: {', '.join(TABLES)}")
    file = baselines / f"{name}.json"
    if not file.exists():
        return f"(No figures are kept yet in `bench/baselines/{name}.json`.)\n"
    drawn = [
        TABLES[name](measurement) + measured_on(name, measurement)
        for measurement in kept.measurements(file)
    ]
    return "\n".join(drawn)


def render(text: str, baselines: Path = BASELINES) -> str:
    """The same text with every table as its baseline has it."""
    return BLOCK.sub(lambda m: m[1] + draw(m["name"], baselines) + m[3], text)


def main() -> int:
    parser = argparse.ArgumentParser(description="README.md's tables from bench/baselines.")
    parser.add_argument("--check", action="store_true", help="change nothing, tell by the status")
    readme = ROOT / "README.md"
    check_only = parser.parse_args().check
    before = readme.read_text()
    after = render(before)
    if before == after:
        return 0
    if check_only:
        print("README.md differs from bench/baselines: run tools/readme_figures.py")
        return 1
    readme.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
