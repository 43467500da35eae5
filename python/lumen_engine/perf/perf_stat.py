"""Reads the output of `perf stat -x,`: pure, from text to counts.

A count is a number, "not supported" (the machine has no such counter), or "not counted" (it was
never scheduled). Counts that perf extrapolated, because it had more events than counters, keep the
share of the time that they stand on. Threads: any. Errors: PerfStatError with line and text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

NOT_SUPPORTED = "not supported"
NOT_COUNTED = "not counted"
COUNTED = "counted"

# perf's own synonyms, and the names of the same counter on AMD and Intel.
ALIASES = {
    "cpu-cycles": "cycles",
    "branch-instructions": "branches",
    "cs": "context-switches",
    "migrations": "cpu-migrations",
    "faults": "page-faults",
    "L1-dcache-load": "L1-dcache-loads",
    "l1-dcache-loads": "L1-dcache-loads",
    "l1d-loads": "L1-dcache-loads",
    "l1-dcache-load-misses": "L1-dcache-load-misses",
    "l1d-load-misses": "L1-dcache-load-misses",
    "LLC-load": "LLC-loads",
    "LLC-read": "LLC-loads",
    "llc-loads": "LLC-loads",
    "LLC-read-misses": "LLC-load-misses",
    "llc-load-misses": "LLC-load-misses",
    "ex_ret_instr": "instructions",
    "ls_not_halted_cyc": "cycles",
    "inst_retired.any": "instructions",
    "cpu_clk_unhalted.thread": "cycles",
}

# A locale's decimal comma stands where the separator does: "1089,57,msec,task-clock,...". After a
# number's comma come digits and a unit; an event never begins with a digit.
LINE = re.compile(
    r"(?P<value><not supported>|<not counted>|\d+(?:\.\d+)?(?:,\d+(?=,[A-Za-z/]*,[A-Za-z]))?)"
    r",(?P<unit>[A-Za-z/]*)"
    r",(?P<event>[A-Za-z_][^,/]*(?:/[^/]*/[A-Za-z]*)?)"
    r"(?:,(?P<ran_ns>\d+),(?P<share>\d+(?:[.,]\d+)?))?"
    r"(?:,.*)?"
)
# cpu_core/cycles/u: unit of a hybrid CPU, event, modifiers. cycles:u: event, modifiers.
WITH_UNIT = re.compile(r"(?P<pmu>[\w.-]+)/(?P<event>[^/]*)/(?P<modifiers>[A-Za-z]*)")
PLAIN = re.compile(r"(?P<event>[^:]+(?:::[^:]+)?)(?::(?P<modifiers>[A-Za-z]+))?")


class PerfStatError(ValueError):
    """A line that `perf stat -x,` does not print."""


@dataclass(frozen=True)
class Count:
    event: str
    value: float | None
    status: str = COUNTED
    share: float = 100.0  # percent of the time that it was on a counter
    user_only: bool = False  # the kernel's side is not in it

    @property
    def is_estimate(self) -> bool:
        return self.value is not None and self.share < 99.95


def parse_event(text: str) -> tuple[str, bool]:
    """The event's name and whether only the user's side counts: `cpu_core/cycles/u` is cycles."""
    found = WITH_UNIT.fullmatch(text) or PLAIN.fullmatch(text)
    if found is None:
        return text, False
    event, modifiers = found["event"], found["modifiers"] or ""
    return ALIASES.get(event, event), "u" in modifiers and "k" not in modifiers


def parse_number(text: str) -> float:
    return float(text.replace(",", "."))


def parse_line(number: int, line: str) -> Count:
    found = LINE.fullmatch(line)
    if found is None:
        raise PerfStatError(
            f"line {number}: got {line!r}, wanted VALUE,UNIT,EVENT,NS,PERCENT as `perf stat -x,` "
            "prints it; is it the output of another program or option?"
        )
    event, user_only = parse_event(found["event"])
    share = parse_number(found["share"]) if found["share"] else 100.0
    if found["value"].startswith("<"):
        return Count(event, None, found["value"].strip("<>"), share, user_only)
    return Count(event, parse_number(found["value"]), COUNTED, share, user_only)


def merge(one: Count, other: Count) -> Count:
    """The same event of the two kinds of cores of a hybrid CPU; counts that one kind lacks are not
    lost.
    """
    if one.value is None or other.value is None:
        return other if one.value is None else one
    return Count(
        one.event,
        one.value + other.value,
        COUNTED,
        min(one.share, other.share),
        one.user_only or other.user_only,
    )


def lines_of(text: str) -> Iterable[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        # A line that begins with separators holds one more metric of the event above it.
        if line and not line.startswith(("#", ",")):
            yield number, line


def parse(text: str) -> dict[str, Count]:
    """By event, for any name and modifiers that perf gave it."""
    counts: dict[str, Count] = {}
    for number, line in lines_of(text):
        count = parse_line(number, line)
        known = counts.get(count.event)
        counts[count.event] = count if known is None else merge(known, count)
    if not counts:
        raise PerfStatError("no counts: got an empty output, wanted one line an event")
    return counts
