"""The build machine's run (through .ci/run), from a fresh clone: each step is a ./dev command.

Each step runs even where an earlier one failed. At the end stand the tests that were skipped, and
the counts and the time of each step. The last line is exactly `N passed, N failed`: test cases of
test, asan and tsan, checks of lint, targets of fuzz. Exit status 0 only where none failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from dev_report import SKIPPED, Count, last_line_count  # noqa: E402

# With their arguments. Fuzzing for a short while, and sanitizers under hostile clients, find faults
# of a change at once; ./dev fuzz, ./dev asan and ./dev soak take longer.
STEPS = {"test": (), "lint": (), "asan": ("--hostile",), "tsan": (), "fuzz": ("12",)}


@dataclass
class Step:
    name: str
    count: Count
    seconds: float

    def line(self) -> str:
        return f"=== ./dev {self.name}: {self.count.line()} ({self.seconds:.0f} s)"


def run_step(name: str) -> Step:
    """Streams the step's output and counts from its last line."""
    print(f"=== ./dev {name}", flush=True)
    start = time.monotonic()
    env = {**os.environ, "CI": "true", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [ROOT / "dev", name, *STEPS.get(name, ())],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    last = ""
    skipped = []
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line if line.strip() else last
        if line.startswith(SKIPPED):
            skipped.append(f"{name}: {line.removeprefix(SKIPPED).strip()}")
    status = process.wait()
    count = last_line_count(last) + Count(0, 0, tuple(skipped))
    if status != 0 and count.failed == 0:
        count += Count(0, 1)  # the step died without a count, or after it
    step = Step(name, count, time.monotonic() - start)
    print(step.line(), flush=True)
    return step


def main() -> int:
    steps = [run_step(name) for name in sys.argv[1:] or STEPS]
    total = sum((step.count for step in steps), Count())
    sys.stderr.flush()
    print("\n".join([*total.skipped_lines(), *[step.line() for step in steps]]))
    print(f"=== all: {sum(step.seconds for step in steps) / 60:.1f} minutes")
    print(total.line(), flush=True)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
