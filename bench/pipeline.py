#!/usr/bin/env python3
"""The question: what does a hop through a staged pipeline cost, under load, after idle, at rest?

  producer --> stage 0 --> stage 1 [--> stage 2]     one thread each, pinned in turn to CPU 0 and 1

Ours is one ring with one waiting place; the rivals chain a queue before each stage, whose threads
take batches as ours do: our own blocking spsc and mpmc queues, moodycamel's
BlockingReaderWriterQueue and BlockingConcurrentQueue (bulk), a mutex with condition variables,
with and without spinning. Then the ablation: the server's no-op path over 16 socket pairs, with
one decision of the pipeline changed at a time.

  bench/pipeline.py [--quick] [--json] [--rows REGEX]     stdout is one JSON object, the table is
                                                          on stderr
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "queue"))
from interleave import KINDS, Contender, Row, measure, program, results, show  # noqa: E402

ABLATION_METRICS = (
    ("rps", "requests/s", True),
    ("stage0_left_ns", "ns of stage 0 left a request", True),
    ("cpu_percent", "% of a core", False),
    ("idle_cpu_percent", "% of a core, idle", False),
    ("worst_us", "µs, the worst", False),
    ("futex_per_request", "futex calls a request", False),
)


def listed() -> dict[str, list[str]]:
    text = subprocess.run(
        [str(program("bench_pipeline")), "--list"], capture_output=True, text=True, check=True
    ).stdout
    names: dict[str, list[str]] = {}
    for line in text.splitlines():
        row, name = line.split(maxsplit=1)
        names.setdefault(row, []).append(name)
    return names


def plain_rows(quick: bool) -> list[tuple[list[Row], list[str]]]:
    """Rows that come out of the same measurement, and its arguments."""
    rows: list[tuple[list[Row], list[str]]] = []
    ms = "60" if quick else "400"
    for stages in ("2", "3"):
        found = [
            Row(f"{stages} stages, items/s", "mops", "M/s", True),
            Row(f"{stages} stages, a hop", "ns_hop", "ns", False),
            Row(
                f"{stages} stages, futex calls under load",
                "futex_10k",
                "a 10,000 items",
                False,
            ),
        ]
        rows.append((found, ["--row", "throughput", "--stages", stages, "--ms", ms]))
    for stages in ("2", "3"):
        found = [
            Row(f"{stages} stages, push to processed after idle", "p50_ns", "ns", False),
            Row(f"{stages} stages, push to processed after idle, p99", "p99_ns", "ns", False),
        ]
        rows.append(
            (found, ["--row", "wake", "--stages", stages, "--ms", "300" if quick else "3000"])
        )
    idle = Row("2 stages, CPU of 10 s idle", "cpu_ms_10s", "ms", False)
    rows.append(([idle], ["--row", "idle", "--stages", "2", "--ms", "500" if quick else "10000"]))
    return rows


def run_plain(
    options: argparse.Namespace, names: dict[str, list[str]], rounds: int
) -> list[dict[str, Any]]:
    report = []
    binary = str(program("bench_pipeline"))
    for rows, arguments in plain_rows(options.quick):
        if not any(re.search(options.rows, row.name) for row in rows):
            continue
        row_names = names[arguments[1]]
        contenders = [Contender(n, [binary, *arguments, "--queue", n]) for n in row_names]
        measure(contenders, rounds)
        ours = next(c for c in contenders if c.name == "lumen")
        for row in rows:
            # Chains don't count their futex calls, so that row has no rival.
            rivals = [] if row.metric == "futex_10k" else [c for c in contenders if c is not ours]
            if not options.json:
                show(row, [ours, *rivals], "lumen")
            report += results("pipeline", row, ours, rivals)
    return report


def run_ablation(
    options: argparse.Namespace, names: dict[str, list[str]], rounds: int
) -> list[dict[str, Any]]:
    if not re.search(options.rows, "ablation"):
        return []
    binary = str(program("bench_pipeline"))
    # 10 million requests for the worst latency: three rounds of 20 s at 170,000/s.
    ms = options.ablation_ms or (400 if options.quick else 20_000)
    contenders = [
        Contender(name, [binary, "--row", "ablation", "--queue", name, "--ms", str(ms)])
        for name in names["ablation"]
    ]
    measure(contenders, min(rounds, 3))
    base = next(c for c in contenders if c.name == "every-stage")
    report = []
    for metric, unit, more_is_better in ABLATION_METRICS:
        for contender in contenders:
            row = Row(f"ablation {contender.name}: {metric}", metric, unit, more_is_better)
            report += results("pipeline", row, contender, [base])
        if not options.json:
            show(Row(f"ablation: {metric}", metric, unit, more_is_better), contenders, "adaptive")
    requests = [n for c in contenders for kind in KINDS for n in c.values("requests", kind)]
    if requests:
        print(
            f"\nablation: {sum(requests) / 1e6:.1f} M requests in all, "
            f"{median(requests) / 1e6:.2f} M a measurement",
            file=sys.stderr,
        )
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="under 60 s")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument(
        "--rows", default="", help="only rows whose name matches; 'ablation' is one"
    )
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--ablation-ms", type=int, default=0, help="of one ablation measurement")
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 7)
    names = listed()
    report = run_plain(options, names, rounds)
    report += run_ablation(options, names, rounds)
    print(json.dumps({"rows": report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
