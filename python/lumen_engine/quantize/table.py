"""The table that `lumen quantize` prints. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lumen_engine._command_line import table
from lumen_engine.quantize.distance import SAME_DB
from lumen_engine.quantize.gate import Choice, Entry, fastest

TITLES = ["", "backend", "us a row", "x f32", "size", "signal/error", "top-1", "metric", "gate"]


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _row(entry: Entry, base_us: float, choice: Choice) -> list[str]:
    name = ("* " if entry is choice.entry else "  ") + entry.candidate.name
    found = entry.judgement
    if found is None:
        return [name, entry.backend, "-", "-", megabytes(len(entry.candidate.model)), *"----"]
    return [
        name,
        entry.backend,
        f"{entry.us:,.1f}",
        f"{base_us / entry.us:.2f}",
        megabytes(len(entry.candidate.model)),
        "same" if found.sqnr_db >= SAME_DB else f"{found.sqnr_db:.1f} dB",
        "-" if found.top1 is None else f"{100 * found.top1:.1f} %",
        "-" if found.metric is None else f"{found.metric:.6g}",
        found.verdict.value,
    ]


def make_table(entries: Sequence[Entry], choice: Choice) -> str:
    floats = [one for one in entries if one.candidate.name == "f32" and one.judgement]
    base = fastest(floats)
    rows = [TITLES, *(_row(one, base.us if base else one.us, choice) for one in entries)]
    if all(row[7] == "-" for row in rows[1:]):
        rows = [row[:7] + row[8:] for row in rows]
    lines = table(rows, left={0, 1, len(rows[0]) - 1})
    problems = [
        f"  {one.candidate.name} in {one.backend}: {one.problem}" for one in entries if one.problem
    ]
    return "\n".join([*lines, *problems]) + "\n"
