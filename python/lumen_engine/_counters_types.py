"""The results of a look at a counters file: plain data, nothing of the file's bytes.

Pure. docs/formats/counters.md says the meaning of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from lumen_engine._counters_histogram import Histogram


class Kind(IntEnum):
    COUNTER = 0
    GAUGE = 1
    LATEST = 2
    OF_ONE_THREAD = 3


class Role(IntEnum):
    MOMENT = 0  # counts but for a moment
    IO_THREAD = 1
    WORKER = 2


class Doing(IntEnum):
    BUSY = 0
    SPINNING = 1
    PARKED = 2


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The counter of a slot."""

    index: int
    kind: int  # a Kind; one that this reader does not know is left out of totals
    name: str
    series: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Writer:
    """A thread's block of slots. The times have the spell that the thread is in added."""

    index: int
    is_taken: bool  # a thread has it; otherwise it has left, and its counts stayed
    role: int  # a Role
    number: int  # among those of its role
    tid: int  # 0: not known
    busy_ns: int
    spin_ns: int
    park_ns: int
    doing: int  # a Doing
    since_ns: int  # CLOCK_MONOTONIC; 0: not known
    progress: (
        int  # of all its slots together: another number than before if it has counted anything
    )


# In the order of their numbers; a number behind the last is of a newer server.
PRECISIONS = ("", "f32", "bf16", "auto", "int8", "int8_mixed", "int8_weights")


@dataclass(frozen=True, slots=True)
class ModelCounts:
    """Of one model. A `generation` never comes again: another one is another model."""

    index: int
    generation: int
    name: str
    version: str
    counters: dict[str, int]  # by the name of the descriptor
    stages: dict[str, Histogram]  # all stages of the file, in its order; empty ones too
    precision: str = ""  # empty: the model is not loaded yet, or the server is older
    sequences: int = 0  # live ones, of a model that keeps states

    @property
    def key(self) -> tuple[int, int]:
        return self.index, self.generation


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look. Not one moment: requests go on while it is read."""

    monotonic_ns: int
    wall_ns: int
    is_alive: bool  # the server holds its lock
    server: dict[str, int]
    models: list[ModelCounts]
    writers: list[Writer]


@dataclass(frozen=True, slots=True)
class Request:
    """An entry of the flight recorder."""

    number: int  # in the server's process
    shard: int  # the I/O thread that served it
    client_id: str  # the client's name for it; empty: nothing
    first_byte_ns: int  # since the epoch
    stages: dict[str, int | None]  # ns; None: it had none
    model: str  # "#3 (gone)" where index 3 is another model's by now; empty: it named none
    model_index: int
    generation: int
    rows: int
    worker: int | None
    status: int  # of HTTP
    queue_type: str  # as configured
    lane: str  # how it really went: a queue type too, never "auto"
    allocator_type: str
    cache: str  # "", "hit", "shared" or "miss"
    transport: str  # "http", "http2", "grpc" or "bus"
    traceparent: str  # W3C; empty: it came without
    is_step: bool = False  # of an ensemble: a part of the request with the same number

    @property
    def total_ns(self) -> int:
        return self.stages.get("total") or 0

    @property
    def id(self) -> str:
        """The client's id, or the number."""
        return self.client_id or str(self.number)
