"""An SVG of a terminal and, below it, a chart of bars. Text in, text out; no library, no state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 800
LINE = 15
COLUMNS = 105  # of the terminal's type; longer lines end in …
BAR = 22
NAME_CHARACTER = 7.3  # of the bars' names, at most on average
MONO = "font-family='ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace' font-size='12'"
SANS = "font-family='system-ui,Helvetica,Arial,DejaVu Sans,sans-serif'"


@dataclass(frozen=True)
class Bar:
    name: str
    value: float
    is_ours: bool


def terminal(lines: Sequence[str]) -> tuple[list[str], int]:
    height = 44 + LINE * len(lines)
    parts = [
        f"<rect width='{WIDTH}' height='{height}' rx='8' fill='#16181d'/>",
        *[f"<circle cx='{18 + 18 * i}' cy='16' r='5' fill='#4b505c'/>" for i in range(3)],
    ]
    for number, line in enumerate(lines):
        colour = "#8fd19e" if line.startswith("$ ") else "#d8dbe2"
        place = f"x='16' y='{46 + LINE * number}' fill='{colour}' xml:space='preserve'"
        shown = line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"
        if line.strip():
            parts.append(f"<text {place} {MONO}>{escape(shown)}</text>")
    return parts, height


def chart(top: int, title: str, bars: Sequence[Bar], foot: str) -> tuple[list[str], int]:
    left = 24 + round(NAME_CHARACTER * max(len(bar.name) for bar in bars))
    room = WIDTH - left - 110  # beside the number
    largest = max(bar.value for bar in bars)
    height = 78 + (BAR + 8) * len(bars)
    parts = [
        f"<rect y='{top}' width='{WIDTH}' height='{height}' rx='8' fill='#fff' stroke='#d0d7de'/>",
        f"<text x='16' y='{top + 26}' fill='#1f2328' {SANS} font-size='14'>{escape(title)}</text>",
    ]
    for number, bar in enumerate(bars):
        y = top + 44 + (BAR + 8) * number
        wide = max(1, round(room * bar.value / largest))
        colour = "#2f6feb" if bar.is_ours else "#9aa4b2"
        text = f"fill='#1f2328' {SANS} font-size='13'"
        parts += [
            f"<text x='{left - 8}' y='{y + 16}' text-anchor='end' {text}>{escape(bar.name)}</text>",
            f"<rect x='{left}' y='{y}' width='{wide}' height='{BAR}' rx='3' fill='{colour}'/>",
            f"<text x='{left + wide + 8}' y='{y + 16}' {text}>{bar.value:,.0f}</text>",
        ]
    place = f"x='16' y='{top + height - 12}' fill='#59636e'"
    parts.append(f"<text {place} {SANS} font-size='11'>{escape(foot)}</text>")
    return parts, height


def picture(said: str, title: str, bars: Sequence[Bar], foot: str) -> str:
    upper, first = terminal(said.rstrip("\n").splitlines())
    lower, second = chart(first + 12, title, bars, foot)
    height = first + 12 + second
    size = f"width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size}>"
    return "\n".join([head, *upper, *lower, "</svg>"]) + "\n"
