"""Pictures of a running server: rates and latencies over the last minutes, its threads' work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from ..sources.live import ModelPoint, ModelView, ThreadView
from ..text import figure_text, time_unit
from .layout import finish, log_axis
from .palette import BLUE, GREY, ORANGE, ORDER, Palette

LIVE_HEIGHT = 300


def over_time(
    models: Sequence[ModelView], palette: Palette, title: str, value: Callable[[ModelPoint], float]
) -> go.Figure:
    figure = go.Figure()
    for place, model in enumerate(models):
        figure.add_trace(
            go.Scatter(
                x=[point.at * 1e3 for point in model.points],
                y=[value(point) for point in model.points],
                mode="lines", name=figure_text(model.name),
                line={"color": palette.shade(ORDER[place % len(ORDER)]), "width": 2},
                hovertemplate="%{y:,.4g}",
            )
        )  # fmt: skip
    finish(figure, palette, "time (UTC)", title, LIVE_HEIGHT)
    figure.update_xaxes(type="date", tickformat="%H:%M:%S", nticks=6)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=len(models) > 1, hovermode="x unified")
    return figure


def latencies(models: Sequence[ModelView], palette: Palette) -> go.Figure:
    """p50 and p99 of each look, logarithmic: models differ by a thousand times."""
    every = [
        value for model in models for point in model.points
        for value in (point.p50_us, point.p99_us) if value > 0
    ]  # fmt: skip
    scale, unit = time_unit(max(every, default=0))
    figure = go.Figure()
    for place, model in enumerate(models):
        colour = palette.shade(ORDER[place % len(ORDER)])
        for name, dash in (("p50", "dot"), ("p99", "solid")):
            values = [getattr(point, f"{name}_us") / scale for point in model.points]
            figure.add_trace(
                go.Scatter(
                    x=[point.at * 1e3 for point in model.points], y=values, mode="lines",
                    name=figure_text(f"{model.name} {name}"),
                    line={"color": colour, "dash": dash, "width": 2},
                    hovertemplate="%{y:,.4g} " + unit,
                )
            )  # fmt: skip
    finish(figure, palette, "time (UTC)", f"latency ({unit})", LIVE_HEIGHT, hovermode="x unified")
    figure.update_xaxes(type="date", tickformat="%H:%M:%S", nticks=6)
    if every:
        figure.update_yaxes(**log_axis(min(every) / scale, max(every) / scale))
    return figure


def doing(threads: Sequence[ThreadView], palette: Palette) -> go.Figure:
    """Shares of busy, spinning and parked."""
    figure = go.Figure()
    labels = [thread.name for thread in threads]
    for name, colour in (("busy", BLUE), ("spin", ORANGE), ("park", GREY)):
        shares = [100 * getattr(thread, name) for thread in threads]
        figure.add_trace(
            go.Bar(
                y=labels, x=shares, name=name, orientation="h",
                marker={"color": palette.shade(colour)},
                hovertemplate=name + ": %{x:.1f} %<extra></extra>",
            )
        )  # fmt: skip
    finish(figure, palette, "share of the last look's time (%)", "",
           120 + 34 * max(len(threads), 2), barmode="stack")  # fmt: skip
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(range=[0, 100])
    figure.update_layout(legend_traceorder="normal")
    return figure
