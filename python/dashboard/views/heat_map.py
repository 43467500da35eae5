"""Queue type × allocator as a heat map, from a matrix or from telemetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from ..figures.bars import heat_map
from ..page import Page, heading, nothing
from ..sources.documents import MatrixCell
from ..stats import groups
from ..text import count_text, sentence, time_text

COMBINATION = ("queue_type", "allocator_type")
TELEMETRY = "telemetry CSVs (server side)"
OF_ROWS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
MATRIX_NAMES = {
    "round_trip_p99_us": "round trip p99",
    "round_trip_p50_us": "round trip p50",
    "round_trip_mean_us": "round trip mean",
    "requests_per_second": "requests/s",
    "connection_mean_us": "connection mean",
    "connection_p99_us": "connection p99",
    "queue_mean_us": "queue mean",
    "queue_p99_us": "queue p99",
    "heap_calls_per_request": "heap calls a request",
    "arena_bytes_per_request": "arena bytes a request",
    "rows_per_inference": "rows an inference",
}


@dataclass(frozen=True)
class Drawn:
    values: dict[tuple[str, str], float]
    title: str
    is_time: bool
    errors: list[str]


def show(page: Page) -> None:
    heading(
        "Queue type × allocator",
        "Each combination's value: the stronger its contrast to the page, the larger it is.",
    )
    cells = _cells(page)
    sources = [
        *(f"{run} · {model}" for run, model in cells),
        *([TELEMETRY] if page.series() else []),
    ]
    if not sources:
        nothing(
            "No combinations are selected.",
            "`lumen matrix --model mlp --json > matrix.json` measures them all.",
        )
        return
    left, right = st.columns(2)
    source = left.selectbox("From", sources)
    if source == TELEMETRY:
        drawn = _of_rows(page, right)
    else:
        drawn = _of_matrix(cells[list(cells)[sources.index(source)]], right)
    text: Callable[[float], str] = time_text if drawn.is_time else count_text
    positive = [value for value in drawn.values.values() if value > 0]
    log = len(positive) == len(drawn.values) and max(positive) > 8 * min(positive)
    page.chart(heat_map(drawn.values, page.palette, drawn.title, text, log), "heat")
    if log:
        st.caption("The colours are logarithmic here: the values differ by much.")
    for error in drawn.errors:
        st.warning(sentence(error))


def _cells(page: Page) -> dict[tuple[str, str], list[MatrixCell]]:
    found: dict[tuple[str, str], list[MatrixCell]] = {}
    for cell in page.selection.content.documents.cells:
        wanted = page.selection.choice.allows(
            run=cell.run, model=cell.model, queue_type=cell.queue_type,
            allocator_type=cell.allocator_type,
        )  # fmt: skip
        if wanted:
            found.setdefault((cell.run, cell.model), []).append(cell)
    return found


def _of_matrix(cells: list[MatrixCell], place: st.delta_generator.DeltaGenerator) -> Drawn:
    keys = [key for key in MATRIX_NAMES if any(key in cell.values for cell in cells)]
    keys += sorted({key for cell in cells for key in cell.values} - set(MATRIX_NAMES))
    name = place.selectbox("Value", [MATRIX_NAMES.get(key, key) for key in keys])
    key = next((key for key in keys if MATRIX_NAMES.get(key, key) == name), "")
    values = {
        (cell.queue_type, cell.allocator_type): cell.values[key]
        for cell in cells
        if key in cell.values and not cell.error
    }
    errors = [f"{c.queue_type} × {c.allocator_type} failed: {c.error}" for c in cells if c.error]
    return Drawn(values, str(name), key.endswith("_us"), errors)


def _of_rows(page: Page, place: st.delta_generator.DeltaGenerator) -> Drawn:
    name = str(place.selectbox("Value", [*OF_ROWS, "mean", "requests/s", "requests"], index=1))

    def make() -> tuple[list[groups.Series], list[groups.Load]]:
        series = groups.split_sorted(
            page.selection.rows(*COMBINATION, "total_us"), COMBINATION, "total_us"
        )
        rows = page.selection.rows(*COMBINATION, *groups.LOAD_COLUMNS)
        return series, groups.loads(rows, COMBINATION)

    series, loads = page.selection.kept("combinations", make)
    if name in OF_ROWS:
        values = {(s.key[0], s.key[1]): s.percentile(OF_ROWS[name]) for s in series}
        return Drawn(values, f"{name} of total", True, [])
    of: dict[str, Callable[[groups.Load], float]] = {
        "mean": lambda load: load.mean_us,
        "requests/s": lambda load: load.per_second,
        "requests": lambda load: load.requests,
    }
    found = {(load.key[0], load.key[1]): of[name](load) for load in loads}
    return Drawn(found, name if name != "mean" else "mean of total", name == "mean", [])
