"""The user's samples: read, checked against the model's inputs, and split in two.

A call is one call of the model with one row: arrays by input name. Three forms are read: an npz
(arrays by input name; rows of different shapes as NAME/0, NAME/1 ...), a folder of .npy files with
the same names, and perf_analyzer's JSON. Threads: one. Errors: QuantizeError.
"""

from __future__ import annotations

import base64
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lumen_engine.quantize.errors import QuantizeError

Array = np.ndarray[Any, Any]
Call = dict[str, Array]

# Two of ten judge: with fewer, one row decides.
LEAST_ROWS = 10
JUDGED_SHARE = 0.2
# Of the split: two runs over one file give one result.
SPLIT_SEED = 20261127
RAGGED = re.compile(r"(?P<name>.+)/(?P<row>\d+)")


@dataclass(frozen=True)
class Port:
    """An input or output of the model. `shape`: -1 or a name for a free axis."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]

    @property
    def has_rows(self) -> bool:
        """Whether its first axis may be one row: it is free, or 1."""
        return len(self.shape) > 0 and (not isinstance(self.shape[0], int) or self.shape[0] == 1)

    def fits(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.shape) and all(
            not isinstance(wanted, int) or wanted == got for wanted, got in zip(self.shape, shape)
        )

    def __str__(self) -> str:
        axes = ",".join("*" if not isinstance(axis, int) else str(axis) for axis in self.shape)
        return f"{self.name} {self.dtype}[{axes}]"


@dataclass(frozen=True)
class Samples:
    calls: list[Call]
    # Arrays that are no input of the model, one entry a call: labels, for the user's own metric.
    more: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.calls)

    def take(self, indices: Sequence[int]) -> Samples:
        return Samples(
            [self.calls[i] for i in indices],
            {name: array[list(indices)] for name, array in self.more.items()},
        )


def split(samples: Samples) -> tuple[Samples, Samples]:
    """Those that calibrate, and those that judge. Shuffled: files are often sorted by class."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(samples)).tolist()
    judged = max(1, round(len(samples) * JUDGED_SHARE))
    return samples.take(order[judged:]), samples.take(order[:judged])


def load(path: Path, ports: Sequence[Port]) -> Samples:
    if path.is_dir():
        columns, more = _columns(_read_folder(path), ports, path)
    elif path.suffix == ".json":
        columns, more = _read_json(path, ports), {}
    else:
        columns, more = _columns(_read_npz(path), ports, path)
    counts = {name: len(rows) for name, rows in columns.items()}
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise QuantizeError(f"{path}: its inputs have different numbers of rows: {told}")
    rows = next(iter(counts.values()))
    if rows < LEAST_ROWS:
        raise QuantizeError(
            f"{path} has {rows} rows; wanted {LEAST_ROWS} or more (100 to 500 are usual): "
            "one in five judges the result, the others calibrate it"
        )
    for name, array in more.items():
        if array.ndim == 0 or len(array) != rows:
            raise QuantizeError(
                f"{path}: {name!r} is no input of the model and has shape {list(array.shape)}; "
                f"wanted one entry for each of the {rows} rows. The model's inputs are "
                + ", ".join(map(str, ports))
            )
    calls = [{name: columns[name][i] for name in columns} for i in range(rows)]
    return Samples(calls, more)


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise QuantizeError(
            f"reading {path}: {reason}; wanted an .npz with an array for each input, a folder of "
            ".npy files, or perf_analyzer's .json"
        ) from error


def _read_folder(path: Path) -> dict[str, Array]:
    arrays = {}
    for file in sorted(path.rglob("*.npy")):
        name = file.relative_to(path).with_suffix("").as_posix()
        try:
            arrays[name] = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise QuantizeError(f"reading {file}: {error}") from error
    if not arrays:
        raise QuantizeError(f"{path} holds no .npy file; wanted INPUT.npy for each input")
    return arrays


def _columns(
    arrays: Mapping[str, Array], ports: Sequence[Port], path: Path
) -> tuple[dict[str, list[Array]], dict[str, Array]]:
    """The rows of each input, and the other arrays."""
    rest = dict(arrays)
    columns = {}
    for port in ports:
        if port.name in rest:
            columns[port.name] = _rows_of(rest.pop(port.name), port, path)
            continue
        ragged = [
            (int(found["row"]), name)
            for name in rest
            if (found := RAGGED.fullmatch(name)) and found["name"] == port.name
        ]
        if not ragged:
            raise QuantizeError(
                f"{path} has no array {port.name!r}; it has {', '.join(arrays) or 'none'}, "
                f"the model wants {', '.join(map(str, ports))}"
            )
        columns[port.name] = [
            _one_row(rest.pop(name), port, f"{path}: {name!r}") for _, name in sorted(ragged)
        ]
    return columns, rest


def _rows_of(array: Array, port: Port, path: Path) -> list[Array]:
    where = f"{path}: {port.name!r}"
    if port.has_rows and array.ndim == len(port.shape):
        return [_one_row(array[i : i + 1], port, where) for i in range(len(array))]
    if array.ndim == len(port.shape) + 1:
        return [_one_row(array[i], port, where) for i in range(len(array))]
    raise QuantizeError(
        f"{where} has shape {list(array.shape)}; wanted rows of {port}"
        + ("" if port.has_rows else ", one more axis in front for the rows")
    )


def _one_row(array: Array, port: Port, where: str) -> Array:
    if port.has_rows and array.ndim == len(port.shape) - 1:
        array = array[np.newaxis]
    if not port.fits(array.shape) or (port.has_rows and array.shape[0] != 1):
        raise QuantizeError(f"{where} has a row of shape {list(array.shape)}; wanted {port}")
    if array.dtype != port.dtype:
        if not np.can_cast(array.dtype, port.dtype, "same_kind"):
            raise QuantizeError(f"{where} is {array.dtype}; wanted {port}")
        cast = array.astype(port.dtype)
        if np.issubdtype(port.dtype, np.integer) and not np.array_equal(cast, array):
            raise QuantizeError(f"{where} holds a number that {port.dtype} does not: wanted {port}")
        array = cast
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise QuantizeError(f"{where} holds NaN or infinity, which nothing can be calibrated by")
    return np.ascontiguousarray(array)


def _read_json(path: Path, ports: Sequence[Port]) -> dict[str, list[Array]]:
    """perf_analyzer's input data: {"data": [{INPUT: {"content": [...], "shape": [...]}}, ...]}."""
    try:
        entries = json.loads(path.read_text())["data"]
        # Streams of sequences are lists of lists.
        rows = [row for each in entries for row in (each if isinstance(each, list) else [each])]
        columns: dict[str, list[Array]] = {port.name: [] for port in ports}
        for number, row in enumerate(rows):
            for port in ports:
                if port.name not in row:
                    raise QuantizeError(f"{path}: row {number} has no {port.name!r}; wanted {port}")
                where = f"{path}: row {number}, {port.name!r}"
                columns[port.name].append(_one_row(_of_json(row[port.name], port), port, where))
        return columns
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise QuantizeError(
            f'reading {path}: {error!r}; wanted perf_analyzer\'s form, {{"data": [{{"INPUT": '
            '{"content": [...], "shape": [...]}}, ...]}'
        ) from error


def _of_json(value: Any, port: Port) -> Array:
    shape: Sequence[int] = [axis if isinstance(axis, int) else -1 for axis in port.shape]
    if isinstance(value, dict) and "shape" in value:
        shape = value["shape"]
    if isinstance(value, dict) and "b64" in value:
        array = np.frombuffer(base64.b64decode(value["b64"], validate=True), port.dtype)
    else:
        numbers = value["content"] if isinstance(value, dict) else value
        array = np.asarray(numbers).reshape(-1)
        if np.issubdtype(port.dtype, np.floating):
            array = array.astype(port.dtype)
    free = [i for i, axis in enumerate(shape) if axis == -1]
    if port.has_rows and free and free[0] == 0 and len(free) > 1:
        shape, free = [1, *shape[1:]], free[1:]
    if len(free) > 1:
        raise ValueError(f'{port} has several free axes: "shape" is needed')
    return array.reshape(shape)
