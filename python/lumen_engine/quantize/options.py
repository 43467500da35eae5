"""The command line of `lumen quantize`. Errors: argparse's, exit status 2; QuantizeError."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lumen_engine.quantize.errors import QuantizeError

EPILOG = """\
Four of five rows calibrate; the fifth judges. f32, bf16, weights of 8 bits alone, INT8, and INT8
with the most sensitive nodes left in float are measured in both backends, one row a call on one
CPU. The fastest that passes the gate wins. Only a form of 8 bits is written, as
NAME/<version + 1>/, and only if it is 1.1 times as fast as the fastest float form.

The data: an .npz with an array for each input (rows of different shapes as INPUT/0, INPUT/1 ...),
a folder of .npy files with the same names, or perf_analyzer's .json. Arrays with other names go to
the metric of a file.

--metric sqnr    signal to error of the outputs; passes from 30 dB, warns from 20 (the default)
--metric top1    the share of rows whose class is that of f32; passes from 0.99
--metric FILE.py its metric(inputs, outputs, more), a number, larger is better; it may be at most
                 0.01 below that of f32
--gate sets another limit for each.

Exit status: 0 a version was written; 3 none was, as another form is better; 1 an error."""


@dataclass(frozen=True)
class Options:
    model_folder: Path
    source: Path
    data: Path
    metric: str
    gate: float | None
    dry_run: bool
    json: bool


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a number")
    return value


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lumen quantize",
        description="Makes an INT8 version of a model, if it is faster and accurate enough.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "model", help="its folder, REPOSITORY/NAME or REPOSITORY/NAME/VERSION; or NAME in models/"
    )
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="samples")
    parser.add_argument(
        "--metric", default="sqnr", metavar="sqnr|top1|FILE.py", help="default: sqnr"
    )
    parser.add_argument("--gate", type=_number, metavar="X", help="the metric's limit")
    parser.add_argument("--dry-run", action="store_true", help="compare, and write nothing")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    return parser


def parse_options(argv: Sequence[str] | None) -> Options:
    given = make_parser().parse_args(argv)
    folder, source = find_model(given.model)
    return Options(folder, source, given.data, given.metric, given.gate, given.dry_run, given.json)


def find_model(text: str) -> tuple[Path, Path]:
    """The model's folder, and the file of the version meant: the latest that is not quantised."""
    folder = Path(text)
    if not folder.is_dir() and "/" not in text:
        folder = Path("models") / text
    if not folder.is_dir():
        raise QuantizeError(f"no model {text!r}: wanted a folder REPOSITORY/NAME with versions")
    if folder.name.isdigit() and (folder / "model.onnx").is_file():
        folder = folder.resolve()
        return folder.parent, folder / "model.onnx"
    versions = sorted(
        (one for one in folder.iterdir() if one.name.isdigit() and one.is_dir()),
        key=lambda one: int(one.name),
    )
    for version in reversed(versions):
        if not (version / "quantization.json").exists():
            files = [version / name for name in ("model.onnx", "model.xml")]
            found = next((file for file in files if file.is_file()), None)
            if found is not None:
                return folder, found
    raise QuantizeError(f"{folder} has no version with a float model; wanted {folder}/1/model.onnx")
