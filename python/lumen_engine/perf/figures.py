"""Figures from counts: instructions a cycle, miss rates, shares of pipeline slots. Pure.

A figure that the machine did not count is None; the report then says "not measured". Threads: any.
Errors: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lumen_engine.perf.perf_stat import Count

TOP_DOWN = {
    "retiring": "topdown-retiring",
    "bad speculation": "topdown-bad-spec",
    "front end bound": "topdown-fe-bound",
    "back end bound": "topdown-be-bound",
}


def value(counts: Mapping[str, Count], event: str) -> float | None:
    found = counts.get(event)
    return None if found is None else found.value


def ratio(counts: Mapping[str, Count], part: str, whole: str) -> float | None:
    """Of two counts; None where one is missing, or where they count different sides."""
    over, under = counts.get(part), counts.get(whole)
    if over is None or under is None or over.value is None or not under.value:
        return None
    return over.value / under.value if over.user_only == under.user_only else None


@dataclass(frozen=True)
class Derived:
    instructions_per_cycle: float | None = None
    llc_miss_rate: float | None = None
    # Which events the rate is of: many AMD CPUs have no LLC-loads.
    llc_events: str = "LLC-load-misses / LLC-loads"
    l1_miss_rate: float | None = None
    branch_miss_rate: float | None = None
    top_down: dict[str, float] | None = None


def top_down(counts: Mapping[str, Count]) -> dict[str, float] | None:
    """Shares of all slots by their use; they add up to 1."""
    found = {name: value(counts, event) for name, event in TOP_DOWN.items()}
    total = sum(part or 0.0 for part in found.values())
    if any(part is None for part in found.values()) or total <= 0:
        return None
    return {name: (part or 0.0) / total for name, part in found.items()}


def derive(counts: Mapping[str, Count]) -> Derived:
    llc = ratio(counts, "LLC-load-misses", "LLC-loads")
    events = "LLC-load-misses / LLC-loads"
    if llc is None:
        llc = ratio(counts, "cache-misses", "cache-references")
        events = "cache-misses / cache-references" if llc is not None else events
    return Derived(
        instructions_per_cycle=ratio(counts, "instructions", "cycles"),
        llc_miss_rate=llc,
        llc_events=events,
        l1_miss_rate=ratio(counts, "L1-dcache-load-misses", "L1-dcache-loads"),
        branch_miss_rate=ratio(counts, "branch-misses", "branches"),
        top_down=top_down(counts),
    )
