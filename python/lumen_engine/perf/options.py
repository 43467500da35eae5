"""The command line of `lumen perf`. Pure. Errors: argparse's, with exit status 2."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import lumen_engine

# The case that started it all: twice 800 requests, of which only the number of clients differs.
DEFAULT_PHASES = "4x200,16x50"
MOST_CLIENTS = 10_000  # the most that `lumen bench` takes
PHASE = re.compile(r"(\d{1,5})[x×](\d{1,9})")

EPILOG = """\
Arguments after -- go to the server: lumen perf -- --queue-type batched --batch-size 8

The server listens on a free port of 127.0.0.1. All that was started is ended at the end.
kernel.perf_event_paranoid is lowered for the run where it is in the way and root can be had
without asking (root, or sudo -n), which is said, and put back however the run ends."""


@dataclass(frozen=True)
class PhasePlan:
    clients: int
    requests_each: int

    @property
    def requests(self) -> int:
        return self.clients * self.requests_each

    @property
    def name(self) -> str:
        clients = "client" if self.clients == 1 else "clients"
        return f"{self.clients} {clients} × {self.requests_each}"


@dataclass(frozen=True)
class Options:
    model: str
    repository: Path | None
    phases: tuple[PhasePlan, ...]
    warm_up: int
    json: bool
    flame: Path | None
    callgrind: bool
    server_arguments: tuple[str, ...]


def parse_phases(text: str) -> tuple[PhasePlan, ...]:
    phases = []
    for part in text.split(","):
        found = PHASE.fullmatch(part.strip())
        if found is None or not 0 < int(found[1]) <= MOST_CLIENTS or int(found[2]) == 0:
            raise argparse.ArgumentTypeError(
                f"got {part.strip()!r}, wanted CLIENTSxREQUESTS with 1 to {MOST_CLIENTS} clients "
                f"and the requests of each, as in {DEFAULT_PHASES}"
            )
        phases.append(PhasePlan(int(found[1]), int(found[2])))
    return tuple(phases)


def count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted a whole number, 0 or more")
    return int(text)


def source_root() -> Path | None:
    """The checkout that this package lies in; None where it was installed."""
    root = Path(lumen_engine.__file__).resolve().parents[2]
    return root if (root / "CMakePresets.json").is_file() else None


def default_repository() -> Path:
    root = source_root()
    return root / "models" if root is not None else Path("models")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lumen perf",
        description="Starts a server, loads it with few and with many clients, and sets side by "
        "side what the CPU's counters, the kernel and the clients saw.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="squeezenet", help="which model; default: squeezenet")
    parser.add_argument(
        "--model-repository", type=Path, metavar="DIR", help="where it lies; default: models"
    )
    parser.add_argument(
        "--clients",
        type=parse_phases,
        default=DEFAULT_PHASES,
        metavar="NxR,...",
        help=f"clients times requests of each, a column for each; default: {DEFAULT_PHASES}",
    )
    parser.add_argument(
        "--warm-up",
        type=count,
        default=8,
        metavar="N",
        help="requests of each client before it is counted; default: 8",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "--flame",
        type=Path,
        metavar="FILE.svg",
        help="a flame graph of one more run of the last phase (needs cargo once, for inferno)",
    )
    simulated = parser.add_mutually_exclusive_group()
    simulated.add_argument(
        "--callgrind",
        action="store_true",
        help="instructions and misses a request by valgrind's simulation, behind the other "
        "figures; the first time a server is built for it (minutes)",
    )
    simulated.add_argument(
        "--no-callgrind",
        action="store_false",
        dest="callgrind",
        help="the default; for scripts that say it",
    )
    parser.add_argument(
        "--server-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="one argument of `lumen serve`, may be repeated: --server-arg=--queue-type=naive",
    )
    parser.add_argument("server_args", nargs="*", metavar="-- ARG", help="the same, several")
    return parser


def parse_options(argv: Sequence[str] | None) -> Options:
    parser = make_parser()
    found = parser.parse_args(argv)
    if found.flame is not None and not found.flame.absolute().parent.is_dir():
        parser.error(f"--flame {found.flame}: no folder {found.flame.absolute().parent}")
    return Options(
        model=found.model,
        repository=found.model_repository,
        phases=found.clients,
        warm_up=found.warm_up,
        json=found.json,
        flame=found.flame,
        callgrind=found.callgrind,
        server_arguments=(*found.server_arg, *found.server_args),
    )
