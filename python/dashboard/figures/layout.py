"""Shared by all figures: margins, fonts, axes with titles and units, a legend that takes no"
" width."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from .palette import Palette

HEIGHT = 430
TOOLBAR_WIDTH = 40
FINE_STEPS = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)


def finish(
    figure: go.Figure, palette: Palette, x: str, y: str, height: int = HEIGHT, **more: Any
) -> go.Figure:
    """`x` and `y` are titles with units; every axis of the figure's grid gets them."""
    figure.update_layout(
        height=height,
        # The buttons stand one below the other in the right margin, beside the legend.
        margin={"l": 8, "r": TOOLBAR_WIDTH, "t": 34, "b": 8},
        modebar={"orientation": "v"},
        legend={
            "orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0,
            "title": {"text": ""}, "font": {"size": 12},
        },
        hoverlabel={"align": "left"},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": palette.ink, "size": 13},
        **more,
    )  # fmt: skip
    axis = {
        "gridcolor": palette.faint, "zeroline": False, "automargin": True,
        "title": {"standoff": 10}, "showline": True, "linecolor": palette.faint,
    }  # fmt: skip
    figure.update_xaxes(**axis, title_text=x)
    figure.update_yaxes(**axis, title_text=y)
    return figure


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 ...: where a logarithmic axis spans little, decades alone would mark nothing."""
    if low <= 0 or high <= 0:
        return []
    span = high / low
    steps = (1.0,) if span > 3_000 else (1.0, 2.0, 5.0) if span > 8 else FINE_STEPS
    ticks = [step * 10.0**power for power in range(-4, 10) for step in steps]
    room = 2.2 if span > 8 else 1.25
    return [tick for tick in ticks if low / room <= tick <= high * room]


def log_axis(low: float, high: float) -> dict[str, Any]:
    ticks = log_ticks(low, high)
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.6g}" for tick in ticks]}
