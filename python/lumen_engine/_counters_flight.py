"""Reads the flight recorder's part of a counters file: recent requests, and the slowest.

The server writes while we read. An entry has a mark that is odd while it is written: marks, then
entries, then marks again are read, and an entry whose mark changed is thrown away.
Threads: one at a time. Errors: CountersFileError.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumen_engine._counters_layout import ENTRIES_AT, ENTRY_STAGES, WORD, Layout
from lumen_engine._counters_pieces import PieceReader
from lumen_engine._counters_types import Request

NONE = (1 << 64) - 1
ABSENT = 65_535  # no worker, no model: refused before
CACHE = ["", "hit", "shared", "miss"]
TRANSPORTS = ["http", "http2", "grpc", "bus"]
LATELY_NS = 60_000_000_000

Names = dict[tuple[int, int], str]  # by index and generation
Bytes = NDArray[np.uint8]

FIELDS = {
    "mark": (np.uint64, 0),
    "number": (np.uint64, 8),
    "first_byte": (np.uint64, 16),
    "stages": ((np.uint64, ENTRY_STAGES), 24),
    "rows": (np.uint32, 88),
    "model": (np.uint16, 92),
    "worker": (np.uint16, 94),
    "status": (np.uint16, 96),
    "queue": (np.uint8, 98),
    "allocator": (np.uint8, 99),
    "id_bytes": (np.uint8, 100),
    "id": ((np.uint8, 40), 101),
    "cache": (np.uint8, 141),
    "is_traced": (np.uint8, 142),
    "flags": (np.uint8, 143),
    "trace_id": ((np.uint8, 16), 144),
    "parent_id": ((np.uint8, 8), 160),
    "generation": (np.uint64, 168),
}


class FlightReader:
    def __init__(
        self,
        pieces: PieceReader,
        layout: Layout,
        stages: list[str],
        queues: list[str],
        allocators: list[str],
    ) -> None:
        self._pieces = pieces
        self._layout = layout
        self._stages = stages
        self._queues = queues
        self._allocators = allocators
        self._entry = np.dtype(
            {
                "names": list(FIELDS),
                "formats": [kind for kind, _ in FIELDS.values()],
                "offsets": [offset for _, offset in FIELDS.values()],
                "itemsize": max(layout.entry_bytes, 192),
            }
        )

    def recent(self, names: Names) -> list[Request]:
        """Oldest first, all shards together."""
        layout = self._layout
        found: list[Request] = []
        for shard in range(layout.recent.count if layout.ring_entries else 0):
            at = layout.recent.at(shard)
            found += self._entries(at + ENTRIES_AT, layout.ring_entries, shard, names)
        return sorted(found, key=lambda each: each.first_byte_ns)

    def slowest(self, names: Names) -> list[Request]:
        """Of the server's whole life, slowest first."""
        layout = self._layout
        found: list[Request] = []
        for shard in range(layout.slow.count if layout.windows else 0):
            found += self._window(layout.slow.at(shard), shard, names)[1]
        return _slowest_first(found)

    def slowest_lately(self, names: Names, now_ns: int, is_alive: bool) -> list[Request]:
        """Of the last minute; of a dead server, of its last."""
        layout = self._layout
        windows: list[tuple[int, list[Request]]] = []
        for shard in range(layout.slow.count):
            first = layout.slow.at(shard)
            for place in range(1, layout.windows):
                at = first + place * layout.window_bytes
                windows.append(self._window(at, shard, names))
        length = max(layout.window_ns, 1)
        newest = max((number for number, requests in windows if requests), default=0)
        last = now_ns // length if is_alive else newest
        # The window that runs now, and as many whole ones before it as fit into a minute.
        oldest = last - max(LATELY_NS // length - 1, 0)
        return _slowest_first([r for number, rs in windows if number >= oldest for r in rs])

    def _window(self, at: int, shard: int, names: Names) -> tuple[int, list[Request]]:
        number, used = self._two_words(at)
        entries = self._entries(
            at + ENTRIES_AT, min(used, self._layout.window_entries), shard, names
        )
        # The writer has begun another window meanwhile: our records are of both.
        return (number, entries) if self._two_words(at)[0] == number else (0, [])

    def _two_words(self, at: int) -> tuple[int, int]:
        head = np.zeros(2, dtype=np.uint64)
        self._pieces.read_words(head, at, "a window of slow requests")
        return int(head[0]), int(head[1])

    def _entries(self, at: int, count: int, shard: int, names: Names) -> list[Request]:
        size = self._layout.entry_bytes
        before = self._read(at, count)
        raw = self._read(at, count)
        after = self._read(at, count)
        entries = np.zeros((count, self._entry.itemsize), dtype=np.uint8)
        entries[:, :size] = raw
        marks = [table[:, :WORD].copy().view(np.uint64)[:, 0] for table in (before, after)]
        whole = (marks[0] == marks[1]) & (marks[0] != 0) & (marks[0] & np.uint64(1) == 0)
        rows = entries[whole].reshape(-1).view(self._entry)
        return [self._request(row, shard, names) for row in rows]

    def _read(self, at: int, count: int) -> Bytes:
        data = np.empty(count * self._layout.entry_bytes // WORD, dtype=np.uint64)
        self._pieces.charge(0, data.nbytes)
        self._pieces.read_words(data, at, "entries of the flight recorder")
        return data.view(np.uint8).reshape(count, self._layout.entry_bytes)

    def _request(self, row: np.void, shard: int, names: Names) -> Request:
        index, generation = int(row["model"]), int(row["generation"])
        spent = [int(ns) for ns in row["stages"]]
        worker = int(row["worker"])
        cache, transport = int(row["cache"]) & 15, int(row["cache"]) >> 4
        client_id = bytes(row["id"])[: int(row["id_bytes"])].decode("utf-8", "replace")
        return Request(
            number=int(row["number"]),
            shard=shard,
            client_id="".join(c if c.isprintable() else "\ufffd" for c in client_id),
            first_byte_ns=int(row["first_byte"]),
            stages={name: None if ns == NONE else ns for name, ns in zip(self._stages, spent)},
            model=names.get((index, generation), "" if index == ABSENT else f"#{index} (gone)"),
            model_index=index,
            generation=generation,
            rows=int(row["rows"]),
            worker=None if worker == ABSENT else worker,
            status=int(row["status"]),
            queue_type=_named(self._queues, int(row["queue"]) & 15),
            lane=_named(self._queues, int(row["queue"]) >> 4),
            allocator_type=_named(self._allocators, int(row["allocator"]) & 15),
            cache=_named(CACHE, cache),
            transport=_named(TRANSPORTS, transport),
            traceparent=_traceparent(row) if row["is_traced"] == 1 else "",
            is_step=int(row["allocator"]) >> 4 == 1,
        )


def _named(names: list[str], number: int) -> str:
    return names[number] if number < len(names) else f"#{number}"


def _traceparent(row: np.void) -> str:
    trace, parent = bytes(row["trace_id"]).hex(), bytes(row["parent_id"]).hex()
    return f"00-{trace}-{parent}-{int(row['flags']):02x}"


def _slowest_first(requests: list[Request]) -> list[Request]:
    """Each once: a request may stand in a window of the last minute only once, but be safe."""
    once = {
        (each.shard, each.number, each.is_step, each.model_index, each.first_byte_ns): each
        for each in requests
    }
    return sorted(once.values(), key=lambda each: (-each.total_ns, each.number))
