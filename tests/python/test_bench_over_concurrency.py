"""The text of docs/reports/over_concurrency.md follows from the cells of the bench."""

from __future__ import annotations

from typing import Any

import pytest

from bench import over_concurrency as tables
from bench.over_concurrency import ALL_CPUS, BUDGET, NOT_PINNED, OURS, RIVAL, Cells

NAMES = (RIVAL, OURS, "spsc × lumen_arena", NOT_PINNED, ALL_CPUS, BUDGET)


def make_document(**changes: dict[str, list[float | None]]) -> dict[str, Any]:
    """Throughput 100, p99 10 ms with 4 clients and 40 with 16; `changes` by configuration."""
    cells = []
    for name in NAMES:
        for clients in (1, 4, 16):
            cell: dict[str, Any] = {
                "configuration": name,
                "clients": clients,
                "throughput": [99.0, 100.0, 101.0],
                "p99 latency": [2.5 * clients] * 3,
                "in the queue": [2.0 * clients] * 3,
                "refused": [0.0] * 3,
                "context switches": [3.0] * 3,
                "migrations": [1.0] * 3,
                "IPC": [None] * 3,
            }
            cell.update(changes.get(f"{name}/{clients}", {}))
            cells.append(cell)
    return {"cells": cells, "budget_ms": 30.0}


def test_the_finding_holds_where_the_tail_grows_and_throughput_does_not() -> None:
    text = tables.findings(make_document())
    assert f"with `{OURS}`: holds (throughput +0 %, p99 +300 %; 24.0 ms more" in text


def test_the_finding_does_not_hold_where_the_tail_stays() -> None:
    document = make_document(**{f"{OURS}/16": {"p99 latency": [10.0, 10.0, 10.0]}})
    assert f"with `{OURS}`: does not hold (throughput +0 %, p99 +0 %)" in tables.findings(document)


def test_a_throughput_that_moves_is_told_beside_the_tail() -> None:
    document = make_document(**{f"{OURS}/16": {"throughput": [150.0, 150.0, 150.0]}})
    assert "while throughput moves too (throughput +50 %" in tables.findings(document)


def test_rounds_that_overlap_are_no_difference() -> None:
    cells = Cells(make_document(**{f"{OURS}/16": {"throughput": [90.0, 95.0, 99.5]}}))
    said = tables.held_against(cells, OURS, RIVAL, 16, "throughput", "")
    assert "within the spread" in said
    cells = Cells(make_document(**{f"{OURS}/16": {"throughput": [80.0, 80.0, 80.0]}}))
    assert "(−20 %)" in tables.held_against(cells, OURS, RIVAL, 16, "throughput", "")


def test_the_best_has_the_smallest_tail_among_those_that_are_level() -> None:
    document = make_document(
        **{
            f"{ALL_CPUS}/4": {"throughput": [103.0] * 3, "p99 latency": [20.0] * 3},
            f"{NOT_PINNED}/4": {"throughput": [101.0] * 3, "p99 latency": [5.0] * 3},
            f"{BUDGET}/4": {"throughput": [50.0] * 3, "p99 latency": [1.0] * 3},
        }
    )
    assert Cells(document).best() == NOT_PINNED
    assert f"Lumen, best: `{OURS}`, not pinned" in tables.beside_origin(document)


def test_the_rows_of_the_origin_stand_beside_ours_and_ipc_is_not_measured() -> None:
    lines = tables.beside_origin(make_document()).splitlines()
    found = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in lines}
    assert found["requests/s"][:2] == ["266.00", "295.48"]
    assert found["p99, ms"][:2] == ["71.75", "21.28"]
    assert found["in the queue, a worker being free, mean, ms"][:2] == ["0.010", "0.020"]
    assert found["IPC"][:3] == ["0.520", "1.265", "not measured"]


def test_the_case_that_started_it_all_is_the_first_line_by_clients() -> None:
    first = tables.by_clients(make_document()).splitlines()[2]
    for text in ("295.5", "31.97", "74.56", "+133 %", "10.8", "11.0"):
        assert text in first


def test_a_baseline_of_another_version_is_refused() -> None:
    with pytest.raises(KeyError):
        tables.findings({"cells": [], "budget_ms": 1.0})
