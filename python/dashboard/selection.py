"""Which rows the user wants to see, and the columns that tell the series of a picture apart.

Pure but for `Selection.groups` and its like, which keep their results: a page asks for
the same several times, and each look at 10 M rows costs a second. Threads: any.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from .store import Content

DIMENSIONS = ("queue_type", "allocator_type", "lane", "model", "run", "status")
SPLITS: dict[str, tuple[str, ...]] = {
    "Queue type × allocator": ("queue_type", "allocator_type"),
    "Queue type": ("queue_type",),
    "Allocator": ("allocator_type",),
    "Lane": ("lane",),
    "Queue type × lane": ("queue_type", "lane"),
    "Model": ("model",),
    "Run": ("run",),
    "Status": ("status",),
}
# Results of a few selections of a few sessions: sorted columns are 4 bytes a row.
MEMO_ENTRIES = 24


@dataclass(frozen=True)
class Choice:
    """Values of each dimension, none meaning all; and the dimensions that make the series."""

    queue_type: tuple[str, ...] = ()
    allocator_type: tuple[str, ...] = ()
    lane: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    warm_up: bool = False
    split: tuple[str, ...] = ("queue_type", "allocator_type")

    def conditions(self) -> list[pl.Expr]:
        found = []
        for name in DIMENSIONS:
            values = getattr(self, name)
            if values and name == "status":
                found.append(pl.col(name).is_in([int(value) for value in values]))
            elif values:
                found.append(pl.col(name).is_in(list(values)))
        if not self.warm_up:
            found.append(~pl.col("warm_up"))
        return found

    def allows(self, **values: str) -> bool:
        """Whether a row of a document that has these values is wanted; empty: it does not say."""
        return all(
            not getattr(self, name) or not value or value in getattr(self, name)
            for name, value in values.items()
        )


class Memo:
    """The latest results. The oldest goes first."""

    def __init__(self, entries: int = MEMO_ENTRIES) -> None:
        self._entries = entries
        self._lock = threading.Lock()
        self._found: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        # Held while it is made: two sessions that look at the same share the work.
        with self._lock:
            if key not in self._found:
                self._found[key] = make()
                while len(self._found) > self._entries:
                    self._found.popitem(last=False)
            self._found.move_to_end(key)
            return self._found[key]


@dataclass(frozen=True)
class Selection:
    """The rows of a content that a choice wants."""

    content: Content
    choice: Choice
    memo: Memo

    def rows(self, *columns: str) -> pl.LazyFrame:
        """Only these columns are copied."""
        lazy = self.content.rows.lazy()
        conditions = self.choice.conditions()
        return (lazy.filter(conditions) if conditions else lazy).select(columns)

    def slowest(self) -> pl.DataFrame:
        conditions = self.choice.conditions()
        found = self.content.slowest
        return found.filter(conditions) if conditions else found

    def kept(self, what: str, make: Callable[[], Any], *more: Any) -> Any:
        key = (self.content.version, what, self.choice, more)
        return self.memo.get(key, make)


def options(content: Content, memo: Memo) -> dict[str, list[str]]:
    """The values of each dimension, in rows and in documents."""

    def make() -> dict[str, list[str]]:
        pairs = content.rows.lazy().group_by(DIMENSIONS).len().collect()
        found: dict[str, set[str]] = {}
        for name in DIMENSIONS:
            found[name] = {str(value) for value in pairs[name].drop_nulls().unique().to_list()}
        documents = content.documents
        for each in (*documents.cells, *documents.loads, *documents.rivals, *documents.perf):
            for name in DIMENSIONS:
                if value := getattr(each, name, ""):
                    found[name].add(value)
        return {name: sorted(values) for name, values in found.items()}

    return memo.get((content.version, "options"), make)
