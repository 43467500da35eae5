"""The command line of `lumen top`: the live view, or plain text or JSON.

Threads: main. Errors: one line on stderr, exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from lumen_engine import _command_line as command_line
from lumen_engine.counters_file import CountersFileError, find, resolve
from lumen_engine.top import plain
from lumen_engine.top.watcher import Watcher

LEAST_HZ, MOST_HZ = 1.0, 10.0  # faster, nobody can read it; slower, a p99 is of many seconds


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    is_screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    is_live = not arguments.once and is_screen
    try:
        if not is_live:
            return print_plainly(arguments)
        # Named before the server is looked for: a form that can't be shown needs no server.
        from lumen_engine.top.app import TopApp  # noqa: PLC0415

        # Textual would take its size from them and not follow the terminal's. Some programs set
        # them for all that they start, Python's readline among them.
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)
        alive = [server for server in find() if server.is_alive]
        is_choice = arguments.server is None and len(alive) > 1
        path = None if is_choice else resolve(arguments.server)
        app = TopApp(path, hz=arguments.hz, follow=arguments.server is None)
        app.run()
        return app.return_code or 0
    except CountersFileError as error:
        print(f"lumen top: {error}", file=sys.stderr)
        return 1


def parse(argv: list[str]) -> argparse.Namespace:
    parser = command_line.parser_of(
        "top",
        "What a server does, live: requests, latency, queues, failures, where the time goes,"
        " threads, memory. Looking costs the server nothing.",
    )
    parser.add_argument("--hz", type=float, default=2.0, help="looks a second, 1 to 10; default: 2")
    parser.add_argument("--once", action="store_true", help="one look, as plain text")
    parser.add_argument("--json", action="store_true", help="with --once: as JSON")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="of --once: seconds; default: 1"
    )
    arguments = parser.parse_args(argv)
    if not LEAST_HZ <= arguments.hz <= MOST_HZ:
        parser.error(f"--hz: got {arguments.hz:g}, wanted {LEAST_HZ:g} to {MOST_HZ:g}")
    if not 0.01 <= arguments.interval <= 3600:
        parser.error(f"--interval: got {arguments.interval:g}, wanted 0.01 to 3600 s")
    if arguments.json and not arguments.once:
        parser.error("--json goes with --once")
    return arguments


def print_plainly(arguments: argparse.Namespace) -> int:
    """One look, or where the output is no screen one after the other until it is interrupted."""
    watcher = Watcher(resolve(arguments.server), follow=arguments.server is None)
    wait_s = arguments.interval if arguments.once else 1 / arguments.hz
    try:
        watcher.look()
        while True:
            time.sleep(wait_s)
            view = watcher.look()
            if watcher.trouble:
                raise CountersFileError(watcher.trouble)
            if view is not None:
                known = (watcher.counters, view, watcher.uptime_s(), watcher.is_alive())
                if arguments.json:
                    print(json.dumps(plain.as_json(*known), indent=2))
                else:
                    print("\n".join(plain.as_text(*known)), flush=True)
                if arguments.once:
                    return 0
                print()
    finally:
        watcher.close()
