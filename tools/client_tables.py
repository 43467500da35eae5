"""Tables and series of `./dev bench clients`: every server's throughput and percentiles by clients.

The rows of ours hold the rounds of all contenders. One thread; text and numbers out; no state.
Errors: KeyError where the document is not of that bench.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

ROW = re.compile(r"^mlp, (\d+) clients?, (\S+)$")
PERCENTILES = ("p50", "p90", "p99", "p99.9")
SHOWN = ("p50", "p99", "p99.9")  # of the table: a fourth would not fit the cell

Samples = dict[str, dict[int, list[float]]]


def samples(rows: Sequence[dict[str, Any]], metric: str) -> Samples:
    """Contender by contender, ours first, and then by clients: the rounds."""
    found: Samples = {}
    of_metric = [row for row in rows if row["metric"] == metric]
    for is_ours in (True, False):
        for row in of_metric:
            match = ROW.match(row["row"])
            if match is None:
                raise KeyError(f"{row['row']}: not a row of ./dev bench clients")
            for name, values in row["rounds"].items():
                if name.startswith("lumen") == is_ours:
                    found.setdefault(name, {})[int(match[1])] = values
    return found


def middle(values: Sequence[float]) -> str:
    found = median(values)
    return f"{found:,.0f}" if found >= 100 else f"{found:,.1f}"


def draw(document: dict[str, Any]) -> str:
    rates = samples(document["rows"], "throughput")
    latencies = {p: samples(document["rows"], f"{p} latency") for p in SHOWN}
    counts = sorted({clients for found in rates.values() for clients in found})
    head = "| clients | " + " | ".join(rates) + " |\n|---:|" + "---:|" * len(rates) + "\n"
    said = "Requests a second, the small MLP, medians; in brackets (largest - smallest) / median:\n"
    said += "\n" + head
    for clients in counts:
        cells = []
        for found in rates.values():
            values = found[clients]
            spread = (max(values) - min(values)) / median(values)
            cells.append(f"{middle(values)} ({spread:.0%})")
        said += f"| {clients} | " + " | ".join(cells) + " |\n"
    said += f"\nLatency of the same: {', '.join(SHOWN)}, µs:\n\n" + head
    for clients in counts:
        cells = [", ".join(middle(latencies[p][name][clients]) for p in SHOWN) for name in rates]
        said += f"| {clients} | " + " | ".join(cells) + " |\n"
    return said
