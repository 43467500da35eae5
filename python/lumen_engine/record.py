"""`lumen record`: a random sample of the rows that clients send for a model, as an .npz.

The server keeps the sample (docs/formats/recording.md); this client begins it, waits, ends it and
fetches the rows, by the server's unix socket. Threads: main. Errors: one line on stderr, exit
status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lumen_engine._control import Control, ControlError, default_socket
from lumen_engine._tensors import DATATYPES, NUMBERS

Array = np.ndarray[Any, Any]
Row = dict[str, Array]

PATH = "/v2/lumen/recording"
# The server forgets a sample whose client has not asked for 10 seconds.
POLL_SECONDS = 0.5
EPILOG = """\
The server must have been started with --recording on. Each row that arrives meanwhile is as likely
to be kept as any other. A request with several rows gives each of them; rows with NaN or infinity
are left out. Ctrl-C ends the recording and keeps its rows. The file is readable by its owner alone
(mode 0600): it holds your clients' data. `lumen quantize MODEL --data FILE` reads it."""


class RecordError(ControlError):
    """A fault on this side."""


class Recorder:
    """The server's side of a recording."""

    def __init__(self, path: str) -> None:
        self._control = Control(path)

    def ask(self, **change: Any) -> bytes:
        """The reply's body. Without a change: the state."""
        return self._control.ask(PATH, change or None)

    def state(self, **change: Any) -> Any:
        return json.loads(self.ask(**change))

    def row(self, number: int) -> Row:
        head, _, data = self.ask(action="row", number=number).partition(b"\n")
        row, at = {}, 0
        for tensor in json.loads(head)["inputs"]:
            dtype = DATATYPES[NUMBERS[tensor["datatype"]]][1]
            values = np.frombuffer(data[at : at + tensor["bytes"]], dtype)
            row[tensor["name"]] = values.reshape(tensor["shape"])
            at += tensor["bytes"]
        return row


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lumen record",
        description="Records a random sample of the rows that clients send for a model.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="its name")
    parser.add_argument("--version", default="", help="default: the latest")
    parser.add_argument(
        "--rows", type=int, default=500, help="the size of the sample; default: 500"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="the time of the recording; default: 60"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="a new file; default: MODEL-rows.npz"
    )
    parser.add_argument(
        "--unix", metavar="PATH", help="the server's socket; default: $XDG_RUNTIME_DIR/lumen.sock"
    )
    return parser


class Interrupt:
    """The first Ctrl-C ends the recording, whenever it comes; the second ends the command."""

    def __init__(self) -> None:
        self.has_come = False
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.has_come = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def wait(recorder: Recorder, seconds: float, interrupt: Interrupt) -> None:
    """Until the time is over, or Ctrl-C."""
    is_watched = sys.stderr.isatty()
    until = time.monotonic() + seconds
    try:
        while (left := until - time.monotonic()) > 0 and not interrupt.has_come:
            state = recorder.state()
            if not state["recording"]:
                raise RecordError("the server has ended the recording: another client asked for it")
            if is_watched:
                told = f"{state['kept']:,} of {state['seen']:,} rows kept, {left:.0f} s left"
                print(f"\r\033[K{told}", end="", file=sys.stderr, flush=True)
            time.sleep(min(POLL_SECONDS, left))
    finally:
        if is_watched:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def record(recorder: Recorder, options: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    interrupt = Interrupt()
    change = {"action": "begin", "model": options.model, "rows": options.rows}
    recorder.state(**change, version=options.version)
    try:
        wait(recorder, options.seconds, interrupt)
        state = recorder.state(action="end")
        return [recorder.row(number) for number in range(state["kept"])], state
    finally:
        recorder.state(action="drop")


def is_finite(row: Row) -> bool:
    return all(
        np.isfinite(array).all()
        for array in row.values()
        if np.issubdtype(array.dtype, np.floating)
    )


def columns_of(rows: Sequence[Row]) -> dict[str, Array]:
    """An array for each input, or NAME/0, NAME/1 ... where its rows have different shapes."""
    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if len({array.shape for array in values}) > 1:
            columns.update({f"{name}/{number}": array for number, array in enumerate(values)})
        elif values[0].ndim > 0 and values[0].shape[0] == 1:
            columns[name] = np.concatenate(values)
        else:
            columns[name] = np.stack(values)
    return columns


@contextmanager
def new_file(path: Path) -> Iterator[Any]:
    """Appears whole, with mode 0600, and only where no file was."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            os.link(partial, path)
        finally:
            partial.unlink()
    except OSError as error:
        raise RecordError(f"writing {path}: {error.strerror}") from error


def write(columns: Mapping[str, Array], path: Path) -> None:
    # Not savez(), whose own parameters are names that an input may have.
    with new_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def run(options: argparse.Namespace) -> str:
    output: Path = options.output or Path(f"{options.model}-rows.npz")
    # Before a minute of waiting.
    if output.exists():
        raise RecordError(f"{output} is there already: remove it, or name another by --output")
    if not output.parent.is_dir():
        raise RecordError(f"{output.parent} is no folder; wanted one for {output.name}")
    recorded, state = record(Recorder(options.unix or default_socket()), options)
    rows = [row for row in recorded if is_finite(row)]
    if not rows:
        raise RecordError(
            f"no row of {options.model} came that could be kept; nothing written"
            + (f" ({state['left_out']:,} were left out)" if state["left_out"] else "")
        )
    write(columns_of(rows), output)
    text = f"written: {output}, {len(rows):,} of {state['seen']:,} rows"
    if len(rows) < len(recorded):
        text += f"; {len(recorded) - len(rows):,} with NaN or infinity left out"
    if state["left_out"]:
        text += (
            f"; {state['left_out']:,} left out that were larger than the server's recording_bytes "
            "allow for one, or that could not be divided into rows"
        )
    return text


def main(argv: list[str]) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.rows < 1:
        parser.error(f"--rows: got {options.rows}, wanted 1 or more")
    if not 0 < options.seconds <= 86_400:
        parser.error(f"--seconds: got {options.seconds:g}, wanted more than 0, at most 86400")
    try:
        print(run(options))
    except ControlError as error:
        print(f"lumen record: {error}", file=sys.stderr)
        return 1
    return 0
