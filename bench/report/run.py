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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.report.machine import LoadMeter
from bench.runner import declare
from bench.runner.declare import Bench

# A bench is given up after this many times its minutes, and never before the second figure: the
# first run of one also builds its rivals.
TOO_LONG = 4.0
LEAST_LIMIT_S = 20 * 60.0
# After Ctrl-C a bench ends its servers; one that hangs is killed then.
GRACE_S = 30.0
LAST_LINES = 12
TICK_S = 1.0
OK, FAILED, MISSING = "ok", "failed", "not measured"
# A quick report has to stay below it on two cores, rivals installed and built; a test adds it up.
QUICK_LIMIT_MINUTES = 20.0
# Those that draw the charts come first.
FIRST = ("clients", "queue", "matrix_mlp", "server")


@dataclass(frozen=True)
class Job:
    """One run of a bench: all of it, or one of the parts that it declares for a full report."""

    bench: Bench
    name: str
    title: str
    minutes: float
    words: tuple[str, ...]


def jobs_of(bench: Bench, is_quick: bool) -> list[Job]:
    if is_quick:
        words = ("--quick", *bench.quick_words)
        return [Job(bench, bench.name, bench.title, bench.quick_minutes, words)]
    if not bench.parts:
        return [Job(bench, bench.name, bench.title, bench.minutes, ())]
    return [Job(bench, part.name, part.title, part.minutes, part.words) for part in bench.parts]


def chosen(is_quick: bool, only: Sequence[str] = ()) -> list[Job]:
    """ValueError: a name in `only` that no job and no bench has."""
    kept = [bench for bench in declare.all_benches() if bench.is_kept]
    kept.sort(key=lambda one: FIRST.index(one.name) if one.name in FIRST else len(FIRST))
    jobs = [job for bench in kept for job in jobs_of(bench, is_quick)]
    for name in only:
        if not any(name in (job.name, job.bench.name) for job in jobs):
            known = " ".join(bench.name for bench in kept)
            raise ValueError(f"no bench '{name}' in the report; wanted some of: {known}")
    return [job for job in jobs if not only or {job.name, job.bench.name} & {*only}]


def total_minutes(jobs: Sequence[Job]) -> float:
    return sum(job.minutes for job in jobs)


def command_of(job: Job) -> list[str]:
    return [sys.executable, "-P", "-m", "bench", job.bench.name, "--json", *job.words]


@dataclass(frozen=True)
class Result:
    job: Job
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
    folder: Path
    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    command: Callable[[Job], list[str]] = command_of
    tell: Callable[[str], None] = say

    def load_result(self, job: Job) -> Result:
        """Its kept result, if it is of the same command."""
        command = " ".join(self.command(job))
        try:
            kept = json.loads((self.folder / f"{job.name}.json").read_text())
        except (OSError, ValueError):  # half a file: the machine stopped; it is measured again
            return Result(job, MISSING, command)
        if kept.get("command") != command:
            return Result(job, MISSING, command)
        names = ("status", "command", "began", "seconds", "load", "error", "document")
        return Result(job, **{name: kept[name] for name in names})

    def results(self, jobs: Sequence[Job]) -> list[Result]:
        return [self.load_result(job) for job in jobs]

    def left(self, jobs: Sequence[Job]) -> list[Job]:
        """Failed ones are tried again."""
        return [one.job for one in self.results(jobs) if one.status in (MISSING, FAILED)]

    def run(self, jobs: Sequence[Job]) -> list[Result]:
        """Everything that is left, one at a time. KeyboardInterrupt: finished results stay."""
        left = self.left(jobs)
        for at, job in enumerate(left):
            rest = total_minutes(left[at:])
            self.tell(
                f"[{len(jobs) - len(left) + at + 1}/{len(jobs)}] {job.name}: about "
                f"{minutes(job.minutes)}; all that is left about {minutes(rest)}"
            )
            result = self.measure(job)
            self.keep(result)
            took = minutes(result.seconds / 60)
            last = result.error.splitlines()[-1] if result.error else ""
            self.tell(f"    {result.status} after {took}" + (f": {last}" if last else ""))
        return self.results(jobs)

    def measure(self, job: Job) -> Result:
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"{job.name}.log"
        began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        limit_s = max(LEAST_LIMIT_S, 60 * TOO_LONG * job.minutes)
        meter = LoadMeter()
        with tempfile.TemporaryDirectory() as scratch, log.open("w") as errors:
            output = Path(scratch) / "stdout"
            with output.open("w") as stdout:
                status = self.wait(self.command(job), stdout, errors, limit_s)
            load = meter.read()
            printed = output.read_text(errors="replace")
        said = log.read_text(errors="replace")
        document, error = read_document(printed, status, said, limit_s)
        return Result(
            job,
            FAILED if error else OK,
            " ".join(self.command(job)),
            began,
            round(load.seconds, 3),
            load.as_json(),
            error,
            document,
        )

    def wait(self, words: list[str], stdout: Any, stderr: Any, limit_s: float) -> int | None:
        """Its exit status; None: it took too long and was ended."""
        try:
            process = subprocess.Popen(
                words,
                cwd=self.root,
                env=os.environ | self.environment,
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
        found = {key: value for key, value in vars(result).items() if key != "job"}
        file = self.folder / f"{result.job.name}.json"
        half = file.with_suffix(".part")
        half.write_text(json.dumps({"bench": result.job.name, **found}, indent=1))
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
