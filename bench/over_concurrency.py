"""The question: how does the server do with more clients than it can serve at once, how
much can queue type, pinning, a second worker or admission change?

  lumen bench (any CPU) --HTTP--> lumen: I/O thread, worker (pinned by default), SqueezeNet

1, 4 and 16 clients in a closed loop against each configuration, a fresh server each time, `perf
stat` attached where there is perf. Rounds are interleaved. The finding that is looked at: from 4 to
16 clients p99 grew by 133 % while throughput barely moved. The rival is the origin's configuration,
`naive` x `standard`. A budget is BUDGET_SERVICE_TIMES times the model's own time, of the same run;
its clients wait as Retry-After says. The tables and sentences of docs/reports/over_concurrency.md
follow from `cells`: each configuration with each number of clients, all rounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lumen_engine.perf import process_figures
from lumen_engine.perf.load import run_load, warm_up
from lumen_engine.perf.measured_server import one_model, serving
from lumen_engine.perf.options import PhasePlan
from lumen_engine.perf.perf_program import Recording, Support, attached, probe
from lumen_engine.perf.programs import Interrupts, PerfError
from lumen_engine.perf.result import Phase

from bench.load.serving import plural
from bench.runner import ROOT, Bench, Option, Run, make_row
from bench.runner.places import make_squeezenet, say
from bench.runner.rows import AHEAD, BEHIND, Document, verdict
from bench.runner.tables import table

MODEL = "squeezenet"
CLIENTS = (1, 4, 16)
BUDGET_SERVICE_TIMES = 8  # 4 clients fit in, 16 don't
WARM_UP_EACH = 4
# 16 clients that are refused begin with a second of waiting for all but a few: enough requests are
# to follow.
REQUESTS, QUICK_REQUESTS = 600, 80
# Of all requests, by 1 client: its latency needs fewer, and it is the slowest phase.
ONE_CLIENT_PART = 4


@dataclass(frozen=True)
class Configuration:
    name: str
    words: tuple[str, ...]
    has_budget: bool = False


def engine(queue_type: str, allocator_type: str, *more: str) -> tuple[str, ...]:
    return ("--queue-type", queue_type, "--allocator-type", allocator_type, *more)


RIVAL = "naive × standard"
OURS = "mpmc × lumen_arena"
BUDGET = f"{OURS}, latency budget"
NOT_PINNED = f"{OURS}, not pinned"
ALL_CPUS = f"{OURS}, a worker a CPU"
CONFIGURATIONS = (
    Configuration(RIVAL, engine("naive", "standard")),
    Configuration(OURS, engine("mpmc", "lumen_arena")),
    Configuration("spsc × lumen_arena", engine("spsc", "lumen_arena")),
    Configuration("batched × lumen_arena", engine("batched", "lumen_arena")),
    Configuration("inline × lumen_arena", engine("inline", "lumen_arena")),
    Configuration(NOT_PINNED, engine("mpmc", "lumen_arena", "--pin-threads", "off")),
    Configuration(ALL_CPUS, engine("mpmc", "lumen_arena", "--thread-count", "0")),
    Configuration(BUDGET, engine("mpmc", "lumen_arena"), has_budget=True),
)
# Figure of a cell, its unit, and how it is had from a phase. None: not measured.
FIGURES: dict[str, tuple[str, Any]] = {
    "throughput": ("requests/s", lambda p: p.load.per_second),
    "p50 latency": ("ms", lambda p: p.load.p50_ms),
    "p99 latency": ("ms", lambda p: p.load.p99_ms),
    "in the queue": ("ms", lambda p: p.load.stages_ms.get("queue")),
    "inference": ("ms", lambda p: p.load.stages_ms.get("inference")),
    "refused": ("share", lambda p: p.load.errors / (p.load.requests + p.load.errors)),
    "context switches": ("a request", lambda p: p.context_switches / max(1, p.load.requests)),
    "migrations": ("in all", lambda p: p.migrations),
    "IPC": ("instructions a cycle", lambda p: p.derived.instructions_per_cycle),
    "LLC misses": ("share", lambda p: p.derived.llc_miss_rate),
}
ROWS = {"throughput": True, "p99 latency": False}  # whether more is better


def requests_of(clients: int, requests: int) -> int:
    return max(clients, requests // ONE_CLIENT_PART if clients == 1 else requests)


Rounds = dict[str, list[float | None]]  # by figure


class Measuring:
    def __init__(self, run: Run, interrupts: Interrupts, support: Support | None) -> None:
        self.run = run
        self.interrupts = interrupts
        self.support = support
        self.requests = run.options.requests or run.pick(REQUESTS, QUICK_REQUESTS)
        self.cells: dict[tuple[str, int], Rounds] = defaultdict(lambda: {n: [] for n in FIGURES})

    def values(self, name: str, clients: int, figure: str) -> list[float]:
        return [value for value in self.cells[name, clients][figure] if value is not None]

    def service_ms(self) -> float:
        """The model itself, with one client; before the first round a long one, refusing nobody."""
        found = self.values(OURS, 1, "inference")
        return median(found) if found else 1e3

    def measure(self, one: Configuration, repository: Path) -> None:
        words = [*one.words, "--backend", "openvino"]
        if one.has_budget:
            budget_us = 1e3 * BUDGET_SERVICE_TIMES * self.service_ms()
            words += ["--latency-budget-us", str(round(budget_us))]
        more = ("--obey-retry-after",) if one.has_budget else ()
        with serving(repository, words, self.interrupts) as server:
            for clients in CLIENTS:
                plan = PhasePlan(clients, requests_of(clients, self.requests) // clients)
                warm_up(server, MODEL, plan, WARM_UP_EACH, self.interrupts)
                pid, support = server.pid, self.support
                counting = attached(pid, support, self.interrupts) if support else None
                with counting or nullcontext(Recording()) as recording:
                    before = process_figures.read(pid)
                    load = run_load(server, MODEL, clients, plan.requests, self.interrupts, more)
                    process = process_figures.read(pid).since(before)
                phase = Phase(plan, load, process, recording.counts)
                for name, (_, get) in FIGURES.items():
                    found = get(phase)
                    rounded = None if found is None else round(found, 5)
                    self.cells[one.name, clients][name].append(rounded)

    def add_rows(self) -> None:
        for one in CONFIGURATIONS:
            for clients in CLIENTS:
                for metric, is_more in ROWS.items():
                    names = dict.fromkeys((one.name, RIVAL))
                    rounds = {name: self.values(name, clients, metric) for name in names}
                    name, unit = f"{one.name}, {plural(clients)}", FIGURES[metric][0]
                    self.run.add(make_row(name, metric, unit, rounds, more_is_better=is_more))


def measure(run: Run) -> None:
    make_squeezenet()
    with Interrupts() as interrupts, one_model(ROOT / "models", MODEL) as repository:
        try:
            support: Support | None = probe(interrupts)
        except PerfError as error:
            say(f"bench: {error}")
            support = None
        measuring = Measuring(run, interrupts, support)
        # The budget needs the model's time of this run: the first two come first once.
        for turn in run.turns(CONFIGURATIONS):
            for one in turn:
                measuring.measure(one, repository)
    measuring.add_rows()
    cells = measuring.cells.items()
    run.more |= {
        "cells": [{"configuration": name, "clients": n, **rounds} for (name, n), rounds in cells],
        "requests": measuring.requests,
        "budget_ms": round(BUDGET_SERVICE_TIMES * measuring.service_ms(), 2),
        "hardware_counters": support is not None and support.has_counters,
    }


# --- tables and sentences -------------------------------------------------------------------------

NOT_MEASURED = "not measured"
# Of the best throughput: closer ones are level, and the smaller p99 is the better.
LEVEL = 0.03
# A throughput that moves less than this "barely moved", and a p99 that grows more is worse.
BARELY = 0.05
WORSE = 0.20

# The known facts of the origin, on a machine of its own: by clients, and by configuration.
ORIGIN_CLIENTS: dict[int, dict[str, float]] = {
    4: {"p99 latency": 31.97, "IPC": 1.265, "LLC misses": 0.6037, "context switches": 8662 / 800},
    16: {
        "throughput": 295.48,
        "p99 latency": 74.56,
        "IPC": 1.105,
        "LLC misses": 0.7511,
        "context switches": 8767 / 800,
    },
}
ORIGIN = {
    RIVAL: {"throughput": 266.0, "p99 latency": 71.75, "in the queue": 0.01, "IPC": 0.52},
    OURS: {"throughput": 295.48, "p99 latency": 21.28, "in the queue": 0.02, "IPC": 1.265},
}


class Cells:
    def __init__(self, document: Document) -> None:
        self._cells = {(one["configuration"], one["clients"]): one for one in document["cells"]}

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self._cells))

    def rounds(self, name: str, clients: int, figure: str) -> list[float]:
        return [v for v in self._cells[name, clients][figure] if v is not None]

    def value(self, name: str, clients: int, figure: str) -> float | None:
        found = self.rounds(name, clients, figure)
        return median(found) if found else None

    def known(self, name: str, clients: int, figure: str) -> float:
        found = self.value(name, clients, figure)
        if found is None:
            raise KeyError(f"{name}, {clients} clients: no {figure}")
        return found

    def best(self) -> str:
        """The smallest p99 among the configurations that are level with the highest throughput;
        4 clients."""
        most = max(self.known(name, 4, "throughput") for name in self.names())
        level = [n for n in self.names() if self.known(n, 4, "throughput") >= (1 - LEVEL) * most]
        return min(level, key=lambda name: self.known(name, 4, "p99 latency"))

    def differs(self, one: tuple[str, int], other: tuple[str, int], figure: str) -> bool:
        """As the verdict of a row says it."""
        rounds = {"one": self.rounds(*one, figure), "other": self.rounds(*other, figure)}
        return verdict(make_row("", figure, "", rounds)) in (AHEAD, BEHIND)


def change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.0f} %".replace("-", "−")


def shown(value: float | None, decimals: int = 2) -> str:
    return NOT_MEASURED if value is None else f"{value:,.{decimals}f}"


def with_spread(cells: Cells, name: str, clients: int, figure: str, decimals: int) -> str:
    """The median, and (largest - smallest) / median."""
    rounds = cells.rounds(name, clients, figure)
    if not rounds:
        return NOT_MEASURED
    middle = median(rounds)
    spread = f" ± {100 * (max(rounds) - min(rounds)) / middle / 2:.0f} %" if middle else ""
    return f"{middle:,.{decimals}f}{spread}"


def beside_origin(document: Document) -> str:
    """4 clients; in the queue with 1 client, whose worker is free: else it is the model's time."""
    cells = Cells(document)
    best = cells.best()
    ours = [RIVAL, OURS] if best in (RIVAL, OURS) else [RIVAL, OURS, best]
    lines = (
        ("requests/s", "throughput", 4, 2),
        ("p99, ms", "p99 latency", 4, 2),
        ("in the queue, a worker being free, mean, ms", "in the queue", 1, 3),
        ("IPC", "IPC", 4, 3),
    )
    rows = []
    for label, figure, clients, decimals in lines:
        origin = [shown(ORIGIN[name].get(figure), decimals) for name in (RIVAL, OURS)]
        here = [with_spread(cells, name, clients, figure, decimals) for name in ours]
        rows.append([label, *origin, *here])
    names = [name.replace(OURS, f"`{OURS}`").replace(RIVAL, f"`{RIVAL}`") for name in ours]
    named = [f"Lumen, best: {name}" if one == best else f"Lumen, {name}"
             for one, name in zip(ours, names)]  # fmt: skip
    heads = ["", f"origin, `{RIVAL}`", f"origin, `{OURS}`", *named]
    return table(heads, rows, 1)


def by_clients(document: Document) -> str:
    cells = Cells(document)
    few, many = ORIGIN_CLIENTS[4], ORIGIN_CLIENTS[16]
    tail = change(few["p99 latency"], many["p99 latency"])
    origin_p99 = [shown(few["p99 latency"]), shown(many["p99 latency"]), tail]
    known = [shown(many["throughput"], 1), ""]
    switches = [f"{one['context switches']:.1f}" for one in (few, many)]
    rows = [["the origin", NOT_MEASURED, *known, *origin_p99, NOT_MEASURED, "0 %", *switches]]
    for name in cells.names():
        row = [name]
        for figure, decimals in (("throughput", 1), ("p99 latency", 2)):
            row += [with_spread(cells, name, clients, figure, decimals) for clients in (4, 16)]
            row.append(change(cells.known(name, 4, figure), cells.known(name, 16, figure)))
        row.append(shown(cells.value(name, 16, "in the queue"), 1))
        row.append(f"{100 * cells.known(name, 16, 'refused'):.0f} %")
        row += [shown(cells.value(name, clients, "context switches"), 1) for clients in (4, 16)]
        rows.append(row)
    heads = ["", "requests/s, 4 clients", "16 clients", "", "p99, ms, 4 clients", "16 clients", ""]
    heads += ["in the queue, 16 clients, ms", "refused", "context switches a request, 4 clients"]
    return table([*heads, "16 clients"], rows, 1)


def holds(cells: Cells, name: str) -> str:
    gain = cells.known(name, 16, "throughput") / cells.known(name, 4, "throughput") - 1
    tail = cells.known(name, 16, "p99 latency") / cells.known(name, 4, "p99 latency") - 1
    moved = f"throughput {100 * gain:+.0f} %, p99 {100 * tail:+.0f} %".replace("-", "−")
    queue = cells.known(name, 16, "in the queue") - cells.known(name, 4, "in the queue")
    where = f"; {queue:.1f} ms more of each request are spent in the queue"
    if abs(gain) < BARELY and tail > WORSE:
        return f"holds ({moved}{where})"
    if tail > WORSE:
        return f"holds for the tail, while throughput moves too ({moved}{where})"
    return f"does not hold ({moved})"


def held_against(cells: Cells, name: str, other: str, clients: int, figure: str, unit: str) -> str:
    one, two = cells.known(name, clients, figure), cells.known(other, clients, figure)
    said = f"{one:,.1f} against {two:,.1f} {unit}"
    if not cells.differs((name, clients), (other, clients), figure):
        return f"{said}, within the spread of the rounds"
    return f"{said} ({change(two, one)})"


def findings(document: Document) -> str:
    """Sentences of which each follows from the cells: no figure of the page is typed by hand."""
    cells = Cells(document)
    refused = 100 * cells.known(BUDGET, 16, "refused")
    budget = document["budget_ms"]
    kinds = [n for n in cells.names() if n.endswith("× lumen_arena")]
    fastest = min(kinds, key=lambda name: cells.known(name, 16, "p99 latency"))
    slowest = max(kinds, key=lambda name: cells.known(name, 16, "p99 latency"))
    moved = [cells.value(name, 16, "migrations") for name in (OURS, NOT_PINNED)]
    lines = [
        f"**The finding**, from 4 to 16 clients with `{OURS}`: {holds(cells, OURS)}.",
        f"**With the rival** `{RIVAL}` it {holds(cells, RIVAL)}.",
        "**Queue types**, p99 with 16 clients: "
        f"{held_against(cells, fastest, slowest, 16, 'p99 latency', 'ms')} from the best "
        f"(`{fastest}`) to the worst (`{slowest}`).",
        f"**Queue and allocator**, `{OURS}` against `{RIVAL}`, 16 clients: p99 "
        f"{held_against(cells, OURS, RIVAL, 16, 'p99 latency', 'ms')}; requests/s "
        f"{held_against(cells, OURS, RIVAL, 16, 'throughput', '')}.",
        "**Pinning**, pinned against not pinned, 16 clients: p99 "
        f"{held_against(cells, OURS, NOT_PINNED, 16, 'p99 latency', 'ms')}; migrations of the "
        f"server's threads {shown(moved[0], 0)} against {shown(moved[1], 0)}.",
        "**A second worker**, a worker a CPU against one, 16 clients: requests/s "
        f"{held_against(cells, ALL_CPUS, OURS, 16, 'throughput', '')}; p99 "
        f"{held_against(cells, ALL_CPUS, OURS, 16, 'p99 latency', 'ms')}.",
        f"**Admission**, a latency budget of {budget:.0f} ms against none, 16 clients: p99 "
        f"{held_against(cells, BUDGET, OURS, 16, 'p99 latency', 'ms')}; requests/s "
        f"{held_against(cells, BUDGET, OURS, 16, 'throughput', '')}; {refused:.0f} % of the "
        "requests are refused at once, whose clients come back a second later.",
    ]
    return "".join(f"* {line}\n" for line in tidy(lines))


def tidy(lines: Sequence[str]) -> list[str]:
    return [" ".join(line.replace(" ,", ",").split()) for line in lines]


BENCH = Bench(
    title="More clients than can be served",
    measure=measure,
    minutes=5.0,
    quick_minutes=0.7,
    rounds=(3, 1),
    options=(Option("--requests", 0, f"a phase: {REQUESTS}, quick {QUICK_REQUESTS}"),),
    sources=(
        *("include/**", "src/**", "apps/**"),
        "python/lumen_engine/perf/{load,measured_server}.py",
    ),
    tables={"origin": beside_origin, "clients": by_clients, "findings": findings},
)
