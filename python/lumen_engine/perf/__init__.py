"""`lumen perf`: a server of its own under a fixed load, and the kernel's and CPU's counts of it.

`main(argv)` is the command; `python -m lumen_engine.perf` runs it. Standard library only. One
thread, but those of `lumen_engine.Server`. Errors: PerfError, told in one line, exit status 1.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The modules are imported when the command runs, so that `import lumen_engine` stays cheap."""
    from lumen_engine.perf.command import run  # noqa: PLC0415

    return run(argv)
