"""Where things lie in a counters file: its head and tables, each checked before it is used.

docs/formats/counters.md has the format. Another process writes the file and anybody may cut or
replace it, so every offset, stride and count is held against the file's size and a bound. Pure but
for `RegionFile`, which reads by pread: a mapping of a file that is cut ends its reader by SIGBUS.
Threads: one at a time. Errors: CountersFileError with the path, the value got, the values wanted
and the fix.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

MAGIC = b"LMCNTNS1"
VERSION = 2
HEAD_BYTES = 320
WORD = 8
NAME_BYTES = 16
DESCRIPTOR_BYTES = 256
MODEL_BYTES = 172
LIVE_SEQUENCES = 22  # the word of a model's that counts them; servers of before have none
WRITER_BYTES = 16
HISTOGRAM_HEAD_BYTES = 64
# Begin of a ring's and a window's entries.
ENTRIES_AT = 64
ENTRY_BYTES = 176
ENTRY_STAGES = 8

# Numbers that no server of today comes near, so that a foreign file can make us neither slow nor
# large. In brackets those of a server.
MAX_STAGES = 64  # (8)
MAX_SHARDS = 1_024  # (up to 64)
MAX_MODELS = 4_096  # (256)
MAX_WRITERS = 16_384  # (some 700)
MAX_DESCRIPTORS = 1_024  # (some 60)
MAX_NAMES = 256  # (5 queue types)
MAX_ENTRIES = 65_536  # (1,024 of a ring, 32 of a window)
MAX_WINDOWS = 1_024  # (7)
MAX_STRIDE = 1 << 32  # all tables within a table's entry count too; the file's size bounds them
MAX_TABLE_READ = 64 << 20  # bytes of one table at once (a ring: 192 KiB)
MAX_BUCKETS = 1 << 18  # of a histogram (2,240)


class CountersFileError(RuntimeError):
    """The file is no counters file that this reader understands, or was cut short."""


@dataclass(frozen=True, slots=True)
class Table:
    offset: int
    stride: int
    count: int

    def at(self, index: int) -> int:
        return self.offset + index * self.stride


class RegionFile:
    """An open file that is read in pieces, each whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise CountersFileError(f"{path}: can't be opened: {error.strerror}") from None

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read_into(self, target: memoryview, offset: int, what: str) -> None:
        try:
            got = os.preadv(self.fd, [target], offset)
        except (OSError, OverflowError) as error:
            raise self.error(f"{what} at {offset} can't be read: {error}") from None
        if got != len(target):
            raise self.error(
                f"{what} at {offset} has {got} bytes, wanted {len(target)}: the file was cut short;"
                " restart the server to have a whole one"
            )

    def read(self, size: int, offset: int, what: str) -> bytearray:
        data = bytearray(size)
        self.read_into(memoryview(data), offset, what)
        return data

    def error(self, message: str) -> CountersFileError:
        return CountersFileError(f"{self.path}: {message}")

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@dataclass(frozen=True, slots=True)
class Layout:
    """The head of the file, checked."""

    size: int
    stages: int
    shards: int
    pid: int
    started_ns: int  # since the epoch
    started_monotonic_ns: int
    start_ticks: int
    lumen_version: str
    server_descriptors: Table
    model_descriptors: Table
    stage_names: Table
    models: Table
    writers: Table
    server_slots: Table
    sections: Table
    model_slots: Table  # within a section
    histograms: Table  # within a section
    sub_bits: int
    value_bits: int
    recent: Table
    slow: Table
    ring_entries: int
    windows: int
    window_entries: int
    entry_bytes: int
    window_ns: int
    queue_names: Table
    allocator_names: Table

    @property
    def buckets(self) -> int:
        return (self.value_bits - self.sub_bits + 1) << self.sub_bits

    @property
    def window_bytes(self) -> int:
        return ENTRIES_AT + self.window_entries * self.entry_bytes


def text_of(raw: bytes | bytearray, where: str, fail: Callable[[str], Exception]) -> str:
    """A name from the file. Unprintable characters are replaced: it may end up on a terminal."""
    end = raw.find(0)
    if end < 0:
        raise fail(f"{where} does not end in a zero byte: the file is damaged")
    text = bytes(raw[:end]).decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def read_layout(file: RegionFile) -> Layout:
    size = file.size()
    if size < HEAD_BYTES:
        raise file.error(
            f"is no counters file: it has {size} bytes, wanted {HEAD_BYTES} for the head alone;"
            " name the file of `lumen serve --stats`"
        )
    head = bytes(file.read(HEAD_BYTES, 0, "the head"))
    if head[:8] != MAGIC:
        raise file.error(
            f"is no counters file: it begins with {head[:8]!r}, wanted {MAGIC!r};"
            " name the file of `lumen serve --stats`"
        )
    version, stages, region, pid, shards, wall, monotonic, ticks = struct.unpack_from(
        "<IIQIIQQQ", head, 8
    )
    if version != VERSION:
        raise file.error(
            f"has version {version} of the format, this reader knows {VERSION}:"
            " use the lumen_engine of the server's Lumen"
        )
    if not HEAD_BYTES <= region <= size:
        raise file.error(f"its head says {region} bytes, it has {size}: the file was cut short")
    check = _Checks(file, region)
    check.number("stages", stages, 1, MAX_STAGES)
    check.number("shards", shards, 0, MAX_SHARDS)
    sub_bits, value_bits = struct.unpack_from("<II", head, 224)
    check.number("histogram bits an octave", sub_bits, 1, 16)
    check.number("histogram value bits", value_bits, sub_bits + 1, 64)
    ring, windows, window_entries, entry, window_ns = struct.unpack_from("<IIIIQ", head, 264)
    layout = Layout(
        size=region,
        stages=stages,
        shards=shards,
        pid=pid,
        started_ns=wall,
        started_monotonic_ns=monotonic,
        start_ticks=ticks,
        lumen_version=text_of(head[56:80] + b"\0", "the head's Lumen version", file.error),
        server_descriptors=_table(head, 80),
        model_descriptors=_table(head, 96),
        stage_names=_table(head, 112),
        models=_table(head, 128),
        writers=_table(head, 144),
        server_slots=_table(head, 160),
        sections=_table(head, 176),
        model_slots=_table(head, 192),
        histograms=_table(head, 208),
        sub_bits=sub_bits,
        value_bits=value_bits,
        recent=_table(head, 232),
        slow=_table(head, 248),
        ring_entries=ring,
        windows=windows,
        window_entries=window_entries,
        entry_bytes=entry,
        window_ns=window_ns,
        queue_names=_table(head, 288),
        allocator_names=_table(head, 304),
    )
    check.tables(layout)
    return layout


def _table(head: bytes, offset: int) -> Table:
    return Table(*struct.unpack_from("<QII", head, offset))


class _Checks:
    def __init__(self, file: RegionFile, region: int) -> None:
        self._file = file
        self._region = region

    def number(self, what: str, got: int, least: int, most: int) -> None:
        if not least <= got <= most:
            raise self._file.error(
                f"{what}: got {got}, wanted {least} to {most}: the file is damaged,"
                " or of a Lumen that this reader is too old for"
            )

    def table(
        self, what: str, table: Table, stride: int, most: int, within: int | None = None
    ) -> None:
        """`stride`: the least size of an entry; `within`: bytes of the section it lies in."""
        room = self._region if within is None else within
        self.number(f"entries of {what}", table.count, 0, most)
        self.number(f"stride of {what}", table.stride, stride, MAX_STRIDE)
        if table.offset % WORD or table.stride % WORD:
            raise self._file.error(
                f"{what} lie at {table.offset}, {table.stride} bytes each: wanted multiples of"
                f" {WORD}; the file is damaged"
            )
        end = table.offset + table.stride * table.count
        if end > room:
            raise self._file.error(f"{what} end at {end}, wanted {room} at most: it is damaged")

    def tables(self, layout: Layout) -> None:
        number, table = self.number, self.table
        number("buckets of a histogram", layout.buckets, 1, MAX_BUCKETS)
        table("descriptors of the server", layout.server_descriptors, 256, MAX_DESCRIPTORS)
        table("descriptors of models", layout.model_descriptors, 256, MAX_DESCRIPTORS)
        table("names of stages", layout.stage_names, NAME_BYTES, MAX_STAGES)
        number("names of stages", layout.stage_names.count, layout.stages, MAX_STAGES)
        table("names of queue types", layout.queue_names, NAME_BYTES, MAX_NAMES)
        table("names of allocator types", layout.allocator_names, NAME_BYTES, MAX_NAMES)
        table("models", layout.models, MODEL_BYTES, MAX_MODELS)
        table("writers", layout.writers, WRITER_BYTES, MAX_WRITERS)
        slots = layout.server_descriptors.count * WORD
        table("slots of the server", layout.server_slots, slots, MAX_WRITERS)
        table("sections", layout.sections, 0, MAX_MODELS)
        section = layout.sections.stride
        slots = layout.model_descriptors.count * WORD
        table("slots of a model", layout.model_slots, slots, MAX_WRITERS, section)
        histogram = HISTOGRAM_HEAD_BYTES + WORD * layout.buckets
        pieces = layout.shards * layout.stages
        table("histograms", layout.histograms, histogram, MAX_SHARDS * MAX_STAGES, section)
        number("histograms of a model", layout.histograms.count, pieces, MAX_SHARDS * MAX_STAGES)
        number("sections", layout.sections.count, layout.models.count, MAX_MODELS)
        most = MAX_WRITERS
        number("slots of the server", layout.server_slots.count, layout.writers.count, most)
        number("slots of a model", layout.model_slots.count, layout.writers.count, most)
        for each in (layout.writers, layout.server_slots, layout.models, layout.model_slots):
            number("bytes of a table", each.stride * each.count, 0, MAX_TABLE_READ)
        self._flight(layout)

    def _flight(self, layout: Layout) -> None:
        number, table = self.number, self.table
        if layout.recent.count == 0 and layout.slow.count == 0:
            return
        number("entries of a ring", layout.ring_entries, 0, MAX_ENTRIES)
        number("windows of slow requests", layout.windows, 0, MAX_WINDOWS)
        number("entries of a window", layout.window_entries, 0, MAX_ENTRIES)
        number("bytes of an entry", layout.entry_bytes, ENTRY_BYTES, 1 << 16)
        if layout.entry_bytes % WORD:
            raise self._file.error(f"an entry has {layout.entry_bytes} bytes: not whole words")
        number("stages of an entry", layout.stages, 1, ENTRY_STAGES)
        ring = ENTRIES_AT + layout.ring_entries * layout.entry_bytes
        windows = layout.windows * layout.window_bytes
        number("bytes of a ring", ring, 0, MAX_TABLE_READ)
        number("bytes of slow requests", windows, 0, MAX_TABLE_READ)
        table("rings", layout.recent, ring, MAX_SHARDS)
        table("slow requests", layout.slow, windows, MAX_SHARDS)
