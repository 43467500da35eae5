"""The results of a run, as data, and the changes between its phases. Pure.

`document()` is the output of --json. Threads: any. Errors: none; a figure that was not measured is
None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from lumen_engine.perf.callgrind import Totals
from lumen_engine.perf.figures import Derived, derive, value
from lumen_engine.perf.load import LoadFigures
from lumen_engine.perf.options import PhasePlan
from lumen_engine.perf.perf_stat import Count
from lumen_engine.perf.process_figures import ProcessFigures

# More clients are worth it where the throughput gains at least this; p99 is worse from that on.
WORTH_IT = 0.05
WORSE_TAIL = 0.20


@dataclass
class Phase:
    plan: PhasePlan
    load: LoadFigures
    process: ProcessFigures
    counts: dict[str, Count] = field(default_factory=dict)

    @property
    def derived(self) -> Derived:
        return derive(self.counts)

    def a_request(self, event: str) -> float | None:
        counted = value(self.counts, event)
        return None if counted is None or not self.load.requests else counted / self.load.requests

    @property
    def context_switches(self) -> float:
        """perf's where it counts the kernel too: of the user's side alone it says 0."""
        counted = self.counts.get("context-switches")
        if counted is not None and counted.value is not None and not counted.user_only:
            return counted.value
        return self.process.voluntary_switches + self.process.involuntary_switches

    @property
    def migrations(self) -> float | None:
        counted = self.counts.get("cpu-migrations")
        if counted is not None and counted.value is not None and not counted.user_only:
            return counted.value
        return self.process.migrations

    @property
    def page_faults(self) -> float:
        counted = self.counts.get("page-faults")
        if counted is not None and counted.value is not None and not counted.user_only:
            return counted.value
        return self.process.minor_faults + self.process.major_faults

    @property
    def cpu_ms_a_request(self) -> float | None:
        return 1e3 * self.process.cpu_s / self.load.requests if self.load.requests else None


@dataclass
class Result:
    model: str
    server: list[str]  # its banner at the start
    machine: dict[str, Any]
    phases: list[Phase] = field(default_factory=list)
    has_counters: bool = False
    perf_version: str = ""
    simulated: Totals | None = None
    simulated_how: str = ""
    flame: str = ""
    notes: list[str] = field(default_factory=list)


def relative(before: float | None, after: float | None) -> float | None:
    """0.25: a quarter more. None: there is nothing to hold it against."""
    return None if before is None or after is None or before == 0 else after / before - 1


def verdict(first: Phase, last: Phase) -> str:
    """Whether the later phase's clients bring anything but waiting; in words."""
    gain = relative(first.load.per_second, last.load.per_second)
    tail = relative(first.load.p99_ms, last.load.p99_ms)
    if gain is None or tail is None:
        return "no verdict: a phase has no answers"
    clients = f"{last.plan.clients} clients instead of {first.plan.clients}"
    said = f"{clients}: throughput {percent(gain)}, p99 {percent(tail)}"
    if tail >= WORSE_TAIL and gain < WORTH_IT:
        waited = last.load.stages_ms.get("queue", 0.0) - first.load.stages_ms.get("queue", 0.0)
        share = f", {waited:.1f} ms more of it in the queue" if waited > 0 else ""
        return (
            f"{said}{share}. Over-concurrency: the server was full before, more clients only wait "
            "longer. A latency budget (--latency-budget-us) refuses what would come too late"
        )
    if tail >= WORSE_TAIL:
        return f"{said}. More is served, and each waits longer"
    if gain >= WORTH_IT:
        return f"{said}. The server had room"
    return f"{said}. Little changed"


def percent(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "−")


Getter = Callable[[Phase], float | None]


@dataclass(frozen=True)
class Row:
    """A line of the table and a key of the JSON. A rate is a share, whose change is in points."""

    key: str
    label: str
    get: Getter
    digits: int = 2
    is_rate: bool = False
    needs_counters: bool = False


def stage(name: str) -> Getter:
    return lambda phase: phase.load.stages_ms.get(name)


def slots(name: str) -> Getter:
    return lambda phase: (phase.derived.top_down or {}).get(name)


ROWS = (
    Row("per_second", "requests/s", lambda p: p.load.per_second),
    Row("p50_ms", "p50, ms", lambda p: p.load.p50_ms),
    Row("p99_ms", "p99, ms", lambda p: p.load.p99_ms),
    Row("errors", "errors and refusals", lambda p: float(p.load.errors), 0),
    Row("queue_ms", "mean wait in the queue, ms", stage("queue")),
    Row("inference_ms", "mean inference, ms", stage("inference")),
    Row(
        "ipc",
        "instructions a cycle (IPC)",
        lambda p: p.derived.instructions_per_cycle,
        3,
        needs_counters=True,
    ),
    Row("llc_miss_rate", "LLC miss rate", lambda p: p.derived.llc_miss_rate, 2, True, True),
    Row("l1_miss_rate", "L1 data miss rate", lambda p: p.derived.l1_miss_rate, 2, True, True),
    Row(
        "branch_miss_rate", "branch miss rate", lambda p: p.derived.branch_miss_rate, 2, True, True
    ),
    Row(
        "instructions_a_request",
        "instructions a request",
        lambda p: p.a_request("instructions"),
        0,
        needs_counters=True,
    ),
    Row(
        "cycles_a_request",
        "cycles a request",
        lambda p: p.a_request("cycles"),
        0,
        needs_counters=True,
    ),
    Row(
        "llc_misses_a_request",
        "LLC misses a request",
        lambda p: p.a_request("LLC-load-misses"),
        0,
        needs_counters=True,
    ),
    *(
        Row(f"slots_{name.replace(' ', '_')}", f"slots: {name}", slots(name), 1, True, True)
        for name in ("retiring", "bad speculation", "front end bound", "back end bound")
    ),
    Row("context_switches", "context switches", lambda p: p.context_switches, 0),
    Row("voluntary", "  of these voluntary", lambda p: p.process.voluntary_switches, 0),
    Row("migrations", "migrations", lambda p: p.migrations, 0),
    Row("page_faults", "page faults", lambda p: p.page_faults, 0),
    Row("cpu_ms_a_request", "CPU a request, ms", lambda p: p.cpu_ms_a_request, 3),
    Row(
        "system_share",
        "  of it in the kernel",
        lambda p: p.process.system_s / p.process.cpu_s if p.process.cpu_s else None,
        1,
        True,
    ),
)


def document(result: Result) -> dict[str, Any]:
    """For --json: raw counts, and the rows of the table by their keys."""
    phases = []
    for phase in result.phases:
        phases.append(
            {
                "clients": phase.plan.clients,
                "requests_each": phase.plan.requests_each,
                "load": asdict(phase.load),
                "process": asdict(phase.process),
                "counts": {name: asdict(count) for name, count in phase.counts.items()},
                "rows": {row.key: row.get(phase) for row in ROWS},
            }
        )
    first, last = (result.phases[0], result.phases[-1]) if result.phases else (None, None)
    return {
        "model": result.model,
        "machine": result.machine,
        "server": result.server,
        "hardware_counters": result.has_counters,
        "perf": result.perf_version,
        "phases": phases,
        "change": {
            row.key: relative(row.get(first), row.get(last))
            for row in ROWS
            if first is not None and last is not None and first is not last
        },
        "simulated_a_request": None if result.simulated is None else asdict(result.simulated),
        "simulated_how": result.simulated_how,
        "verdict": verdict(first, last) if first and last and first is not last else "",
        "flame": result.flame,
        "notes": result.notes,
    }
