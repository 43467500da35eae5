"""Throughput against latency, with the knee; and ratios with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from ..sources.documents import FormRow
from ..stats.knee import knee
from ..stats.verdict import FASTER, SLOWER, Verdict
from ..text import figure_text, time_unit
from .layout import finish, log_axis
from .palette import BLUE, GREEN, GREY, ORANGE, VERMILLION, Palette, Style

KNEE = "the knee"  # the trace of the circled points


@dataclass(frozen=True)
class KneeLine:
    """Points of one run, by rising clients; one point where the run had one load only."""

    label: str
    style: Style
    points: list[tuple[float, float, str]]  # requests/s, latency in us, the text beside it


def knees(lines: Sequence[KneeLine], palette: Palette, what: str) -> go.Figure:
    every = [latency for line in lines for _, latency, _ in line.points]
    scale, unit = time_unit(max(every, default=0))
    figure = go.Figure()
    for line in lines:
        marker = {"symbol": line.style.symbol, "size": 10, "color": line.style.colour}
        figure.add_trace(
            go.Scatter(
                x=[rate for rate, _, _ in line.points],
                y=[latency / scale for _, latency, _ in line.points],
                mode="lines+markers+text" if len(line.points) > 1 else "markers",
                text=[figure_text(text) for _, _, text in line.points],
                textposition="top left", textfont={"size": 11}, marker=marker,
                line={"color": line.style.colour, "dash": line.style.dash, "width": 2},
                name=figure_text(line.label), cliponaxis=False,
                hovertemplate="%{x:,.0f} requests/s, %{y:,.4g} " + unit + ", %{text}",
            )
        )  # fmt: skip
        place = knee([(rate, latency) for rate, latency, _ in line.points])
        if place is not None:
            figure.add_trace(
                go.Scatter(
                    x=[line.points[place][0]], y=[line.points[place][1] / scale], mode="markers",
                    marker={"symbol": "circle-open", "size": 22, "color": palette.ink,
                            "line": {"width": 2}},
                    name=KNEE, legendgroup="knee", hoverinfo="skip",
                    showlegend=not any(trace.name == KNEE for trace in figure.data),
                )
            )  # fmt: skip
    finish(figure, palette, "throughput (requests/s)", f"{what} ({unit})", 500)
    figure.update_xaxes(rangemode="tozero", tickformat=",~s")
    if every:
        figure.update_yaxes(**log_axis(min(every) / scale, max(every) / scale))
    return figure


def forms(rows: Sequence[FormRow], palette: Palette, pass_db: float) -> go.Figure:
    """Right is nearer to f32, low is faster; the line is the gate."""
    figure = go.Figure()
    shades = (palette.shade(BLUE), palette.shade(ORANGE), palette.shade(GREEN))
    for number, backend in enumerate(dict.fromkeys(one.backend for one in rows)):
        shown = [one for one in rows if one.backend == backend]
        figure.add_trace(
            go.Scatter(
                x=[one.sqnr_db for one in shown], y=[one.us for one in shown],
                mode="markers+text", text=[figure_text(one.form) for one in shown],
                textposition="top center", textfont={"size": 11},
                marker={"size": [18 if one.is_chosen else 11 for one in shown],
                        "symbol": ["star" if one.is_chosen else "circle" for one in shown],
                        "color": shades[number % len(shades)]},
                name=figure_text(backend), cliponaxis=False,
                hovertemplate="%{text}: %{y:,.1f} µs, %{x:.1f} dB<extra></extra>",
            )
        )  # fmt: skip
    figure.add_vline(x=pass_db, line={"color": palette.ink, "width": 1, "dash": "dot"})
    finish(figure, palette, "signal to error against f32 (dB)", "one row (µs)", 460)
    times = [one.us for one in rows if one.us > 0]
    if times:
        figure.update_yaxes(**log_axis(min(times), max(times)))
    return figure


def ratios(rows: Sequence[tuple[str, Verdict]], palette: Palette) -> go.Figure:
    """Each with its interval; left of 1 is faster."""
    figure = go.Figure()
    for label, verdict in rows:
        colour = {FASTER: GREEN, SLOWER: VERMILLION}.get(verdict.word, GREY)
        figure.add_trace(
            go.Scatter(
                x=[verdict.ratio], y=[figure_text(label)], mode="markers", showlegend=False,
                marker={"color": colour, "size": 13, "symbol": "diamond"},
                error_x={"type": "data", "symmetric": False, "thickness": 2.4, "width": 7,
                         "array": [verdict.high - verdict.ratio],
                         "arrayminus": [verdict.ratio - verdict.low], "color": colour},
                hovertemplate="%{x:.3f}<extra></extra>",
            )
        )  # fmt: skip
    figure.add_vline(x=1, line={"color": palette.ink, "width": 1, "dash": "dot"})
    finish(figure, palette, "ratio of latencies, second over first (below 1: faster)", "",
           120 + 46 * max(len(rows), 2))  # fmt: skip
    figure.update_yaxes(autorange="reversed", showgrid=False)
    ends = [end for _, verdict in rows for end in (verdict.low, verdict.high) if end > 0]
    if ends:
        figure.update_xaxes(**log_axis(min(*ends, 0.95), max(*ends, 1.05)))
    return figure
