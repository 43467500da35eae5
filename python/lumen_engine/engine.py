"""`lumen engine`: the settings of a running server's engine, shown or changed while it serves.

Threads: main. Errors: one line on stderr; exit status 1, or 2 for words that are no KEY=VALUE.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from lumen_engine._control import Control
from lumen_engine.models import parser_of, run

PATH = "/v2/lumen/engine"


def setting(word: str) -> tuple[str, Any]:
    """KEY=VALUE; a value that is no JSON is a text: queue_type=auto, batch_size=8."""
    key, separator, text = word.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(
            f"got {word!r}, wanted KEY=VALUE with a key of the section `engine`: batch_size=8"
        )
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text


def show(settings: dict[str, Any]) -> str:
    width = max(map(len, settings))
    return "\n".join(
        f"{key.ljust(width)}  {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in settings.items()
    )


def main(argv: Sequence[str]) -> int:
    parser = parser_of(
        "engine",
        "Shows the settings of a running server's engine, or changes some of them; no request is"
        " lost meanwhile. All together or none: a value that is refused changes nothing.",
    )
    parser.add_argument("changes", metavar="KEY=VALUE", nargs="*", type=setting, help="to change")
    parser.add_argument("--json", action="store_true", help="the settings as JSON")
    options = parser.parse_args(argv)

    def action(server: Control) -> str:
        changes = dict(options.changes)
        settings = server.json(PATH, changes or None)["engine"]
        return json.dumps(settings, indent=1) if options.json else show(settings)

    # A change may compile models anew, for minutes; Ctrl-C ends the command, not the change.
    return run("engine", options, action, None)
