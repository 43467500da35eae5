"""The documents' figures, drawn from bench/baselines, so that none is typed by hand.

A table stands between `<!-- figures: NAME -->` and `<!-- end -->`; NAME is a bench's, or
"bench/part" for a further table that it declares. `./dev report --draw` draws them, and the
README's picture: the output of `./dev demo` (docs/demo.txt) and a chart of the server's figures.
Threads: one. Errors: ValueError names the table that no bench declares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import cache_tables
from bench.report.picture import Bar, picture
from bench.runner import declare, store
from bench.runner.declare import Bench
from bench.runner.goals import count_of_rows
from bench.runner.places import ROOT, say
from bench.runner.rows import Row, verdict
from bench.runner.tables import misses, number, table, unreached

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
# A commit's age grows with every commit: the page tells that of the day when it was drawn, and no
# drawing differs by it alone.
AGE = re.compile(r"(?<=, )(\d+ commits? ago|of a history before this one)(?= when)")

# The figures of the README: the meaning, the bench, its row, its metric.
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


def table_names() -> list[str]:
    """All that benches declare for the documents."""
    return [
        f"{bench.name}/{part}" if part else bench.name
        for bench in declare.all_benches()
        if bench.is_kept
        for part in bench.tables
    ]


def draw_table(bench: Bench, part: str, measurement: dict[str, Any]) -> str:
    drawn = bench.tables[part](measurement)
    return drawn if part else drawn + unreached(bench.goals, measurement["rows"])


def measured_on(measurement: store.Measurement) -> str:
    machine = measurement["machine"]
    cores = f", {measurement['kind']} cores" if measurement["kind"] else ""
    where = f"{machine['cpu']}, {machine['cpus']} CPUs{cores}, Linux {machine['kernel']}"
    commit = measurement["commit"]
    said = f"commit {commit}, {store.age(commit)} when this was drawn"
    return f"\nMeasured on: {where}, {machine['day']}, {said}.\n"


def draw(name: str, folder: Path | None = None) -> str:
    if name == "main":
        return main_table(folder)
    if name not in table_names():
        known = ", ".join(table_names())
        raise ValueError(f"there is no table '{name}'; wanted one of: {known}")
    bench_name, _, part = name.partition("/")
    bench = declare.find(bench_name)
    found = store.load(bench_name, folder)
    if not found:
        return f"(No figures are kept yet in `bench/baselines/{bench_name}.json`.)\n"
    # The keys beside the rows are the same in all measurements of a run.
    shown = found[: 1 if part else None]
    return "\n".join(draw_table(bench, part, one) + measured_on(one) for one in shown)


def render(text: str, folder: Path | None = None) -> str:
    """The same text with every table as its figures have it."""
    return BLOCK.sub(lambda m: m[1] + draw(m["name"], folder) + m[3], text)


# --- the README -----------------------------------------------------------------------------------


def main_row(name: str, row_name: str, metric: str, folder: Path | None = None) -> Row:
    """Of all its measurements; an empty `row_name`: the row with the smallest ratio."""
    rows = [{**row, "kind": one["kind"]} for one in store.load(name, folder) for row in one["rows"]]
    if not row_name:
        return min((row for row in rows if row["ratio"] is not None), key=lambda row: row["ratio"])
    found = [row for row in rows if (row["row"], row["metric"]) == (row_name, metric)]
    if not found:
        raise ValueError(f"bench/baselines/{name}.json has no row '{row_name}', {metric}")
    return found[0]


def main_table(folder: Path | None = None) -> str:
    lines: list[list[str]] = []
    for what, name, row_name, metric in MAIN:
        row = main_row(name, row_name, metric, folder)
        if not row_name:
            what += f": {row['row']}, {row['kind']} cores"
        rival = f"{number(row['rival'])} ({row['rival_name']})" if row["rival"] is not None else "–"
        shown = [number(row["ours"]), rival, verdict(row), number(row["limit"] or None)]
        lines.append([what, *shown, f"`./dev bench {name}`"])
    heads = ["", "Lumen", "best rival", "", "limit", "command"]
    return table(heads, lines, 1) + "\n" + missed_everywhere(folder)


def missed_everywhere(folder: Path | None = None) -> str:
    missed = aimed = 0
    for bench in (one for one in declare.all_benches() if one.tables and one.has_metrics):
        for measurement in store.load(bench.name, folder):
            missed += len(misses(bench.goals, measurement["rows"]))
            aimed += count_of_rows(bench.goals, measurement["rows"])
    said = f"Of {aimed} rows that have a goal, {missed or 'none'} miss it"
    return said + (": [docs/figures.md](docs/figures.md) names each.\n" if missed else ".\n")


def draw_picture() -> str:
    """The terminal of the demo, and the figures of the MLP's rows with 16 clients."""
    (measurement,) = store.load("server")
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


def drawn_files() -> dict[Path, str]:
    drawn = {**{page: render(page.read_text()) for page in PAGES}, PICTURE: draw_picture()}
    cache = store.load("cache")
    if cache:
        drawn[REPORTS / "chrono_cache_memory.svg"] = cache_tables.memory_picture(cache[0]["curve"])
    return drawn


def differing(drawn: dict[Path, str]) -> Sequence[Path]:
    """The files that are not as they would be drawn now, but for the commits' ages."""
    without_age: Callable[[str], str] = lambda text: AGE.sub("", text)  # noqa: E731
    return [
        file
        for file, text in drawn.items()
        if not file.exists() or without_age(file.read_text()) != without_age(text)
    ]


def draw_all() -> int:
    for file, text in drawn_files().items():
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            say(f"drawn: {file.relative_to(ROOT)}")
    return 0
