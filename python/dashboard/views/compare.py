"""Run against run: is the second faster, slower, or the same within noise?"""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import numpy as np
import polars as pl
import streamlit as st

from ..figures.scatter import ratios
from ..page import Page, heading, nothing
from ..selection import SPLITS
from ..sources.documents import MatrixCell, RivalRow
from ..stats.verdict import FASTER, NOISE, SLOWER, UNKNOWN, Verdict, compare, word_of
from ..text import plain, sentence, time_text
from . import precision

MARKS = {FASTER: ":material/trending_down:", SLOWER: ":material/trending_up:"}
SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}
NEEDED_ROUNDS = 3


def show(page: Page) -> None:
    heading(
        "Run against run",
        "The ratio of latencies, second over first, with its 95 % interval. Stretches of time are"
        " drawn anew (a block bootstrap), since requests that follow each other are alike.",
    )
    _of_rows(page)
    _of_matrices(page)
    _of_rivals(page)
    precision.show(page)


def _of_rows(page: Page) -> None:
    by = st.selectbox("Compare", list(SPLITS), index=list(SPLITS).index("Run"), key="compare_by")
    key = SPLITS[by]

    def names() -> list[tuple[str, ...]]:
        text = [pl.col(name).cast(pl.String()).fill_null("") for name in key]
        found = page.selection.rows(*key).select(text).unique().sort(list(key)).collect()
        return list(found.iter_rows())

    found = page.selection.kept("compare_names", names, key)
    if len(found) < 2:
        nothing(
            "Fewer than two to compare in the telemetry.",
            "Name the CSVs of two runs, or compare by something else above.",
        )
        return
    labels = [plain(" · ".join(each)) for each in found]
    left, right = st.columns(2)
    first = left.selectbox("First", range(len(found)), format_func=labels.__getitem__)
    second = right.selectbox("Second", range(len(found)), 1, format_func=labels.__getitem__)

    def values(which: tuple[str, ...]) -> np.ndarray:
        same = [
            pl.col(name).cast(pl.String()).fill_null("") == part for name, part in zip(key, which)
        ]
        rows = page.selection.rows(*key, "total_us").filter(same)
        return rows.select("total_us").collect()["total_us"].to_numpy()

    def make() -> list[tuple[str, Verdict]]:
        base, other = values(found[first]), values(found[second])
        return [(name, compare(base, other, share)) for name, share in SHARES.items()]

    rows = page.selection.kept("compare", make, key, first, second)
    columns = st.columns(len(rows))
    for place, (name, verdict) in zip(columns, rows):
        with place.container(border=True):
            _tile(name, verdict)
    drawn = [(name, verdict) for name, verdict in rows if math.isfinite(verdict.low)]
    if drawn:
        page.chart(ratios(drawn, page.palette), "ratios")
    st.caption(
        "The interval tells of the noise within these two runs. Two runs of the same build can"
        " differ by more (another boot, another layout in memory): `./dev compare` runs builds in"
        " turns. What is within 1 % of 1 is called noise."
    )


def _tile(name: str, verdict: Verdict) -> None:
    st.metric(f"{name} of the second", time_text(verdict.other))
    change = f"{100 * (verdict.ratio - 1):+.1f} %" if math.isfinite(verdict.ratio) else "—"
    span = ""
    if math.isfinite(verdict.low):
        span = f" ({100 * (verdict.low - 1):+.1f} to {100 * (verdict.high - 1):+.1f} %)"
    st.caption(f"first {time_text(verdict.base)}; {change}{span}".replace("-", "−"))
    colour = {FASTER: "green", SLOWER: "red", NOISE: "gray", UNKNOWN: "gray"}[verdict.word]
    mark = MARKS.get(verdict.word, ":material/drag_handle:")
    st.badge(verdict.word, icon=mark, color=colour)  # type: ignore[arg-type]


def _of_matrices(page: Page) -> None:
    cells: dict[str, dict[tuple[str, str, str], MatrixCell]] = {}
    for cell in page.selection.content.documents.cells:
        if cell.rounds and not cell.error:
            combination = cell.model, cell.queue_type, cell.allocator_type
            cells.setdefault(cell.run, {})[combination] = cell
    pairs = [(a, b) for a, b in pairwise(cells) if cells[a].keys() & cells[b].keys()]
    if not pairs:
        return
    st.subheader("Matrix against matrix", anchor=False)
    labels = [plain(f"{second} over {first}") for first, second in pairs]
    chosen = st.selectbox("Runs", range(len(pairs)), format_func=labels.__getitem__)
    first, second = (cells[name] for name in pairs[chosen])
    key = "round_trip_p99_us"
    drawn, unknown = [], 0
    for combination in sorted(first.keys() & second.keys()):
        before, after = first[combination].rounds.get(key), second[combination].rounds.get(key)
        if before and after and min(len(before), len(after)) >= NEEDED_ROUNDS:
            drawn.append((" · ".join(combination[1:]), of_rounds(before, after)))
        else:
            unknown += 1
    if drawn:
        page.chart(ratios(drawn, page.palette), "matrix_ratios")
    if unknown:
        st.caption(
            f"{unknown} combinations have fewer than {NEEDED_ROUNDS} rounds: nothing can be said of"
            " their noise. `lumen matrix --rounds 5` gives more."
        )


def of_rounds(before: list[float], after: list[float]) -> Verdict:
    """Medians of rounds; the interval that the rounds allow, drawn anew."""
    random = np.random.default_rng(14)
    drawn = [
        np.median(random.choice(np.asarray(part), (2_000, len(part))), axis=1)
        for part in (before, after)
    ]
    low, high = (float(value) for value in np.quantile(drawn[1] / drawn[0], [0.025, 0.975]))
    first, second = statistics.median(before), statistics.median(after)
    return Verdict(first, second, second / first, low, high, word_of(low, high))


def _of_rivals(page: Page) -> None:
    rows = [r for r in page.selection.content.documents.rivals
            if page.selection.choice.allows(run=r.run)]  # fmt: skip
    if not rows:
        return
    st.subheader("Benches against rivals", anchor=False)
    benches = sorted({row.bench for row in rows})
    bench = st.selectbox(
        "Bench", range(len(benches)), format_func=[plain(b) for b in benches].__getitem__
    )
    _rival_table([row for row in rows if row.bench == benches[bench]])


def _rival_table(rows: list[RivalRow]) -> None:
    names = ("run", "row", "metric", "unit", "ours", "rival", "rival_name", "ratio", "spread")
    table = {
        name.replace("_", " "): [
            plain(value) if isinstance(value := getattr(row, name), str) else value for row in rows
        ]
        for name in names
    }
    percent = st.column_config.NumberColumn(format="percent")
    formats = {"spread": percent, "ratio": st.column_config.NumberColumn(format="%.2f")}
    st.dataframe(pl.DataFrame(table), hide_index=True, width="stretch", column_config=formats)
    st.caption(
        sentence("A ratio above 1 is to our advantage; spread is that of the ratio's rounds.")
    )
