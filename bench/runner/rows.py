"""A row of a bench: one figure of ours, the best rival's, their ratio, and all rounds of both.

Keys: row, metric, unit, ours, rival, rival_name, ratio (above 1: ours is better), spread ((largest
- smallest) / median, of ours or the rival, the larger), limit, rounds (samples by contender, ours
first); `cpus` is "near" or "far" where the distance of the cores matters. Pure functions; threads:
any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.runner import paired

Row = dict[str, Any]
Document = dict[str, Any]
Samples = Sequence[float]

DIGITS = 4
SAMPLE_DIGITS = 6  # that count, of a raw sample


def spread(values: Samples) -> float | None:
    """None where the median is 0."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else None


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def short(value: float) -> float:
    """Six digits that count: a sample is no more exact."""
    return float(f"{value:.{SAMPLE_DIGITS}g}")


def make_row(
    name: str,
    metric: str,
    unit: str,
    rounds: Mapping[str, Samples],
    *,
    more_is_better: bool | None = False,
    rivals: Sequence[str] | None = None,
    limit: float | str | None = None,
    **more: Any,
) -> Row:
    """`rounds`: ours first. `rivals`: those of `rounds` that count; None: all others. `limit`: a
    figure, or the contender whose median it is. `more_is_better` None: nothing is compared. `more`
    adds keys or replaces these."""
    ours, *others = rounds
    known = others if rivals is None else [one for one in rivals if one in rounds]
    if isinstance(limit, str):
        known = [one for one in known if one != limit]
    middle = {one: median(values) for one, values in rounds.items()}
    best = None
    if known and more_is_better is not None:
        best = (max if more_is_better else min)(known, key=middle.__getitem__)
    ratio = None
    if best is not None and middle[ours] and middle[best]:
        ratio = middle[ours] / middle[best]
        ratio = ratio if more_is_better else 1 / ratio
    spreads = [spread(rounds[one]) for one in (ours, best) if one is not None]
    return {
        "row": name,
        "metric": metric,
        "unit": unit,
        "ours": rounded(middle[ours]),
        "rival": rounded(middle[best]) if best is not None else None,
        "rival_name": best,
        "ratio": rounded(ratio),
        "spread": rounded(max((one for one in spreads if one is not None), default=None)),
        "limit": rounded(middle.get(limit) if isinstance(limit, str) else limit),
        "rounds": {one: [short(value) for value in values] for one, values in rounds.items()},
        **more,
    }


def paired_limit(values: Samples, limits: Samples) -> float | None:
    """By which `values` are off as in the median of the rounds: the two figures of a round are of
    one moment, and a machine differs more from round to round than they do."""
    ratios = [value / limit for value, limit in zip(values, limits) if limit > 0]
    middle = median(ratios) if ratios else 0.0
    return median(values) / middle if middle > 0 else None


# --- near and far cores ---------------------------------------------------------------------------


def by_kind(document: Document) -> list[Document]:
    """A bench's output, near and far cores apart. A rival that only the other kind has may be the
    best: without it a row has no best rival, but where it is behind one that it has."""
    rows = document["rows"]
    everyone: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        everyone.setdefault(_key(row), set()).update(row.get("rounds", ()))
    more = {key: value for key, value in document.items() if key != "rows"}
    return [
        {
            "kind": kind,
            **more,
            "rows": [_compared(r, everyone[_key(r)]) for r in rows if r.get("cpus") == kind],
        }
        for kind in dict.fromkeys(row.get("cpus") for row in rows)
    ]


def _key(row: Row) -> tuple[str, str]:
    return row.get("row", ""), row.get("metric", "")


def _compared(row: Row, everyone: set[str]) -> Row:
    """`lacks`: the rivals that only the other kind has met; a bench that does not tell cores apart
    lacks none."""
    lacks = sorted(everyone - row.get("rounds", {}).keys()) if row.get("cpus") else []
    if not lacks:
        return row
    is_behind = row["ratio"] is not None and row["ratio"] < 1
    nobody = {} if is_behind else {"rival": None, "rival_name": None, "ratio": None}
    return {**row, **nobody, "lacks": lacks}


# --- verdicts -------------------------------------------------------------------------------------

RATES = ("/s", "points", "index")  # the ends of units of which more is better
AHEAD, TIE, BEHIND, NOT_COMPARED = "ahead", "tie", "**behind**", "not compared"
OF_COSTS = {paired.FASTER: AHEAD, paired.NOISE: TIE, paired.SLOWER: BEHIND}


def verdict(row: Row) -> str:
    """By paired.verdict() of the ratio's interval, which is that of the row's pairs if it has one,
    and else as wide as the spread."""
    if row["ratio"] is None:
        return NOT_COMPARED if row.get("lacks") else ""
    low, high = row.get("interval") or (
        row["ratio"] - (row["spread"] or 0),
        row["ratio"] + (row["spread"] or 0),
    )
    # paired is of costs, where above 1 is worse.
    return OF_COSTS[paired.verdict(1 / max(high, 1e-9), 1 / max(low, 1e-9))]


def shown_limit(row: Row) -> float | None:
    """A limit that ours beats beyond the spread is none, and is not shown; a bound, which ours is
    to stay below, always is."""
    limit, ours = row["limit"], row["ours"]
    if limit is None or row.get("is_bound"):
        return limit
    room = (row["spread"] or 0) * limit
    is_rate = row["unit"].endswith(RATES)
    beaten = ours > limit + room if is_rate else ours < limit - room
    return None if beaten else limit
