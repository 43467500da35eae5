"""What the build machine runs (through .ci/run), from a fresh clone: ./dev test, lint, asan, tsan.

Each step runs even where an earlier one failed. The last line is exactly `N passed, N failed`: test
cases of test, asan and tsan, and checks of lint. Exit status 0 only where none failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from dev_report import Count, last_line_count  # noqa: E402

STEPS = ("test", "lint", "asan", "tsan")


def run_step(name: str) -> Count:
    """Streams the step's output and counts from its last line."""
    print(f"=== ./dev {name}", flush=True)
    start = time.monotonic()
    env = {**os.environ, "CI": "true", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [ROOT / "dev", name],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line if line.strip() else last
    status = process.wait()
    count = last_line_count(last)
    if status != 0 and count.failed == 0:
        count += Count(0, 1)  # the step died without a count, or after it
    print(f"=== ./dev {name}: {count.line()} ({time.monotonic() - start:.0f} s)", flush=True)
    return count


def main() -> int:
    total = Count()
    for name in sys.argv[1:] or STEPS:
        total += run_step(name)
    sys.stderr.flush()
    print(total.line(), flush=True)
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
