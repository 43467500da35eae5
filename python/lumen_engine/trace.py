"""`lumen trace`: the last requests of a server as Chrome trace events, which Perfetto opens.

https://ui.perfetto.dev, "Open trace file"; chrome://tracing too. The format is Google's "Trace
Event Format". Threads: main. Errors: one line, exit status 1.

Each I/O thread and each worker is a track with a slice for each stage that it worked on. Slices
of one track must nest or follow each other: where two overlap (an I/O thread receives several
requests at a time, a batch is several requests' run) the second goes to a track beside it. Each
request is an asynchronous event as well, with all its stages, also those in which it waited, and
with the steps of an ensemble.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from lumen_engine import _command_line as command_line
from lumen_engine.counters_file import CountersFile, Request

Event = dict[str, Any]

# One behind the other, from the first byte on. `connect` was before it; `queue` is nobody's work.
IN_ORDER = ("parse", "queue", "preprocess", "inference", "postprocess", "write")
OF_IO_THREADS = ("parse", "write")
# Ids of tracks: an I/O thread's and a worker's with room beside each for those that overlap.
TRACKS_BESIDE = 10_000
FIRST_WORKER = 10_000_000


def main(argv: list[str]) -> int:
    parser = command_line.parser_of(
        "trace",
        "Writes the last requests of a server (some 1,000 of each I/O thread) as a trace that"
        " https://ui.perfetto.dev opens: a track for each I/O thread, worker and request.",
    )
    parser.add_argument("-o", "--output", required=True, help="the file to write; -: to stdout")
    parser.add_argument("--model", help="of this model alone")
    arguments = parser.parse_args(argv)

    def action(counters: CountersFile) -> int:
        requests = [r for r in counters.recent() if arguments.model in (None, r.model)]
        text = json.dumps(trace_of(requests, counters.layout.pid, str(counters.path)))
        return _write(arguments.output, text, len(requests))

    return command_line.run("trace", arguments.server, action)


def _write(output: str, text: str, count: int) -> int:
    if output == "-":
        print(text)
        return 0
    try:
        Path(output).write_text(text)
    except OSError as error:
        print(f"lumen trace: {output} can't be written: {error.strerror}", file=sys.stderr)
        return 1
    print(f"{output}: {count} requests; open it at https://ui.perfetto.dev")
    return 0


def trace_of(requests: list[Request], pid: int, path: str) -> dict[str, Any]:
    """Times in the trace are µs from the first request's first byte."""
    begin = min((request.first_byte_ns for request in requests), default=0)
    tracks = _Tracks(pid)
    events: list[Event] = []
    steps = [request for request in requests if request.is_step]
    of_ensembles = {(step.shard, step.number) for step in steps}
    for request in sorted(requests, key=lambda each: (each.first_byte_ns, each.is_step)):
        events += _of_request(request, pid, begin)
    # Pieces of work that stay on one track, by their begin.
    pieces = [
        (piece, request)
        for request in requests
        for piece in _pieces_of(request)
        if request.is_step
        or (request.shard, request.number) not in of_ensembles
        or piece[0].name in OF_IO_THREADS  # its steps have run the models
    ]
    for piece, request in sorted(pieces, key=lambda each: each[0][0].begin):
        tid = tracks.place(request, piece)
        common = {"cat": request.model or "none", "ph": "X", "pid": pid, "tid": tid}
        for each in piece:
            ts, dur = _us(each.begin - begin), _us(each.end - each.begin)
            args = _args(request)
            events.append({"name": each.name, "ts": ts, "dur": dur, **common, "args": args})
    name = {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": f"lumen {pid}"}}
    return {
        "displayTimeUnit": "ns",
        "otherData": {"counters_file": path, "begin_ns_since_epoch": str(begin)},
        "traceEvents": [name, *tracks.names(), *events],
    }


class Span(NamedTuple):
    name: str  # of a stage
    begin: int  # ns since the epoch
    end: int


def stages_of(request: Request) -> Iterator[Span]:
    """Each stage that happened."""
    at = request.first_byte_ns
    for stage in IN_ORDER:
        spent = request.stages.get(stage)
        if spent is not None:
            yield Span(stage, at, at + spent)
            at += spent


def _pieces_of(request: Request) -> list[list[Span]]:
    """Stages of an I/O thread before, of the thread that ran the model, of an I/O thread after."""
    worked = [span for span in stages_of(request) if span.name != "queue"]
    return [
        list(spans) for _, spans in groupby(worked, key=lambda span: span.name in OF_IO_THREADS)
    ]


def _of_request(request: Request, pid: int, begin: int) -> Iterator[Event]:
    """`b` and `e` with one id belong together, and those between them nest."""
    common = {"cat": "request", "id": f"{request.number:#x}", "pid": pid, "tid": 0}
    stages = list(stages_of(request))
    first = request.first_byte_ns
    last = max([first + request.total_ns, *(span.end for span in stages)])
    name = f"{request.model or 'no model'} {request.status}"
    if request.is_step:
        name = f"step {name}"
    yield {"name": name, "ph": "b", "ts": _us(first - begin), **common, "args": _args(request)}
    for each in stages:
        yield {"name": each.name, "ph": "b", "ts": _us(each.begin - begin), **common}
        yield {"name": each.name, "ph": "e", "ts": _us(each.end - begin), **common}
    yield {"name": name, "ph": "e", "ts": _us(last - begin), **common}


def _us(ns: int) -> float:
    return ns / 1000


def _args(request: Request) -> dict[str, Any]:
    connect = request.stages.get("connect")
    args = {
        "id": request.id,
        "number": request.number,
        "model": request.model,
        "status": request.status,
        "rows": request.rows,
        "queue_type": request.queue_type,
        "lane": request.lane,
        "allocator_type": request.allocator_type,
        "cache": request.cache,
        "transport": request.transport,
        "traceparent": request.traceparent,
        "connect_us": None if connect is None else _us(connect),
    }
    return {key: value for key, value in args.items() if value not in ("", None)}


class _Tracks:
    """Gives each piece a track on which it overlaps none: its thread's, or one beside it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._names: dict[int, str] = {}
        self._ends: dict[int, int] = {}  # of each track's last slice

    def place(self, request: Request, piece: list[Span]) -> int:
        """Pieces come by their begin."""
        if piece[0].name in OF_IO_THREADS or request.worker is None:
            base, name = 1 + request.shard * TRACKS_BESIDE, f"I/O thread {request.shard}"
        else:
            base = FIRST_WORKER + request.worker * TRACKS_BESIDE
            name = f"worker {request.worker}"
        for beside in range(TRACKS_BESIDE):
            tid = base + beside
            # Nothing nests: a stage of one request is no part of another's.
            if self._ends.get(tid, 0) <= piece[0].begin:
                self._ends[tid] = piece[-1].end
                self._names.setdefault(tid, name + (f", beside {beside}" if beside else ""))
                return tid
        raise AssertionError("more requests at a time than a flight recorder holds")

    def names(self) -> Iterator[Event]:
        for order, (tid, name) in enumerate(sorted(self._names.items())):
            common = {"ph": "M", "pid": self._pid, "tid": tid}
            yield {"name": "thread_name", **common, "args": {"name": name}}
            yield {"name": "thread_sort_index", **common, "args": {"sort_index": order}}
