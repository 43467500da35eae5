#!/usr/bin/env python3
"""The question: what does watching a server cost it, in CPU time a request?

  load, closed loop, 16 clients, and readers (core 1) --HTTP--> servers (core 0), mpmc, the MLP

Slices of 100 ms in turns, one server loaded at a time while the others sleep: plain (no CSV, no
counters file), the same once more, with CSV, with CSV and counters file, and the last with a
/metrics scrape in each slice, with `lumen top --hz 10` in a terminal of its own, and with both. The
order of a block is drawn (seeded), then goes backwards (A B C C B A): drift hits all alike.

CPU time is the count of /proc/PID/task/*/schedstat (ns, all threads) from the end of the
server's slice before to the end of this one: its later work (the CSV's thread) counts too.
No reader starts in a slice: the scrape is the bench's own, over a connection that stays, at a
moment of the slice that is drawn; `top` is stopped (SIGSTOP) outside of its slices, and it is
counted in how many it looked. A reader on the load's core takes time from the load, so the server
gets fewer requests at once: the effect of that alone is shown by a loop that takes as much of that
core as `top` does, and does not look at all.

Comparisons within one process take the blocks as pairs. Two servers differ by themselves (where
their pages lie), so comparisons of two take the rounds: each starts all servers anew. The `again`
rows compare equal things: they must hold 0. The flight recorder has no switch: its cost is
measured by bench/micro/flight_recorder.cc.

  bench/watching.py [--quick] [--json]      stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median
from typing import Any

BENCH = Path(__file__).resolve().parent
# Last, not first: a bench may be called like one of Python's own modules (queue).
sys.path += [str(BENCH), str(BENCH / "load"), str(BENCH.parent / "tools")]
import goals  # noqa: E402
import paired  # noqa: E402
import serving  # noqa: E402
import watching_parts as parts  # noqa: E402

SEED = 14
SLICE_MS = 100
CLIENTS = 16
WARM_UP_MS = 500
GOAL = "cost, upper end"
FLIGHT = "flight recorder"

# Contender: the server that is loaded, and its watcher.
CONTENDERS: dict[str, tuple[str, frozenset[str]]] = {
    "plain": ("plain", frozenset()),
    "plain again": ("plain again", frozenset()),
    "csv": ("csv", frozenset()),
    "file": ("file", frozenset()),
    "file again": ("file", frozenset()),
    "scrape": ("file", frozenset({"scrape"})),
    "top": ("file", frozenset({"top"})),
    "all": ("file", frozenset({"scrape", "top"})),
    "burn": ("file", frozenset({"burn"})),
}
# Row of the table: the contender, and its rival.
COMPARISONS = {
    "scrape at 10 Hz": ("scrape", "file"),
    "lumen top at 10 Hz": ("top", "file"),
    "a loop in top's place": ("burn", "file"),
    "lumen top against that loop": ("top", "burn"),
    "CSV": ("csv", "plain"),
    "CSV and counters file": ("file", "plain"),
    "all together": ("all", "plain"),
    "the same server again": ("file again", "file"),
    "another plain server": ("plain again", "plain"),
}


def start_servers(stack: ExitStack, folder: Path) -> dict[str, parts.Watched]:
    """One after the other on the same core; each has given the model's answer."""
    flags = {
        "plain": ["--stats", "off"],
        "plain again": ["--stats", "off"],
        "csv": ["--stats", "off", *parts.csv_flags(folder / "csv.csv")],
        "file": ["--stats", str(folder / "counters"), *parts.csv_flags(folder / "file.csv")],
    }
    servers = {}
    for name, more in flags.items():
        words = ["--backend", "openvino", "--model-repository", str(serving.ROOT / "models")]
        words += ["--queue-type", "mpmc", *more]
        (target,) = serving.start_lumen_with(stack, folder, name, words, serving.WORKLOADS[1:])
        serving.wait_for_answer(target)
        servers[name] = parts.Watched(target)
    return servers


class Round:
    """Servers, load and readers of one round; measure() adds a block of slices to `blocks`."""

    def __init__(self, stack: ExitStack, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.servers = start_servers(stack, folder)
        targets = [server.target for server in self.servers.values()]
        self.load = stack.enter_context(parts.SliceLoad(targets, CLIENTS))
        self.scraper = stack.enter_context(parts.Scraper(self.servers["file"].target.port))
        self.top = stack.enter_context(parts.Top(folder / "counters"))
        self.blocks: list[dict[str, float]] = []  # CPU ns a request of each contender
        for index, server in enumerate(self.servers.values()):
            self.load.run(index, WARM_UP_MS)
            server.cpu_ns()

    def slice(self, name: str) -> tuple[int, int]:
        """CPU ns and requests of one."""
        server_name, readers = CONTENDERS[name]
        at_ms = self.rng.uniform(0.1, 0.7) * SLICE_MS
        meanwhile: Callable[[], None] | None = None
        if "scrape" in readers:
            meanwhile = self.scraper.scrape
        elif "burn" in readers:
            meanwhile = self.top.burn_as_much
        if "top" in readers:
            self.top.resume()
        try:
            index = list(self.servers).index(server_name)
            requests = self.load.run(index, SLICE_MS, meanwhile, at_ms)
        finally:
            if "top" in readers:
                self.top.pause()
        return self.servers[server_name].cpu_ns(), requests

    def measure(self) -> None:
        order = list(CONTENDERS)
        self.rng.shuffle(order)
        taken: dict[str, list[tuple[int, int]]] = {name: [] for name in order}
        for name in [*order, *reversed(order)]:
            taken[name].append(self.slice(name))
        self.blocks.append(
            {name: sum(c for c, _ in two) / sum(r for _, r in two) for name, two in taken.items()}
        )


def pairs_of(rounds: list[list[dict[str, float]]], ours: str, base: str) -> list[Any]:
    """(base, ours): of each block where one process is both, else of each round."""
    if CONTENDERS[ours][0] == CONTENDERS[base][0]:
        return [(block[base], block[ours]) for blocks in rounds for block in blocks]
    return [(fmean(b[base] for b in blocks), fmean(b[ours] for b in blocks)) for blocks in rounds]


def make_rows(rounds: list[list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Three rows of each comparison: the cost in per cent, and the ends of its interval."""
    rows = []
    for row, (ours, base) in COMPARISONS.items():
        pairs = pairs_of(rounds, ours, base)
        ratio, low, high = paired.ratio_interval(pairs)
        spread = round(paired.half_width(low, high), 5)
        values = {"cost": ratio, "cost, lower end": low, GOAL: high}
        for metric, value in values.items():
            rows.append(
                make_row(row, metric, "%", round(100 * (value - 1), 3), spread)
                | {"rounds": {base: [a for a, _ in pairs], ours: [b for _, b in pairs]}}
            )
    return rows


def plain_request_ns(rounds: list[list[dict[str, float]]]) -> float:
    return round(median(block["plain"] for blocks in rounds for block in blocks), 1)


def make_row(row: str, metric: str, unit: str, ours: float, spread: float | None) -> dict[str, Any]:
    empty = dict.fromkeys(("rival", "rival_name", "ratio", "limit"))
    found = {"bench": "watching", "row": row, "metric": metric, "unit": unit, "ours": ours}
    return {**found, "spread": spread, **empty}


def flight_recorder_rows(request_ns: float) -> list[dict[str, Any]]:
    """Its CPU time for a request, as a part of the request's own: the median of its runs, and
    the least and the most of them for an interval."""
    runs = parts.flight_recorder_ns()
    if not runs:
        print("bench: bench_flight_recorder is not built: its rows are left out", file=sys.stderr)
        return []
    values = {"cost": median(runs), "cost, lower end": min(runs), GOAL: max(runs)}
    spread = round((max(runs) - min(runs)) / median(runs), 3)
    return [
        make_row(FLIGHT, metric, "%", round(100 * ns / request_ns, 3), spread)
        | {"rounds": {FLIGHT: runs}}
        for metric, ns in values.items()
    ]


def show(rows: list[dict[str, Any]], request_ns: float) -> None:
    limit = goals.value("watching", GOAL, "at_most")
    found = {(row["row"], row["metric"]): row["ours"] for row in rows}
    for row in dict.fromkeys(row["row"] for row in rows):
        cost, low, high = (found[row, m] for m in ("cost", "cost, lower end", GOAL))
        text = f"{row:<29}{cost:+7.2f} %, 95 % interval {low:+.2f} to {high:+.2f} %"
        if row == "all together":
            text += f"; goal: upper end <= {limit:g} %: {'met' if high <= limit else 'MISSED'}"
        print(text, file=sys.stderr)
    print(f"a request takes the plain server {request_ns:,.0f} ns of CPU time", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="What watching a server costs it.")
    parser.add_argument("--quick", action="store_true", help="a minute instead of five")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 10, quick 4; each starts all anew")
    parser.add_argument("--blocks", type=int, help="of 18 slices, a round; default 15, quick 6")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two cores are needed, one for the server, one for the load", file=sys.stderr)
        return 1
    rounds = arguments.rounds or (4 if arguments.quick else 10)
    blocks = arguments.blocks or (6 if arguments.quick else 15)
    rng = random.Random(SEED)
    os.sched_setaffinity(0, {serving.LOAD_CORE})
    measured: list[list[dict[str, float]]] = []
    tops = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            one = Round(stack, Path(name), rng)
            for _ in range(blocks):
                one.measure()
            measured.append(one.blocks)
            tops.append(one.top.describe())
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    request_ns = plain_request_ns(measured)
    rows = make_rows(measured) + flight_recorder_rows(request_ns)
    if not arguments.json:
        show(rows, request_ns)
    document = {"rows": rows, "seed": SEED, "plain_request_ns": request_ns}
    document["top"] = tops
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (subprocess.SubprocessError, RuntimeError) as error:
        sys.exit(f"bench: {error}")
