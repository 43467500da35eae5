"""`python -m lumen_engine.perf ARGUMENTS`: the program of `lumen perf ARGUMENTS`."""

from __future__ import annotations

import sys

from lumen_engine.perf import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
