"""A flame graph of a server under load: `perf record`, folded and drawn by inferno.

The software clock where the CPU has no counters. Stacks by DWARF: release builds keep no frame
pointers. The kernels that oneDNN makes at run time get names by its own perf map, and no callers.
Used by bench/cache too. Threads: the main one. Errors: PerfError with the fix.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lumen_engine.perf.options import source_root
from lumen_engine.perf.perf_program import ATTACH_TIMEOUT_S, POLL_S, is_attached
from lumen_engine.perf.programs import LAST_WORDS, Interrupts, PerfError, end_group, group, said

INFERNO = "0.11.21"
INSTALL_TIMEOUT_S = 1800.0
SCRIPT_TIMEOUT_S = 600.0
# Odd, so that it keeps no step with a timer; 8 KiB of stack a sample is 4 MB a second and CPU.
FREQUENCY = 499
STACK_BYTES = 8192
# oneDNN writes /tmp/perf-PID.map, where `perf script` looks for names.
JIT_NAMES = {"ONEDNN_JIT_PROFILE": "2"}
JIT_FRAME = "kernels that the backend compiled"


def tool_folders() -> list[Path]:
    """Where inferno may be: the checkout, and the user's cache, which is always his to write."""
    root = source_root()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    own = [root / ".build" / "inferno"] if root is not None else []
    return [*own, Path(cache) / "lumen" / "inferno"]


def inferno(interrupts: Interrupts | None = None) -> Path:
    """The folder of its programs, which cargo builds the first time."""
    folders = tool_folders()
    for folder in folders:
        if os.access(folder / "bin" / "inferno-flamegraph", os.X_OK):
            return folder / "bin"
    if shutil.which("cargo") is None:
        raise PerfError("a flame graph needs inferno, and that cargo: apt-get install cargo")
    root = next((one for one in folders if os.access(one.parent, os.W_OK)), folders[-1])
    words = ["cargo", "install", "inferno", "--version", INFERNO, "--locked", "--quiet"]
    said([*words, "--root", str(root)], interrupts, INSTALL_TIMEOUT_S)
    return root / "bin"


def named(folded: str) -> str:
    """Folded stacks in which kernels made at run time stand on a frame that names their kind."""
    return re.sub(r"^([^;\n]+);(?=jit_)", rf"\1;{JIT_FRAME};", folded, flags=re.MULTILINE)


def draw(stacks: str, title: str, programs: Path) -> str:
    """The SVG of the output of `perf script`. It needs nothing from outside."""
    folded = piped([str(programs / "inferno-collapse-perf")], stacks)
    if not folded.strip():
        raise PerfError("perf recorded no sample: was the server idle?")
    words = [str(programs / "inferno-flamegraph"), "--title", title, "--deterministic"]
    svg = piped(words, named(folded))
    # Less the notes to itself of the script that it holds, which would be taken for ours.
    return re.sub(r"^ *// .*\n", "", svg, flags=re.M)


def piped(words: list[str], text: str) -> str:
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise PerfError(f"{Path(words[0]).name}: {done.stderr.strip()[-LAST_WORDS:]}")
    return done.stdout


def script(data: Path, interrupts: Interrupts | None = None) -> str:
    return said(["perf", "script", "-i", str(data)], interrupts, SCRIPT_TIMEOUT_S)


@contextmanager
def recorded(pid: int, has_counters: bool, data: Path, interrupts: Interrupts) -> Iterator[None]:
    """`perf record` of the server within the block."""
    event = "cycles" if has_counters else "cpu-clock"
    log = data.with_suffix(".log")
    words = ["perf", "record", "--quiet", "-e", event, "-F", str(FREQUENCY)]
    words += ["--call-graph", f"dwarf,{STACK_BYTES}", "-o", str(data), "-p", str(pid)]
    with log.open("w") as out:
        with group(words, interrupts, signal.SIGINT, stdout=out, stderr=out) as process:
            end = time.monotonic() + ATTACH_TIMEOUT_S
            while not is_attached(process):
                if time.monotonic() > end:
                    raise PerfError(f"perf record began nothing within {ATTACH_TIMEOUT_S:g} s")
                time.sleep(POLL_S)
            yield
            with interrupts.held():
                end_group(process, signal.SIGINT)
    if not data.exists():
        raise PerfError(f"perf record -p {pid}: {log.read_text().strip()[-LAST_WORDS:]}")


@contextmanager
def data_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lumen-perf-") as folder:
        yield Path(folder) / "perf.data"


def forget_names(pid: int) -> None:
    """The map that oneDNN leaves in /tmp."""
    Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)
