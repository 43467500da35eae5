"""The response cache and the bus: from telemetry, and of a server that runs."""

from __future__ import annotations

import polars as pl
import streamlit as st

from ..figures import live as figures
from ..figures.bars import simple_bars
from ..figures.latency import curves
from ..figures.palette import BLUE, GREEN, ORANGE, Palette
from ..page import Page, heading, nothing
from ..sources.live import LiveView
from ..stats.groups import Series, split_sorted
from ..text import count_text
from .live import LOOK_S, choose

WHAT = {"hit": GREEN, "shared": ORANGE, "miss": BLUE}


def show(page: Page) -> None:
    heading(
        "Cache and bus",
        "What the response cache answered without a run, and what goes over the shared-memory bus.",
    )
    _of_rows(page)
    st.subheader("Live", anchor=False)
    server = choose(page)
    if server is None:
        return

    @st.fragment(run_every=LOOK_S)
    def look() -> None:
        view = server.look()
        if view is not None:
            _live(page, view)

    look()


def _of_rows(page: Page) -> None:
    def make() -> list[Series]:
        rows = page.selection.rows("cache", "total_us").filter(pl.col("cache").is_not_null())
        return split_sorted(rows, ("cache",), "total_us")

    series = page.selection.kept("cache", make)
    if not series:
        nothing(
            "No request of the telemetry asked a response cache.",
            "A model has one by `response_cache` in its `config.json`.",
        )
        return
    counts = {each.key[0]: len(each.values) for each in series}
    total = sum(counts.values())
    st.metric("Answered without a run", f"{100 * (1 - counts.get('miss', 0) / total):.1f} %")
    rows = [
        (name, float(counts[name]), page.palette.shade(WHAT.get(name, BLUE))) for name in counts
    ]
    left, right = st.container(key="charts").columns(2)
    with left:
        page.chart(
            simple_bars(rows, page.palette, "requests", lambda n: f"{n:,.0f}"), "cache_count"
        )
    with right:
        palette = Palette(page.palette.dark, ("cache",), (tuple(counts),))
        page.chart(curves(series, palette, False, True), "cache_curves")


def _live(page: Page, view: LiveView) -> None:
    cached = [m for m in view.models if m.counters.get("cache_hit") or m.counters.get("cache_miss")]
    if cached:
        title = "answered without a run (%)"
        figure = figures.over_time(cached, page.palette, title, lambda p: 100 * p.cache_hit_share)
        page.chart(figure, "live_cache")
    else:
        st.caption("No model of this server has used a response cache.")
    columns = st.columns(3)
    requests = view.server.get("bus_requests", 0)
    rate = view.server_rates.get("bus_requests", 0.0)
    columns[0].metric("Clients on the bus", f"{view.server.get('bus_connections_open', 0):,}")
    columns[1].metric("Requests/s over the bus", count_text(rate))
    columns[2].metric("Requests over the bus", f"{requests:,}", help="since the server started")
