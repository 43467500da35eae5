"""The commands of `lumen` that are Python, and how they are run.

`lumen top` becomes `python -m lumen_engine top`, which comes here; all other commands are the
executable's. Threads: main. Errors: a line on stderr and exit status 1 for a missing requirement.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    module: str  # has main(argv) -> exit status; argv without the command's name
    extra: str  # of pyproject.toml's optional dependencies: further packages
    function: str = "main"


# The same names as in apps/python_command.cc.
COMMANDS = {
    "top": Command("lumen_engine.top", "tools"),
    "slow": Command("lumen_engine.slow", "tools"),
    "trace": Command("lumen_engine.trace", "tools"),
    "perf": Command("lumen_engine.perf", "tools"),
    "ps": Command("lumen_engine.models", "tools", "ps"),
    "load": Command("lumen_engine.models", "tools", "load"),
    "unload": Command("lumen_engine.models", "tools", "unload"),
    "engine": Command("lumen_engine.engine", "tools"),
    "record": Command("lumen_engine.record", "quantize"),
    "quantize": Command("lumen_engine.quantize", "quantize"),
    "demo": Command("lumen_engine.demo.command", "demo"),
    "dashboard": Command("lumen_engine.dashboard", "dashboard"),
}


def run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    try:
        module = importlib.import_module(command.module)
        return int(getattr(module, command.function)(arguments))
    except ModuleNotFoundError as error:
        # A module of our own that is not there is our bug, not a requirement.
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "lumen_engine"):
            raise
        print(
            f"lumen {name}: needs {missing}, which {sys.executable} does not have:"
            f" pip install 'lumen-engine[{command.extra}]'"
            " (in a checkout: pip install -r requirements.txt)",
            file=sys.stderr,
        )
        return 1
    except BrokenPipeError:
        # `lumen slow | head`: no program reads on. The rest of the output goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
