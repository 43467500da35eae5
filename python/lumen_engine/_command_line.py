"""The parts that `lumen top`, `slow` and `trace` share: the server that is meant, errors, times.

Threads: main. Errors: CountersFileError as one line on stderr, exit status 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import datetime

from lumen_engine.counters_file import CountersFile, CountersFileError, resolve

EPILOG = (
    "A server's counters are in the file of `lumen serve --stats`, by default"
    " $XDG_RUNTIME_DIR/lumen-PID.counters or /dev/shm/lumen-UID-PID.counters. It can be read while"
    " the server hangs, and after it was killed."
)


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"lumen {name}", description=description, epilog=EPILOG, allow_abbrev=False
    )
    parser.add_argument(
        "server",
        nargs="?",
        metavar="PATH|PID",
        help="a counters file, or a server's process id; default: the only server that runs",
    )
    return parser


def run(name: str, target: str | None, action: Callable[[CountersFile], int]) -> int:
    try:
        with CountersFile(resolve(target)) as counters:
            return action(counters)
    except CountersFileError as error:
        print(f"lumen {name}: {error}", file=sys.stderr)
        return 1


def state_of(counters: CountersFile) -> str:
    """`lumen 4711` and whether it runs."""
    return f"lumen {counters.layout.pid}" + ("" if counters.is_alive() else " (dead)")


def milliseconds(ns: int | float | None) -> str:
    """Four digits or so; `-` where there was none."""
    if ns is None:
        return "-"
    value = ns / 1e6
    return f"{value:.3f}" if value < 100 else f"{value:.1f}" if value < 10_000 else f"{value:.0f}"


def moment(wall_ns: int) -> str:
    """The time of day here, to the millisecond."""
    time = datetime.fromtimestamp(wall_ns // 1_000_000_000)
    return f"{time:%H:%M:%S}.{wall_ns // 1_000_000 % 1000:03}"


def table(rows: list[list[str]], left: set[int]) -> list[str]:
    """Columns as wide as their widest; those of `left` are text, the others numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
