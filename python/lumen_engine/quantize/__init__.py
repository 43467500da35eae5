"""`lumen quantize`: a model in INT8, where that is faster and its answers stay good enough.

`main(argv)` is the command; `python -m lumen_engine.quantize` runs it. One thread. Errors:
QuantizeError, told in one line, exit status 1.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The modules are imported when the command runs, so that `import lumen_engine` stays cheap."""
    from lumen_engine.quantize.command import run  # noqa: PLC0415

    return run(argv)
