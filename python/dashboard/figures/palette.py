"""Colours, dashes and symbols of series: Okabe and Ito's palette, which the colour-blind can tell
apart.

Pure. Queue types have a colour each and allocators a dash and a symbol, on every page; other
values take the palette's colours in the order of all values that there are, so that a filter
recolours nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, YELLOW, GREY = "#CC79A7", "#56B4E9", "#F0E442", "#8C8C8C"
# Blue of the palette is too dark for a dark page; this one has the same hue.
BLUE_ON_DARK = "#3C9BDC"
SKY_ON_DARK = "#B5DDF6"  # or it could not be told from that
ORDER = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY, GREY, YELLOW)
QUEUES = {"mpmc": BLUE, "spsc": ORANGE, "naive": VERMILLION, "batched": GREEN, "inline": PURPLE,
          "auto": SKY}  # fmt: skip
ALLOCATORS = ("lumen_arena", "standard")
DASHES = ("solid", "dot", "dash", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "diamond-open", "square", "triangle-up", "cross", "x")
STAGES = {
    "parse": SKY,
    "queue": VERMILLION,
    "preprocess": YELLOW,
    "inference": BLUE,
    "postprocess": GREEN,
    "write": ORANGE,
    "between stages": GREY,
    "outside the server": PURPLE,
}
# Sequential and safe for the colour-blind; low is light on a light page, and dark on a dark one.
HEAT_LIGHT = [[0, "#EAF3FA"], [0.35, "#9CCAE6"], [0.7, "#2F83BB"], [1, "#0A3A66"]]
HEAT_DARK = [[0, "#10263B"], [0.35, "#1F5F91"], [0.7, "#6FB3DC"], [1, "#E4F1FA"]]


@dataclass(frozen=True)
class Style:
    colour: str
    dash: str
    symbol: str


@dataclass(frozen=True)
class Palette:
    """`values`: those of each dimension of the split, in order."""

    dark: bool
    split: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]

    def style(self, key: Sequence[str], run: int = 0) -> Style:
        """`run`: of several with the same series, each has marks of its own."""
        if len(key) == 1 and not self._is_queue(key[0]):
            return self.numbered(self._place(0, key[0]))
        first = self._colour(key[0]) if key else self.shade(BLUE)
        second = self._place(1, key[1]) if len(key) > 1 else 0
        second += len(ALLOCATORS) * run
        return Style(first, DASHES[second % len(DASHES)], SYMBOLS[second % len(SYMBOLS)])

    def numbered(self, number: int) -> Style:
        """Of things without a colour of their own: the first 48 have different ones."""
        colour = self.shade(ORDER[number % len(ORDER)])
        again = number // len(ORDER)
        return Style(colour, DASHES[again % len(DASHES)], SYMBOLS[again % len(SYMBOLS)])

    def shade(self, colour: str) -> str:
        on_dark = {BLUE: BLUE_ON_DARK, SKY: SKY_ON_DARK} if self.dark else {}
        return on_dark.get(colour, colour)

    @property
    def ink(self) -> str:
        return "#E6E9EE" if self.dark else "#262B33"

    @property
    def faint(self) -> str:
        return "rgba(200,210,225,0.28)" if self.dark else "rgba(60,70,85,0.22)"

    def _place(self, dimension: int, value: str) -> int:
        known = self.values[dimension] if dimension < len(self.values) else ()
        if self.split[dimension : dimension + 1] == ("allocator_type",) and value in ALLOCATORS:
            return ALLOCATORS.index(value)
        return known.index(value) if value in known else 0

    def _is_queue(self, value: str) -> bool:
        return self.split[0] in ("queue_type", "lane") and value in QUEUES

    def _colour(self, value: str) -> str:
        if self._is_queue(value):
            return self.shade(QUEUES[value])
        return self.shade(ORDER[self._place(0, value) % len(ORDER)])
