"""`lumen slow`: the slowest requests of a server, with where their time went.

From the flight recorder, which is always on. Threads: main. Errors: one line, exit status 1.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from lumen_engine import _command_line as command_line
from lumen_engine.counters_file import CountersFile, Request

DEFAULT_COUNT = 10


def main(argv: list[str]) -> int:
    parser = command_line.parser_of(
        "slow",
        "The slowest requests since the server started, and of the last minute, in milliseconds:"
        " the whole request, from its first byte to the reply's last, and its stages.",
    )
    parser.add_argument("--model", help="of this model alone")
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT, help="default: 10")
    parser.add_argument("--json", action="store_true", help="one object, times in ns")
    arguments = parser.parse_args(argv)
    if arguments.count < 1:
        parser.error(f"--count: got {arguments.count}, wanted 1 or more")

    def chosen(requests: list[Request]) -> list[Request]:
        of_model = [r for r in requests if arguments.model in (None, r.model)]
        return of_model[: arguments.count]

    def action(counters: CountersFile) -> int:
        since_start = chosen(counters.slow())
        lately = chosen(counters.slow(since_start=False))
        if arguments.json:
            print(json.dumps(as_json(counters, since_start, lately), indent=2))
        else:
            print("\n".join(as_text(counters, since_start, lately)))
        return 0

    return command_line.run("slow", arguments.server, action)


def request_as_json(request: Request) -> dict[str, Any]:
    return {"id": request.id, **asdict(request)}


def as_json(
    counters: CountersFile, since_start: list[Request], lately: list[Request]
) -> dict[str, Any]:
    return {
        "pid": counters.layout.pid,
        "path": str(counters.path),
        "is_alive": counters.is_alive(),
        "since_start": [request_as_json(request) for request in since_start],
        "last_minute": [request_as_json(request) for request in lately],
    }


def as_text(counters: CountersFile, since_start: list[Request], lately: list[Request]) -> list[str]:
    server = command_line.state_of(counters)
    minute = "the last minute" if counters.is_alive() else "its last minute"
    lines = [f"{server}: the slowest requests since it started, ms"]
    lines += _table(counters.stages, since_start)
    lines += ["", f"{server}: the slowest requests of {minute}, ms"]
    lines += _table(counters.stages, lately)
    return lines


def _table(stages: list[str], requests: list[Request]) -> list[str]:
    if not requests:
        return ["none"]
    # `connect` is before the request, and not part of its total.
    shown = ["total", *(name for name in stages if name not in ("connect", "total"))]
    is_traced = any(request.traceparent for request in requests)
    rows = [[*shown, "status", "rows", "worker", "model", "cache", "by", "at", "id"]]
    rows[0] += ["traceparent"] if is_traced else []
    for request in requests:
        spent = [command_line.milliseconds(request.stages.get(name)) for name in shown]
        worker = "-" if request.worker is None else str(request.worker)
        facts = [str(request.status), str(request.rows), worker]
        at = command_line.moment(request.first_byte_ns)
        model = f"step {request.model}" if request.is_step else request.model or "-"
        names = [model, request.cache or "-", request.transport]
        rows.append([*spent, *facts, *names, at, request.id])
        rows[-1] += [request.traceparent or "-"] if is_traced else []
    first_text = len(shown) + 3
    return command_line.table(rows, left=set(range(first_text, len(rows[0]))))
