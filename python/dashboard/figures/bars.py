"""Stacked stages, bars of one value each, and the heat map of the combinations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from ..text import figure_text, time_text, time_unit
from .layout import finish
from .palette import HEAT_DARK, HEAT_LIGHT, ORDER, STAGES, Palette

BAR_HEIGHT = 34


def stacked_stages(
    rows: Sequence[tuple[str, dict[str, float]]], palette: Palette, as_share: bool
) -> go.Figure:
    """A bar a series, a colour a stage; `rows` are labels with mean microseconds."""
    names = [name for name in STAGES if any(parts.get(name) for _, parts in rows)]
    totals = [sum(parts.values()) or 1.0 for _, parts in rows]
    scale, unit = (1.0, "%") if as_share else time_unit(max(totals, default=0))
    labels = [figure_text(label) for label, _ in rows]
    figure = go.Figure()
    for name in names:
        values = [parts.get(name, 0.0) for _, parts in rows]
        shares = [100 * value / total for value, total in zip(values, totals)]
        figure.add_trace(
            go.Bar(
                y=labels, x=shares if as_share else [value / scale for value in values],
                name=name, orientation="h", marker={"color": palette.shade(STAGES[name])},
                customdata=[[time_text(value), share] for value, share in zip(values, shares)],
                hovertemplate=name + ": %{customdata[0]} (%{customdata[1]:.1f} %)<extra></extra>",
            )
        )  # fmt: skip
    title = "share of the mean request (%)" if as_share else f"mean time of a request ({unit})"
    finish(figure, palette, title, "", 130 + BAR_HEIGHT * max(len(rows), 3), barmode="stack")
    figure.update_layout(legend_traceorder="normal")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def simple_bars(
    rows: Sequence[tuple[str, float, str]], palette: Palette, title: str,
    text: Callable[[float], str], log: bool = False,
) -> go.Figure:  # fmt: skip
    """`rows`: label, value, colour."""
    figure = go.Figure(
        go.Bar(
            y=[figure_text(label) for label, _, _ in rows],
            x=[value for _, value, _ in rows],
            marker={"color": [colour for _, _, colour in rows]},
            orientation="h",
            text=[text(value) for _, value, _ in rows],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{text}<extra></extra>",
        )
    )
    finish(figure, palette, title, "", 90 + BAR_HEIGHT * max(len(rows), 3))
    largest = max((value for _, value, _ in rows if math.isfinite(value)), default=1)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(range=None if log else [0, largest * 1.16], type="log" if log else "linear")
    return figure


def heat_map(
    values: dict[tuple[str, str], float], palette: Palette, title: str,
    text: Callable[[float], str], log: bool,
) -> go.Figure:  # fmt: skip
    """Queue type down, allocator across. The scale is logarithmic where values differ by much."""
    queues = sorted({queue for queue, _ in values})
    allocators = sorted({allocator for _, allocator in values})
    cells = [[values.get((queue, name), math.nan) for name in allocators] for queue in queues]
    drawn = [[math.log10(v) if log and v > 0 else v for v in row] for row in cells]
    figure = go.Figure(
        go.Heatmap(
            z=drawn,
            x=[figure_text(name) for name in allocators],
            y=[figure_text(queue) for queue in queues],
            text=[[text(v) for v in row] for row in cells],
            texttemplate="%{text}",
            textfont={"size": 15},
            colorscale=HEAT_DARK if palette.dark else HEAT_LIGHT,
            xgap=3,
            ygap=3,
            hovertemplate="%{y} × %{x}: %{text}<extra></extra>",
            showscale=False,
        )
    )
    finish(figure, palette, "allocator", "queue type", 120 + 62 * max(len(queues), 2))
    figure.update_layout(title={"text": figure_text(title), "font": {"size": 14}})
    figure.update_xaxes(showgrid=False, showline=False)
    figure.update_yaxes(showgrid=False, showline=False, autorange="reversed")
    return figure


def grouped_bars(
    names: Sequence[str], values: Sequence[float], palette: Palette, title: str
) -> go.Figure:
    """A small picture: one bar for each name, upright."""
    colours = [palette.shade(ORDER[place % len(ORDER)]) for place in range(len(names))]
    figure = go.Figure(
        go.Bar(
            x=[figure_text(name) for name in names], y=list(values),
            marker={"color": colours}, text=[f"{value:,.4g}" for value in values],
            textposition="outside", cliponaxis=False, width=0.6,
            hovertemplate="%{x}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    finish(figure, palette, "clients × requests", title, 280)
    largest = max((value for value in values if math.isfinite(value)), default=1.0) or 1.0
    figure.update_yaxes(range=[0, largest * 1.18])
    return figure
