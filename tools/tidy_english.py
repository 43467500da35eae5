"""Plain English for tidy.py: clauses as nouns ("what waits", "whoever takes it") in comments.

The reader has to guess the noun, so the thing is named instead: "requests that wait", "the thread
that takes it". LevelDB has 0.3 of these words in 1,000, simdjson 0.6. Genuine questions
count, too: they are few. Pure functions over text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import tidy_cpp

CLAUSE = re.compile(r"\b(?:what|who|whom|whoever|whatever)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
# Code in a comment: `what`, <what>, and text that a program prints.
QUOTED = re.compile(r"`[^`\n]*`|<[^<>\n]*>|\"[^\"\n]*\"")


@dataclass(frozen=True)
class Count:
    words: int
    clauses: int
    first_line: int  # of a clause; 1 where there is none

    def in_1000(self) -> float:
        return 1000 * self.clauses / self.words if self.words else 0.0


def count(text: str) -> Count:
    """Of the comments of a C++ file."""
    words = clauses = 0
    first_line = 1
    for line, comment in tidy_cpp.comments(text):
        plain = QUOTED.sub(" ", comment)
        words += len(WORD.findall(plain))
        found = len(CLAUSE.findall(plain))
        if found and not clauses:
            first_line = line
        clauses += found
    return Count(words, clauses, first_line)
