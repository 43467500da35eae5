"""Hardware counters side by side, as `lumen perf` has measured them."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import streamlit as st

from ..figures.bars import grouped_bars
from ..page import Page, heading, nothing
from ..sources.documents import PerfColumn
from ..sources.perf_json import SIMULATED
from ..text import count_text, plain, sentence


@dataclass(frozen=True)
class Row:
    """`factor` makes of the file's unit the one that is shown; `digits` after the point."""

    label: str
    unit: str = ""
    factor: float = 1.0
    digits: int = 2


ROWS = {
    "per_second": Row("requests/s", "", 1, 1),
    "p50_ms": Row("p50", "ms"),
    "p99_ms": Row("p99", "ms"),
    "errors": Row("errors and refusals", "", 1, 0),
    "queue_ms": Row("mean wait in the queue", "ms"),
    "inference_ms": Row("mean inference", "ms"),
    "ipc": Row("instructions a cycle (IPC)", "", 1, 3),
    "llc_miss_rate": Row("LLC miss rate", "%", 100),
    "l1_miss_rate": Row("L1 data miss rate", "%", 100),
    "branch_miss_rate": Row("branch miss rate", "%", 100),
    "system_share": Row("CPU in the kernel", "%", 100, 1),
    "cpu_ms_a_request": Row("CPU a request", "ms", 1, 3),
    "context_switches": Row("context switches", "", 1, 0),
    "voluntary": Row("context switches, gave way by itself", "", 1, 0),
    "migrations": Row("migrations", "", 1, 0),
    "page_faults": Row("page faults", "", 1, 0),
}
DRAWN = ("per_second", "p50_ms", "p99_ms", "ipc", "llc_miss_rate", "context_switches")
NOT_MEASURED = "not measured"


def show(page: Page) -> None:
    heading("Counters", "A server under several loads, as `lumen perf` measured it.")
    allows = page.selection.choice.allows
    columns = [
        each
        for each in page.selection.content.documents.perf
        if allows(run=each.run, model=each.model)
    ]
    if not columns:
        nothing(
            "No counters were read.",
            "`lumen perf --json > perf.json` measures them; name the file when the dashboard is"
            " started.",
        )
        return
    several = len({each.run for each in columns}) > 1
    names = [f"{each.run}: {each.label}" if several else each.label for each in columns]
    for verdict in dict.fromkeys(each.verdict for each in columns if each.verdict):
        st.info(sentence(verdict), icon=":material/insights:")
    if not all(each.has_counters for each in columns):
        st.caption(
            "A machine without hardware counters was measured: what only they can tell is *not"
            " measured* here."
        )
    _figures(page, columns, names)
    st.subheader("All figures", anchor=False)
    _table(columns, names)
    for note in dict.fromkeys(note for each in columns for note in each.notes):
        st.caption(sentence(note))


def _figures(page: Page, columns: list[PerfColumn], names: list[str]) -> None:
    drawn = [key for key in DRAWN if any(each.values.get(key) is not None for each in columns)]
    places = st.columns(min(len(drawn), 3) or 1)
    for number, key in enumerate(drawn):
        row = ROWS[key]
        values = [(each.values.get(key) or 0.0) * row.factor for each in columns]
        title = f"{row.label} ({row.unit})" if row.unit else row.label
        with places[number % len(places)]:
            page.chart(grouped_bars(names, values, page.palette, title), f"perf_{key}")


def row_of(key: str) -> Row:
    if key.startswith(SIMULATED):
        return Row(
            key.removeprefix(SIMULATED).replace("_", " ") + " a request (simulated)", "", 1, 0
        )
    return ROWS.get(key) or Row(key.replace("_", " "))


def cell_text(row: Row, value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    shown = value * row.factor
    if row.digits == 0 and shown >= 1e6:
        return count_text(shown)
    return f"{shown:,.{row.digits}f}" + (f" {row.unit}" if row.unit else "")


def change_text(first: float | None, last: float | None) -> str:
    if first is None or last is None or first == 0:
        return ""
    return f"{100 * (last / first - 1):+.1f} %".replace("-", "−")


def _table(columns: list[PerfColumn], names: list[str]) -> None:
    keys = list(dict.fromkeys(key for each in columns for key in each.values))
    rows = []
    for key in keys:
        values = [each.values.get(key) for each in columns]
        row = row_of(key)
        cells = {name: cell_text(row, value) for name, value in zip(names, values)}
        change = {"change": change_text(values[0], values[-1])} if len(columns) > 1 else {}
        rows.append({"figure": plain(row.label), **cells, **change})
    st.dataframe(pl.DataFrame(rows), hide_index=True, width="stretch")
