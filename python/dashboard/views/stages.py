"""Where the time goes: the stages of a request, stacked."""

from __future__ import annotations

import streamlit as st

from ..figures.bars import stacked_stages
from ..page import Page, heading, nothing
from ..stats.stages import PARTS, StageMeans, stage_means
from ..text import plain

OF = {"All requests": None, "The slowest 10 %": 0.1, "The slowest 1 %": 0.01}
OUTSIDE = "outside the server"


def show(page: Page) -> None:
    heading("Where the time goes", "Mean time of each stage, from its first byte to its last.")
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    of = left.segmented_control("Of", list(OF), default="All requests") or "All requests"
    as_share = right.toggle("As shares", value=False)

    def make() -> list[StageMeans]:
        columns = dict.fromkeys([*page.split, *(f"{name}_us" for name in PARTS), "total_us"])
        return stage_means(page.selection.rows(*columns), page.split, OF[of])

    found = page.selection.kept("stages", make, of)
    shown = {each.key for each in page.series()}
    rows = [(each.label, each.parts_us) for each in found if each.key in shown]
    if rows:
        page.chart(stacked_stages(rows, page.palette, as_share), "stages")
        st.caption(
            "A stage that a request did not have counts as 0. *between stages* is what none owns: a"
            " reply that waits for its I/O thread to wake, for example."
        )
    else:
        nothing("No requests are selected.", "Remove a filter, or name a telemetry CSV.")
    _of_benches(page, as_share)


def _of_benches(page: Page, as_share: bool) -> None:
    allows = page.selection.choice.allows
    rows = []
    for load in page.selection.content.documents.loads:
        if load.stages_us and allows(run=load.run, model=load.model):
            parts = {name: us for name, us in load.stages_us.items() if name in PARTS}
            parts[OUTSIDE] = max(load.latency_us.get("mean", 0) - sum(parts.values()), 0)
            rows.append(
                (
                    plain(
                        f"{load.run}, {load.model}, {load.clients} client{'s' * (load.clients > 1)}"
                    ),
                    parts,
                )
            )
    if rows:
        st.subheader("Seen by the clients of `lumen bench`", anchor=False)
        page.chart(stacked_stages(rows, page.palette, as_share), "bench_stages")
        st.caption("*outside the server* is the kernel, the network, wake-ups and the client.")
