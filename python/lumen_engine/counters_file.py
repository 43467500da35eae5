"""Reads the counters file of a running, hanging or dead server: docs/formats/counters.md.

    with CountersFile(find()[0].path) as counters:
        before = counters.snapshot()
        ...
        for model in counters.snapshot().models:
            print(model.name, model.stages["total"].percentile(99) / 1e6, "ms")

Looking costs the server nothing: we read its file, by pread into buffers that are used again.
Threads: one at a time.
Errors: CountersFileError with the path, the value got and the values wanted.
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np

from lumen_engine._counters_find import FoundServer, find, resolve
from lumen_engine._counters_flight import FlightReader
from lumen_engine._counters_histogram import U64, Histogram, bucket_range
from lumen_engine._counters_layout import (
    HISTOGRAM_HEAD_BYTES,
    LIVE_SEQUENCES,
    MODEL_BYTES,
    WORD,
    CountersFileError,
    Layout,
    RegionFile,
    Words,
    read_layout,
    text_of,
)
from lumen_engine._counters_pieces import PieceReader
from lumen_engine._counters_types import (
    PRECISIONS,
    Descriptor,
    Doing,
    Kind,
    ModelCounts,
    Request,
    Role,
    Snapshot,
    Writer,
)

__all__ = [
    "CountersFile",
    "CountersFileError",
    "Descriptor",
    "Doing",
    "FoundServer",
    "Histogram",
    "Kind",
    "Layout",
    "ModelCounts",
    "Request",
    "Role",
    "Snapshot",
    "Writer",
    "find",
    "resolve",
]

SPELLS = ("busy_ns", "spin_ns", "park_ns")  # by Doing


class CountersFile:
    """An open counters file. The server may end meanwhile: its counts can still be read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = RegionFile(Path(path))
        self._pieces = PieceReader(self._file)
        try:
            self.layout = read_layout(self._file)
            layout, pieces = self.layout, self._pieces
            self.server_descriptors = pieces.descriptors(layout.server_descriptors)
            self.model_descriptors = pieces.descriptors(layout.model_descriptors)
            self.stages = pieces.names(layout.stage_names, layout.stages)
            queues = pieces.names(layout.queue_names)
            allocators = pieces.names(layout.allocator_names)
        except BaseException:
            self._file.close()
            raise
        self._flight = FlightReader(pieces, layout, self.stages, queues, allocators)
        self._head = np.zeros(3, dtype=np.uint64)
        self._of_thread = {each.name: each.index for each in self.server_descriptors}
        self._identities: dict[int, tuple[int, str, str, str]] = {}
        self._live_sequences: dict[int, int] = {}  # by index, at the last look

    @property
    def path(self) -> Path:
        return self._file.path

    def snapshot(self) -> Snapshot:
        """All counts of now. A model that comes or goes meanwhile is left out."""
        self._pieces.begin_look()
        layout, pieces = self.layout, self._pieces
        is_alive = self.is_alive()
        rows = pieces.rows(layout.writers, "the table of writers")
        used = np.flatnonzero(rows[:, 0]).tolist()
        slots = pieces.slots(layout.server_slots, 0, used)
        now = time.monotonic_ns()
        server = _totals(slots, self.server_descriptors)
        # Of a dead server, whose threads are in no spell, with time 0.
        moment = now if is_alive else 0
        writers = [
            self._writer(index, rows[index, :4].tolist(), slots[place], moment)
            for place, index in enumerate(used)
        ]
        progress = slots.sum(axis=1, dtype=np.uint64)
        before = self._generations()
        models = [self._model(*model, used, progress) for model in before.items()]
        after = self._generations()
        models = [model for model in models if after.get(model.index) == model.generation]
        writers = [replace(w, progress=int(done)) for w, done in zip(writers, progress)]
        return Snapshot(now, time.time_ns(), is_alive, server, models, writers)

    def recent(self) -> list[Request]:
        """The last requests of each I/O thread, oldest first."""
        self._pieces.begin_look()
        return self._flight.recent(self._model_names())

    def slow(self, *, since_start: bool = True) -> list[Request]:
        """The slowest, slowest first: since the server started, or of the last minute."""
        self._pieces.begin_look()
        names = self._model_names()
        if since_start:
            return self._flight.slowest(names)
        return self._flight.slowest_lately(names, time.monotonic_ns(), self.is_alive())

    def is_alive(self) -> bool:
        """Whether the server that made the file runs: it holds a lock as long."""
        try:
            fcntl.flock(self._file.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            raise self._file.error(f"its lock can't be looked at: {error}") from None
        fcntl.flock(self._file.fd, fcntl.LOCK_UN)
        return False

    def was_replaced(self) -> bool:
        """Whether the path is by now another server's file, or none."""
        ours = os.fstat(self._file.fd)
        try:
            there = os.stat(self.path)
        except OSError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> CountersFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _writer(self, index: int, row: list[int], slots: Words, now: int) -> Writer:
        state, role, number, tid = row
        of = self._of_thread
        times = [int(slots[of[name]]) if name in of else 0 for name in SPELLS]
        doing, since = 0, 0
        if state == 1 and "thread_state" in of and "thread_since_ns" in of:
            doing, since = int(slots[of["thread_state"]]), int(slots[of["thread_since_ns"]])
        if doing < len(times) and 0 < since < now and role != Role.MOMENT:
            times[doing] += now - since
        busy, spin, park = times
        return Writer(index, state == 1, role, number, tid, busy, spin, park, doing, since, 0)

    def _generations(self) -> dict[int, int]:
        """Index to generation of all models that are there; notes their live sequences."""
        table = self.layout.models
        words = self._pieces.scratch(table.count * table.stride // WORD)
        self._pieces.read_words(words, table.offset, "the table of models")
        columns = words.reshape(table.count, table.stride // WORD)
        column = columns[:, 0]
        there = np.flatnonzero(column)
        if columns.shape[1] > LIVE_SEQUENCES:
            live = columns[there, LIVE_SEQUENCES]
            self._live_sequences = dict(zip(there.tolist(), live.tolist()))
        return dict(zip(there.tolist(), column[there].tolist()))

    def _identity(self, index: int, generation: int) -> tuple[str, str, str]:
        """Name, version and precision."""
        known = self._identities.get(index)
        if known is None or known[0] != generation:
            raw = self._file.read(MODEL_BYTES, self.layout.models.at(index), "a model")
            name = text_of(raw[8:144], f"the name of model {index}", self._file.error)
            version = text_of(raw[144:168], f"the version of model {index}", self._file.error)
            number = int.from_bytes(raw[168:172], "little")
            precision = PRECISIONS[number] if number < len(PRECISIONS) else f"#{number}"
            # A model that has just replaced it is found out by the look at the generations behind.
            known = int.from_bytes(raw[:8], "little"), name, version, precision
            if precision:  # it comes later than the name
                self._identities[index] = known
        return known[1:]

    def _model_names(self) -> dict[tuple[int, int], str]:
        models = self._generations().items()
        return {(i, generation): self._identity(i, generation)[0] for i, generation in models}

    def _model(self, index: int, generation: int, used: list[int], progress: Words) -> ModelCounts:
        """Adds to the writers' `progress`."""
        begin = self.layout.sections.at(index)
        slots = self._pieces.slots(self.layout.model_slots, begin, used)
        progress += slots.sum(axis=1, dtype=np.uint64)
        counters = _totals(slots, self.model_descriptors)
        stages = {name: self._histogram(begin, i) for i, name in enumerate(self.stages)}
        name, version, precision = self._identity(index, generation)
        sequences = self._live_sequences.get(index, 0)
        return ModelCounts(index, generation, name, version, counters, stages, precision, sequences)

    def _histogram(self, begin: int, stage: int) -> Histogram:
        """All shards' of a stage; of each only the buckets between its smallest and largest."""
        layout, pieces = self.layout, self._pieces
        bits = layout.sub_bits, layout.value_bits
        counts = np.zeros(layout.buckets, dtype=np.uint64)
        pieces.charge(0, counts.nbytes)
        added, least, most = 0, U64, 0
        for shard in range(layout.shards):
            at = begin + layout.histograms.at(shard * layout.stages + stage)
            pieces.read_words(self._head, at, "a histogram")
            shard_sum, inverted, shard_most = self._head.tolist()
            if inverted == 0:
                continue
            first, end = bucket_range(U64 - inverted, shard_most, *bits)
            piece = pieces.scratch(end - first)
            pieces.read_words(piece, at + HISTOGRAM_HEAD_BYTES + first * WORD, "buckets")
            counts[first:end] += piece
            added += shard_sum
            least, most = min(least, U64 - inverted), max(most, shard_most)
        return Histogram(counts, added & U64, min(least, most), most, *bits)


def _totals(rows: Words, descriptors: list[Descriptor]) -> dict[str, int]:
    """Each counter, gauge and latest over all writers. A kind that we don't know is left out."""
    if not len(rows):
        return {each.name: 0 for each in descriptors if each.kind < Kind.OF_ONE_THREAD}
    sums = rows.sum(axis=0, dtype=np.uint64).tolist()
    totals = {}
    for each in descriptors:
        if each.kind == Kind.COUNTER:
            totals[each.name] = sums[each.index]
        elif each.kind == Kind.GAUGE:
            # One slot's fall may be seen and another's rise not: never below zero.
            total = sums[each.index]
            totals[each.name] = total if total >> 63 == 0 else 0
        elif each.kind == Kind.LATEST:
            totals[each.name] = int(rows[:, each.index].max())
    return totals
