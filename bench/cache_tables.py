"""The tables and the picture of bench/cache.py's documents, from its kept figures.

`./dev bench cache` prints, beside its rows, `story` (every step's samples), `counted` (an
operation's instructions and misses), `massif` and `curve` (peak memory by entries). Text out; no
state. Errors: KeyError where the baseline was made without one of these groups.
"""

from __future__ import annotations

from html import escape
from statistics import median
from typing import Any

from bench.runner.tables import table

# Step: its news. The rest of the words stand in the report.
STEPS = {
    "v1.0.00": "unordered_map, steady_clock, one value a node",
    "v1.0.01": "no clock read on put, capacity reserved",
    "v1.0.02": "nodes from a monotonic arena",
    "v2.0.00": "flat table with control bytes",
    "v2.1.00": "its arrays from pages of its own",
    "v2.2.00-lru": "with the Lru policy",
    "v2.2.00-lfu": "with the Lfu policy",
    "v2.3.00": "expiry by a SIMD sweep",
    "v3.0.00-mutex": "threads: one mutex",
    "v3.0.00-striped": "threads: 4 shards with a mutex each",
    "v3.0.01": "expiry in the background, size in O(1)",
    "v3.1.00": "the library: reads without a lock",
    "v3.2.00": "an arena a shard, NUMA",
}
STORY = {
    "putSingle": "putSingle, ns",
    "putStress": "putStress, ns",
    "putStressLongest": "longest put, µs",
    "getHit": "getHit, ns",
    "getRandomKeys": "random keys, ns",
    "GetMiss": "GetMiss, ns",
    "MiB": "10 M entries, MiB",
    "allocations": "allocations for 10 M",
    "reads1": "reads, 1 thread, M/s",
    "reads2": "2 threads",
}


def number(value: float) -> str:
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # 0.0: never "-0.00"


def story(document: dict[str, Any]) -> str:
    """One line a step; medians. The step before stands above it."""
    rows = []
    for step, found in document["story"].items():
        if step not in STEPS:
            raise SystemExit(
                f"bench/cache_tables.py: the step {step} has no words: add it to STEPS"
            )
        cells = [number(median(found[key])) if found.get(key) else "–" for key in STORY]
        rows.append([f"`{step}`", STEPS[step], *cells])
    return table(["step", "what is new", *STORY.values()], rows, 2)


def counts(document: dict[str, Any]) -> str:
    """Of each row and contender: the counts of an operation."""
    counted = document["counted"]
    if counted is None:
        return "Neither hardware counters nor callgrind could be had.\n"
    by_row = {row: found for row, found in counted.items() if row != "how"}
    keys = next(one for found in by_row.values() for one in found.values() if one).keys()
    rows = [
        [row, name, *([number(one[key]) for key in keys] if one else ["–"] * len(keys))]
        for row, found in by_row.items()
        for name, one in found.items()
    ]
    said = f"An operation's share, {counted['how']}.\n\n"
    return said + table(["row", "contender", *keys], rows, 2) + pages(document["massif"])


def pages(massif: dict[str, Any] | None) -> str:
    if massif is None:
        return ""
    return (
        f"\nmassif, all mapped pages, {massif['entries'] / 1e6:.0f} M entries: "
        f"{massif['grown_mib']:.1f} MiB more than with one entry, some of it never touched.\n"
    )


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 800, 360, 64, 44, 48
COLOURS = {"lumen": "#2f6feb", "boost_flat": "#d29922", "naive": "#9aa4b2"}


def memory_picture(curve: dict[str, list[list[float]]]) -> str:
    """Bytes an entry (peak, VmHWM) by the number of entries, 1 to 12.8 M, both from 0 or 1 on."""
    points = {name: [(n / 1e6, mib * (1 << 20) / n) for n, mib, _ in found]
              for name, found in curve.items()}  # fmt: skip
    most_n = max(n for found in points.values() for n, _ in found)
    most_y = max(y for found in points.values() for _, y in found) * 1.05

    def x_of(n: float) -> float:
        return LEFT + (WIDTH - LEFT - 24) * n / most_n

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most_y

    font = "font-family='system-ui,Helvetica,Arial,DejaVu Sans,sans-serif' fill='#1f2328'"
    parts = [
        f"<rect width='{WIDTH}' height='{HEIGHT}' rx='8' fill='#fff' stroke='#d0d7de'/>",
        f"<text x='16' y='26' {font} font-size='14'>Peak memory, bytes an &lt;int, int&gt; entry,"
        " nothing reserved</text>",
    ]
    step = 10 if most_y < 80 else 20
    for value in range(0, int(most_y) + 1, step):
        y = y_of(value)
        parts.append(
            f"<line x1='{LEFT}' x2='{WIDTH - 24}' y1='{y:.1f}' y2='{y:.1f}' stroke='#e6e9ed'/>"
        )
        place = f"x='{LEFT - 8}' y='{y + 4:.1f}' text-anchor='end'"
        parts.append(f"<text {place} {font} font-size='12'>{value}</text>")
    for millions in range(0, int(most_n) + 1, 2):
        place = f"x='{x_of(millions):.1f}' y='{HEIGHT - BOTTOM + 18}' text-anchor='middle'"
        parts.append(f"<text {place} {font} font-size='12'>{millions} M</text>")
    for at, (name, found) in enumerate(points.items()):
        colour = COLOURS.get(name, "#8250df")
        path = " ".join(f"{x_of(n):.1f},{y_of(value):.1f}" for n, value in found)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        x = LEFT + 16 + 150 * at
        parts.append(f"<rect x='{x}' y='{HEIGHT - 18}' width='12' height='4' fill='{colour}'/>")
        parts.append(
            f"<text x='{x + 18}' y='{HEIGHT - 12}' {font} font-size='12'>{escape(name)}</text>"
        )
    view = f"viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {view}>\n" + "\n".join(parts) + "\n</svg>\n"
