"""How values of files become text: units, and names that nobody's markup can get out of. Pure."""

from __future__ import annotations

import html
import math
import re

# A name is text of a stranger: a screen needs no more of it.
MAX_NAME = 80


def plain(value: object) -> str:
    """One short line without control characters."""
    text = re.sub(r"[\x00-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", " ", str(value))
    return text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"


def figure_text(value: object) -> str:
    """For Plotly, which renders a part of HTML in every text, and %{...} in templates."""
    return html.escape(plain(value), quote=False).replace("%{", "% {")


def code(value: object) -> str:
    """For Streamlit's Markdown: a code span, in which nothing is rendered."""
    text = plain(value)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def sentence(value: object) -> str:
    """For Streamlit's Markdown, a whole sentence: every mark of punctuation is escaped."""
    text = re.sub(r"[\x00-\x1f\x7f]", " ", str(value))[:1_000]
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text)


def time_unit(largest_us: float) -> tuple[float, str]:
    """The divisor of microseconds for an axis that goes so far, and the unit's name."""
    if largest_us >= 2e6:
        return 1e6, "s"
    if largest_us >= 5_000:
        return 1e3, "ms"
    return 1.0, "µs"


def time_text(us: float) -> str:
    """Three digits and the unit."""
    if not math.isfinite(us):
        return "—"
    if us >= 999_500:
        return f"{us / 1e6:.3g} s" if us < 99.95e6 else f"{us / 1e6:,.0f} s"
    if us >= 999.5:
        return f"{us / 1e3:.3g} ms"
    return f"{us:.3g} µs"


def count_text(value: float) -> str:
    """123; 12.3 k; 1.23 M."""
    if not math.isfinite(value):
        return "—"
    for limit, mark in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / (1e3 if mark == 'k' else limit):.3g} {mark}"
    return f"{value:,.0f}"
