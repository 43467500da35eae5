"""A bench's declaration, its module's BENCH, and how benches are found.

A bench is told in one place: adding bench/NAME.py with a BENCH adds its command, its kept figures,
its table, its goals and its part of the report. Errors: KeyError names the bench that isn't there.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bench.runner.goals import Goal
from bench.runner.places import ROOT
from bench.runner.run import Run
from bench.runner.tables import compared

__all__ = ["Bench", "Goal", "Option", "Part", "all_benches", "find", "names"]

DECLARES = re.compile(r"^BENCH = Bench\(", re.MULTILINE)


@dataclass(frozen=True)
class Option:
    """An argument beside those of every bench."""

    name: str
    default: Any
    help: str


@dataclass(frozen=True)
class Part:
    """A run of the bench in a full report, which goes on between two. Minutes: on two CPUs."""

    name: str
    title: str
    minutes: float
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bench:
    title: str
    measure: Callable[[Run], None]
    # The files that decide the figures, as globs from the project's root with at most one pair of
    # braces. The bench's own file need not be named.
    sources: tuple[str, ...]
    minutes: float  # of a full run and of a quick one, on a quiet machine with two CPUs
    quick_minutes: float
    rounds: tuple[int, int] = (5, 2)  # of a full run and of a quick one
    seconds: tuple[float, float] = (1.0, 0.3)  # of a measurement
    options: tuple[Option, ...] = ()
    groups: tuple[str, ...] = ()  # of rows, for --only
    quick_groups: tuple[str, ...] = ()  # of a quick run; empty: all
    quick_words: tuple[str, ...] = ()  # of a quick run in a report
    parts: tuple[Part, ...] = ()  # of a full report; empty: one run has all
    goals: tuple[Goal, ...] = ()
    has_a_row_for_each_goal: bool = False  # then figures without one are not kept
    # Packages of the system with rivals: "NAME | ITS NAME ELSEWHERE".
    packages: tuple[str, ...] = ()
    # By the part of a document's name behind the bench's: "cache/story" is "story" of cache.
    tables: Mapping[str, Callable[[dict[str, Any]], str]] = field(
        default_factory=lambda: {"": compared}
    )
    has_metrics: bool = True  # False: its rows are combinations with columns of their own
    is_kept: bool = True  # in bench/baselines, with a table in docs/figures.md
    cpus: int = 2
    name: str = ""  # of its module; find() sets it
    question: str = ""  # the module's text


@cache
def names() -> tuple[str, ...]:
    """The modules in bench/ that declare a bench, without importing any."""
    files = sorted((ROOT / "bench").glob("*.py"))
    return tuple(file.stem for file in files if DECLARES.search(file.read_text()))


@cache
def find(name: str) -> Bench:
    if name not in names():
        raise KeyError(f"no bench {name!r}; wanted one of: {' '.join(names())}")
    module = importlib.import_module(f"bench.{name}")
    bench: Bench = module.BENCH
    object.__setattr__(bench, "name", name)
    object.__setattr__(bench, "question", module.__doc__ or "")
    return bench


def all_benches() -> Sequence[Bench]:
    return [find(name) for name in names()]
