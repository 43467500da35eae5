"""Percentile curves, box plots and percentiles over time. Values in the unit that fits, µs, ms"
" or s."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..stats.groups import Series
from ..stats.tail import marks_below, tail_curve
from ..stats.timeline import Timeline
from ..text import figure_text, time_unit
from .layout import HEIGHT, finish, log_axis
from .palette import Palette

FACET_HEIGHT = 230
FACET_COLUMNS = 2


def curves(series: list[Series], palette: Palette, facets: bool, log_y: bool) -> go.Figure:
    """x is 1 / (1 - p), logarithmic: each nine takes as much room as the one before it."""
    scale, unit = time_unit(max((float(each.values[-1]) for each in series), default=0))
    figure, places = _grid([each.label for each in series], facets)
    largest = 1.0
    for each, (row, column) in zip(series, places):
        x, y = tail_curve(each)
        largest = max(largest, float(x[-1]))
        style = palette.style(each.key)
        figure.add_trace(
            go.Scatter(
                x=x, y=y / scale, mode="lines", name=figure_text(each.label),
                line={"color": style.colour, "dash": style.dash, "width": 2.2},
                customdata=[f"p{100 * (1 - 1 / tail):.6g}" for tail in x],
                hovertemplate="%{customdata}: %{y:,.4g} " + unit,
                showlegend=not facets,
            ),
            row=row, col=column,
        )  # fmt: skip
    finish(figure, palette, "percentile", f"latency ({unit})", _height(series, facets))
    places_x, texts = marks_below(largest)
    figure.update_xaxes(type="log", tickvals=places_x, ticktext=texts)
    if log_y and series:
        low = min(float(each.values[0]) for each in series) / scale
        high = max(float(each.values[-1]) for each in series) / scale
        figure.update_yaxes(**log_axis(low, high))
    figure.update_layout(hovermode="x unified" if not facets else "closest")
    return figure


def boxes(series: list[Series], palette: Palette) -> go.Figure:
    """Quartiles of all rows; the whiskers are p1 and p99, the diamond is p99.9."""
    scale, unit = time_unit(max((each.percentile(0.999) for each in series), default=0))
    figure = go.Figure()
    for each in series:
        style = palette.style(each.key)
        name = figure_text(each.label)
        q = {share: each.percentile(share) / scale for share in (0.01, 0.25, 0.5, 0.75, 0.99)}
        figure.add_trace(
            go.Box(
                x=[name], lowerfence=[q[0.01]], q1=[q[0.25]], median=[q[0.5]], q3=[q[0.75]],
                upperfence=[q[0.99]], name=name, line={"color": style.colour, "width": 1.8},
                showlegend=False,
            )
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=[name], y=[each.percentile(0.999) / scale], mode="markers", showlegend=False,
                marker={"color": style.colour, "symbol": "diamond", "size": 9},
                hovertemplate="p99.9: %{y:,.4g} " + unit + "<extra></extra>",
            )
        )  # fmt: skip
    finish(figure, palette, "", f"latency ({unit})")
    if series:
        low = min(each.percentile(0.01) for each in series) / scale
        figure.update_yaxes(**log_axis(low, max(each.percentile(0.999) for each in series) / scale))
    return figure


def jitter(
    lines: list[Timeline], palette: Palette, what: str, facets: bool, since_start: bool
) -> go.Figure:
    """`what`: p50, p99 or max of each bin; the band goes from p50 to the drawn line."""
    scale, unit = time_unit(
        max((float(each.frame[what].drop_nulls().to_numpy().max()) for each in lines), default=0)
    )
    figure, places = _grid([each.label for each in lines], facets)
    for each, (row, column) in zip(lines, places):
        style = palette.style(each.key)
        x = each.frame["time"] / 1e6 if since_start else each.frame["time"].cast(int) / 1e3
        figure.add_trace(
            go.Scatter(
                x=x.to_list(), y=(each.frame[what] / scale).to_list(), mode="lines+markers",
                name=figure_text(each.label), showlegend=not facets,
                line={"color": style.colour, "dash": style.dash, "width": 1.6},
                marker={"symbol": style.symbol, "size": 5, "color": style.colour},
                hovertemplate=f"{what}: " + "%{y:,.4g} " + unit,
            ),
            row=row, col=column,
        )  # fmt: skip
    title = "time since the series' first request (s)" if since_start else "time (UTC)"
    finish(figure, palette, title, f"{what} of each bin ({unit})", _height(lines, facets))
    if not since_start:
        figure.update_xaxes(type="date")
    figure.update_yaxes(rangemode="tozero")
    return figure


def _height(series: list, facets: bool) -> int:
    rows = -(-len(series) // FACET_COLUMNS)
    return max(HEIGHT, 60 + rows * FACET_HEIGHT) if facets else HEIGHT


def _grid(labels: list[str], facets: bool) -> tuple[go.Figure, list[tuple[int | None, int | None]]]:
    """One picture, or one for each label with axes alike."""
    if not facets or not labels:
        return go.Figure(), [(None, None)] * len(labels)
    rows = -(-len(labels) // FACET_COLUMNS)
    figure = make_subplots(
        rows, FACET_COLUMNS, shared_xaxes="all", shared_yaxes="all",
        subplot_titles=[figure_text(label) for label in labels],
        vertical_spacing=min(0.12, 0.28 / rows), horizontal_spacing=0.07,
    )  # fmt: skip
    return figure, [(i // FACET_COLUMNS + 1, i % FACET_COLUMNS + 1) for i in range(len(labels))]
