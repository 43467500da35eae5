"""Reads quantization.json and `lumen quantize --json`: forms of one model, in each backend.

Pure. Errors: SourceError with the place inside the document.
"""

from __future__ import annotations

import math
from typing import Any

from .documents import FormRow
from .errors import SourceError

NUMBERS = ("us", "bytes", "sqnr_db")
OPTIONAL = ("top1", "metric")


def is_quantization(document: dict[str, Any]) -> bool:
    rows = document.get("candidates")
    return isinstance(rows, list) and all(
        isinstance(row, dict) and "candidate" in row and "backend" in row for row in rows
    )


def read_quantization(document: dict[str, Any], run: str, where: str) -> list[FormRow]:
    """Those that were measured; one that a backend can't run has a problem and no numbers."""
    chosen = document.get("choice") or {}
    forms = []
    for number, row in enumerate(document["candidates"]):
        if "problem" in row:
            continue
        place = f"{where}: candidates[{number}]"
        values = {key: _number(row.get(key), place, key) for key in NUMBERS}
        more = {
            key: None if row.get(key) is None else _number(row[key], place, key) for key in OPTIONAL
        }
        names = str(row["candidate"]), str(row["backend"])
        is_chosen = names == (chosen.get("candidate"), chosen.get("backend"))
        verdict = str(row.get("verdict") or "")
        forms.append(
            FormRow(
                run, *names, values["us"], values["bytes"], values["sqnr_db"], more["top1"],
                more["metric"], verdict, is_chosen, str(document.get("why") or ""),
            )
        )  # fmt: skip
    return forms


def _number(value: Any, where: str, key: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise SourceError(where, f"has no number in {key!r}", repr(value)[:40], "a number", "see there")
