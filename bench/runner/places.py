"""Where the tree, the build and its programs are, and how a program that prints JSON is run.

LUMEN_BUILD and LUMEN_BINARY name another build than the preset `native`. Threads: any. Errors:
BenchError with the program's own words.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("LUMEN_BUILD", ROOT / ".build" / "native"))
BINARY = Path(os.environ.get("LUMEN_BINARY", BUILD / "lumen"))
TIMEOUT_S = 300.0
LAST_CHARACTERS = 500


class BenchError(RuntimeError):
    """The bench can't go on; the text says why."""


def program(name: str) -> str:
    path = BINARY if name == "lumen" else BUILD / name
    if not path.exists():
        raise BenchError(f"{path} is not there: ./dev bench builds it; LUMEN_BUILD names another")
    return str(path)


def run_json(
    words: Sequence[str], cpu: int | None = None, timeout_s: float = TIMEOUT_S, **options: Any
) -> Any:
    """The JSON that the program prints; it runs on that CPU, or on all. `options` are Popen's."""
    pinned = ["taskset", "-c", str(cpu)] if cpu is not None else []
    name = Path(words[0]).name
    try:
        done = subprocess.run(
            [*pinned, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            **options,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{name}: no end after {timeout_s:.0f} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-LAST_CHARACTERS:]
        raise BenchError(f"{name}: exit status {done.returncode}: {said}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise BenchError(f"{name} printed no JSON ({error}): {done.stdout[:200]!r}") from error


def lumen_bench(url: str, model: str, *words: str, cpu: int | None = None) -> dict[str, Any]:
    """The row that `lumen bench URL` prints. BenchError: a request failed."""
    command = [program("lumen"), "bench", url, "--model", model, "--json", *words]
    (row,) = run_json(command, cpu)["rows"]
    if row["errors"]["count"] > 0:
        raise BenchError(f"lumen bench {url}: {row['errors']}")
    return dict(row)


def make_squeezenet() -> None:
    """Converts the packaged network, if that was not done yet."""
    words = [sys.executable, str(ROOT / "models" / "squeezenet" / "make.py"), "--if-missing"]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def cpu_ns(pid: int) -> int:
    """CPU time that the living threads of the process have used, by the scheduler's count."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def left_out(name: str, why: object) -> None:
    """A rival that can't be had costs its column, not the bench."""
    say(f"bench: {name} left out: {why}")
