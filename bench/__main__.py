"""`./dev bench NAME`: see bench/runner/main.py."""

import sys

from bench.runner.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
