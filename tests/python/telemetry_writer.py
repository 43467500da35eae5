"""Writes telemetry CSVs as docs/formats/telemetry-csv.md has them, for tests of their reader.

Seeded: the same arguments give the same file. `Rows` are plain lists, from which a test reckons
the lines that it wants to see without the code that it tests.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

STAGES = ("connect", "parse", "queue", "preprocess", "inference", "postprocess", "write", "total")
COLUMNS = (
    *("request_id", "timestamp", "model", "queue_type", "allocator_type", "worker"),
    *(f"{stage}_us" for stage in STAGES),
    *("rows", "status", "cache", "transport", "lane"),
)
HEADER = ",".join(COLUMNS) + "\n"
QUEUES = ("mpmc", "spsc", "naive", "batched", "inline")
ALLOCATORS = ("lumen_arena", "standard")
START = datetime(2026, 11, 23, 10, 0, 0)


@dataclass
class Rows:
    """Records as dicts of text, in the file's order."""

    records: list[dict[str, str]] = field(default_factory=list)

    def totals(self, **wanted: str) -> list[float]:
        """`total_us` of those that have these values, sorted."""
        chosen = [r for r in self.records if all(r[k] == v for k, v in wanted.items())]
        return sorted(float(record["total_us"]) for record in chosen)

    def write(self, path: Path) -> Path:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.records)
        return path


def record(at: datetime, total_us: float, /, **changes: str) -> dict[str, str]:
    """One line; the stages share `total_us`, nine tenths of it in the model."""
    parts = {"parse": 0.02, "queue": 0.03, "preprocess": 0.01, "inference": 0.9}
    stages = {f"{name}_us": f"{share * total_us:.3f}" for name, share in parts.items()}
    whole = dict.fromkeys(COLUMNS, "")
    whole.update(stages, postprocess_us=f"{0.01 * total_us:.3f}", write_us=f"{0.03 * total_us:.3f}")
    whole.update(
        request_id="1",
        timestamp=at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        model="mlp",
        queue_type="mpmc",
        transport="http",
        allocator_type="lumen_arena",
        worker="0",
        total_us=f"{total_us:.3f}",
        rows="1",
        status="200",
    )
    whole["lane"] = changes.get("queue_type", "mpmc")
    whole.update(changes)
    return whole


def matrix_rows(count: int, seed: int = 1, gap_us: int = 100) -> Rows:
    """`count` requests of each of the ten combinations, one combination after the other."""
    source = random.Random(seed)
    rows = Rows()
    at = START
    for place, queue in enumerate(QUEUES):
        for slower, allocator in enumerate(ALLOCATORS):
            for number in range(count):
                at += timedelta(microseconds=gap_us)
                took = source.lognormvariate(3 + 0.2 * place + 0.1 * slower, 0.4)
                rows.records.append(
                    record(
                        at,
                        took,
                        request_id=f"r{number}",
                        queue_type=queue,
                        allocator_type=allocator,
                        model="squeezenet" if number % 10 == 0 else "mlp",
                        status="429" if number % 50 == 7 else "200",
                    )
                )
    return rows


def large_file(path: Path, count: int, repeat: int = 50_000) -> Path:
    """Many rows, fast: blocks of `repeat` lines, each block with times of its own second."""
    source = random.Random(1)
    lines = []
    for number in range(repeat):
        at = START + timedelta(microseconds=20 * number)
        took = source.lognormvariate(3, 0.5)
        one = record(at, took, queue_type=QUEUES[number % 5], allocator_type=ALLOCATORS[number % 2])
        lines.append(",".join(one.values()))
    day = START.strftime("%Y-%m-%dT")
    block = "\n".join(lines) + "\n"
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER)
        for number in range(count // repeat):
            clock = (START + timedelta(seconds=number)).strftime("%H:%M:%S")
            first = START.strftime("%H:%M:%S")
            assert block.count(f"{day}{first}") == repeat, "the block spans more than a second"
            file.write(block.replace(f"{day}{first}", f"{day}{clock}"))
    return path


def forms_document(**more: Any) -> dict[str, Any]:
    """As `lumen quantize --json` prints it."""
    usual = {"bytes": 5e6, "sqnr_db": 34.8, "top1": 1.0, "metric": None, "verdict": "passes"}
    return {
        "candidates": [
            {"candidate": "f32", "backend": "onnxruntime", "us": 3315.1, **usual},
            {"candidate": "int8", "backend": "openvino", "us": 1657.6, **usual, **more},
            {"candidate": "int8", "backend": "onnxruntime", "problem": "no kernel"},
        ],
        "choice": {"candidate": "int8", "backend": "openvino"},
        "why": "2.00 times as fast",
    }
