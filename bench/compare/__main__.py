"""The question: is HEAD faster or slower than BASE, and by how much for certain?

  ./dev compare BASE HEAD          requests/s and CPU time a request of the MLP over HTTP, server on
                                   CPU 0, load on CPU 1
  ./dev compare BASE HEAD --load bus       the same over the bus, 64 requests in flight
  ./dev compare BASE HEAD --load mixed     requests/s of the MLP and of SqueezeNet beside it
  ./dev compare BASE HEAD --program bench_chronocache [-- --benchmark_filter=bm_getHit]
  ./dev compare .build/old .build/release --program prints_json --more per_second

BASE and HEAD are git refs, which are built in .build/compare and kept, or build folders. Slices go
A B B A or B A A B, drawn by --seed; four make a pair. Pairs are taken until the interval of every
ratio is narrower than --within, or --minutes are over. The ratio is of costs (time, CPU): above 1
HEAD is slower. How the interval is made: bench/runner/paired.py.

Threads: one. Errors: exit status 2 and the reason. 1: HEAD is slower, the whole interval
beyond --limit. 0: it is not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bench.compare import builds, contests
from bench.runner import paired
from bench.runner.places import ROOT, BenchError

# The fewest pairs after which a narrow interval is believed.
ENOUGH_PAIRS = 8
SLOWER, FAILED = 1, 2

Pairs = dict[str, list[tuple[float, float]]]  # by metric


def share(text: str) -> float:
    """ "2%" or "0.02"."""
    value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value < 1:
        raise ValueError
    return value


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev compare",
        description="Two builds in turns: their ratio, its interval, a verdict. Exit status 1 "
        "where HEAD is slower beyond --limit.",
        epilog="What follows -- goes to the program.",
    )
    parser.add_argument("base", metavar="BASE", help="git ref or build folder")
    parser.add_argument("head", metavar="HEAD", help="git ref or build folder")
    parser.add_argument("--program", help="of the build, instead of a server with the MLP")
    parser.add_argument(
        "--less", action="append", default=[], help="key of its JSON that is a time"
    )
    parser.add_argument("--more", action="append", default=[], help="key of its JSON, a rate")
    parser.add_argument(
        "--load", choices=contests.LOADS, default="http", help="of the server (http)"
    )
    parser.add_argument("--queue-type", default="inline", help="of the server (inline)")
    parser.add_argument(
        "--backend",
        default="openvino",
        help="of the server (openvino); with auto each build may choose another",
    )
    parser.add_argument("--preset", help="refs are built with (release; with --program native)")
    parser.add_argument(
        "--within", type=share, default=0.01, help="interval to reach, plus or minus (1%%)"
    )
    parser.add_argument(
        "--limit", type=share, default=0.02, help="a difference below it is noise (2%%)"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="at most (5)")
    parser.add_argument("--confidence", type=share, default=0.95, help="of the interval (95%%)")
    parser.add_argument("--seed", type=int, default=1, help="of the order (1)")
    parser.add_argument("--json", action="store_true", help="an object on stdout, no table")
    own = list(words)
    rest = own[own.index("--") + 1 :] if "--" in own else []
    arguments = parser.parse_args(own[: own.index("--")] if "--" in own else own)
    arguments.arguments = rest
    if rest and not arguments.program:
        parser.error("words after -- are for a --program")
    return arguments


def is_narrow(pairs: Pairs, within: float, confidence: float) -> bool:
    intervals = [paired.ratio_interval(found, confidence) for found in pairs.values()]
    return all(paired.half_width(low, high) <= within for _, low, high in intervals)


def measure(contest: contests.Contest, arguments: argparse.Namespace) -> tuple[Pairs, bool]:
    """All pairs, and whether the interval asked for was reached."""
    dice = random.Random(arguments.seed)
    end = time.monotonic() + 60 * arguments.minutes
    pairs: Pairs = defaultdict(list)
    number = 0
    while True:
        number += 1
        begins = dice.randrange(2)
        slices = contest.block(paired.order(begins))
        for metric in slices[0]:
            samples = [costs[metric] for costs in slices]
            pairs[metric].append(paired.pair_of(begins, samples))
        if number >= ENOUGH_PAIRS and is_narrow(pairs, arguments.within, arguments.confidence):
            return pairs, True
        if number >= paired.LEAST_PAIRS and time.monotonic() > end:
            return pairs, False


def describe(
    contest: contests.Contest, pairs: Pairs, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    rows = []
    for metric, found in pairs.items():
        ratio, low, high = paired.ratio_interval(found, arguments.confidence)
        middle = [sorted(costs)[len(found) // 2] for costs in zip(*found)]
        rows.append(
            {
                "metric": metric,
                "base": contest.shown(metric, middle[0]),
                "head": contest.shown(metric, middle[1]),
                "ratio": round(ratio, 5),
                "low": round(low, 5),
                "high": round(high, 5),
                "verdict": paired.verdict(low, high, arguments.limit),
                "is_certain": not low <= 1 <= high,
                "pairs": [[base, head] for base, head in found],
            }
        )
    return rows


def show(rows: Sequence[dict[str, Any]], arguments: argparse.Namespace, reached: bool) -> None:
    wide = max(len("metric"), *(len(row["metric"]) for row in rows))
    head = f"{'metric':<{wide}}{'base':>12}{'head':>12}{'cost ratio':>12}"
    print(f"{head}   {arguments.confidence:.0%} interval     verdict")
    for row in rows:
        interval = f"{row['low']:.4f} to {row['high']:.4f}"
        said = row["verdict"]
        if said == paired.NOISE and row["is_certain"]:
            said = f"{said} (a difference, below the limit of {arguments.limit:.1%})"
        numbers = f"{row['base']:>12}{row['head']:>12}{row['ratio']:>12.4f}"
        print(f"{row['metric']:<{wide}}{numbers}   {interval}   {said}")
    count = len(rows[0]["pairs"])
    print(f"{count} pairs; a cost ratio above 1: {arguments.head} is slower than {arguments.base}")
    if not reached:
        print(
            f"The interval is wider than asked (plus or minus {arguments.within:.1%}): "
            f"{arguments.minutes:g} minutes were not enough on this machine; see --minutes"
        )


def main(words: Sequence[str]) -> int:
    arguments = parse(words)
    target = arguments.program or "lumen"
    preset = arguments.preset or ("native" if arguments.program else "release")
    if not arguments.program and len(os.sched_getaffinity(0)) < 2:
        print("compare: two CPUs are needed, for the server and for the load", file=sys.stderr)
        return FAILED
    named = (arguments.base, arguments.head)
    found = {text: builds.find(text, ROOT, preset, target) for text in dict.fromkeys(named)}
    both = [found[text] for text in named]
    contest: contests.Contest
    if arguments.program:
        keys = (arguments.less, arguments.more)
        contest = contests.Program(both, target, arguments.arguments, *keys)
    else:
        contest = contests.Serving(
            both, arguments.queue_type, load=arguments.load, backend=arguments.backend
        )
    pairs, reached = measure(contest, arguments)
    rows = describe(contest, pairs, arguments)
    if arguments.json:
        document = {"base": both[0].what, "head": both[1].what, "reached": reached, "rows": rows}
        print(json.dumps(document, indent=1))
    else:
        show(rows, arguments, reached)
    return SLOWER if any(row["verdict"] == paired.SLOWER for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchError as error:
        print(f"compare: {error}", file=sys.stderr)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(130)
