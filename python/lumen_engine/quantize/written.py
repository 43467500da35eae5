"""The new version's folder: model.onnx, quantization.json and quantization.rows.

The byte format is docs/formats/quantization.md. A folder appears whole or not at all. Threads: one.
Errors: QuantizeError.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lumen_engine._tensors import DATATYPES, OF_DTYPE
from lumen_engine.quantize.distance import Answer
from lumen_engine.quantize.errors import QuantizeError
from lumen_engine.quantize.gate import Choice, Entry, Gate
from lumen_engine.quantize.samples import Array, Call

FORMAT_VERSION = 1
ALIGNMENT = 64
# Enough to tell a wrong kernel from a right one; the server runs them once for each backend.
MOST_ROWS = 16
MOST_ROW_BYTES = 16 << 20
# A backend's answers on the rows may be this much further off than they were here: other CPUs
# round in other places. A kernel that is wrong, or saturates, is off by far more.
MARGIN_DB = 3.0


def rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def entry_document(entry: Entry) -> dict[str, Any]:
    made: dict[str, Any] = {"candidate": entry.candidate.name, "backend": entry.backend}
    if entry.judgement is None:
        return made | {"problem": entry.problem}
    return made | {
        "us": rounded(entry.us),
        "bytes": len(entry.candidate.model),
        "sqnr_db": rounded(entry.judgement.sqnr_db),
        "top1": rounded(entry.judgement.top1),
        "metric": rounded(entry.judgement.metric),
        "verdict": entry.judgement.verdict.value,
    }


def kept_rows(calls: Sequence[Call], answers: Sequence[Answer]) -> int:
    """How many of the held-out rows are kept: one at least."""
    total = count = 0
    for call, answer in zip(calls[:MOST_ROWS], answers):
        total += sum(array.nbytes for array in [*call.values(), *answer.values()])
        if count > 0 and total > MOST_ROW_BYTES:
            break
        count += 1
    return count


class _RowsFile:
    """Arrays as they are in memory, each at a multiple of 64 bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, name: str, array: Array) -> dict[str, Any]:
        self.data.extend(bytes(-len(self.data) % ALIGNMENT))
        offset = len(self.data)
        native = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        self.data.extend(native.tobytes())
        return {
            "name": name,
            "datatype": DATATYPES[OF_DTYPE[array.dtype]][0],
            "shape": list(array.shape),
            "offset": offset,
            "bytes": native.nbytes,
        }


def write_version(
    model_folder: Path,
    source: Path,
    choice: Choice,
    entries: Sequence[Entry],
    gate: Gate,
    rows: tuple[int, int],
    judged: tuple[Sequence[Call], Sequence[Answer]],
    least_db: float,
) -> Path:
    """`rows`: those that calibrated, those that judged. `least_db`: of the server's own check."""
    file = _RowsFile()
    calls = [
        {
            "inputs": [file.add(name, array) for name, array in call.items()],
            "outputs": [file.add(name, array) for name, array in answer.items()],
        }
        for call, answer in zip(*judged)
    ]
    document = {
        "version": FORMAT_VERSION,
        "precision": choice.entry.candidate.precision_name,
        "why": choice.why,
        "source": {
            "file": os.path.relpath(source, model_folder),
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "bytes": source.stat().st_size,
        },
        "rows": {"calibrated": rows[0], "judged": rows[1]},
        "gate": {"metric": gate.metric, "least": gate.least},
        "float_nodes": list(choice.entry.candidate.float_nodes),
        "choice": {"candidate": choice.entry.candidate.name, "backend": choice.entry.backend},
        "candidates": [entry_document(entry) for entry in entries],
        "check": {"file": "quantization.rows", "least_db": rounded(least_db, 4), "calls": calls},
    }
    version = 1 + max(
        (int(one.name) for one in model_folder.iterdir() if one.name.isdigit()), default=0
    )
    target = model_folder / str(version)
    partial = model_folder / f".quantize-{os.getpid()}"  # hidden: a server's scan skips it
    try:
        partial.mkdir()
        (partial / "model.onnx").write_bytes(choice.entry.candidate.model)
        (partial / "quantization.rows").write_bytes(file.data)
        (partial / "quantization.json").write_text(json.dumps(document, indent=1) + "\n")
        partial.rename(target)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise QuantizeError(f"writing {target}: {error.strerror}") from error
    return target
