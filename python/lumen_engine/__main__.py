"""`python -m lumen_engine COMMAND ...`, and the wheel's `lumen`: Python's commands run here, all
others in the executable.

Those become `lumen COMMAND ...`: same process id, same signals. As `lumen` in its turn becomes this
module for Python's commands alone, neither calls the other twice.
"""

import os
import sys

from lumen_engine import commands
from lumen_engine.server import ServerError, find_executable


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in commands.COMMANDS:
        raise SystemExit(commands.run(sys.argv[1], sys.argv[2:]))
    try:
        executable = find_executable()
    except ServerError as error:
        raise SystemExit(f"lumen_engine: {error}") from None
    # `lumen serve` and the like may start Python in their turn.
    os.environ.setdefault("LUMEN_PYTHON", sys.executable)
    os.execv(executable, [str(executable), *sys.argv[1:]])


if __name__ == "__main__":
    main()
