"""The readers of a counters file's parts: pieces of words into one buffer, its texts, descriptors.

Keeps account of the bytes that one look has read and kept, so that no file can ask for any number.
Threads: one at a time. Errors: CountersFileError.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumen_engine._counters_layout import (
    DESCRIPTOR_BYTES,
    NAME_BYTES,
    WORD,
    CountersFileError,
    RegionFile,
    Table,
    Words,
    text_of,
)
from lumen_engine._counters_types import Descriptor

HalfWords = NDArray[np.uint32]

# Of one look. A server of 256 models and 64 I/O threads that has used all: 2.4 GB and 40 MB.
MAX_BYTES_READ = 4 << 30
MAX_BYTES_KEPT = 512 << 20
# The cost of a read beside its bytes, so that a file can't ask for billions of small ones.
READ_COST_BYTES = 1_024


class PieceReader:
    def __init__(self, file: RegionFile) -> None:
        self.file = file
        self._room = np.zeros(0, dtype=np.uint64)
        self._read = 0
        self._kept = 0

    def begin_look(self) -> None:
        self._read = self._kept = 0

    def error(self, message: str) -> CountersFileError:
        return self.file.error(message)

    def charge(self, read: int, kept: int = 0) -> None:
        self._read += read + READ_COST_BYTES
        self._kept += kept
        if self._read > MAX_BYTES_READ or self._kept > MAX_BYTES_KEPT:
            raise self.error(
                f"has more to read than any server's file: over {MAX_BYTES_READ >> 20} MiB, or"
                f" {MAX_BYTES_KEPT >> 20} MiB to keep; it is damaged"
            )

    def scratch(self, words: int) -> Words:
        """The one buffer; its earlier content is overwritten."""
        if len(self._room) < words:
            self._room = np.zeros(words, dtype=np.uint64)
        return self._room[:words]

    def read_words(self, target: Words, offset: int, what: str) -> None:
        self.charge(target.nbytes)
        if len(target):
            self.file.read_into(target.data.cast("B"), offset, what)

    def names(self, table: Table, count: int | None = None) -> list[str]:
        names = []
        for i in range(table.count if count is None else count):
            raw = self.file.read(NAME_BYTES, table.at(i), "a name")
            names.append(text_of(raw, f"name {i} at {table.at(i)}", self.error))
        return names

    def descriptors(self, table: Table) -> list[Descriptor]:
        found = []
        for i in range(table.count):
            raw = self.file.read(DESCRIPTOR_BYTES, table.at(i), "a descriptor")
            kind = int.from_bytes(raw[:4], "little")
            spans = ((8, 40), (40, 104), (104, 120), (120, 256))
            where = f"descriptor {i} at {table.at(i)}"
            texts = [text_of(raw[first:end], where, self.error) for first, end in spans]
            found.append(Descriptor(i, kind, *texts))
        return found

    def rows(self, table: Table, what: str) -> HalfWords:
        """A whole table, in a buffer of its own, a row of half words an entry."""
        words = np.empty(table.count * table.stride // WORD, dtype=np.uint64)
        self.read_words(words, table.offset, what)
        return words.view(np.uint32).reshape(table.count, table.stride // 4)

    def slots(self, table: Table, begin: int, used: list[int]) -> Words:
        """The rows of the used writers, in scratch(). In runs: of hundreds few are used."""
        words = table.stride // WORD
        rows = self.scratch(len(used) * words).reshape(len(used), words)
        first = 0
        for i in range(1, len(used) + 1):
            if i < len(used) and used[i] == used[i - 1] + 1:
                continue
            self.read_words(rows[first:i].reshape(-1), begin + table.at(used[first]), "slots")
            first = i
        return rows
