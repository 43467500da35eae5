"""The question: how do the queue types and the allocators differ on the small MLP?

`lumen matrix --model mlp`: a server for each combination, in turns, with heap calls and arena
memory counted. A row is a combination, with columns of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

from bench.runner import Bench, Run
from bench.runner.places import program, run_json
from bench.runner.rows import Document
from bench.runner.tables import table

# Heading, keys in the JSON of `lumen matrix`, decimals.
COLUMNS = (
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


def measure(run: Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = ["matrix", "--model", "mlp", "--rounds", str(run.rounds), "--json"]
        found = run_json([program("lumen"), *words, "--out", folder])
    run.rows = found.pop("rows")
    run.more |= found


def draw(document: Document) -> str:
    def cell(row: dict[str, Any], keys: Sequence[str], decimals: int) -> str:
        if row["error"]:
            return "failed"
        values = [row[key] for key in keys]
        return ", ".join("n/a" if v is None else f"{v:,.{decimals}f}" for v in values)

    heads = ["queue", "allocator", *[heading for heading, _, _ in COLUMNS]]
    lines = [
        [row["queue_type"], row["allocator_type"]]
        + [cell(row, keys, decimals) for _, keys, decimals in COLUMNS]
        for row in document["rows"]
    ]
    said = (
        f"Model `{document['model']}`, {document['requests']:,} requests over "
        f"{document['clients']} connections, medians of {document['rounds']} rounds.\n\n"
    )
    return said + table(heads, lines, 2)


BENCH = Bench(
    title="Queue types and allocators",
    measure=measure,
    minutes=0.3,
    quick_minutes=0.2,
    rounds=(5, 2),
    sources=("include/**", "src/**", "apps/**"),
    has_metrics=False,
    tables={"": draw},
)
