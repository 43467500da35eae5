"""bench/mixed.py: its rows of given rounds."""

from __future__ import annotations

from typing import Any

import pytest

from bench import mixed
from bench.load import mixed_servers
from bench.load.mixed_servers import Contender

ROUNDS = 2


def make_results(scale: float = 1.0, **changes: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """All phases: 100 µs and 1,000 requests/s, times `scale`; `changes` by model of mixed ones."""
    results: dict[str, list[dict[str, Any]]] = {}
    for phase in mixed.PHASES:
        run: dict[str, Any] = {"busy": {"mlp": 1.0, "convnet": 2.0, "squeezenet": 2.0}}
        for model in phase.models:
            run[model] = {
                "per_second": 1000 * scale,
                "p50_us": 100 * scale,
                "p99_us": 200 * scale,
                "p999_us": 300 * scale,
                "max_us": 4000 * scale,
                "refused": 0,
            }
            if len(phase.models) > 1:
                run[model].update(changes.get(model, {}))
        results[phase.name] = [run] * ROUNDS
    return results


def table(**changes: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of `auto`, whose rival takes twice as long and gets twice as much."""
    rivals = {"fastapi": make_results(2.0), "mosec": make_results(3.0)}
    ours = Contender("auto", {}, True, ("convnet", "squeezenet"), make_results(1.0, **changes))
    made = mixed.Rows(ours, rivals, make_results(0.5)).make()
    return {(row["row"], row["metric"]): row for row in made}


def test_jains_index_is_one_where_all_have_the_same_and_falls_to_one_of_n() -> None:
    assert mixed.jain([3, 3, 3]) == pytest.approx(1)
    assert mixed.jain([5, 0, 0, 0]) == pytest.approx(0.25)
    assert mixed.jain([2, 1]) == pytest.approx(0.9)
    assert mixed.jain([0, 0]) == 0


def test_shares_add_up_to_one() -> None:
    assert mixed.shares({"a": 1, "b": 3}) == {"a": 0.25, "b": 0.75}
    assert mixed.shares({"a": 0, "b": 0}) == {"a": 0, "b": 0}


def test_a_latency_beside_the_heavy_model_stands_against_that_alone() -> None:
    found = table(mlp={"p50_us": 150.0})
    row = found["mlp, 1 client, beside squeezenet, 4 clients, auto", "p50 latency"]
    assert (row["ours"], row["limit"]) == (150, 100)
    assert row["rival"] == 200 and row["rival_name"] == "fastapi"
    assert row["ratio"] == pytest.approx(200 / 150, abs=1e-3)
    assert found["mlp, 1 client, alone, auto", "p50 latency"]["limit"] is None


def test_fairness_is_among_those_that_compete_for_workers() -> None:
    found = table()
    name = "mlp + convnet + squeezenet, 16 clients each, auto"
    assert found[name, "fairness"]["ours"] == 1
    assert found[name, "share of mlp"]["ours"] == pytest.approx(0.2)
    assert found[name, "share of mlp"]["ratio"] is None
    assert found[name, "longest wait"]["ours"] == 4


def test_a_flood_on_the_light_model_stands_against_a_process_a_model() -> None:
    row = table()["squeezenet, 4 clients, in a flood on mlp, 256 clients, auto", "throughput"]
    assert row["limit"] == 500 and row["rival_name"] == "mosec"


def test_no_refusal_is_no_ratio() -> None:
    row = table()["mlp, 1 client, in a flood on squeezenet, 256 clients, auto", "refused"]
    assert (row["ours"], row["ratio"], row["spread"]) == (0, None, None)


def test_every_goal_has_its_row_and_can_be_missed() -> None:
    slow = {"p50_us": 5000.0, "p99_us": 9000.0, "refused": 1, "per_second": 10.0}
    good, bad = (list(found.values()) for found in (table(), table(mlp=slow, convnet=slow)))
    bad = [row | {"ours": 0.5} if row["metric"] == "fairness" else row for row in bad]
    worse = list(table(squeezenet={"per_second": 10.0}).values())
    for goal in mixed.BENCH.goals:
        assert any(goal.fits(row) for row in good), goal
        assert all(goal.is_reached(row, good) for row in good if goal.fits(row)), goal
        missed = [row for row in [*bad, *worse] if goal.fits(row)]
        assert not all(goal.is_reached(row, bad) for row in missed), goal


def test_open_loops_offer_a_part_of_the_servers_rate_alone() -> None:
    three = next(p for p in mixed.TOGETHER if "open" in p.name and p.models == mixed.MODELS)
    rates = [mixed_servers.rate_of(load, {load.model: 300.0}) for load in three.loads]
    assert rates == pytest.approx([80, 80, 80])
    steady = next(load for load in mixed.STEADY.loads if load.model == "mlp")
    assert mixed_servers.rate_of(steady, {}) == 1000


def test_an_open_loop_comes_after_the_phases_that_it_needs() -> None:
    names = [phase.name for phase in mixed.PHASES]
    assert len(names) == len(set(names))
    first_open = next(i for i, p in enumerate(mixed.PHASES) if any(x.part for x in p.loads))
    assert all(names.index(mixed.alone(m, mixed.MANY).name) < first_open for m in mixed.MODELS)


def test_a_flood_has_the_time_to_rise() -> None:
    assert mixed.SATURATED.window(0.3) == (0.3, 0.1)
    assert mixed.FLOOD_OF_HEAVY.window(0.3) == (0.6, 0.6)
    assert mixed.FLOOD_OF_HEAVY.window(4.0) == (4.0, 1.0)


def test_compute_time_is_read_from_the_metrics_by_model() -> None:
    name = "lumen_inference_cpu_nanoseconds_total"
    text = f"""# TYPE {name} counter
{name}{{model="mlp",version="1"}} 250000000
{name}{{model="mlp",version="2"}} 500000000
lumen_execution_total{{model="mlp",version="1"}} 7
{name}{{model="squeezenet",version="1"}} 1e6
"""
    assert mixed_servers.compute_seconds(text) == {"mlp": 0.75, "squeezenet": 0.001}
