"""`python -m lumen_engine ARGUMENTS` becomes `lumen ARGUMENTS`: same process id, same signals."""

import os
import sys

from lumen_engine.server import ServerError, find_executable


def main() -> None:
    try:
        executable = find_executable()
    except ServerError as error:
        raise SystemExit(f"lumen_engine: {error}") from None
    os.execv(executable, [str(executable), *sys.argv[1:]])


if __name__ == "__main__":
    main()
