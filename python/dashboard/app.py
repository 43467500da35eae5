"""The Streamlit application: navigation, filters, and the page that is open.

Run anew by Streamlit for each look of each session; costly results are kept in the store and the
memo, which all sessions share.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import streamlit as st
from streamlit import net_util

from .figures.palette import Palette
from .page import Page
from .selection import DIMENSIONS, SPLITS, Choice, Memo, Selection, options
from .settings import ADDRESS
from .sources.paths import DEFAULT_FOLDER
from .store import Content, Store, shared
from .text import sentence
from .views import (
    cache_bus,
    compare,
    counters,
    heat_map,
    latency,
    live,
    sources,
    stages,
    summary,
    throughput,
)

FOLLOW_S = 2.0
# A file of ours: Streamlit loads its own icons for the tab from a host outside.
ICON = Path(__file__).resolve().parent / "icon.svg"
# Less empty space above the pages, and the width of a large screen is used. No value of a file is
# in it.
STYLE = """<style>
[data-testid="stMainBlockContainer"] {padding: 4.2rem 2.5rem 3rem; max-width: 1500px;}
[data-testid="stMetricValue"] {font-size: 1.9rem;}
@media (max-width: 1100px) {
  [data-testid="stHorizontalBlock"] {flex-wrap: wrap;}
  [data-testid="stColumn"] {min-width: calc(50% - 1rem);}
  .st-key-charts [data-testid="stColumn"] {min-width: 100%;}
}
</style>"""
LABELS = {
    "queue_type": "Queue type", "allocator_type": "Allocator", "lane": "Lane",
    "model": "Model", "run": "Run", "status": "Status",
}  # fmt: skip
# Without icons, so that a screen of 1280 has room for all names.
PAGES: list[tuple[str, str, Callable[[Page], None]]] = [
    ("Summary", "summary", summary.show),
    ("Latency", "latency", latency.show),
    ("Stages", "stages", stages.show),
    ("Throughput", "throughput", throughput.show),
    ("Heat map", "heat-map", heat_map.show),
    ("Counters", "counters", counters.show),
    ("Compare", "compare", compare.show),
    ("Cache & bus", "cache-bus", cache_bus.show),
    ("Live", "live", live.show),
    ("Sources", "sources", sources.show),
]


@st.cache_resource
def memo_of(named: tuple[str, ...]) -> Memo:
    """One for each store: a version says nothing of another store's content."""
    return Memo()


def named_paths(arguments: list[str]) -> tuple[str, ...]:
    """Without a path: the folder of `lumen matrix`, where it is there."""
    if arguments:
        return tuple(arguments)
    return (DEFAULT_FOLDER,) if Path(DEFAULT_FOLDER).is_dir() else ()


def prepare(arguments: list[str]) -> None:
    """Before the first look: its imports are done by now, and the files are read."""
    never_ask_outside()
    shared(named_paths(arguments)).content()


def never_ask_outside() -> None:
    """Streamlit would have a host outside tell this machine's address.

    It compares that with the origin of a websocket that it does not know, and keeps it here.
    """
    net_util._external_ip = ADDRESS


def main() -> None:
    st.set_page_config(page_title="Lumen", page_icon=str(ICON), layout="wide")
    never_ask_outside()
    st.html(STYLE)
    store = shared(named_paths(sys.argv[1:]))
    with st.spinner("Reading the files …", show_time=True):
        content = store.content()
    pages = [
        st.Page(_runner(show, store, content), title=title, url_path=path, default=not place)
        for place, (title, path, show) in enumerate(PAGES)
    ]
    st.navigation(pages, position="top").run()


def _runner(show: Callable[[Page], None], store: Store, content: Content) -> Callable[[], None]:
    def run() -> None:
        memo = memo_of(tuple(map(str, store.named)))
        found = options(content, memo)
        choice = sidebar(found)
        _follow(store, content.version)
        for problem in content.problems[:1] if show is not sources.show else []:
            more = len(content.problems) - 1
            tail = f" (and {more} more on the page *Sources*)" if more else ""
            st.warning(sentence(problem) + tail, icon=":material/warning:")
        show(Page(Selection(content, choice, memo), palette_of(found, choice), content.counters))

    return run


def sidebar(found: dict[str, list[str]]) -> Choice:
    with st.sidebar:
        st.subheader("Filter", anchor=False)
        chosen = {
            name: tuple(
                st.multiselect(LABELS[name], found[name], placeholder="all", key=f"filter_{name}")
            )
            for name in DIMENSIONS
        }
        st.subheader("Series", anchor=False)
        split = st.selectbox("One for each", list(SPLITS), key="split")
        warm_up = st.toggle("Warm-up requests too", key="warm_up")
    return replace(Choice(**chosen, warm_up=warm_up), split=SPLITS[split])


def palette_of(found: dict[str, list[str]], choice: Choice) -> Palette:
    values = tuple(tuple(found[name]) for name in choice.split)
    return Palette(st.context.theme.type == "dark", choice.split, values)


def _follow(store: Store, version: int) -> None:
    with st.sidebar:
        st.toggle("Follow the files", value=True, key="follow")
    if st.session_state.get("follow"):
        _look_again(store, version)


@st.fragment(run_every=FOLLOW_S)
def _look_again(store: Store, version: int) -> None:
    """Only where something changed is the page drawn anew."""
    if store.content().version != version:
        st.rerun()
