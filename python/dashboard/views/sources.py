"""The files that are read, and the errors in them."""

from __future__ import annotations

import polars as pl
import streamlit as st

from ..page import Page, heading
from ..text import plain, sentence


def show(page: Page) -> None:
    heading("Sources", "Files that were named when the dashboard was started, and nothing else.")
    content = page.selection.content
    for problem in content.problems:
        st.warning(sentence(problem), icon=":material/warning:")
    counts = dict(content.rows.group_by(pl.col("run").cast(pl.String())).len().iter_rows())
    found = content.documents
    rows = []
    for name, path in content.names.items():
        parts = {
            "requests": counts.get(name, 0),
            "loads": sum(each.run.startswith(name) for each in found.loads),
            "combinations": sum(each.run.startswith(name) for each in found.cells),
            "rows of benches": sum(each.run.startswith(name) for each in found.rivals),
            "perf": sum(each.run.startswith(name) for each in found.perf),
        }
        what = ", ".join(f"{count:,} {part}" for part, count in parts.items() if count)
        rows.append({"run": plain(name), "file": str(path), "holds": what or "nothing to show"})
    if rows:
        st.dataframe(pl.DataFrame(rows), hide_index=True, width="stretch")
    else:
        st.info(
            "No file was named. `lumen dashboard results/ bench.json` reads a folder and a file."
        )
