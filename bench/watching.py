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
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.load import serving
from bench.load import watching_parts as parts
from bench.runner import Bench, Goal, Option, Row, Run, make_row, paired
from bench.runner.places import left_out
from bench.runner.tables import pivot

Rounds = list[list[dict[str, float]]]  # by round and block: CPU ns a request of each contender

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


def pairs_of(rounds: Rounds, ours: str, base: str) -> list[Any]:
    """(base, ours): of each block where one process is both, else of each round."""
    if CONTENDERS[ours][0] == CONTENDERS[base][0]:
        return [(block[base], block[ours]) for blocks in rounds for block in blocks]
    return [(fmean(b[base] for b in blocks), fmean(b[ours] for b in blocks)) for blocks in rounds]


def cost_rows(
    name: str, ratio: float, low: float, high: float, rounds: dict[str, list[float]], spread: float
) -> list[Row]:
    """Three rows: the cost in per cent, and the ends of its interval."""
    values = {"cost": ratio, "cost, lower end": low, GOAL: high}
    return [
        make_row(name, metric, "%", rounds, more_is_better=None, spread=round(spread, 5))
        | {"ours": round(100 * value, 3)}
        for metric, value in values.items()
    ]


def make_rows(rounds: Rounds) -> list[Row]:
    rows = []
    for row, (ours, base) in COMPARISONS.items():
        pairs = pairs_of(rounds, ours, base)
        ratio, low, high = paired.ratio_interval(pairs)
        samples = {ours: [b for _, b in pairs], base: [a for a, _ in pairs]}
        width = paired.half_width(low, high)
        rows += cost_rows(row, ratio - 1, low - 1, high - 1, samples, width)
    return rows


def plain_request_ns(rounds: Rounds) -> float:
    return round(median(block["plain"] for blocks in rounds for block in blocks), 1)


def flight_recorder_rows(request_ns: float) -> list[Row]:
    """Its CPU time for a request, as a part of the request's own: the median of its runs, and
    the least and the most of them for an interval."""
    runs = parts.flight_recorder_ns()
    if not runs:
        left_out(FLIGHT, "bench_flight_recorder is not built")
        return []
    middle, least, most = (ns / request_ns for ns in (median(runs), min(runs), max(runs)))
    return cost_rows(FLIGHT, middle, least, most, {FLIGHT: runs}, (most - least) / middle)


def measure(run: Run) -> None:
    blocks = run.options.blocks or run.pick(15, 6)
    rng = random.Random(SEED)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {serving.LOAD_CORE})
    measured: Rounds = []
    tops = []
    for _ in run.turns([]):
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            one = Round(stack, Path(name), rng)
            for _ in range(blocks):
                one.measure()
            measured.append(one.blocks)
            tops.append(one.top.describe())
    os.sched_setaffinity(0, allowed)
    request_ns = plain_request_ns(measured)
    run.add(*make_rows(measured), *flight_recorder_rows(request_ns))
    run.more |= {"seed": SEED, "plain_request_ns": request_ns, "top": tops}


BENCH = Bench(
    title="The cost of watching",
    measure=measure,
    minutes=5.0,
    quick_minutes=1.0,
    rounds=(10, 3),  # each starts all anew
    options=(Option("--blocks", 0, "of 18 slices, a round: 15, quick 6"),),
    sources=(
        *("include/**", "src/**", "apps/**"),
        "python/lumen_engine/{counters_file,_counters_*}.py",
        "python/lumen_engine/top/*.py",
        "bench/runner/paired.py",
        "bench/load/*",
        "bench/micro/flight_recorder.cc",
    ),
    has_a_row_for_each_goal=True,
    goals=(
        Goal(
            "^all together$",
            "at_most",
            1.0,
            "watching costs less than 1 % of the server's CPU time a request",
            metric=GOAL,
        ),
    ),
    tables={
        "": pivot({"cost": "cost, %", "cost, lower end": "from, %", "cost, upper end": "to, %"})
    },
)
