"""`lumen load`, `unload` and `ps`: the models of a running server, by its unix socket.

Threads: main. Errors: one line on stderr, exit status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from lumen_engine._control import Control, ControlError, default_socket

NOT_LOADED = "not loaded"  # the index's reason for a version that is on disk alone
COLUMNS = ("MODEL", "VERSION", "STATE", "BACKEND", "LANE", "INSTANCES", "REQUESTS", "MEAN")


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"lumen {name}", description=description, allow_abbrev=False
    )
    parser.add_argument(
        "--unix", metavar="PATH", help="the server's socket; default: $XDG_RUNTIME_DIR/lumen.sock"
    )
    return parser


def run(
    name: str,
    options: argparse.Namespace,
    action: Callable[[Control], str],
    reply_seconds: float | None,
) -> int:
    try:
        print(action(Control(options.unix or default_socket(), reply_seconds)))
    except ControlError as error:
        print(f"lumen {name}: {error}", file=sys.stderr)
        return 1
    return 0


def change(name: str, argv: Sequence[str], description: str, done: str) -> int:
    parser = parser_of(name, description)
    parser.add_argument("models", metavar="MODEL", nargs="+", help="the names of models")
    options = parser.parse_args(argv)

    def action(server: Control) -> str:
        lines = []
        for model in options.models:
            server.ask(f"/v2/repository/models/{quote(model, safe='')}/{name}", {})
            lines.append(f"{done} {model}")
        return "\n".join(lines)

    # A large model compiles for minutes; Ctrl-C ends the command, not the load.
    return run(name, options, action, None)


def load(argv: Sequence[str]) -> int:
    description = "Loads models of the server's repository, or loads those anew that have changed."
    return change("load", argv, description, "loaded")


def unload(argv: Sequence[str]) -> int:
    return change(
        "unload", argv, "Unloads models, once their last request is answered.", "unloaded"
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def gather(server: Control) -> list[dict[str, Any]]:
    """The index, with the words of the engine and the statistics on each version."""
    index: list[dict[str, Any]] = server.json("/v2/repository/index", method="POST")
    engine = server.json("/v2/lumen/engine")["models"]
    stats = server.json("/v2/models/stats")["model_stats"]
    more = {(one["name"], one["version"]): one for one in engine}
    for one in stats:
        more.get((one["name"], one["version"]), {})["statistics"] = one
    return [{**one, "engine": more.get((one["name"], one["version"]), {})} for one in index]


def describe(model: dict[str, Any]) -> list[str]:
    engine = model["engine"]
    success = engine.get("statistics", {}).get("inference_stats", {}).get("success", {})
    count = success.get("count", 0)
    cells = [model["name"], model["version"], model["state"], engine.get("backend", "")]
    cells += [engine.get("lane", ""), str(engine.get("instances", "")), f"{count:,}"]
    return [*cells, f"{success['ns'] / count / 1e3:,.0f} us" if count else ""]


def show(models: Sequence[dict[str, Any]]) -> str:
    lines = [table([COLUMNS, *(describe(model) for model in models)])]
    for model in models:
        name, version = model["name"], model["version"]
        if model["reason"] == NOT_LOADED:
            lines.append(f"{name}: version {version} is on disk, not loaded: lumen load {name}")
        elif model["reason"]:
            lines.append(f"{name}/{version}: {model['reason']}")
    return "\n".join(lines)


def ps(argv: Sequence[str]) -> int:
    parser = parser_of("ps", "The models of a running server, and those that it could load.")
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    options = parser.parse_args(argv)

    def action(server: Control) -> str:
        models = gather(server)
        return json.dumps(models, indent=1) if options.json else show(models)

    return run("ps", options, action, 60.0)
