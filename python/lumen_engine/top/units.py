"""Numbers as short text with their unit, bars and sparklines, for a terminal's columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence

NONE = "-"
SPARKS = "▁▂▃▄▅▆▇█"


def duration(ns: float | None) -> str:
    """Three digits, at most 7 columns: `81.2 µs`, `1.35 ms`."""
    if ns is None:
        return NONE
    for unit, size in (("ns", 1), ("µs", 1e3), ("ms", 1e6)):
        if ns < 999.5 * size:
            return f"{digits(ns / size)} {unit}"
    return f"{digits(ns / 1e9)} s"


def digits(value: float) -> str:
    """Three, without those behind the point that say nothing."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}" if value else "0"


def count(value: float) -> str:
    """`191,343`, `1.2 M` above a million; one decimal below ten."""
    if value >= 999_999.5:
        return f"{value / 1e6:.1f} M"
    if 0 < value < 9.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def size(value: float | None) -> str:
    if value is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 999.5:
            return f"{digits(value)} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1024
    return f"{digits(value)} TiB"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share * 100:.0f} %"


def age(seconds: float) -> str:
    whole = int(seconds)
    days, hours = divmod(whole // 3600, 24)
    clock = f"{hours}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{days} d {clock}" if days else clock


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values, from 0 to the largest of them; older ones come from the left."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    line = "".join(
        SPARKS[min(int(value / top * len(SPARKS)), len(SPARKS) - 1)] if top else SPARKS[0]
        for value in shown
    )
    return line.rjust(width)


def parts_of(values: Sequence[float], width: int) -> list[int]:
    """How many of `width` columns each gets, by the largest remainder; all 0 if all values are."""
    whole = sum(values)
    if whole <= 0:
        return [0] * len(values)
    exact = [value / whole * width for value in values]
    columns = [int(each) for each in exact]
    by_rest = sorted(range(len(values)), key=lambda i: columns[i] - exact[i])
    for i in by_rest[: width - sum(columns)]:
        columns[i] += 1
    return columns
