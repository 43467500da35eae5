"""A small writer of SVG charts: axes with units, lines with markers, a legend, light and dark.

Colours are Okabe and Ito's, which people with any colour blindness can tell apart, and every
series has a marker of its own too. A picture has its own background, so that it is read on any
page; where the reader's system is dark the picture is. Text in, text out; no state, no library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 800
# Light and dark; the dark ones are as bright as a dark ground wants. Ours come first.
COLOURS = (
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff8c42"),
    ("#009e73", "#2fd0a5"),
    ("#b8860b", "#f0c33c"),
    ("#a8528b", "#e39bc9"),
    ("#6e7781", "#aab2bd"),
)
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "ring")
FONT = "font-family:system-ui,Helvetica,Arial,'DejaVu Sans',sans-serif"


def style() -> str:
    light = [f".s{i}{{stroke:{c};color:{c}}}" for i, (c, _) in enumerate(COLOURS)]
    dark = [f".s{i}{{stroke:{c};color:{c}}}" for i, (_, c) in enumerate(COLOURS)]
    return (
        f"<style>text{{{FONT};fill:#1f2328;font-size:12px}}.ground{{fill:#fff;stroke:#d0d7de}}"
        ".grid{stroke:#e6e9ed}.axis{stroke:#59636e}.title{font-size:14px;font-weight:600}"
        ".faint{fill:#59636e}.fill{fill:currentColor;stroke:none}.open{fill:none}"
        + "".join(light)
        + "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117;stroke:#3d444d}"
        ".grid{stroke:#2a313a}.axis{stroke:#9198a1}.faint{fill:#9198a1}"
        + "".join(dark)
        + "}</style>"
    )


def text(x: float, y: float, said: str, anchor: str = "start", kind: str = "") -> str:
    marks = f" class='{kind}'" if kind else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{marks}>{escape(said)}</text>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    place = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {place} class='{kind}'/>"


def marker(x: float, y: float, series: int) -> str:
    """Of about the same area each."""
    kind = MARKERS[series % len(MARKERS)]
    fill = f"class='s{series % len(COLOURS)} fill'"
    edge = f"class='s{series % len(COLOURS)} open' stroke-width='2'"
    if kind == "circle":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4' {fill}/>"
    if kind == "square":
        return f"<rect x='{x - 3.5:.1f}' y='{y - 3.5:.1f}' width='7' height='7' {fill}/>"
    if kind == "ring":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' {edge}/>"
    shapes = {
        "triangle": ((0, -5), (4.5, 3.5), (-4.5, 3.5)),
        "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }
    if kind == "cross":
        d = f"M{x - 4:.1f} {y - 4:.1f}l8 8M{x - 4:.1f} {y + 4:.1f}l8 -8"
        return f"<path d='{d}' {edge}/>"
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in shapes[kind])
    return f"<polygon points='{points}' {fill}/>"


@dataclass(frozen=True)
class Axis:
    """From a value to a place in pixels. Logarithmic ones begin above 0."""

    low: float
    high: float
    first: float  # the place of `low`
    last: float
    is_log: bool = False

    def at(self, value: float) -> float:
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Round numbers within the axis, about five, and at least its two outermost."""
        if self.is_log:
            low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1, 2, 5) if high - low <= 3 else (1,)
            found = [step * 10.0**power for power in range(low, high + 1) for step in steps]
        else:
            rough = (self.high - self.low) / 5
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(k * power for k in (1, 2, 2.5, 5, 10) if k * power >= rough)
            found = [math.ceil(self.low / step) * step + step * i for i in range(12)]
        slack = 1 + 1e-9
        return [tick for tick in found if self.low / slack <= tick <= self.high * slack]


def log_range(values: Sequence[float]) -> tuple[float, float]:
    """Rounded outwards to 1, 2 or 5 times a power of ten, so that the axis ends at a tick."""
    low, high = min(values), max(values)
    steps = [step * 10.0**power for power in range(-9, 16) for step in (1, 2, 5)]
    below = max(step for step in steps if step <= low * (1 + 1e-9))
    above = min(step for step in steps if step > high)
    return below, above


def number(value: float) -> str:
    """As short as an axis wants it: 250k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def legend(names: Sequence[str], y: float, left: float = 16) -> list[str]:
    """In one line; the caller has at most six, of ordinary names."""
    parts = []
    room = (WIDTH - left - 8) / max(len(names), 4)
    for at, name in enumerate(names):
        x = left + room * at
        parts += [marker(x + 6, y - 4, at), text(x + 16, y, name)]
    return parts


def picture(height: float, title: str, description: str, parts: Sequence[str]) -> str:
    view = f"viewBox='0 0 {WIDTH} {height:.0f}' width='{WIDTH}' height='{height:.0f}'"
    ground = (
        f"<rect x='.5' y='.5' width='{WIDTH - 1}' height='{height - 1:.0f}' rx='8' class='ground'/>"
    )
    head = [
        f"<svg xmlns='http://www.w3.org/2000/svg' {view} role='img'>",
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>",
        style(),
        ground,
        text(16, 26, title, kind="title"),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"
