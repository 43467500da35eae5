"""The three charts of a report: percentiles, throughput by clients, queues near and far.

From the rows of bench clients and bench queue; None where a run has none. No state. Errors:
KeyError where rows are of another bench.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from bench.clients import PERCENTILES, samples
from bench.report import svg

Row = dict[str, Any]
PANEL_CLIENTS = (1, 16)  # of the percentiles: alone, and where a queue forms
QUEUE_ROWS = 26  # pixels a row


def series_of(contenders: Sequence[str]) -> dict[str, int]:
    """Ours have the first two colours, for any that were measured; six is all there are."""
    return {name: at for at, name in enumerate(contenders)}


def panel_frame(x: svg.Axis, y: svg.Axis, ticks: Sequence[tuple[float, str]]) -> list[str]:
    """Grid and numbers; `ticks` are the marks of x."""
    parts = []
    for value in y.ticks():
        at = y.at(value)
        parts.append(svg.line(x.first, at, x.last, at, "grid"))
        parts.append(svg.text(x.first - 6, at + 4, svg.number(value), "end"))
    for value, said in ticks:
        parts.append(svg.text(x.at(value), y.first + 18, said, "middle"))
    parts.append(svg.line(x.first, y.first, x.last, y.first, "axis"))
    return parts


def curve(points: Sequence[tuple[float, float]], series: int) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    kind = f"s{series} open"
    drawn = [f"<polyline points='{path}' class='{kind}' stroke-width='2'/>"]
    return drawn + [svg.marker(x, y, series) for x, y in points]


def latency(rows: Sequence[Row]) -> str | None:
    """A panel for each number of clients; x is 1 / (1 - p), so that the tail has room."""
    names = PERCENTILES
    found = {p: samples(rows, f"{p} latency") for p in names}
    series = series_of(list(found["p50"]))
    counts = {clients for one in found["p50"].values() for clients in one}
    panels = [clients for clients in PANEL_CLIENTS if clients in counts]
    if not panels:
        return None
    tail = {p: 1 / (1 - float(p[1:]) / 100) for p in names}
    wide = (svg.WIDTH - 16) / len(panels)
    low, high = svg.log_range(
        [median(found[p][name][c]) for p in names for name in series for c in panels]
    )
    parts = []
    for at, clients in enumerate(panels):
        left = 16 + wide * at
        x = svg.Axis(tail["p50"] * 0.8, tail["p99.9"] * 1.25, left + 46, left + wide - 16, True)
        y = svg.Axis(low, high, 300, 76, True)
        parts.append(svg.text(left + 46, 60, f"{clients} client{'s' * (clients > 1)}; µs"))
        parts += panel_frame(x, y, [(tail[p], p) for p in names])
        for name, number in series.items():
            points = [(x.at(tail[p]), y.at(median(found[p][name][clients]))) for p in names]
            parts += curve(points, number)
    parts.append(svg.text(svg.WIDTH / 2, 340, "percentile of the requests", "middle", "faint"))
    parts += svg.legend(list(series), 366)
    title = "Latency percentiles of the small MLP over HTTP, server on one core"
    return svg.picture(382, title, "Lower is better. Medians of the rounds.", parts)


def throughput(rows: Sequence[Row]) -> str | None:
    """The bars are the smallest and the largest of the rounds."""
    found = samples(rows, "throughput")
    counts = sorted({clients for one in found.values() for clients in one})
    if not counts:
        return None
    series = series_of(list(found))
    top = max(max(values) for one in found.values() for values in one.values())
    x = svg.Axis(counts[0] * 0.85, counts[-1] * 1.15, 70, svg.WIDTH - 24, True)
    y = svg.Axis(0, top * 1.05, 316, 64)
    parts = [svg.text(16, 50, "requests a second")]
    parts += panel_frame(x, y, [(clients, str(clients)) for clients in counts])
    parts.append(svg.text((70 + svg.WIDTH) / 2, 354, "clients, closed loop", "middle", "faint"))
    for name, number in series.items():
        of_name = found[name]
        for clients in of_name:
            values, at = of_name[clients], x.at(clients)
            parts.append(svg.line(at, y.at(min(values)), at, y.at(max(values)), f"s{number}"))
        points = [(x.at(c), y.at(median(of_name[c]))) for c in sorted(of_name)]
        parts += curve(points, number)
    parts += svg.legend(list(series), 380)
    title = "Throughput of the small MLP over HTTP by clients, server on one core"
    return svg.picture(396, title, "Higher is better. Medians, smallest and largest.", parts)


def queue_panel(kind: str, rows: Sequence[Row], top: float, most: float, low: float) -> list[str]:
    """A line a row: ours, the best rival and the rest as dots."""
    parts = [svg.text(16, top + 16, f"{kind} cores; millions of messages a second")]
    if not rows:
        said = f"Nothing was measured while the cores were {kind}."
        return [*parts, svg.text(32, top + 40, said, kind="faint")]
    bottom = top + 30 + QUEUE_ROWS * len(rows)
    x = svg.Axis(low, most, 290, svg.WIDTH - 24, True)
    for value in x.ticks():
        parts.append(svg.line(x.at(value), top + 26, x.at(value), bottom, "grid"))
        parts.append(svg.text(x.at(value), bottom + 16, svg.number(value), "middle"))
    for at, row in enumerate(rows):
        y = top + 26 + QUEUE_ROWS * (at + 0.5)
        parts.append(svg.text(282, y + 4, row["row"], "end"))
        parts.append(svg.line(290, y, svg.WIDTH - 24, y, "grid"))
        for name, values in row["rounds"].items():
            series = 0 if name == "lumen" else 1 if name == row["rival_name"] else 5
            parts.append(svg.marker(x.at(median(values)), y, series))
    return parts


def queues(measurements: Sequence[dict[str, Any]]) -> str | None:
    """`measurements`: as in a baseline, each with its kind of cores."""
    by_kind = {
        kind: [
            row
            for one in measurements
            if one["kind"] == kind
            for row in one["rows"]
            if row["metric"] == "mops"
        ]
        for kind in ("near", "far")
    }
    values = [
        median(values_of)
        for rows in by_kind.values()
        for row in rows
        for values_of in row["rounds"].values()
    ]
    if not values:
        return None
    low, most = svg.log_range(values)
    parts, top = [], 40.0
    for kind, rows in by_kind.items():
        parts += queue_panel(kind, rows, top, most, low)
        top += 64 + QUEUE_ROWS * max(len(rows), 1)
    for at, (name, series) in enumerate((("Lumen", 0), ("best rival", 1), ("other rivals", 5))):
        parts += [
            svg.marker(22 + 130 * at, top + 4, series),
            svg.text(32 + 130 * at, top + 8, name),
        ]
    return svg.picture(top + 24, "Queues: throughput", "Further right is better. Medians.", parts)
