"""Reads `lumen perf --json`: a server's counters under several loads, side by side.

Pure. Errors: SourceError with the place inside the document.
"""

from __future__ import annotations

import math
from typing import Any

from .documents import PerfColumn
from .errors import SourceError

SIMULATED = "simulated_"


def is_perf(document: dict[str, Any]) -> bool:
    phases = document.get("phases")
    return isinstance(phases, list) and all(
        isinstance(phase, dict) and isinstance(phase.get("rows"), dict) for phase in phases
    )


def read_perf(document: dict[str, Any], run: str, where: str) -> list[PerfColumn]:
    """A column for each phase; simulated figures are of the whole run, and stand in each."""
    simulated = _values(document.get("simulated_a_request") or {}, f"{where}: simulated_a_request")
    columns = []
    for number, phase in enumerate(document["phases"]):
        place = f"{where}: phases[{number}].rows"
        values = _values(phase["rows"], place)
        values.update({SIMULATED + name: value for name, value in simulated.items()})
        label = f"{phase.get('clients', '?')} × {phase.get('requests_each', '?')}"
        columns.append(
            PerfColumn(
                run,
                str(document.get("model", "")),
                label,
                values,
                bool(document.get("hardware_counters")),
                str(document.get("verdict") or ""),
                tuple(str(note) for note in document.get("notes") or []),
            )
        )
    return columns


def _values(found: Any, where: str) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for key, value in dict(found).items():
        if value is None:
            values[str(key)] = None
        elif isinstance(value, (int, float)) and math.isfinite(value):
            values[str(key)] = float(value)
        else:
            raise SourceError(
                where,
                f"has no number in {key!r}",
                repr(value)[:40],
                "a number or null",
                "see there",
            )
    return values
