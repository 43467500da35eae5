#!/usr/bin/env python3
"""Draws the documents' tables from bench/baselines/*.json, so that no figure is typed by hand.

  tools/figures.py            the tables of docs and README.md, and the pictures
  tools/figures.py --check    exit status 1 where one differs from its baseline

A table stands between `<!-- figures: NAME -->` and `<!-- end -->`. The picture is the output of
`./dev demo` (docs/demo.txt) and a chart of the server's baseline. One thread. Errors: the
exit status.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import baselines as kept
import cache_tables
import client_tables
import goals
import over_concurrency_tables
from picture import Bar, picture

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "bench" / "baselines"
REPORTS = ROOT / "docs" / "reports"
PAGES = (
    ROOT / "docs" / "figures.md",
    ROOT / "README.md",
    REPORTS / "chrono_cache.md",
    REPORTS / "over_concurrency.md",
)
PICTURE = ROOT / "docs" / "lumen.svg"
DEMO = ROOT / "docs" / "demo.txt"
BLOCK = re.compile(r"(<!-- figures: (?P<name>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]

# Of the measurements of `lumen matrix`: heading, keys in its JSON, decimals.
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
        return "not compared" if row.get("lacks") else ""
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


def check_goals_have_rows(name: str, rows: Sequence[Row]) -> None:
    """`rows`: those of near and of far cores together, since a machine that changes between the two
    may give either only a few. SystemExit: a goal that no row stands for is a bug."""
    for goal in goals.goals(name):
        if goal.required and not any(goal.fits(row) for row in rows):
            what = f"'{goal.rows}' {goal.metric}".strip()
            raise SystemExit(f"bench/baselines/{name}.json has no row for the goal {what}")


def missed(name: str, rows: Sequence[Row]) -> list[str] | None:
    """Where we fall short, said by the same rows. None: they have no goal."""
    said, seen = [], 0
    for goal in goals.goals(name):
        found = [row for row in rows if goal.judges(row)]
        seen += len(found)
        for row in found:
            if not goal.is_reached(row, rows):
                got = f"{number(row['ours'])} {row['unit']}"
                if "rival" in goal.wanted:
                    got = f"{row['ratio']:.2f} times"
                elif not row["metric"].isidentifier():
                    got = f"{row['metric']} {got}"
                said.append(f"* {row['row']}: {got}; wanted: {goal.wanted}.")
    return said if seen else None


def unreached(name: str, rows: Sequence[Row]) -> str:
    said = missed(name, rows)
    if said is None:
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
        return compared(rows, "Lumen") + unreached(name, rows)

    return draw_bench


def mixed(document: dict[str, Any]) -> str:
    """Without each model of each combination (mlp of mlp + squeezenet, ...): no goals."""
    rows = [row for row in document["rows"] if " of " not in row["row"]]
    return compared(rows, "Lumen") + unreached("mixed", rows)


def queue_types(document: dict[str, Any]) -> str:
    """One line a model: the ratios with the ends of their intervals."""
    heads = ["", "best type", "its requests/s"]
    metrics = list(dict.fromkeys(row["metric"] for row in document["rows"]))
    lines: dict[str, list[str]] = {}
    for row in document["rows"]:
        cells = lines.setdefault(row["row"], [row["row"], row["rival_name"], number(row["rival"])])
        low, high = row["interval"]
        cells.append(f"{row['ratio']:.3f} ({low:.3f} to {high:.3f})")
    drawn = table([*heads, *metrics], list(lines.values()), 2)
    return drawn + unreached("queue_types", document["rows"])


def time_slice(document: dict[str, Any]) -> str:
    """One line for each way to schedule the two threads, against each model alone."""
    lines: dict[str, list[str]] = {}
    heads = ["", *dict.fromkeys(row["label"] for row in document["rows"])]
    for row in document["rows"]:
        cells = lines.setdefault(row["means"], [row["means"]])
        cells.append(f"{number(row['ours'])} ({row['ours'] / row['limit']:.2f})")
    return table(heads, list(lines.values()), 1)


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


BENCHES = (
    *("server", "queue", "memory", "pipeline", "bus", "bus_infer"),
    *("idle", "connections", "starts"),
    *("cache", "hit_ratio", "response_cache"),
)
NO_METRICS = ("matrix_mlp",)  # whose rows are combinations, with columns of their own
# Name of a table, which begins with that of its baseline file, and how it is drawn.
TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    **{name: bench(name) for name in BENCHES},
    "clients": client_tables.draw,
    "matrix_mlp": matrix,
    "residency": pivot(
        "residency",
        {"queue residency, mean": "in the queue, mean, µs", "queue residency, p99": "p99, µs"},
    ),
    "overload": pivot(
        "overload",
        {"throughput": "answered a second", "p99 latency": "p99, µs", "refused": "share refused"},
    ),
    "watching": pivot(
        "watching",
        {"cost": "cost, %", "cost, lower end": "from, %", "cost, upper end": "to, %"},
    ),
    "mixed": mixed,
    "queue_types": queue_types,
    "time_slice": time_slice,
    "cache/story": cache_tables.story,
    "cache/counts": cache_tables.counts,
    "over_concurrency/origin": over_concurrency_tables.beside_origin,
    "over_concurrency/clients": over_concurrency_tables.by_clients,
    "over_concurrency/findings": over_concurrency_tables.findings,
}


def measured_on(measurement: kept.Measurement) -> str:
    """Machine, day and commit, as tools/keep_baseline.py has written them."""
    machine = measurement["machine"]
    cores = f", {measurement['kind']} cores" if measurement["kind"] else ""
    where = f"{machine['cpu']}, {machine['cpus']} CPUs{cores}, Linux {machine['kernel']}"
    return f"\nMeasured on: {where}, {machine['day']}, commit {measurement['commit']}.\n"


# The figures of the README: the meaning, the baseline, its row, its metric.
MAIN = (
    ("requests a second to a small MLP, 16 clients, all on one core", "server",
     "mlp, 16 clients, inline", "throughput"),
    ("median of SqueezeNet over HTTP, 1 client, µs; the limit is the bare model", "server",
     "squeezenet, 1 client, mpmc", "p50 latency"),
    ("wait between socket and worker, p99, µs", "residency",
     "mpmc, 1 client, spinning", "queue residency, p99"),
    ("256 clients at once, with a latency budget: p99, µs", "overload",
     "mpmc, 256 clients, latency budget", "p99 latency"),
    ("CPU time in 10 idle seconds with 100 connections, ms", "idle",
     "mpmc, 100 connections after load, 10 s", "CPU time"),
    ("millions of messages a second; the row of the queues that loses most", "queue", "", ""),
    ("a hit of ChronoCache, any thread, exact clock, ns; the limit is the loop without a cache",
     "cache", "getHit; Concurrent, TtlOnly, exact clock", "ns"),
    ("peak memory of ChronoCache with 10 M entries, MiB", "cache",
     "memory of 10 M entries; OneThread, TtlOnly, tick by the caller", "MiB"),
)  # fmt: skip


def rows_of(name: str, baselines: Path) -> list[Row]:
    """Of all its measurements; each knows its kind of cores."""
    return [
        {**row, "kind": measurement["kind"]}
        for measurement in kept.measurements(baselines / f"{name}.json")
        for row in measurement["rows"]
    ]


def main_row(name: str, row_name: str, metric: str, baselines: Path) -> Row:
    rows = rows_of(name, baselines)
    if not row_name:
        return min((row for row in rows if row["ratio"] is not None), key=lambda row: row["ratio"])
    found = [row for row in rows if (row["row"], row["metric"]) == (row_name, metric)]
    if not found:
        raise SystemExit(f"bench/baselines/{name}.json has no row '{row_name}', {metric}")
    return found[0]


def main_table(baselines: Path) -> str:
    lines: list[list[str]] = []
    misses: dict[str, int] = {}
    aimed = 0
    for what, name, row_name, metric in MAIN:
        row = main_row(name, row_name, metric, baselines)
        if not row_name:
            what += f": {row['row']}, {row['kind']} cores"
        rival = f"{number(row['rival'])} ({row['rival_name']})" if row["rival"] is not None else "–"
        shown = [number(row["ours"]), rival, verdict(row), number(row["limit"] or None)]
        lines.append([what, *shown, f"`./dev bench {name}`"])
    for name in (table_name for table_name in TABLES if "/" not in table_name):
        file = baselines / f"{name}.json"
        if not file.exists():
            continue
        for measurement in kept.measurements(file):
            count = len(missed(name, measurement["rows"]) or [])
            misses.update({name: misses.get(name, 0) + count} if count else {})
            aimed += goals.count_of_rows(name, measurement["rows"])
    heads = ["", "Lumen", "best rival", "", "limit", "command"]
    said = table(heads, lines, 1)
    said += f"\nOf {aimed} rows that have a goal, {sum(misses.values()) or 'none'} miss it"
    by_bench = ", ".join(f"{name} {count}" for name, count in misses.items())
    said += f": {by_bench}. [docs/figures.md](docs/figures.md) names each.\n" if misses else ".\n"
    return said


def draw_picture(baselines: Path = BASELINES) -> str:
    """The terminal of the demo, and the figures of the MLP's rows with 16 clients."""
    (measurement,) = kept.measurements(baselines / "server.json")
    name = "mlp, 16 clients, "
    rows = [row for row in measurement["rows"] if row["row"].startswith(name)]
    rows = sorted(rows, key=lambda row: -row["ours"])
    bars = [Bar(f"Lumen, {row['row'].removeprefix(name)}", row["ours"], True) for row in rows]
    # Rows have rivals of their own: the best of all.
    best = max(rows, key=lambda row: row["rival"] or 0)
    bars.append(Bar(best["rival_name"], best["rival"], False))
    machine = measurement["machine"]
    where = (
        f"{machine['cpu']}; {machine['day']}, commit {measurement['commit']}, ./dev bench server"
    )
    title = (
        "A small MLP over HTTP, 16 clients, everything of the server on one core: requests a second"
    )
    return picture(DEMO.read_text(), title, bars, where)


def draw(name: str, baselines: Path) -> str:
    if name == "main":
        return main_table(baselines)
    if name not in TABLES:
        raise SystemExit(f"there is no table '{name}'; wanted one of: {', '.join(TABLES)}")
    baseline, _, part = name.partition("/")
    file = baselines / f"{baseline}.json"
    if not file.exists():
        return f"(No figures are kept yet in `bench/baselines/{baseline}.json`.)\n"
    if not part and name not in NO_METRICS:
        check_goals_have_rows(name, rows_of(name, baselines))
    # The columns beside the rows are the same in all measurements of a run.
    measurements = kept.measurements(file)[: 1 if part else None]
    drawn = [TABLES[name](measurement) + measured_on(measurement) for measurement in measurements]
    return "\n".join(drawn)


def render(text: str, baselines: Path = BASELINES) -> str:
    """The same text with every table as its baseline has it."""
    return BLOCK.sub(lambda m: m[1] + draw(m["name"], baselines) + m[3], text)


def drawn_files() -> dict[Path, str]:
    drawn = {**{page: render(page.read_text()) for page in PAGES}, PICTURE: draw_picture()}
    cache = BASELINES / "cache.json"
    if cache.exists():
        curve = kept.measurements(cache)[0]["curve"]
        drawn[REPORTS / "chrono_cache_memory.svg"] = cache_tables.memory_picture(curve)
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(description="The documents' figures from bench/baselines.")
    parser.add_argument("--check", action="store_true", help="change nothing, tell by the status")
    check_only = parser.parse_args().check
    differing = 0
    for file, text in drawn_files().items():
        if file.exists() and file.read_text() == text:
            continue
        differing += 1
        if check_only:
            print(f"{file.relative_to(ROOT)} differs from bench/baselines: run tools/figures.py")
        else:
            file.write_text(text)
    return 1 if check_only and differing else 0


if __name__ == "__main__":
    sys.exit(main())
