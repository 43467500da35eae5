"""Reads the JSON of `lumen bench`, `matrix`, `perf` and `quantize` and of ./dev bench, told apart
by shape.

Pure but for reading the file. Errors: SourceError with the place inside the document.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .documents import Documents, LoadPoint, MatrixCell, RivalRow
from .errors import SourceError
from .perf_json import is_perf, read_perf
from .quantization_json import is_quantization, read_quantization
from .telemetry_csv import STAGES

# The largest baseline has 400 kB. A larger one is another kind of file, and would stall the page.
MAX_JSON_BYTES = 64 << 20
LATENCIES = ("mean", "p50", "p90", "p99", "p999", "max")
MATRIX_BEGIN = "queue_type,allocator_type,"


def read_json(path: Path, name: str) -> Documents:
    """Everything in the file that the dashboard can show."""
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise SourceError(
                str(path), "is too large", f"{size:,} bytes", f"{MAX_JSON_BYTES:,} at most",
                "telemetry is read from CSV",
            )  # fmt: skip
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SourceError(
            str(path), "can't be read", str(error.strerror), "a file", "look at its permissions"
        ) from None
    except (ValueError, RecursionError) as error:
        raise SourceError(
            str(path), "is no JSON", str(error)[:100], "one whole JSON document",
            "if it is still being written, wait",
        ) from None  # fmt: skip
    return read_document(document, name, str(path))


def read_document(document: Any, run: str, where: str) -> Documents:
    found = Documents()
    if isinstance(document, dict) and isinstance(document.get("measurements"), list):
        for number, part in enumerate(document["measurements"]):
            label = f"{run}, {_of(part, 'machine', 'day')} {_of(part, 'commit')}".strip(", ")
            found.add(_read_one(part, label, f"{where}: measurements[{number}]", baseline=True))
    else:
        found = _read_one(document, run, where, baseline=False)
    return found


def _of(part: Any, *keys: str) -> str:
    for key in keys:
        part = part.get(key) if isinstance(part, dict) else None
    return str(part)[:40] if part is not None else ""


def _read_one(part: Any, run: str, where: str, baseline: bool) -> Documents:
    found = Documents()
    if isinstance(part, dict) and is_perf(part):
        found.perf = read_perf(part, run, where)
        return found
    if isinstance(part, dict) and is_quantization(part):
        found.forms = read_quantization(part, run, where)
        return found
    rows = part.get("rows") if isinstance(part, dict) else None
    if not isinstance(rows, list):
        if baseline:
            return found  # some benches keep other things only; nothing of theirs is drawn
        raise _foreign(where, f"keys {', '.join(map(str, part))[:80]}" if part else "no object")
    kinds: list[tuple[tuple[str, ...], Callable[..., Any], list[Any]]] = [
        (("clients", "latency_us"), _load, found.loads),
        (("queue_type", "allocator_type", "rounds"), _cell, found.cells),
        (("row", "ours", "rival"), _rival, found.rivals),
    ]
    for number, row in enumerate(rows):
        place = f"{where}: rows[{number}]"
        keys = row if isinstance(row, dict) else {}
        kind = next((kind for kind in kinds if all(key in keys for key in kind[0])), None)
        if kind is None and baseline:
            continue  # a bench of a shape of its own; the page of sources tells its kind
        if kind is None:
            raise _foreign(place, f"keys {', '.join(map(str, keys))[:80]}")
        made = kind[1](row, part, run, place)
        if made is not None:
            kind[2].append(made)
    return found


def _foreign(where: str, got: str) -> SourceError:
    return SourceError(
        where, "is nothing that the dashboard knows", got,
        "the output of `lumen bench`, `matrix`, `perf` or `quantize` or ./dev bench with --json",
        "name another file",
    )  # fmt: skip


def _number(value: Any, where: str, key: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise SourceError(where, f"has no number in {key!r}", repr(value)[:40], "a number", "see there")


def _numbers(values: Any, keys: Any, where: str) -> dict[str, float]:
    """Those that are there; null is a value that was not measured."""
    if not isinstance(values, dict):
        raise SourceError(
            where, "is no object", repr(values)[:40], "names and numbers", "see there"
        )
    return {key: _number(values[key], where, key) for key in keys if values.get(key) is not None}


def _load(row: dict[str, Any], part: dict[str, Any], run: str, where: str) -> LoadPoint | None:
    latency = _numbers(row["latency_us"], LATENCIES, f"{where}.latency_us")
    if not {"p50", "p99"} <= latency.keys():
        return None  # no request was answered
    server = row.get("server") or {}
    stages = server.get("stages_us") if isinstance(server, dict) else None
    errors = row.get("errors")
    return LoadPoint(
        run,
        str(part.get("model", "")),
        int(_number(row["clients"], where, "clients")),
        _number(row.get("per_second"), where, "per_second"),
        latency,
        int(_number(row.get("requests", 0), where, "requests")),
        int(_number(errors.get("count", 0), where, "errors")) if isinstance(errors, dict) else 0,
        _numbers(stages, STAGES, f"{where}.server.stages_us") if stages else {},
        str(part.get("queue_type", "")),
        str(part.get("allocator_type", "")),
        part.get("new_connection") in (True, 1),
    )


def _cell(row: dict[str, Any], part: dict[str, Any], run: str, where: str) -> MatrixCell:
    named = ("queue_type", "allocator_type", "rounds", "error")
    rounds = row["rounds"] if isinstance(row["rounds"], dict) else {}
    return MatrixCell(
        run,
        str(part.get("model", "")),
        str(row["queue_type"]),
        str(row["allocator_type"]),
        _numbers(row, [key for key in row if key not in named], where),
        {
            str(key): [_number(value, where, key) for value in values if value is not None]
            for key, values in rounds.items()
            if isinstance(values, list)
        },
        str(row.get("error") or ""),
        int(_number(part.get("requests", 0), where, "requests")),
        int(_number(part.get("clients", 0), where, "clients")),
    )


def _rival(row: dict[str, Any], part: dict[str, Any], run: str, where: str) -> RivalRow | None:
    found = _numbers(row, ("ours", "rival", "ratio", "spread"), where)
    if "ours" not in found or "rival" not in found:
        return None  # a rival that this machine does not have
    title, metric, unit = (str(row.get(key) or "") for key in ("row", "metric", "unit"))
    # Of the document; older ones say it in each row.
    bench = str(row.get("bench") or part.get("bench") or run)
    name = str(row.get("rival_name") or "")
    ratio, spread = found.get("ratio"), found.get("spread")
    return RivalRow(
        run, bench, title, metric, unit, found["ours"], found["rival"], name, ratio, spread
    )


def is_matrix_csv(begin: str) -> bool:
    return begin.startswith(MATRIX_BEGIN) and "timestamp" not in begin.partition("\n")[0]


def read_matrix_csv(path: Path, run: str) -> list[MatrixCell]:
    """The table that `lumen matrix --out` keeps; the file's name is the model's."""
    cells = []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            names = row.pop("queue_type") or "", row.pop("allocator_type") or ""
            error = row.pop("error", "") or ""
            values = {}
            for key, text in row.items():
                try:
                    values[str(key)] = float(text)
                except (TypeError, ValueError):
                    if text:
                        where = f"{path}: line {number + 2}"
                        raise SourceError(
                            where,
                            f"has no number in {key!r}",
                            repr(text)[:40],
                            "a number",
                            "see there",
                        ) from None
            cells.append(MatrixCell(run, path.stem, *names, values, {}, error))
    return cells
