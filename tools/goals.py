"""The goals of bench/goals.toml: which rows they are for, and whether a row reaches them.

Of one thread; reads one file. Errors: SystemExit names the goal that has no rule, or no row.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "bench" / "goals.toml"

Row = dict[str, Any]


def ahead(row: Row, _: Sequence[Row], ratio: float) -> bool:
    """Nothing to hold it against where no rival was measured, which the table shows."""
    return row["ratio"] is None or row["ratio"] >= ratio


def level(row: Row, _: Sequence[Row], largest_tie: float) -> bool:
    """A spread above `largest_tie` says that nothing was measured, not that two are level."""
    return ahead(row, _, 1 - min(row["spread"], largest_tie))


def of_first(row: Row, rows: Sequence[Row], part: float) -> bool:
    first = next(other for other in rows if other["metric"] == row["metric"])
    return row["ours"] >= part * first["ours"]


# A row, all rows of its table, and the number in the file.
RULES: dict[str, Callable[[Row, Sequence[Row], float], bool]] = {
    "at_most": lambda row, _, bound: row["ours"] <= bound,
    "at_least": lambda row, _, bound: row["ours"] >= bound,
    "of_limit_at_least": lambda row, _, part: row["ours"] >= part * row["limit"],
    "of_limit_at_most": lambda row, _, part: row["ours"] <= part * row["limit"],
    "over_limit_at_most": lambda row, _, more: row["ours"] <= row["limit"] + more,
    "over_rival_at_most": lambda row, _, more: row["ours"] <= row["rival"] + more,
    "under_rival_at_most": lambda row, _, less: (
        row["rival"] is None or row["ours"] >= row["rival"] - less
    ),
    "ratio_at_least": ahead,
    "level": level,
    "of_first_at_least": of_first,
}


# Rules that can't be judged if the best rival was not measured.
RIVAL_RULES = {"over_rival_at_most", "under_rival_at_most", "ratio_at_least", "level"}


@dataclass(frozen=True)
class Goal:
    rows: str
    metric: str
    wanted: str
    required: bool
    rule: str
    value: float

    def fits(self, row: Row) -> bool:
        return self.metric in ("", row["metric"]) and re.search(self.rows, row["row"]) is not None

    def judges(self, row: Row) -> bool:
        """Fits, and the row has the figure that it is to be held against: baselines.by_kind()."""
        is_open = row.get("lacks") and row["ratio"] is None and self.rule in RIVAL_RULES
        return self.fits(row) and not is_open

    def is_reached(self, row: Row, rows: Sequence[Row]) -> bool:
        return RULES[self.rule](row, rows, self.value)


@cache
def goals(bench: str, file: Path = FILE) -> tuple[Goal, ...]:
    found = []
    for entry in tomllib.loads(file.read_text()).get(bench, []):
        rules = [key for key in entry if key in RULES]
        if len(rules) != 1:
            raise SystemExit(f"{file}: [[{bench}]] {entry}: wanted one rule of {', '.join(RULES)}")
        (rule,) = rules
        metric, required = entry.get("metric", ""), entry.get("required", True)
        found.append(
            Goal(entry["rows"], metric, entry["wanted"], required, rule, float(entry[rule]))
        )
    return tuple(found)


def count_of_rows(bench: str, rows: Sequence[Row]) -> int:
    return sum(any(goal.judges(row) for goal in goals(bench)) for row in rows)


def value(bench: str, metric: str, rule: str) -> float:
    """The number of one goal, for the bench that says whether a run meets it."""
    found = [one.value for one in goals(bench) if (one.metric, one.rule) == (metric, rule)]
    if not found:
        raise SystemExit(f"{FILE}: [[{bench}]] has no goal {rule} for '{metric}'")
    return found[0]
