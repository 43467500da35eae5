"""Runs the benches of a report one after the other, and keeps each one's result at once.

FOLDER/NAME.json holds {"bench", "command", "began", "load", "status", "error", "document"} with
the bench's output; NAME.log has its stderr. A result that is there, is ok and is of the same
command is not measured again, so a second call goes on with the missing ones.

Threads: one; a bench runs in a session of its own, and no two at once: a lock on the folder above
refuses a second report. Errors: a bench that fails, prints no JSON or takes too long is a result
that says so; KeyboardInterrupt leaves finished results, once the bench has ended itself.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report.machine import LoadMeter
from report.plan import Bench, total_minutes

# A bench is given up after this many times its minutes, and never before the second figure: the
# first run of one also builds its rivals.
TOO_LONG = 4.0
LEAST_LIMIT_S = 20 * 60.0
# After Ctrl-C a bench ends its servers; one that hangs is killed then.
GRACE_S = 30.0
LAST_LINES = 12
TICK_S = 1.0
OK, FAILED, MISSING, ABSENT = "ok", "failed", "not measured", "not in this tree"


@dataclass(frozen=True)
class Result:
    bench: Bench
    status: str
    command: str = ""
    began: str = ""
    seconds: float = 0.0
    load: dict[str, float] | None = None
    error: str = ""
    document: dict[str, Any] | None = None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """SystemExit where another report runs: two side by side would measure each other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise SystemExit(
                f"report: another report is running (process {lock.read().strip() or 'unknown'}); "
                "two at once would measure each other. Wait for it, or end it with Ctrl-C"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def say(text: str) -> None:
    print(f"report: {text}", file=sys.stderr, flush=True)


def minutes(value: float) -> str:
    if value < 1:
        return f"{value * 60:.0f} s"
    if value < 90:
        return f"{value:.1f} min" if value < 10 else f"{value:.0f} min"
    return f"{int(value) // 60} h {int(value) % 60:02d} min"


@dataclass
class Runner:
    folder: Path  # of this commit, machine and kind of report
    root: Path  # of the tree: the benches' working directory
    build: Path
    is_quick: bool
    python: str = sys.executable
    tell: Callable[[str], None] = say

    def words(self, bench: Bench) -> list[str]:
        return bench.command(self.is_quick, self.python, self.root, self.build)

    def load_result(self, bench: Bench) -> Result:
        """Its kept result, if it is of the same command."""
        if not bench.is_there(self.root):
            return Result(bench, ABSENT)
        command = " ".join(self.words(bench))
        try:
            kept = json.loads((self.folder / f"{bench.name}.json").read_text())
        except (OSError, ValueError):  # half a file: the machine stopped; it is measured again
            return Result(bench, MISSING, command)
        if kept.get("command") != command:
            return Result(bench, MISSING, command)
        names = ("status", "command", "began", "seconds", "load", "error", "document")
        return Result(bench, **{name: kept[name] for name in names})

    def results(self, benches: Sequence[Bench]) -> list[Result]:
        return [self.load_result(bench) for bench in benches]

    def left(self, benches: Sequence[Bench]) -> list[Bench]:
        """Failed ones are tried again."""
        found = self.results(benches)
        return [one.bench for one in found if one.status in (MISSING, FAILED)]

    def run(self, benches: Sequence[Bench]) -> list[Result]:
        """Everything that is left, one at a time. KeyboardInterrupt: finished results stay."""
        left = self.left(benches)
        for at, bench in enumerate(left):
            rest = total_minutes(left[at:], self.is_quick)
            self.tell(
                f"[{len(benches) - len(left) + at + 1}/{len(benches)}] {bench.name}: about "
                f"{minutes(bench.minutes(self.is_quick))}; all that is left about {minutes(rest)}"
            )
            result = self.measure(bench)
            self.keep(result)
            took = minutes(result.seconds / 60)
            last = result.error.splitlines()[-1] if result.error else ""
            self.tell(f"    {result.status} after {took}" + (f": {last}" if last else ""))
        return self.results(benches)

    def measure(self, bench: Bench) -> Result:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{bench.name}.log"
        began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        limit_s = max(LEAST_LIMIT_S, 60 * TOO_LONG * bench.minutes(self.is_quick))
        meter = LoadMeter()
        with tempfile.TemporaryDirectory() as scratch, log.open("w") as errors:
            output = Path(scratch) / "stdout"
            words = [word.replace("{scratch}", scratch) for word in self.words(bench)]
            with output.open("w") as stdout:
                status = self.wait(words, stdout, errors, limit_s)
            load = meter.read()
            printed = output.read_text(errors="replace")
        said = log.read_text(errors="replace")
        document, error = read_document(printed, status, said, limit_s)
        return Result(
            bench,
            FAILED if error else OK,
            " ".join(self.words(bench)),
            began,
            round(load.seconds, 3),
            load.as_json(),
            error,
            document,
        )

    def wait(self, words: list[str], stdout: Any, stderr: Any, limit_s: float) -> int | None:
        """Its exit status; None: it took too long and was ended."""
        environment = os.environ | {
            "LUMEN_BUILD": str(self.build),
            "LUMEN_BINARY": str(self.build / "lumen"),
        }
        try:
            process = subprocess.Popen(
                words,
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            stderr.write(f"{words[0]}: {error}\n")
            return 127
        begin = time.monotonic()
        try:
            while time.monotonic() < begin + limit_s:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=min(TICK_S, limit_s))
                self.tick(time.monotonic() - begin, Path(stderr.name))
            return None
        except KeyboardInterrupt:
            self.tell(f"stopping {Path(stderr.name).stem} after {time.monotonic() - begin:.0f} s")
            raise
        finally:  # also where telling fails: nobody reads our stderr any more
            end(process)

    @staticmethod
    def tick(elapsed_s: float, log: Path) -> None:
        """On a terminal one line that changes: the time, and the last that the bench has said."""
        if not sys.stderr.isatty():
            return
        said = log.read_text(errors="replace").strip().splitlines()[-1:]
        wide = shutil.get_terminal_size().columns - 1
        line = f"    {minutes(elapsed_s / 60)}: {said[0] if said else ''}"
        print(f"\r\033[K{line[:wide]}\r", end="", file=sys.stderr, flush=True)

    def keep(self, result: Result) -> None:
        """Under a name of its own first: a file that is there is whole."""
        found = {key: value for key, value in vars(result).items() if key != "bench"}
        file = self.folder / f"{result.bench.name}.json"
        half = file.with_suffix(".part")
        half.write_text(json.dumps({"bench": result.bench.name, **found}, indent=1))
        half.replace(file)


def end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does it: SIGINT to all of the bench, which ends its servers; then by force.
    Nothing, where it has ended."""
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=GRACE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def read_document(
    printed: str, status: int | None, said: str, limit_s: float
) -> tuple[dict[str, Any] | None, str]:
    """The bench's JSON object, and its error; one that exits with 1 may have printed rows."""
    document: dict[str, Any] | None = None
    try:
        parsed = json.loads(printed)
        if isinstance(parsed, dict) and isinstance(parsed.get("rows"), list):
            document = parsed
    except ValueError:
        pass
    last = "\n".join(said.strip().splitlines()[-LAST_LINES:])
    if status is None:
        return document, f"{last}\nended after {limit_s / 60:.0f} minutes".strip()
    if status != 0:
        return document, f"{last}\nexit status {status}".strip()
    if document is None:
        return None, f"{last}\nits stdout is no JSON object with rows".strip()
    return document, ""
