"""Given to every page: the rows that are wanted, the palette of the theme, and how a picture is"
" shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from .figures.palette import Palette
from .selection import Selection
from .stats import groups
from .text import sentence

# Plotly's buttons: the picture as a file, and back to where it was. Its logo links to a site
# outside.
CHART_CONFIG = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "showTips": False,
}
MAX_SERIES = 24  # more lines than that nobody can tell apart


@dataclass(frozen=True)
class Page:
    selection: Selection
    palette: Palette
    counters: list[Path]  # files of servers that were named

    @property
    def split(self) -> tuple[str, ...]:
        return self.selection.choice.split

    def series(self) -> list[groups.Series]:
        """Sorted `total` of each series, the busiest ones where there are too many."""

        def make() -> list[groups.Series]:
            return groups.split_sorted(
                self.selection.rows(*self.split, "total_us"), self.split, "total_us"
            )

        return _at_most(self.selection.kept("series", make), lambda each: len(each.values))

    def loads(self) -> list[groups.Load]:
        def make() -> list[groups.Load]:
            columns = dict.fromkeys([*self.split, *groups.LOAD_COLUMNS])
            return groups.loads(self.selection.rows(*columns), self.split)

        return self.selection.kept("loads", make)

    def chart(self, figure: go.Figure, key: str) -> None:
        st.plotly_chart(figure, key=key, config=CHART_CONFIG, width="stretch", theme="streamlit")


def _at_most(found: list[Any], size: Any) -> list[Any]:
    if len(found) <= MAX_SERIES:
        return found
    st.info(
        f"{len(found):,} series; the {MAX_SERIES} with the most requests are shown. Filter, or"
        f" split by something else."
    )
    limit = sorted((size(each) for each in found), reverse=True)[MAX_SERIES - 1]
    return [each for each in found if size(each) >= limit][:MAX_SERIES]


def heading(title: str, text: str) -> None:
    st.header(title, anchor=False)
    st.caption(text)


def nothing(what: str, fix: str) -> None:
    """An empty page names its pictures, and how to get them."""
    st.info(f"{sentence(what)}\n\n{fix}", icon=":material/info:")
