"""Follows one file of telemetry while it is written: new records are read, half a line waits.

Of one thread (the store's lock); blocks are parsed by a few threads of the pool. Memory: the rows,
and a few blocks of text while reading. Errors: `problem` says why a file can't be shown; never
raised.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from stat import S_ISREG

import polars as pl

from .clock import ClockWatch
from .errors import SourceError
from .telemetry_csv import Block, Header, end_of_records, keep_slowest, parse_block, read_header

# Large enough that parsing dominates, small enough that a few of them at once are little memory.
BLOCK_BYTES = 16 << 20
# The header is 190 bytes; a file whose first line is longer is another kind.
MAX_HEADER_BYTES = 4096
# Enough to tell a file from another that was given the same inode: header and part of a record.
FINGERPRINT_BYTES = 320
WORKERS = min(4, len(os.sched_getaffinity(0)))
_pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="csv")


def without_waiting(path: str, flags: int) -> int:
    """A pipe would be waited for until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


class FollowedFile:
    """The content of one file so far. It may grow, be cut off, or be another one by now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.frames: list[pl.DataFrame] = []
        self.slowest: pl.DataFrame | None = None
        self.rows = 0
        self.unreadable = 0
        self.first_unreadable = ""
        self.problem = ""
        self.size = 0
        self.clock = ClockWatch()
        self._offset = 0
        self._header: Header | None = None
        self._fingerprint = b""

    @property
    def waiting_bytes(self) -> int:
        """Of a last line that has no end yet."""
        return self.size - self._offset if self._header else 0

    def refresh(self) -> bool:
        """Reads the new part. Whether anything changed."""
        try:
            with open(self.path, "rb", opener=without_waiting) as file:
                return self._refresh(file.fileno())
        except OSError as error:
            return self._fail(f"{self.path}: can't be read: {error.strerror}")
        except SourceError as error:
            return self._fail(str(error))

    def _fail(self, problem: str) -> bool:
        changed = problem != self.problem or bool(self.frames)
        self._forget()
        self.problem = problem
        return changed

    def _refresh(self, file: int) -> bool:
        status = os.fstat(file)
        if not S_ISREG(status.st_mode):
            return self._fail(f"{self.path}: is no regular file; only such can be read again")
        begin = os.pread(file, FINGERPRINT_BYTES, 0)
        known = len(self._fingerprint)
        if status.st_size < self.size or begin[:known] != self._fingerprint:
            self._forget()
        self._fingerprint = begin
        grown = status.st_size != self.size
        self.size = status.st_size
        if not grown and self._header:
            return False
        if self._header is None and not self._read_header(file):
            return grown
        header = self._header
        assert header is not None
        before = self._offset
        # Few blocks at once: each is text, and its rows.
        running: list[Future[Block]] = []
        for data in self._blocks(file):
            running.append(_pool.submit(parse_block, data, header))
            if len(running) > WORKERS:
                self._add(running.pop(0).result())
        for future in running:
            self._add(future.result())
        return grown or self._offset != before

    def _read_header(self, file: int) -> bool:
        begin = os.pread(file, MAX_HEADER_BYTES, 0)
        if not begin:
            self.problem = f"{self.path}: is empty: no request has been written yet"
            return False
        if b"\n" not in begin and len(begin) < MAX_HEADER_BYTES:
            self.problem = f"{self.path}: has {len(begin)} bytes and not yet a whole line"
            return False
        self._header = read_header(begin, str(self.path))
        self._offset = self._header.length
        self.problem = ""
        return True

    def _blocks(self, file: int) -> Iterator[bytes]:
        """Whole records, up to the size that the file had when we looked."""
        size = BLOCK_BYTES
        while self._offset < self.size:
            data = os.pread(file, min(size, self.size - self._offset), self._offset)
            end = end_of_records(data)
            if end == 0:
                if len(data) < size:
                    return  # half a line: left for later
                raise SourceError(
                    str(self.path),
                    f"has a record at byte {self._offset} without an end",
                    f"{len(data)} bytes and more",
                    "a line feed outside quotes",
                    "the file is damaged there: cut it off before that byte",
                )
            self._offset += end
            yield data[:end]

    def _add(self, block: Block) -> None:
        self.unreadable += block.unreadable
        self.first_unreadable = self.first_unreadable or block.first_unreadable
        if block.frame.height == 0:
            return
        self.frames.append(block.frame)
        self.rows += block.frame.height
        self.clock.look(block.frame, self.rows - block.frame.height)
        both = [block.slowest] if self.slowest is None else [self.slowest, block.slowest]
        self.slowest = keep_slowest(pl.concat(both))
