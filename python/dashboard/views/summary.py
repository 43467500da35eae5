"""The first page: the best figures, and all combinations in a table."""

from __future__ import annotations

import math

import polars as pl
import streamlit as st

from ..figures.bars import simple_bars
from ..page import Page, heading, nothing
from ..sources.documents import MatrixCell
from ..stats.groups import Load, Series
from ..text import code, count_text, time_text

MATRICES_SHOWN = 3  # the page *Heat map* has all
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


def show(page: Page) -> None:
    heading("Summary", "Server-side time of each request: first byte read to last byte written.")
    series, loads = page.series(), {load.key: load for load in page.loads()}
    cells = page.selection.content.documents.cells
    if not series:
        nothing(
            "No requests of a telemetry CSV are selected.",
            "Start the dashboard with the path of a CSV that `telemetry_csv_path` made, or remove a"
            " filter." + (" The matrix that was read is on the page *Heat map*." if cells else ""),
        )
        return
    _metrics(page, series, loads)
    _matrix_winners(cells)
    st.subheader("p99 by combination", anchor=False)
    rows = [(each.label, each.percentile(0.99), page.palette.style(each.key).colour)
            for each in sorted(series, key=lambda each: each.percentile(0.99))]  # fmt: skip
    in_ms = max(value for _, value, _ in rows) >= 5_000
    bars = [(label, value / (1e3 if in_ms else 1), colour) for label, value, colour in rows]
    unit = "ms" if in_ms else "µs"
    page.chart(
        simple_bars(bars, page.palette, f"p99 ({unit})",
                    lambda value: time_text(value * (1e3 if in_ms else 1))), "summary_p99",
    )  # fmt: skip
    st.subheader("All combinations", anchor=False)
    _table(page, series, loads)


def _metrics(page: Page, series: list[Series], loads: dict[tuple[str, ...], Load]) -> None:
    best = min(series, key=lambda each: each.percentile(0.99))
    rates = [load for load in loads.values() if math.isfinite(load.per_second)]
    requests = sum(load.requests for load in loads.values())
    errors = sum(load.errors for load in loads.values())
    columns = st.columns(4)
    with columns[0].container(border=True):
        st.metric("Best p99, server side", time_text(best.percentile(0.99)))
        st.caption(code(best.label))
    with columns[1].container(border=True):
        fastest = max(rates, key=lambda load: load.per_second, default=None)
        value = f"{count_text(fastest.per_second)} /s" if fastest else "—"
        st.metric("Highest throughput", value)
        st.caption(code(" · ".join(fastest.key)) if fastest else "no rate is known")
    with columns[2].container(border=True):
        st.metric("Requests", f"{requests:,}")
        st.caption(f"{errors:,} with status 400 or above")
    with columns[3].container(border=True):
        st.metric("Configurations", f"{len(loads):,}")
        st.caption(f"of {_runs(page)} run{'s' if _runs(page) != 1 else ''}")


def _matrix_winners(cells: list[MatrixCell]) -> None:
    """The same question as the client answers it: there the best may be another."""
    key = "round_trip_p99_us"
    runs: dict[tuple[str, str], list[MatrixCell]] = {}
    for cell in cells:
        if key in cell.values and not cell.error:
            runs.setdefault((cell.run, cell.model), []).append(cell)
    for (run, model), found in list(runs.items())[:MATRICES_SHOWN]:
        best = min(found, key=lambda cell: cell.values[key])
        label = code(f"{best.queue_type} · {best.allocator_type}")
        st.caption(
            f"As the clients of `lumen matrix` saw it ({code(run)}, {code(model)}), the best p99 of"
            f" a round trip is {time_text(best.values[key])}: {label}."
        )


def _runs(page: Page) -> int:
    def make() -> int:
        return page.selection.rows("run").select(pl.col("run").n_unique()).collect().item()

    return page.selection.kept("runs", make)


def _table(page: Page, series: list[Series], loads: dict[tuple[str, ...], Load]) -> None:
    table: dict[str, list[object]] = {
        name.replace("_", " "): [each.key[place] for each in series]
        for place, name in enumerate(page.split)
    }
    for name, share in SHARES.items():
        table[f"{name} (µs)"] = [each.percentile(share) for each in series]
    table["max (µs)"] = [float(each.values[-1]) for each in series]
    table["mean (µs)"] = [loads[each.key].mean_us for each in series]
    table["requests"] = [loads[each.key].requests for each in series]
    table["requests/s"] = [loads[each.key].per_second for each in series]
    table["errors"] = [loads[each.key].errors for each in series]
    formats = {
        name: st.column_config.NumberColumn(format="localized" if name == "requests" else "%.1f")
        for name in table
        if name.endswith("(µs)") or name in ("requests", "requests/s")
    }
    st.dataframe(pl.DataFrame(table), hide_index=True, width="stretch", column_config=formats)
    st.caption(
        "Percentiles are of all rows, by nearest rank. requests/s is the number of requests on"
        " kept connections over the time from a stretch's first byte to its last; pauses of whole"
        " seconds, and requests that opened a connection, are left out."
    )
