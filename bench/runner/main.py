"""The command `./dev bench NAME`: arguments, the run, the table on stderr, the document on stdout.

Errors: exit status 1 where the bench or one of our programs failed, 2 for wrong arguments, 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from bench.runner import declare, store, tables
from bench.runner.declare import Bench
from bench.runner.places import BenchError, say
from bench.runner.run import Run


def parser_of(bench: Bench) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"./dev bench {bench.name}",
        description=bench.question,
        epilog="stdout is one JSON object; the table is on stderr.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    full, quick = bench.minutes, bench.quick_minutes
    parser.add_argument("--quick", action="store_true", help=f"{quick:g} min instead of {full:g}")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--all", action="store_true", help="every contender in the table")
    parser.add_argument("--keep", action="store_true", help="in bench/baselines and the documents")
    parser.add_argument("--rows", default="", help="only rows whose name matches this expression")
    rounds, seconds = bench.rounds, bench.seconds
    parser.add_argument("--rounds", type=int, help=f"{rounds[0]}, quick {rounds[1]}")
    parser.add_argument(
        "--seconds", type=float, help=f"of a measurement: {seconds[0]}, quick {seconds[1]}"
    )
    if bench.groups:
        parser.add_argument("--only", default="", help=f"some of {','.join(bench.groups)}")
    for option in bench.options:
        kind = type(option.default) if option.default is not None else str
        shown = f"{option.help} ({option.default})" if option.default else option.help
        parser.add_argument(option.name, default=option.default, type=kind, help=shown)
    return parser


def parse(bench: Bench, words: Sequence[str]) -> Run:
    parser = parser_of(bench)
    options = parser.parse_args(words)
    if options.rounds is None:
        options.rounds = bench.rounds[options.quick]
    if options.seconds is None:
        options.seconds = bench.seconds[options.quick]
    groups: Sequence[str] = bench.groups
    if bench.groups and options.only:
        groups = options.only.split(",")
        unknown = sorted(set(groups) - set(bench.groups))
        if unknown:
            parser.error(f"--only {unknown[0]}: wanted some of {', '.join(bench.groups)}")
    elif options.quick and bench.quick_groups:
        groups = bench.quick_groups
    return Run(options, groups)


def keep(bench: Bench, run: Run) -> int:
    if bench.is_kept:
        store.keep(bench.name, store.measured(bench, run.document(bench.name)))
    from bench.report import documents  # it knows all benches, and so this one

    return documents.draw_all()


def measure(bench: Bench, run: Run) -> int:
    status = 0
    try:
        bench.measure(run)
    except BenchError as error:
        say(f"bench: {error}")
        status = 1
    except KeyboardInterrupt:
        status = 130
    for text in run.failures:
        say(f"bench: {text}")
    if not run.options.json and bench.has_metrics:
        say(tables.terminal(bench.goals, run.rows, run.options.all))
    print(json.dumps(run.document(bench.name), indent=1, ensure_ascii=False))
    return status or (1 if run.failures else 0)


def print_packages(names: Sequence[str]) -> int:
    """For `dev`, which installs them: the packages of these benches, or of all."""
    for bench in map(declare.find, names or declare.names()):
        print("\n".join(bench.packages))
    return 0


def main(words: Sequence[str]) -> int:
    if words and words[0] == "--packages":
        return print_packages(words[1:])
    try:
        bench = declare.find(words[0] if words else "")
    except KeyError as error:
        say(f"bench: {error.args[0]}")
        return 2
    run = parse(bench, words[1:])
    if len(os.sched_getaffinity(0)) < bench.cpus:
        say(f"bench: {bench.cpus} CPUs are needed; {len(os.sched_getaffinity(0))} may be used")
        return 1
    status = measure(bench, run)
    if run.options.keep and status == 0:
        try:
            return keep(bench, run)
        except ValueError as error:
            say(f"bench: nothing is kept: {error}")
            return 1
    return status
