"""Goals of a bench: which rows each is for, and whether a row reaches it.

Pure functions; threads: any. Errors: ValueError names the goal whose rule isn't there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


def ahead(row: Row, _: Sequence[Row], ratio: float) -> bool:
    """True where no rival was measured, which the table shows."""
    return row["ratio"] is None or row["ratio"] >= ratio


def level(row: Row, _: Sequence[Row], largest_tie: float) -> bool:
    """A spread above `largest_tie` says that nothing was measured, not that two are level."""
    return ahead(row, _, 1 - min(row["spread"], largest_tie))


def of_first(row: Row, rows: Sequence[Row], part: float) -> bool:
    first = next(other for other in rows if other["metric"] == row["metric"])
    return row["ours"] >= part * first["ours"]


# By the rule's name: of a row, all rows of its table, and the goal's number.
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
    "ratio_at_least": ahead,  # above 1 ours is ahead of the best rival
    "level": level,  # ahead of it, or closer than the spread, at most this
    "of_first_at_least": of_first,  # a part of the first row's figure of this metric
}
# Rules that can't be judged if the best rival was not measured.
RIVAL_RULES = {"over_rival_at_most", "under_rival_at_most", "ratio_at_least", "level"}


@dataclass(frozen=True)
class Goal:
    rows: str  # a regular expression that the rows' names match
    rule: str
    value: float
    wanted: str  # the goal in words
    metric: str = ""  # of these rows; empty: any

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(
                f"goal {self.rows!r}: no rule {self.rule!r}; wanted {', '.join(RULES)}"
            )

    def fits(self, row: Row) -> bool:
        return self.metric in ("", row["metric"]) and re.search(self.rows, row["row"]) is not None

    def judges(self, row: Row) -> bool:
        """Fits, and the row has the figure that it is held against: rows.by_kind()."""
        is_open = row.get("lacks") and row["ratio"] is None and self.rule in RIVAL_RULES
        return self.fits(row) and not is_open

    def is_reached(self, row: Row, rows: Sequence[Row]) -> bool:
        return RULES[self.rule](row, rows, self.value)


def missed(goals: Sequence[Goal], rows: Sequence[Row]) -> list[tuple[Row, Goal]]:
    return [
        (row, goal)
        for goal in goals
        for row in rows
        if goal.judges(row) and not goal.is_reached(row, rows)
    ]


def count_of_rows(goals: Sequence[Goal], rows: Sequence[Row]) -> int:
    """Rows that have a goal."""
    return sum(any(goal.judges(row) for goal in goals) for row in rows)


def without_rows(goals: Sequence[Goal], rows: Sequence[Row]) -> list[Goal]:
    """Goals for which `rows`, of near and of far cores together, have none."""
    return [goal for goal in goals if not any(map(goal.fits, rows))]
