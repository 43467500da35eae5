"""Latency: percentile curves, box plots, percentiles over time, and the slowest requests."""

from __future__ import annotations

import streamlit as st

from ..figures import latency
from ..page import Page, heading, nothing
from ..sources.telemetry_csv import STAGES
from ..stats.timeline import Timeline, timelines

OVERLAID, FACETED = "Overlaid", "Faceted"
SLOWEST_SHOWN = 20


def show(page: Page) -> None:
    heading(
        "Latency",
        "Server-side `total` of each request. The axis of the tail is logarithmic: each nine"
        " takes as much room as the one before it.",
    )
    series = page.series()
    if not series:
        nothing("No requests are selected.", "Remove a filter, or name a telemetry CSV.")
        return
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    layout = left.segmented_control("Series", [OVERLAID, FACETED], default=OVERLAID)
    log_y = right.toggle("Log scale", value=True)
    facets = layout == FACETED
    st.subheader("Percentile curve", anchor=False)
    page.chart(latency.curves(series, page.palette, facets, log_y), "curves")
    st.subheader("Spread", anchor=False)
    page.chart(latency.boxes(series, page.palette), "boxes")
    st.caption("Box: quartiles. Whiskers: p1 and p99. Diamond: p99.9. All of all rows.")
    st.subheader("Jitter over time", anchor=False)
    _jitter(page, facets)
    st.subheader("Slowest requests", anchor=False)
    _slowest(page)


def _jitter(page: Page, facets: bool) -> None:
    left, right = st.columns(2, vertical_alignment="bottom")
    what = left.segmented_control("Of each bin", ["p50", "p99", "max"], default="p99") or "p99"
    since_start = right.toggle("From own start", value=True)

    def make() -> tuple[list[Timeline], int]:
        rows = page.selection.rows(
            *dict.fromkeys([*page.split, "run", "time", "status", "total_us"])
        )
        return timelines(rows, page.split, since_start)

    lines, width = page.selection.kept("timelines", make, since_start)
    shown = {each.key for each in page.series()}
    lines = [line for line in lines if line.key in shown]
    page.chart(latency.jitter(lines, page.palette, what, facets, since_start), "jitter")
    text = f"Bins of {width / 1e6:,.6g} s, each from all of its rows."
    steps = [p for p in page.selection.content.problems if "clock was set back" in p]
    if steps:
        text += " The clock of a file was set back: times overlap there; see *Sources*."
    st.caption(text)


def _slowest(page: Page) -> None:
    found = page.selection.slowest().sort("total_us", descending=True).head(SLOWEST_SHOWN)
    stages = [f"{stage}_us" for stage in ("total", *STAGES[:-1])]
    columns = ["request_id", "time", "model", "queue_type", "allocator_type", "lane", "status"]
    formats = {
        name: st.column_config.NumberColumn(name.replace("_us", " (µs)"), format="%.1f")
        for name in stages
    }
    st.dataframe(
        found.select(*columns, *stages, "worker", "rows", "cache", "run"),
        hide_index=True, width="stretch", column_config=formats,
    )  # fmt: skip
