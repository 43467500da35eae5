"""Forms of a model in INT8 and float: time against distance from f32, as `lumen quantize` has
measured them."""

from __future__ import annotations

import polars as pl
import streamlit as st

from ..figures.scatter import forms as forms_figure
from ..page import Page
from ..sources.documents import FormRow
from ..text import plain, sentence

PASS_DB = 30.0  # of the gate, unless another is named


def show(page: Page) -> None:
    """A part of the page Compare; nothing where no comparison was read."""
    allows = page.selection.choice.allows
    found = [one for one in page.selection.content.documents.forms if allows(run=one.run)]
    if not found:
        return
    st.subheader("Forms of a model", anchor=False)
    st.caption("Time and accuracy in INT8 and float, as `lumen quantize` compared them.")
    for run in dict.fromkeys(one.run for one in found):
        rows = [one for one in found if one.run == run]
        st.markdown(f"**{plain(run)}**")
        if rows[0].why:
            st.info(sentence(rows[0].why), icon=":material/insights:")
        page.chart(forms_figure(rows, page.palette, PASS_DB), f"forms_{run}")
        _table(rows)


def _table(rows: list[FormRow]) -> None:
    base = min((one.us for one in rows if one.form == "f32"), default=None)
    cells = [
        {
            "form": plain(one.form) + (" ✓" if one.is_chosen else ""),
            "backend": plain(one.backend),
            "µs a row": f"{one.us:,.1f}",
            "× f32": "" if base is None else f"{base / one.us:.2f}",
            "size": f"{one.bytes / 1e6:,.2f} MB",
            "signal to error": f"{one.sqnr_db:.1f} dB",
            "top-1": "" if one.top1 is None else f"{100 * one.top1:.1f} %",
            "metric": "" if one.metric is None else f"{one.metric:.6g}",
            "gate": plain(one.verdict),
        }
        for one in rows
    ]
    st.dataframe(pl.DataFrame(cells), hide_index=True, width="stretch")
