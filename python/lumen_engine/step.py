"""A model in Python: a server runs <model>/<version>/model.py in a process of its own.

    def run(inputs):                    # arrays by name, read-only
        return {"boxes": find(inputs["image"])}

`config.json` names the tensors, in Triton's form ("input" and "output"). The file's own statements
run once, before the first request: weights are read there. `run` gets one request at a time, or
several packed into one where the configuration says that rows are independent. An exception fails
that request alone (500); raise BadInput for a request that the client has to change (400). If the
process ends it is started again.

A server runs this module with the arguments of main(); nobody else has to.
"""

from __future__ import annotations

import argparse
import importlib.util
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lumen_engine import bus
from lumen_engine._tensors import BYTES, DATATYPES, NUMBERS, array_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Run = Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]]

__all__ = ["BadInput"]

# As in src/backends/python/step_process.h and step_message.h.
LOAD, RUN, PING = 1, 2, 3
DONE, FAILED, BAD_INPUT = 0, 1, 2
MOST_RANK = 8
TABLE_ROW = struct.Struct(f"<{2 + MOST_RANK}q")
ALIGN = 64
GAP = bytes(ALIGN)
NO_AXES = (0,) * MOST_RANK
# Layouts of messages that are kept; requests of any size may come.
MOST_KNOWN = 256
# Of an exception's text in a reply; the whole one is in the server's log.
MOST_WORDS = 400
CONNECT_S = 60.0


class BadInput(ValueError):
    """The request's values can't be served: the client is told so, with status 400."""


class Spec(NamedTuple):
    name: str
    number: int  # of its datatype
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def spec_of(word: str) -> Spec:
    """`FP32:-1,4:name`."""
    datatype, axes, name = word.split(":", 2)
    number = NUMBERS[datatype]
    return Spec(name, number, tuple(map(int, filter(None, axes.split(",")))), DATATYPES[number][1])


# Of a tensor: name, shape, type, where it begins, its bytes.
Layout = tuple[str, tuple[int, ...], "np.dtype[Any]", int, int]


def aligned(size: int) -> int:
    return (size + ALIGN - 1) & -ALIGN


class Inputs:
    """Reads messages as arrays by name."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._specs = specs
        self._table_size = aligned(len(specs) * TABLE_ROW.size)
        # By table, since most messages have the sizes of one before.
        self._layouts: dict[bytes, list[Layout]] = {}

    def read(self, message: bytes) -> dict[str, NDArray[Any]]:
        """Views of `message`, which Python keeps as long as one of them lives."""
        table = message[: self._table_size]
        layout = self._layouts.get(table)
        if layout is None:
            layout = self._layout_of(table)
        return {
            name: np.ndarray(shape, dtype, message, at)
            if dtype.kind != "O"
            else array_of(BYTES, shape, message[at : at + size])
            for name, shape, dtype, at, size in layout
        }

    def _layout_of(self, table: bytes) -> list[Layout]:
        layout = []
        at = self._table_size
        for i, spec in enumerate(self._specs):
            row = TABLE_ROW.unpack_from(table, i * TABLE_ROW.size)
            layout.append((spec.name, row[1 : 1 + row[0]], spec.dtype, at, row[-1]))
            at += aligned(row[-1])
        remember(self._layouts, table, layout)
        return layout


def bytes_of(array: NDArray[Any]) -> bytes:
    elements = [item.encode() if isinstance(item, str) else bytes(item) for item in array.flat]
    return b"".join(len(item).to_bytes(4, "little") + item for item in elements)


class Outputs:
    """Writes what run() gave as the parts of a message."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._specs = specs
        # By the arrays' shapes and sizes, which fit then.
        self._tables: dict[tuple[Any, ...], bytes] = {}

    def write(self, outputs: Any) -> list[Any]:
        if not isinstance(outputs, dict):
            raise TypeError(f"run() gave {type(outputs).__name__}, wanted a dict of arrays by name")
        parts: list[Any] = [b""]
        shapes = []
        for spec in self._specs:
            if spec.name not in outputs:
                raise KeyError(f"run() gave no output '{spec.name}'")
            array = np.asarray(outputs[spec.name])
            data: Any = self._data_of(spec, array)
            size = len(data) if spec.number == BYTES else array.nbytes
            shapes.append((array.shape, size))
            parts.append(data)
            if gap := -size % ALIGN:
                parts.append(GAP[:gap])
        key = tuple(shapes)
        parts[0] = self._tables.get(key) or self._table_of(key)
        return parts

    def _data_of(self, spec: Spec, array: NDArray[Any]) -> Any:
        """In the order of C and of bytes that the message has."""
        if spec.number == BYTES:
            if array.dtype.kind in "OSU":
                return bytes_of(array)
        elif array.dtype == spec.dtype:
            return array if array.flags.c_contiguous else array.tobytes()
        elif array.dtype.newbyteorder("=") == spec.dtype:
            return array.astype(spec.dtype).tobytes()
        raise wrong_output(spec, array.dtype, array.shape)

    def _table_of(self, key: tuple[Any, ...]) -> bytes:
        table = bytearray(aligned(len(key) * TABLE_ROW.size))
        for i, (spec, (shape, size)) in enumerate(zip(self._specs, key, strict=True)):
            if len(shape) != len(spec.shape) or any(
                wanted not in (-1, got) for wanted, got in zip(spec.shape, shape, strict=True)
            ):
                raise wrong_output(spec, spec.dtype, shape)
            row = (len(shape), *shape, *NO_AXES[len(shape) :], size)
            TABLE_ROW.pack_into(table, i * TABLE_ROW.size, *row)
        remember(self._tables, key, bytes(table))
        return bytes(table)


def wrong_output(spec: Spec, dtype: np.dtype[Any], shape: tuple[int, ...]) -> TypeError:
    wanted = f"{DATATYPES[spec.number][0]} {list(spec.shape)}"
    return TypeError(f"output '{spec.name}': got {dtype} {list(shape)}, wanted {wanted}")


def remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) == MOST_KNOWN:
        known.clear()
    known[key] = value


def words_of(text: str) -> bytes:
    return " ".join(text.split())[:MOST_WORDS].encode(errors="replace")


def failure_of(error: BaseException) -> bytes:
    return words_of(f"{type(error).__name__}: {error}")


def load(file: str) -> Run:
    """The `run` of that file."""
    sys.path.insert(0, str(Path(file).parent))  # for modules beside it
    spec = importlib.util.spec_from_file_location("model", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["model"] = module
    spec.loader.exec_module(module)
    run = getattr(module, "run", None)
    if not callable(run):
        raise TypeError("wanted a function run(inputs), which gives a dict of arrays by name")
    return run  # type: ignore[no-any-return]


def answer(run: Run, message: bytes, inputs: Inputs, outputs: Outputs) -> tuple[int, Any]:
    """The reply's status and data."""
    try:
        return DONE, outputs.write(run(inputs.read(message)))
    except BadInput as error:
        return BAD_INPUT, words_of(str(error))
    except Exception as error:
        traceback.print_exc()
        return FAILED, failure_of(error)


def serve(responder: bus.Responder, arguments: argparse.Namespace) -> None:
    inputs = Inputs([spec_of(word) for word in arguments.input])
    outputs = Outputs([spec_of(word) for word in arguments.output])
    run: Run | None = None
    for request in responder.requests():
        if request.is_cancel:
            continue
        status: int = DONE
        data: Any = b""
        if request.type_id == LOAD:
            try:
                run = load(arguments.file)
            except Exception as error:
                traceback.print_exc()
                status, data = FAILED, failure_of(error)
        elif request.type_id == RUN:
            assert run is not None  # a server loads first
            status, data = answer(run, request.data, inputs, outputs)
        try:
            responder.reply(request.id, data, request.type_id, status)
        except ValueError as error:  # larger than the ring
            responder.reply(request.id, failure_of(error), request.type_id, FAILED)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lumen_engine.step")
    parser.add_argument("file")
    parser.add_argument("--bus", required=True)
    parser.add_argument("--capacity", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--output", action="append", default=[])
    arguments = parser.parse_args(words)
    with bus.listen(arguments.bus, "both", capacity=arguments.capacity) as listener:
        with listener.responder(CONNECT_S) as responder:
            try:
                serve(responder, arguments)
            except (bus.PeerClosed, bus.PeerDied):
                return 0
    return 0


if __name__ == "__main__":
    # The class BadInput of model.py's own import, not a second one of this script.
    from lumen_engine import step

    sys.exit(step.main())
