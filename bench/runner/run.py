"""One run of a bench: its arguments, its rounds, and the rows that it has made so far.

Threads: one. Errors: BenchError ends the run; the rows that were made are printed all the same.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from bench.runner.places import BenchError, say
from bench.runner.rows import Document, Row

__all__ = ["BenchError", "Run"]

T = TypeVar("T")


class Run:
    def __init__(self, options: argparse.Namespace, groups: Sequence[str] = ()) -> None:
        self.options = options
        self.is_quick: bool = options.quick
        self.rounds: int = options.rounds
        self.seconds: float = options.seconds  # of a measurement
        self.groups = groups  # of rows, that are wanted
        self.rows: list[Row] = []
        self.more: Document = {}  # beside the rows in the document
        self.failures: list[str] = []  # of our own programs: the exit status is 1 then

    def pick(self, full: T, quick: T) -> T:
        return quick if self.is_quick else full

    def wants(self, row_name: str) -> bool:
        """--rows; ask before a measurement that takes long."""
        return re.search(self.options.rows, row_name) is not None

    def add(self, *rows: Row | None) -> None:
        self.rows += [row for row in rows if row is not None and self.wants(row["row"])]

    def turns(self, contenders: Sequence[T]) -> Iterator[list[T]]:
        """All contenders, once a round; another is the first in each, so that none always follows
        the same neighbour. Says how far it is."""
        for number in range(self.rounds):
            yield rotated(contenders, number)
            say(f"round {number + 1} of {self.rounds}")

    def document(self, name: str) -> dict[str, Any]:
        return {"bench": name, "rows": self.rows, **self.more}


def rotated(contenders: Sequence[T], by: int) -> list[T]:
    at = by % max(1, len(contenders))
    return [*contenders[at:], *contenders[:at]]
