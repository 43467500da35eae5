"""Writes counters files as docs/formats/counters.md has them, for tests of their readers.

Made after the page, not after the server: a reader that fits both fits the page. Values may be
changed while a reader has the file open: each setter writes to the file at once.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path

STAGES = ("connect", "parse", "queue", "preprocess", "inference", "postprocess", "write", "total")
QUEUES = ("mpmc", "spsc", "naive", "batched", "inline", "auto")
ALLOCATORS = ("lumen_arena", "standard")
# name, kind, unit
SERVER = (
    ("requests", 0, "requests"),
    ("connections_open", 1, "connections"),
    ("responses_2xx", 0, "responses"),
    ("responses_4xx", 0, "responses"),
    ("request_arena_bytes", 0, "bytes"),
    ("memory_bound_bytes", 1, "bytes"),
    ("memory_reserved_bytes", 1, "bytes"),
    ("busy_ns", 0, "ns"),
    ("spin_ns", 0, "ns"),
    ("park_ns", 0, "ns"),
    ("thread_state", 3, ""),
    ("thread_since_ns", 3, "ns"),
)
MODEL = (
    ("inference", 0, "rows"),
    ("execution", 0, "calls"),
    ("success", 0, "requests"),
    ("failure", 0, "requests"),
    ("queued", 1, "requests"),
    ("failed_queue_full", 0, "requests"),
    ("failed_timeout", 0, "requests"),
    ("cache_hit", 0, "requests"),
    ("cache_miss", 0, "requests"),
    ("last_inference", 2, "ms"),
)
SUB_BITS, VALUE_BITS = 6, 40
BUCKETS = (VALUE_BITS - SUB_BITS + 1) << SUB_BITS
NONE = (1 << 64) - 1
U64 = NONE
RING, WINDOWS, WINDOW_ENTRIES, ENTRY = 16, 7, 4, 192
WINDOW_NS = 10_000_000_000
HEAD = 320


def bucket_of(value: int) -> int:
    """By the page's words, a second time."""
    value = min(value, (1 << VALUE_BITS) - 1)
    octave = max(0, value.bit_length() - (SUB_BITS + 1))
    return octave * (1 << SUB_BITS) + (value >> octave)


def _text(value: str, size: int) -> bytes:
    return value.encode().ljust(size, b"\0")[:size]


class CountersFileWriter:
    """`is_alive`: holds the lock that a running server holds."""

    def __init__(
        self,
        path: Path,
        *,
        shards: int = 1,
        models: int = 8,
        writers: int = 12,
        pid: int | None = None,
        start_ticks: int = 0,
        is_alive: bool = True,
    ) -> None:
        self.path = path
        self.shards = shards
        self._at = HEAD
        self.tables: dict[str, tuple[int, int, int]] = {}
        self._place("server_descriptors", 256, len(SERVER))
        self._place("model_descriptors", 256, len(MODEL))
        self._place("stage_names", 16, len(STAGES))
        self._place("queue_names", 16, len(QUEUES))
        self._place("allocator_names", 16, len(ALLOCATORS))
        self._place("models", 192, models)
        self._place("writers", 64, writers)
        self._place("server_slots", 128, writers)
        self._place("recent", 64 + RING * ENTRY, shards)
        self._place("slow", WINDOWS * (64 + WINDOW_ENTRIES * ENTRY), shards)
        slots = writers * 128
        histogram = 64 + 8 * BUCKETS
        self.tables["model_slots"] = (0, 128, writers)
        self.tables["histograms"] = (slots, histogram, shards * len(STAGES))
        self._place("sections", slots + shards * len(STAGES) * histogram, models)
        self.size = self._at
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        os.ftruncate(self.fd, self.size)
        if is_alive:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        self._write_head(pid if pid is not None else os.getpid(), start_ticks)
        for number, row in enumerate(SERVER):
            self._describe("server_descriptors", number, row)
        for number, row in enumerate(MODEL):
            self._describe("model_descriptors", number, row)
        lists = {"stage_names": STAGES, "queue_names": QUEUES, "allocator_names": ALLOCATORS}
        for table, names in lists.items():
            for number, name in enumerate(names):
                self.put(self.at(table, number), _text(name, 16))

    def _place(self, name: str, stride: int, count: int) -> None:
        self.tables[name] = (self._at, stride, count)
        self._at += stride * count

    def _write_head(self, pid: int, start_ticks: int) -> None:
        self.put(0, b"LMCNTNS1")
        self.words32(8, 2, len(STAGES))
        self.words(16, self.size)
        self.words32(24, pid, self.shards)
        self.words(32, time.time_ns(), time.monotonic_ns(), start_ticks)
        self.put(56, _text("0.1.0-test", 24))
        order = (
            "server_descriptors model_descriptors stage_names models writers server_slots"
            " sections model_slots histograms"
        )
        for number, name in enumerate(order.split()):
            self.put(80 + 16 * number, struct.pack("<QII", *self.tables[name]))
        self.words32(224, SUB_BITS, VALUE_BITS)
        self.put(232, struct.pack("<QII", *self.tables["recent"]))
        self.put(248, struct.pack("<QII", *self.tables["slow"]))
        self.words32(264, RING, WINDOWS, WINDOW_ENTRIES, ENTRY)
        self.words(280, WINDOW_NS)
        self.put(288, struct.pack("<QII", *self.tables["queue_names"]))
        self.put(304, struct.pack("<QII", *self.tables["allocator_names"]))

    def _describe(self, table: str, number: int, row: tuple[str, int, str]) -> None:
        name, kind, unit = row
        parts = struct.pack("<II", kind, 0), _text(name, 32), _text(f"lumen_{name}", 64)
        self.put(self.at(table, number), b"".join(parts) + _text(unit, 16) + _text("Meaning.", 136))

    def at(self, table: str, number: int) -> int:
        offset, stride, _ = self.tables[table]
        return offset + number * stride

    def put(self, offset: int, data: bytes) -> None:
        assert os.pwrite(self.fd, data, offset) == len(data)

    def words(self, offset: int, *values: int) -> None:
        self.put(offset, struct.pack(f"<{len(values)}Q", *(value & U64 for value in values)))

    def words32(self, offset: int, *values: int) -> None:
        self.put(offset, struct.pack(f"<{len(values)}I", *values))

    def word_at(self, offset: int) -> int:
        return int.from_bytes(os.pread(self.fd, 8, offset), "little")

    def model(
        self,
        index: int,
        name: str,
        version: str = "1",
        generation: int = 1,
        precision: int = 1,
        sequences: int = 0,
    ) -> None:
        """generation 0: there is none."""
        at = self.at("models", index)
        self.put(at + 8, _text(name, 136) + _text(version, 24) + precision.to_bytes(4, "little"))
        self.words(at + 176, sequences)
        self.words(at, generation)

    def writer(
        self, index: int, state: int = 1, role: int = 0, number: int = 0, tid: int = 0
    ) -> None:
        self.words32(self.at("writers", index), state, role, number, tid)

    def server_slot(self, writer: int, name: str, value: int) -> None:
        slot = [row[0] for row in SERVER].index(name)
        self.words(self.at("server_slots", writer) + 8 * slot, value)

    def model_slot(self, model: int, writer: int, name: str, value: int) -> None:
        slot = [row[0] for row in MODEL].index(name)
        begin = self.at("sections", model) + self.tables["model_slots"][0]
        self.words(begin + writer * self.tables["model_slots"][1] + 8 * slot, value)

    def record(self, model: int, stage: str, *values: int, shard: int = 0) -> None:
        """Counts durations, in ns, into a histogram."""
        offset, stride, _ = self.tables["histograms"]
        number = shard * len(STAGES) + STAGES.index(stage)
        at = self.at("sections", model) + offset + number * stride
        for value in values:
            added, inverted, most = (self.word_at(at + 8 * i) for i in range(3))
            self.words(at, added + value, max(inverted, U64 - value), max(most, value))
            bucket = at + 64 + 8 * bucket_of(value)
            self.words(bucket, self.word_at(bucket) + 1)

    def close(self) -> None:
        """As the server's end: the lock is gone."""
        os.close(self.fd)

    # The flight recorder.

    def entry(self, number: int, *, mark: int = 2, **fields: object) -> bytes:
        """Fields: first_byte, stages (a dict), rows, model, worker, status, queue, allocator, id,
        cache, generation, traceparent (flags, trace id, parent id)."""
        stages = {name: NONE for name in STAGES} | dict(fields.get("stages", {}))  # type: ignore
        client_id = str(fields.get("id", "")).encode()
        traced = fields.get("traceparent")
        flags, trace, parent = traced if traced else (0, b"", b"")  # type: ignore
        data = struct.pack("<QQQ", mark, number, int(fields.get("first_byte", 0)))  # type: ignore
        data += struct.pack("<8Q", *(stages[name] for name in STAGES))
        names = ("rows", "model", "worker", "status", "queue", "allocator")
        usual = (1, 0, NO_WORKER, 200, 0, 0)
        values = [fields.get(name, value) for name, value in zip(names, usual)]
        data += struct.pack("<IHHHBB", *values)
        data += struct.pack("<B40s", len(client_id), client_id)
        data += struct.pack("<BBB", fields.get("cache", 0), 1 if traced else 0, flags)
        data += struct.pack("<16s8sQ", trace, parent, fields.get("generation", 1))
        return data.ljust(ENTRY, b"\0")

    def recent(self, shard: int, *entries: bytes) -> None:
        at = self.at("recent", shard)
        self.words(at, len(entries))
        for number, entry in enumerate(entries):
            self.put(at + 64 + number % RING * ENTRY, entry)

    def slow(self, shard: int, window: int, number: int, *entries: bytes) -> None:
        at = self.at("slow", shard) + window * (64 + WINDOW_ENTRIES * ENTRY)
        self.words(at, number, len(entries))
        for place, entry in enumerate(entries):
            self.put(at + 64 + place * ENTRY, entry)


NO_WORKER = 65_535
