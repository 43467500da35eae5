"""Plain rows of JSON files and matrix tables, from any of these files. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LoadPoint:
    """A row of `lumen bench --json`: a number of clients, their results, how long it took."""

    run: str
    model: str
    clients: int
    per_second: float
    latency_us: dict[str, float]  # mean, p50, p90, p99, p999, max
    requests: int = 0
    errors: int = 0
    stages_us: dict[str, float] = field(default_factory=dict)  # means, of the server
    queue_type: str = ""
    allocator_type: str = ""
    new_connection: bool = False  # one for each request: its rate is the kernel's connecting


@dataclass(frozen=True)
class MatrixCell:
    """A combination in `lumen matrix`; `values` are medians over the rounds."""

    run: str
    model: str
    queue_type: str
    allocator_type: str
    values: dict[str, float]
    rounds: dict[str, list[float]]
    error: str = ""
    requests: int = 0
    clients: int = 0


@dataclass(frozen=True)
class RivalRow:
    """A row of a bench of the project: ours beside a rival's."""

    run: str
    bench: str
    row: str
    metric: str
    unit: str
    ours: float
    rival: float
    rival_name: str
    ratio: float | None
    spread: float | None


@dataclass(frozen=True)
class PerfColumn:
    """One load of `lumen perf --json`: values by their keys, None where nothing was measured."""

    run: str
    model: str
    label: str  # clients × requests of each
    values: dict[str, float | None]
    has_counters: bool
    verdict: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FormRow:
    """A form of a model (f32, bf16, INT8 ...) in one backend, as `lumen quantize` measured it."""

    run: str
    form: str
    backend: str
    us: float  # of one row
    bytes: float  # of the file
    sqnr_db: float  # signal to error against f32
    top1: float | None
    metric: float | None  # the user's own
    verdict: str  # passes, warns, refused
    is_chosen: bool
    why: str  # of the choice


@dataclass
class Documents:
    """All that one file, or all files, brought."""

    loads: list[LoadPoint] = field(default_factory=list)
    cells: list[MatrixCell] = field(default_factory=list)
    rivals: list[RivalRow] = field(default_factory=list)
    perf: list[PerfColumn] = field(default_factory=list)
    forms: list[FormRow] = field(default_factory=list)

    def add(self, other: Documents) -> None:
        self.loads += other.loads
        self.cells += other.cells
        self.rivals += other.rivals
        self.perf += other.perf
        self.forms += other.forms

    def __bool__(self) -> bool:
        return bool(self.loads or self.cells or self.rivals or self.perf or self.forms)
