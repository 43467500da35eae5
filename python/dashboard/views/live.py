"""A running server, looked at every second through its counters file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import streamlit as st
from lumen_engine.counters_file import find

from ..figures import live as figures
from ..figures.bars import stacked_stages
from ..page import Page, heading, nothing
from ..sources.live import LiveServer, LiveView, ModelView
from ..stats.stages import PARTS
from ..text import code, count_text, plain, sentence, time_text

LOOK_S = 1.0


@st.cache_resource
def server_of(path: str) -> LiveServer:
    return LiveServer(Path(path))


def choose(page: Page) -> LiveServer | None:
    """The counters files that were named, and those that servers of this user have made."""
    named = [str(path) for path in page.counters]
    found = {str(each.path): each for each in find()}
    labels = {path: f"{Path(path).name} (named)" for path in named}
    for path, each in found.items():
        state = "running" if each.is_alive else "dead"
        labels.setdefault(path, f"process {each.pid}, {state}")
    if not labels:
        nothing(
            "No server runs whose counters can be read.",
            "`lumen serve` keeps them in a file that is found by itself; a path that `--stats`"
            " gave can be named when the dashboard is started.",
        )
        return None
    paths = list(labels)
    chosen = paths[0]
    if len(paths) > 1:
        place = st.selectbox("Server", range(len(paths)), key="server",
                             format_func=lambda i: plain(labels[paths[i]]))  # fmt: skip
        chosen = paths[place]
    return server_of(chosen)


def show(page: Page) -> None:
    heading(
        "Live", "A look a second at the server's counters file, which costs the server nothing."
    )
    server = choose(page)
    if server is None:
        return

    @st.fragment(run_every=LOOK_S)
    def look() -> None:
        view = server.look()
        if view is None:
            st.warning(sentence(server.problem), icon=":material/warning:")
            return
        if not view.is_alive:
            st.error(
                "This server has ended; these are its last counts.", icon=":material/stop_circle:"
            )
        _metrics(view)
        _pictures(page, view)
        _table(view)

    look()


def active(view: LiveView) -> list[ModelView]:
    """Models with requests in the remembered time; all where none has any."""
    asked = [m for m in view.models if any(point.per_second for point in m.points)]
    return asked or list(view.models)


def _metrics(view: LiveView) -> None:
    points = [model.points[-1] for model in view.models if model.points]
    rate = sum(point.per_second for point in points)
    slowest = max((p.p99_us for p in points if p.p99_us == p.p99_us), default=float("nan"))
    columns = st.columns(4)
    values = (
        ("Requests/s", count_text(rate) if points else "—", f"{len(active(view))} models asked"),
        ("Slowest model's p99", time_text(slowest), "of the requests of the last look"),
        ("Waiting", f"{sum(p.queued for p in points):,}", "requests in queues"),
        ("Connections", f"{view.server.get('connections_open', 0):,}", "open now"),
    )
    for place, (label, value, note) in zip(columns, values):
        with place.container(border=True):
            st.metric(label, value)
            st.caption(note)


def _pictures(page: Page, view: LiveView) -> None:
    models = active(view)
    charts = st.container(key="charts")
    left, right = charts.columns(2)
    with left:
        st.subheader("Throughput", anchor=False)
        title = "requests/s"
        page.chart(
            figures.over_time(models, page.palette, title, lambda p: p.per_second), "live_rate"
        )
    with right:
        st.subheader("Latency", anchor=False)
        page.chart(figures.latencies(models, page.palette), "live_latency")
    left, right = charts.columns(2)
    with left:
        st.subheader("Where the time goes", anchor=False)
        rows = [
            (plain(m.name), {name: us for name, us in m.stages_us.items() if name in PARTS})
            for m in models
        ]
        page.chart(stacked_stages(rows, page.palette, as_share=True), "live_stages")
    with right:
        st.subheader("Threads", anchor=False)
        if view.threads:
            page.chart(figures.doing(view.threads, page.palette), "live_threads")
        else:
            st.caption("Known from the second look on.")


def _table(view: LiveView) -> None:
    rows = []
    for model in view.models:
        point = model.points[-1] if model.points else None
        rows.append(
            {
                "model": plain(model.name),
                "version": plain(model.version),
                "requests/s": point.per_second if point else None,
                "p50 (µs)": point.p50_us if point else None,
                "p99 (µs)": point.p99_us if point else None,
                "p99.9 (µs)": point.p999_us if point else None,
                "queued": point.queued if point else None,
                "rows an inference": point.rows_per_inference if point else None,
                "answered": model.counters.get("success", 0),
                "failed": ", ".join(f"{n} {name}" for name, n in model.failures.items()),
            }
        )
    number = st.column_config.NumberColumn
    formats = {
        name: number(format="%.1f")
        for name in ("requests/s", "p50 (µs)", "p99 (µs)", "p99.9 (µs)", "rows an inference")
    }
    table = pl.DataFrame(rows, infer_schema_length=None).fill_nan(None)
    st.dataframe(table, hide_index=True, width="stretch", column_config=formats)
    bound = view.server.get("memory_bound_bytes", 0)
    if bound:
        share = 100 * view.server.get("memory_reserved_bytes", 0) / bound
        st.caption(
            f"Memory of requests: {share:.1f} % of {code(count_text(bound) + 'B')} reserved."
        )
