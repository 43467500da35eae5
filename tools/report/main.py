"""The command `./dev report`: the benches to run, the time that they take, and then the page.

Threads: one. Errors: a line and exit status 1 where a bench failed, 2 for wrong arguments, 130
after Ctrl-C, which leaves finished benches for the next call.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import figures

from report import keep, machine, page, plan
from report.run import FAILED, MISSING, Result, Runner, alone, minutes, say

# The files that a report and --keep write: no reason to measure anew.
NOT_MEASURED = (
    *(":!docs", ":!README.md", ":!tests"),
    *(":!bench/baselines", ":!bench/sources.toml"),
)
BUSY_CPUS = 0.2  # of others, before it begins; from here on a line says so


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev report",
        description="Runs every bench, one after the other, and writes docs/reports/DATE-CPU.md "
        "with charts. What is done is kept: after Ctrl-C, or a failure, call it again.",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"short rounds, below {plan.QUICK_LIMIT_MINUTES:.0f} minutes on two cores",
    )
    parser.add_argument("--fresh", action="store_true", help="measure everything anew")
    parser.add_argument("--only", default="", metavar="A,B", help="some of the benches")
    parser.add_argument(
        "--due", action="store_true", help="only those whose baseline is older than its code"
    )
    parser.add_argument("--list", action="store_true", help="say what would run, and how long")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing: the page of what is there"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="also write bench/baselines and the documents' tables, as tools/keep_baseline.py does",
    )
    arguments = parser.parse_args(words)
    try:
        only = [name for name in arguments.only.split(",") if name]
        arguments.benches = plan.chosen(arguments.quick, only)
        if arguments.due:
            arguments.benches = [one for one in arguments.benches if keep.is_due(one.keeps)]
    except ValueError as error:
        parser.error(str(error))
    return arguments


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"report: git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def state_of(root: Path) -> tuple[str, str]:
    """The commit, and a short hash of the tree's changes beside it, empty if there are none.
    Documents and baselines don't count: the report itself writes them."""
    commit = git(root, "rev-parse", "--short=10", "HEAD").strip()
    where = ("--", ".", *NOT_MEASURED)
    changed = git(root, "status", "--porcelain", "--untracked-files=all", *where)
    if not changed.strip():
        return commit, ""
    digest = hashlib.sha256((changed + git(root, "diff", "HEAD", *where)).encode())
    for line in changed.splitlines():
        file = root / line[3:].strip('"')
        if line.startswith("??") and file.is_file():
            digest.update(file.read_bytes())
    return commit, digest.hexdigest()[:8]


def tell_of_others(above: Path, folder: Path, slug: str) -> None:
    """That a run of another commit is there and is not gone on with."""
    for other in sorted(above.glob(f"*-{slug}")):
        count = len([*other.glob("*.json"), *other.glob("quick/*.json")])
        if other != folder and count:
            state = other.name.removesuffix(f"-{slug}")
            say(f"{count} results of {state} are there ({other}); they are of other code and stay")


def announce(runner: Runner, benches: Sequence[plan.Bench]) -> None:
    left = runner.left(benches)
    total = plan.total_minutes(left, runner.is_quick)
    now = datetime.datetime.now()
    end = now + datetime.timedelta(minutes=total)
    done = len(benches) - len(left)
    say(
        f"{len(left)} of {len(benches)} benches are to be run ({done} are done or not there), "
        f"about {minutes(total)}, until {end:%H:%M}; building rivals for the first time adds to it"
    )
    meter = machine.LoadMeter()
    time.sleep(1)
    others = meter.read().others_cpus
    if others > BUSY_CPUS:
        say(f"other processes use {others:.1f} CPUs now: figures will be worse and vary more")


def interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def measure(runner: Runner, arguments: argparse.Namespace) -> None:
    if arguments.fresh and runner.folder.exists():
        for bench in arguments.benches:
            (runner.folder / f"{bench.name}.json").unlink(missing_ok=True)
    announce(runner, arguments.benches)
    runner.run(arguments.benches)


def show_plan(runner: Runner, benches: Sequence[plan.Bench]) -> None:
    for bench in benches:
        words = page.short(" ".join(runner.words(bench)))
        took = minutes(bench.minutes(runner.is_quick))
        print(f"{bench.name:17}{took:>8}  {runner.load_result(bench).status:18}{words}")
    print(f"{'all':17}{minutes(plan.total_minutes(benches, runner.is_quick)):>8}")


def keep_baselines(results: Sequence[Result], is_quick: bool) -> None:
    for line in keep.keep(results, is_quick):
        say(line)
    if subprocess.run([sys.executable, figures.__file__]).returncode != 0:
        say("the documents could not be drawn anew; tools/figures.py says why")


def measured_state(root: Path, began: tuple[str, str]) -> str:
    """The page's line about the code; `began` is how the tree was before the first bench."""
    commit, changes = began
    said = commit + (" with changes" if changes else "")
    if state_of(root) != began:
        say("the tree is no longer as it was when the report began: later benches had other code")
        said += " (the tree changed during the run)"
    return said


def main(
    arguments: argparse.Namespace, root: Path, build: Path, python: str, prepare: Callable[[], None]
) -> int:
    """`arguments`: of parse(). `prepare` installs rivals and makes the programs in `build`."""
    # A shell's background job has SIGINT ignored, and every bench would inherit that.
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    facts = machine.facts()
    slug = machine.slug(machine.model_name(), int(facts["CPUs that may be used"]))
    began = state_of(root)
    state = "+".join(filter(None, began))
    above = root / ".build" / "report"
    folder = above / f"{state}-{slug}"
    where = folder / "quick" if arguments.quick else folder
    runner = Runner(where, root, build, arguments.quick, python)
    if began[1]:
        say(f"the tree has changes beside commit {began[0]}; the figures are of it with them")
    if arguments.list:
        show_plan(runner, arguments.benches)
        return 0
    with alone(above):
        tell_of_others(above, folder, slug)
        said = began[0] + (" with changes" if began[1] else "")
        if not arguments.page:
            try:
                prepare()
                measure(runner, arguments)
            except KeyboardInterrupt:
                left = len(runner.left(arguments.benches))
                say(f"stopped; {left} benches are left. Call it again to go on, or with --page")
                return 130
            said = measured_state(root, began)
        results = runner.results(arguments.benches)
        about = page.About(slug, said, facts, arguments.quick)
        written = page.write(about, results, root / "docs" / "reports")
        print(written.relative_to(root))
        if arguments.keep:
            keep_baselines(results, arguments.quick)
    failed = [one.bench.name for one in results if one.status in (FAILED, MISSING)]
    if failed:
        say(f"not measured: {', '.join(failed)}; {written.name} says why")
    return 1 if failed else 0
