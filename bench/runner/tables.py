"""Markdown tables of rows, and the sentences about goals. Text out; no state; threads: any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.runner.goals import Goal, missed
from bench.runner.rows import Document, Row, shown_limit, verdict

Draw = Callable[[Document], str]


def number(value: float | None) -> str:
    """Three digits that count, more only before the point."""
    if value is None:
        return "–"
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 or size == 0 else 3
    return f"{value:,.{decimals}f}"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> str:
    rule = "|" + "---|" * text_columns + "---:|" * (len(heads) - text_columns)
    drawn = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([drawn[0], rule, *drawn[1:]]) + "\n"


def metric_of(row: Row) -> str:
    """A key of a program's JSON says less than the unit."""
    unit: str = row["unit"]
    return unit if row["metric"].isidentifier() else f"{row['metric']}, {unit}"


def cells_of(row: Row) -> list[str]:
    rival = f"{number(row['rival'])} ({row['rival_name']})" if row["rival"] is not None else "–"
    ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else "–"
    spread = f"{row['spread']:.0%}" if row["spread"] is not None else "–"
    said = [number(row["ours"]), rival, ratio, spread, verdict(row), number(shown_limit(row))]
    return [row["row"], metric_of(row), *said]


HEADS = ("", "metric", "Lumen", "best rival", "ratio", "spread", "", "limit")


def compared(document: Document) -> str:
    """Ours, the best rival, their ratio: the table of a bench that declares no other."""
    return table(HEADS, [cells_of(row) for row in document["rows"]], 2)


def without(text: str) -> Draw:
    """The same without the rows whose name has that text."""
    return lambda document: compared(
        {"rows": [row for row in document["rows"] if text not in row["row"]]}
    )


def pivot(by_metric: Mapping[str, str]) -> Draw:
    """One line a row, one column a metric. `by_metric`: the columns' headings."""

    def draw_pivot(document: Document) -> str:
        lines: dict[str, dict[str, str]] = {}
        for row in document["rows"]:
            limit = shown_limit(row)
            beside = f" (limit {number(limit)})" if limit is not None else ""
            lines.setdefault(row["row"], {})[row["metric"]] = number(row["ours"]) + beside
        cells = [[row, *[found[metric] for metric in by_metric]] for row, found in lines.items()]
        return table(["", *by_metric.values()], cells, 1)

    return draw_pivot


def misses(goals: Sequence[Goal], rows: Sequence[Row]) -> list[str]:
    """A sentence for each row and goal that it misses, said by the rows' own figures."""
    said = []
    for row, goal in missed(goals, rows):
        got = f"{number(row['ours'])} {row['unit']}"
        if "rival" in goal.wanted:
            got = f"{row['ratio']:.2f} times"
        elif not row["metric"].isidentifier():
            got = f"{row['metric']} {got}"
        said.append(f"* {row['row']}: {got}; wanted: {goal.wanted}.")
    return said


def unreached(goals: Sequence[Goal], rows: Sequence[Row]) -> str:
    """Empty: the rows have no goal."""
    if not any(goal.judges(row) for goal in goals for row in rows):
        return ""
    said = misses(goals, rows)
    if not said:
        return "\nEvery goal that was set for these rows is reached.\n"
    return "\nGoals that are not reached:\n\n" + "\n".join(said) + "\n"


def terminal(goals: Sequence[Goal], rows: Sequence[Row], with_all: bool) -> str:
    """The table on stderr after a run; `with_all`: a line for each contender of a row."""
    lines = []
    wide = max((len(row["row"]) for row in rows), default=0)
    for row in rows:
        name, metric, ours, rival, ratio, spread, said, limit = cells_of(row)
        kind = f" [{row['cpus']}]" if row.get("cpus") else ""
        text = f"{name:<{wide}}  {metric + kind:<26} {ours:>12}  rival {rival}, ratio {ratio} "
        text += f"{said.strip('*')}, spread {spread}, limit {limit}"
        judged = [goal for goal in goals if goal.judges(row)]
        text += "".join(
            f"; goal {goal.wanted}: {'met' if goal.is_reached(row, rows) else 'MISSED'}"
            for goal in judged
        )
        lines.append(text)
        lines += all_contenders(row) if with_all else []
    return "\n".join(lines)


def all_contenders(row: dict[str, Any]) -> list[str]:
    found = sorted((median(values), name, values) for name, values in row["rounds"].items())
    return [
        f"    {name:<36} {number(middle):>12}  {number(min(values))} to {number(max(values))}, "
        f"{len(values)} rounds"
        for middle, name, values in found
    ]
