"""The table that `lumen perf` prints: the phases side by side, the changes, the simulated figures.

Pure: from a Result to text. Threads: any. Errors: none.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from lumen_engine.perf.perf_stat import Count
from lumen_engine.perf.result import ROWS, Phase, Result, Row, percent, relative, verdict

COLUMNS = 100
NOT_MEASURED = "not measured"


def shown(row: Row, phase: Phase) -> str:
    found = row.get(phase)
    if found is None:
        return NOT_MEASURED
    if row.is_rate:
        return f"{100 * found:.{row.digits}f} %"
    return f"{found:,.{row.digits}f}"


def changed(row: Row, first: Phase, last: Phase) -> str:
    before, after = row.get(first), row.get(last)
    if before is None or after is None:
        return ""
    if row.is_rate:
        return f"{100 * (after - before):+.{row.digits}f} points".replace("-", "−")
    change = relative(before, after)
    if change is None:
        return "" if after == before else f"+{after:,.{row.digits}f}"
    return percent(change)


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, the others to the right."""
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]


def phase_table(result: Result) -> list[str]:
    """Without counters their rows are one, and not eleven that say the same."""
    phases = result.phases
    several = len(phases) > 1
    lines = [["", *(phase.plan.name for phase in phases), *(["change"] if several else [])]]
    missing = []
    for row in ROWS:
        if row.needs_counters and all(row.get(phase) is None for phase in phases):
            missing.append(row)
            if row.key not in ("ipc", "llc_miss_rate"):
                continue
        cells = [row.label, *(shown(row, phase) for phase in phases)]
        lines.append(cells + ([changed(row, phases[0], phases[-1])] if several else []))
    table = aligned(lines)
    table.insert(1, "-" * max(len(line) for line in table))
    left_out = [row.label for row in missing if row.key not in ("ipc", "llc_miss_rate")]
    if left_out:
        # The four rows of slots are one thing to a reader.
        named = dict.fromkeys(re.sub("^slots: .*", "top-down slots", one) for one in left_out)
        table += ["", *wrapped(f"Not measured either: {', '.join(named)}.")]
    return table


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def other_events(phases: Sequence[Phase]) -> list[str]:
    used = {phase.derived.llc_events for phase in phases if phase.derived.llc_miss_rate is not None}
    if "cache-misses / cache-references" not in used:
        return []
    return wrapped(
        "The LLC miss rate is that of cache-misses and cache-references, which on AMD are those of "
        "the L2: this CPU has no events LLC-loads and LLC-load-misses."
    )


def estimates(phases: Sequence[Phase]) -> list[str]:
    """Which counts perf extrapolated, and from how much of the time."""
    found: dict[str, Count] = {}
    for phase in phases:
        for event, count in phase.counts.items():
            if count.is_estimate and (event not in found or count.share < found[event].share):
                found[event] = count
    if not found:
        return []
    least = min(count.share for count in found.values())
    return wrapped(
        f"perf had more events than counters: {len(found)} of the counts are extrapolated from "
        f"{least:.0f} % or more of the time."
    )


def simulated_lines(result: Result) -> list[str]:
    one = result.simulated
    if one is None:
        return []
    return [
        "",
        *wrapped(f"Simulated, a request ({result.simulated_how}):"),
        *aligned(
            [
                ["  instructions", f"{one.instructions:,.0f}"],
                ["  data accesses", f"{one.data_accesses:,.0f}"],
                ["  L1 data misses", f"{one.d1_misses:,.0f}"],
                ["  last level misses", f"{one.ll_misses:,.0f}"],
            ]
        ),
    ]


def make_table(result: Result) -> str:
    machine = ", ".join(str(value) for value in result.machine.values())
    lines = [f"{result.model} on {machine}", *result.server, ""]
    lines += phase_table(result)
    lines += [*other_events(result.phases), *estimates(result.phases)]
    if any(phase.load.client_bound for phase in result.phases):
        lines.append("The load client was the limit of a phase: its figures are of the client.")
    lines += simulated_lines(result)
    if len(result.phases) > 1:
        lines += ["", *wrapped(verdict(result.phases[0], result.phases[-1]) + ".")]
    lines += [f"Flame graph: {result.flame}"] if result.flame else []
    lines += (
        ["", *(line for note in result.notes for line in wrapped(f"note: {note}"))]
        if result.notes
        else []
    )
    return "\n".join(lines) + "\n"
