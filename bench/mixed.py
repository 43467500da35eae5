"""The question: what does a light model pay for a heavy one beside it, and the heavy one for it?

  load (core 1) --HTTP keep-alive--> servers (cores 0 and 1), one worker (core 0)

mlp (2 µs), convnet (300 µs) and squeezenet (3 to 5 ms), one row a request, raw binary both ways,
all on the same two cores with the load: one Lumen server for all three by each of CONFIGURATIONS;
a Lumen process a model (`processes`: the kernel's own isolation); FastAPI and Mosec over ONNX
Runtime, a process a model each. A latency is held against that of the same server with nothing
beside it.

One client of a light model beside four of squeezenet; all pairs and all three with 1 and 16 clients
each, and in an open loop at 0.8 of the server's own rate, alone and with 16 clients, divided
evenly; squeezenet beside a steady 1,000 requests/s to mlp; the shares of the CPU when all
saturate; a flood of 256 clients on one model and its effect on another.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from bench.load import mixed_servers
from bench.load.mixed_servers import (
    MODELS,
    PROCESSES,
    RIVALS,
    Configuration,
    Contender,
    Load,
    Phase,
)
from bench.load.serving import plural
from bench.runner import Bench, BenchError, Goal, Option, Row, Run, make_row
from bench.runner.places import make_squeezenet
from bench.runner.rows import paired_limit
from bench.runner.tables import without

LIGHT = ("mlp", "convnet")
HEAVY = "squeezenet"
HEAVY_CLIENTS = 4
MANY = 16  # clients of each model
FLOOD = 256
STEADY_RATE = 1000.0  # requests/s to mlp beside squeezenet's throughput
FLOOD_SECONDS = 0.6
OPEN_LOAD = 0.8  # of the server's own rate; each of n models gets an n-th

# Our ways to serve all models in one process. The first has the rows of all combinations.
CONFIGURATIONS = (
    Configuration("auto", ("--queue-type", "auto"), ("convnet", "squeezenet")),
    Configuration("fifo", ("--queue-type", "mpmc", "--policy", "fifo"), MODELS),
)
NAMES = (*(one.name for one in CONFIGURATIONS), PROCESSES, *RIVALS)

# --- the phases -----------------------------------------------------------------------------------


def alone(model: str, clients: int) -> Phase:
    return Phase(f"{model}, {plural(clients)}", (Load(model, clients),))


def beside(model: str) -> Phase:
    """One client of a light model, and a few that keep a worker busy with the heavy one."""
    name = f"{model}, 1 client, beside {HEAVY}, {plural(HEAVY_CLIENTS)}"
    return Phase(name, (Load(model, 1), Load(HEAVY, HEAVY_CLIENTS)))


def together(models: tuple[str, ...], clients: int) -> Phase:
    name = f"{' + '.join(models)}, {plural(clients)} each"
    saturates = models == MODELS and clients == MANY
    return Phase(name, tuple(Load(model, clients) for model in models), saturates)


def open_loop(models: tuple[str, ...]) -> Phase:
    part = OPEN_LOAD / len(models)
    name = f"{' + '.join(models)}, open loop at {OPEN_LOAD} of the capacity"
    return Phase(name, tuple(Load(model, MANY, part=part) for model in models))


COMBINATIONS = (*combinations(MODELS, 2), MODELS)
STEADY = Phase(
    f"{HEAVY}, {plural(HEAVY_CLIENTS)}, beside mlp at {STEADY_RATE:,.0f}/s",
    (Load(HEAVY, HEAVY_CLIENTS), Load("mlp", MANY, STEADY_RATE)),
)
SATURATED = together(MODELS, MANY)
FLOOD_OF_HEAVY = Phase(
    f"mlp, 1 client, in a flood on {HEAVY}, {FLOOD} clients",
    (Load("mlp", 1), Load(HEAVY, FLOOD)),
    least_seconds=FLOOD_SECONDS,
)
FLOOD_OF_LIGHT = Phase(
    f"{HEAVY}, {plural(HEAVY_CLIENTS)}, in a flood on mlp, {FLOOD} clients",
    (Load(HEAVY, HEAVY_CLIENTS), Load("mlp", FLOOD)),
    least_seconds=FLOOD_SECONDS,
)
TOGETHER = tuple(
    phase
    for models in COMBINATIONS
    for phase in (together(models, 1), together(models, MANY), open_loop(models))
)
# In this order: an open loop needs the server's rate alone.
PHASES = (
    *(alone(model, MANY) for model in MODELS),
    *(alone(model, 1) for model in LIGHT),
    alone(HEAVY, HEAVY_CLIENTS),
    *(beside(model) for model in LIGHT),
    STEADY,
    *TOGETHER,
    FLOOD_OF_HEAVY,
    FLOOD_OF_LIGHT,
)

# --- the rows -------------------------------------------------------------------------------------

Results = Mapping[str, Sequence[dict[str, Any]]]  # of one server, by phase, a run a round
LATENCIES = {"p50 latency": "p50_us", "p99 latency": "p99_us", "p99.9 latency": "p999_us"}


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1 / n where one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else 0.0


def shares(busy: Mapping[str, float]) -> dict[str, float]:
    total = sum(busy.values())
    return {model: value / total if total > 0 else 0.0 for model, value in busy.items()}


class Rows:
    """Of one of our servers, against those rivals."""

    def __init__(
        self,
        ours: Contender,
        rivals: Mapping[str, Results],
        processes: Results | None,
    ) -> None:
        self.name = ours.name
        self.ours: Results = ours.results
        self.all = {ours.name: self.ours, **rivals}
        self.on_workers = ours.on_workers
        self.processes = processes
        self.rows: list[Row] = []

    def series(self, phase: Phase, model: str, key: str) -> dict[str, list[float]]:
        return {
            name: [float(run[model][key]) for run in results[phase.name]]
            for name, results in self.all.items()
        }

    def add(
        self,
        what: str,
        metric: str,
        unit: str,
        rounds: Mapping[str, Sequence[float]],
        more_is_better: bool | None,
        limits: Sequence[float] | None = None,
    ) -> None:
        name = f"{what}, {self.name}"
        # A server that has answered nothing has no latency.
        has_figure = {one for one in rounds if metric not in LATENCIES or median(rounds[one]) > 0}
        rivals = [one for one in rounds if one != self.name and one in has_figure]
        limit = paired_limit(rounds[self.name], limits) if limits else None
        row = make_row(
            name, metric, unit, rounds, more_is_better=more_is_better, rivals=rivals, limit=limit
        )
        self.rows.append(row)

    def latencies(self, what: str, phase: Phase, model: str, alone: Phase | None = None) -> None:
        for metric, key in LATENCIES.items():
            limits = None
            if alone is not None:
                limits = [float(run[model][key]) for run in self.ours[alone.name]]
            self.add(what, metric, "µs", self.series(phase, model, key), False, limits)

    def throughput(
        self, what: str, phase: Phase, model: str, limits: Sequence[float] | None = None
    ) -> None:
        rounds = self.series(phase, model, "per_second")
        self.add(what, "throughput", "requests/s", rounds, True, limits)

    @staticmethod
    def rates(results: Results, phase: Phase, model: str) -> list[float]:
        return [float(run[model]["per_second"]) for run in results[phase.name]]

    def light_and_heavy(self) -> None:
        for model in LIGHT:
            by_itself, phase = alone(model, 1), beside(model)
            self.latencies(f"{model}, 1 client, alone", by_itself, model)
            self.latencies(phase.name, phase, model, by_itself)
        limits = self.rates(self.ours, alone(HEAVY, HEAVY_CLIENTS), HEAVY)
        self.throughput(STEADY.name, STEADY, HEAVY, limits)
        what = f"mlp at {STEADY_RATE:,.0f}/s, beside {HEAVY}, {HEAVY_CLIENTS} clients"
        self.latencies(what, STEADY, "mlp")

    def saturated(self) -> None:
        runs = {name: results[SATURATED.name] for name, results in self.all.items()}
        found = {name: [shares(run["busy"]) for run in of] for name, of in runs.items()}
        for model in MODELS:
            rounds = {name: [one[model] for one in of] for name, of in found.items()}
            self.add(SATURATED.name, f"share of {model}", "CPU time", rounds, None)
        indices = {
            name: [jain([one[model] for model in self.on_workers]) for one in of]
            for name, of in found.items()
        }
        self.add(SATURATED.name, "fairness", "Jain's index", indices, True)
        waits = {
            name: [max(float(run[model]["max_us"]) for model in MODELS) / 1e3 for run in of]
            for name, of in runs.items()
        }
        self.add(SATURATED.name, "longest wait", "ms", waits, False)

    def floods(self) -> None:
        heavy, light = FLOOD_OF_HEAVY, FLOOD_OF_LIGHT
        self.add(heavy.name, "refused", "requests", self.series(heavy, "mlp", "refused"), False)
        self.latencies(heavy.name, heavy, "mlp", alone("mlp", 1))
        limits = None
        if self.processes is not None:
            limits = self.rates(self.processes, light, HEAVY)
        self.throughput(light.name, light, HEAVY, limits)

    def together(self) -> None:
        """Every model of every combination; no goals, so no part of the documents' table."""
        for phase in TOGETHER:
            for model in phase.models:
                what = f"{model} of {phase.name}"
                self.latencies(what, phase, model)
                self.throughput(what, phase, model)

    def make(self) -> list[Row]:
        self.light_and_heavy()
        self.saturated()
        self.floods()
        self.together()
        return self.rows


def make_rows(contenders: Sequence[Contender]) -> list[Row]:
    processes = next((one.results for one in contenders if one.name == PROCESSES), None)
    rows: list[Row] = []
    for one in contenders:
        if one.is_lumen:
            # The first is recommended: our own other ways are its rivals, too.
            is_first = one.name == CONFIGURATIONS[0].name
            rivals = {
                other.name: other.results
                for other in contenders
                if other is not one and (is_first or not other.is_lumen)
            }
            rows += Rows(one, rivals, processes).make()
    return rows


# --- the run --------------------------------------------------------------------------------------


def measure_phase(one: Contender, phase: Phase, seconds: float) -> None:
    capacities: dict[str, float] = {}
    if any(load.part for load in phase.loads):
        for model in phase.models:
            capacities[model] = one.throughput(alone(model, MANY).name, model)
    mixed_servers.measure(one, phase, seconds, capacities)


def failures(contenders: Sequence[Contender]) -> list[str]:
    """Requests to ours that were neither answered nor refused, and the first of them."""
    return [
        f"{one.name}, {phase}, {model}: {run[model]['failed']} failed: {run[model]['error']}"
        for one in contenders
        for phase, runs in one.results.items()
        for run in runs
        for model in MODELS
        if one.is_lumen and model in run and run[model]["failed"]
    ]


def measure(run: Run) -> None:
    names = run.options.contenders.split(",")
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise BenchError(f"no contender {unknown[0]!r}; wanted some of: {' '.join(NAMES)}")
    make_squeezenet()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        contenders = mixed_servers.start_all(stack, Path(name), CONFIGURATIONS, names)
        for turn in run.turns(contenders):
            # Phase by phase, so that a slow minute of the machine hits all alike.
            for phase in PHASES:
                for one in turn:
                    measure_phase(one, phase, run.seconds)
    run.add(*make_rows(contenders))
    run.failures += failures(contenders)


# The limit of a latency is that of the same server with nothing beside it, the limit of a
# throughput too, but in a flood, where it is that of a process a model.
MLP_BESIDE = "^mlp, 1 client, beside squeezenet, 4 clients, auto$"
CONVNET_BESIDE = "^convnet, 1 client, beside squeezenet, 4 clients, auto$"
LIGHT_BESIDE = "^(mlp|convnet), 1 client, beside squeezenet, 4 clients, auto$"
P50, P99, RATE = "p50 latency", "p99 latency", "throughput"
BENCH = Bench(
    title="Light and heavy models in one server",
    measure=measure,
    minutes=9.0,
    quick_minutes=1.0,
    rounds=(3, 1),
    options=(Option("--contenders", ",".join(NAMES), "some of"),),
    sources=(
        *("include/**", "src/**", "apps/**"),
        *("bench/load/{serving,mixed_servers}.py", "bench/load/mixed_load.cc"),
        "bench/rivals/{fastapi_app,mosec_app,ort_model}.py",
        "models/convnet/1/model.onnx",
    ),
    has_a_row_for_each_goal=True,
    goals=(
        Goal(MLP_BESIDE, "of_limit_at_most", 2, "twice as long as alone", metric=P50),
        Goal(MLP_BESIDE, "of_limit_at_most", 10, "10 times as long as alone", metric=P99),
        Goal(CONVNET_BESIDE, "of_limit_at_most", 3, "3 times as long as alone", metric=P50),
        Goal(LIGHT_BESIDE, "ratio_at_least", 1, "ahead of the best rival", metric=P50),
        Goal(MLP_BESIDE, "ratio_at_least", 1, "ahead of the best rival", metric=P99),
        Goal(
            "^squeezenet, 4 clients, beside mlp at 1,000/s, auto$",
            "of_limit_at_least",
            0.97,
            "97 % of its rate alone",
            metric=RATE,
        ),
        Goal(
            "^mlp . convnet . squeezenet, 16 clients each, auto$",
            "at_least",
            0.99,
            "0.99",
            metric="fairness",
        ),
        Goal(
            "in a flood on squeezenet, 256 clients, auto$", "at_most", 0, "none", metric="refused"
        ),
        Goal(
            "in a flood on mlp, 256 clients, auto$",
            "of_limit_at_least",
            0.9,
            "90 % of the rate with a process a model",
            metric=RATE,
        ),
    ),
    # Without each model of each combination (mlp of mlp + squeezenet, ...): no goals.
    tables={"": without(" of ")},
)
