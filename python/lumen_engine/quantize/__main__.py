"""`python -m lumen_engine.quantize ARGUMENTS`: the program of `lumen quantize ARGUMENTS`."""

from __future__ import annotations

import sys

from lumen_engine.quantize import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
