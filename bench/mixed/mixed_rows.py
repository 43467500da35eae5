"""The rows of bench/mixed.py from the measurements of its rounds. Pure functions; no state.

Errors: KeyError where a phase was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import mixed_phases as phases
from mixed_phases import Phase

Run = dict[str, Any]
Results = Mapping[str, Sequence[Run]]  # of one server, by phase, a run a round
LATENCIES = {"p50 latency": "p50_us", "p99 latency": "p99_us", "p99.9 latency": "p999_us"}


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1 / n where one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else 0.0


def shares(busy: Mapping[str, float]) -> dict[str, float]:
    total = sum(busy.values())
    return {model: value / total if total > 0 else 0.0 for model, value in busy.items()}


def paired_limit(values: Sequence[float], limits: Sequence[float]) -> float | None:
    """By which `values` are off as in the median of the rounds: the two of a round are of one
    moment."""
    ratios = [value / limit for value, limit in zip(values, limits) if limit > 0]
    middle = median(ratios) if ratios else 0.0
    return median(values) / middle if middle > 0 else None


def spread(values: Sequence[float]) -> float | None:
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else None


def make_row(
    name: str,
    metric: str,
    unit: str,
    rounds: Mapping[str, Sequence[float]],
    is_bigger_better: bool | None,
    limits: Sequence[float] | None = None,
) -> dict[str, Any]:
    """`rounds`: ours first. `is_bigger_better` None: not to be compared with rivals."""
    ours, *rivals = rounds
    # A server that has answered nothing has no latency.
    if metric in LATENCIES:
        rivals = [one for one in rivals if median(rounds[one]) > 0]
    mine = median(rounds[ours])
    best = None
    if rivals and is_bigger_better is not None:
        best = (max if is_bigger_better else min)(rivals, key=lambda one: median(rounds[one]))
    rival = median(rounds[best]) if best else None
    ratio = None
    if rival and mine:
        ratio = mine / rival if is_bigger_better else rival / mine
    spreads = [spread(rounds[one]) for one in (ours, best) if one]
    known = [value for value in spreads if value is not None]
    limit = paired_limit(rounds[ours], limits) if limits else None
    return {
        "bench": "mixed",
        "row": name,
        "metric": metric,
        "unit": unit,
        "ours": round(mine, 4),
        "rival": None if rival is None else round(rival, 4),
        "rival_name": best,
        "ratio": None if ratio is None else round(ratio, 3),
        "spread": round(max(known), 3) if known else None,
        "limit": None if limit is None else round(limit, 4),
        "rounds": {one: list(values) for one, values in rounds.items()},
    }


class Table:
    """The rows of one of our servers, against those rivals."""

    def __init__(
        self,
        name: str,
        ours: Results,
        rivals: Mapping[str, Results],
        on_workers: Sequence[str],
        processes: Results | None,
    ) -> None:
        self.name = name
        self.ours = ours
        self.all = {name: ours, **rivals}
        self.on_workers = on_workers
        self.processes = processes
        self.rows: list[dict[str, Any]] = []

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
        is_bigger_better: bool | None,
        limits: Sequence[float] | None = None,
    ) -> None:
        name = f"{what}, {self.name}"
        self.rows.append(make_row(name, metric, unit, rounds, is_bigger_better, limits))

    def add_latencies(
        self, what: str, phase: Phase, model: str, alone: Phase | None = None
    ) -> None:
        for metric, key in LATENCIES.items():
            limits = None
            if alone is not None:
                limits = [float(run[model][key]) for run in self.ours[alone.name]]
            self.add(what, metric, "µs", self.series(phase, model, key), False, limits)

    def add_throughput(
        self, what: str, phase: Phase, model: str, limits: Sequence[float] | None
    ) -> None:
        rounds = self.series(phase, model, "per_second")
        self.add(what, "throughput", "requests/s", rounds, True, limits)

    def throughputs(self, results: Results, phase: Phase, model: str) -> list[float]:
        return [float(run[model]["per_second"]) for run in results[phase.name]]

    # --- the rows ---------------------------------------------------------------------------------

    def light_beside_heavy(self) -> None:
        for model in phases.LIGHT:
            alone, beside = phases.alone(model, 1), phases.beside(model)
            self.add_latencies(f"{model}, 1 client, alone", alone, model)
            self.add_latencies(beside.name, beside, model, alone)

    def heavy_beside_light(self) -> None:
        heavy, steady = phases.HEAVY, phases.STEADY
        alone = phases.alone(heavy, phases.HEAVY_CLIENTS)
        limits = self.throughputs(self.ours, alone, heavy)
        self.add_throughput(steady.name, steady, heavy, limits)
        what = f"mlp at {phases.STEADY_RATE:,.0f}/s, beside {heavy}, {phases.HEAVY_CLIENTS} clients"
        self.add_latencies(what, steady, "mlp")

    def saturated(self) -> None:
        phase = phases.SATURATED
        found = {
            name: [shares(run["busy"]) for run in results[phase.name]]
            for name, results in self.all.items()
        }
        for model in phases.MODELS:
            rounds = {name: [one[model] for one in runs] for name, runs in found.items()}
            self.add(phase.name, f"share of {model}", "CPU time", rounds, None)
        indices = {
            name: [jain([one[model] for model in self.on_workers]) for one in runs]
            for name, runs in found.items()
        }
        self.add(phase.name, "fairness", "Jain's index", indices, True)
        waits = {
            name: [
                max(float(run[model]["max_us"]) for model in phases.MODELS) / 1e3
                for run in results[phase.name]
            ]
            for name, results in self.all.items()
        }
        self.add(phase.name, "longest wait", "ms", waits, False)

    def floods(self) -> None:
        heavy, light = phases.FLOOD_OF_HEAVY, phases.FLOOD_OF_LIGHT
        self.add(heavy.name, "refused", "requests", self.series(heavy, "mlp", "refused"), False)
        self.add_latencies(heavy.name, heavy, "mlp", phases.alone("mlp", 1))
        limits = None
        if self.processes is not None:
            limits = self.throughputs(self.processes, light, phases.HEAVY)
        self.add_throughput(light.name, light, phases.HEAVY, limits)

    def together(self) -> None:
        """Every model of every combination; no goals, so no part of the documents' table."""
        for phase in phases.TOGETHER:
            for model in phase.models:
                what = f"{model} of {phase.name}"
                self.add_latencies(what, phase, model)
                self.add_throughput(what, phase, model, None)


def make_rows(table: Table) -> list[dict[str, Any]]:
    table.light_beside_heavy()
    table.heavy_beside_light()
    table.saturated()
    table.floods()
    table.together()
    return table.rows
