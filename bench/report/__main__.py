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
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bench.report import documents, machine, page
from bench.report.run import (
    FAILED,
    MISSING,
    OK,
    QUICK_LIMIT_MINUTES,
    Job,
    Result,
    Runner,
    alone,
    chosen,
    minutes,
    say,
    total_minutes,
)
from bench.runner import declare, store
from bench.runner.places import ROOT

# The files that a report and --keep write: no reason to measure anew.
NOT_MEASURED = (":!docs", ":!README.md", ":!tests", ":!bench/baselines")
BUSY_CPUS = 0.2  # of others, before it begins; from here on a line says so


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev report",
        description="Runs every bench, one after the other, and writes docs/reports/DATE-CPU.md "
        "with charts. Finished benches are kept: after Ctrl-C, or a failure, call it again.",
    )
    quick = f"short rounds, below {QUICK_LIMIT_MINUTES:.0f} minutes on two cores"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--fresh", action="store_true", help="measure everything anew")
    parser.add_argument("--only", default="", metavar="A,B", help="some of the benches")
    due = "only the benches whose code is newer than their kept figures"
    parser.add_argument("--due", action="store_true", help=due)
    parser.add_argument(
        "--list", action="store_true", help="the benches that would run, and their minutes"
    )
    page_only = "measure nothing: the page of what is there"
    parser.add_argument("--page", action="store_true", help=page_only)
    draw_only = "measure nothing: the documents' tables from bench/baselines"
    parser.add_argument("--draw", action="store_true", help=draw_only)
    keep_too = "also write bench/baselines and the documents' tables"
    parser.add_argument("--keep", action="store_true", help=keep_too)
    arguments = parser.parse_args(words)
    try:
        only = [name for name in arguments.only.split(",") if name]
        arguments.jobs = chosen(arguments.quick, only)
    except ValueError as error:
        parser.error(str(error))
    if arguments.due:
        arguments.jobs = [job for job in arguments.jobs if store.is_due(job.bench)]
    return arguments


def state_of(root: Path) -> tuple[str, str]:
    """The commit, and a short hash of the tree's changes beside it, empty if there are none.
    Documents and baselines don't count: the report itself writes them."""
    commit = store.git("rev-parse", "--short=10", "HEAD", root=root)
    where = ("--", ".", *NOT_MEASURED)
    words = ["git", "status", "--porcelain", "--untracked-files=all", *where]
    changed = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True).stdout
    if not changed.strip():
        return commit, ""
    digest = hashlib.sha256((changed + store.git("diff", "HEAD", *where, root=root)).encode())
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


def announce(runner: Runner, jobs: Sequence[Job]) -> None:
    left = runner.left(jobs)
    total = total_minutes(left)
    end = datetime.datetime.now() + datetime.timedelta(minutes=total)
    say(
        f"{len(left)} of {len(jobs)} benches are to be run ({len(jobs) - len(left)} are done), "
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
        for job in arguments.jobs:
            (runner.folder / f"{job.name}.json").unlink(missing_ok=True)
    announce(runner, arguments.jobs)
    runner.run(arguments.jobs)


def show_plan(runner: Runner, jobs: Sequence[Job]) -> None:
    for job in jobs:
        words = page.short(" ".join(runner.command(job)))
        status = runner.load_result(job).status
        due = "due" if store.is_due(job.bench) else ""
        print(f"{job.name:17}{minutes(job.minutes):>8}  {status:14}{due:5}{words}")
    print(f"{'all':17}{minutes(total_minutes(jobs)):>8}")


# --- keeping --------------------------------------------------------------------------------------


def reason_against(parts: Sequence[Result], is_quick: bool) -> str:
    """Why a bench's results are not kept; empty: they are."""
    bench = parts[0].job.bench
    missing = [part.job.name for part in parts if part.status != OK]
    if missing:
        return f"{', '.join(missing)} failed or was not measured"
    if is_quick and bench.quick_groups:
        return "a quick run has only a part of it"
    if is_quick and not store.is_due(bench):
        return "its figures are of this code, and a quick run would be worse"
    wanted = 1 if is_quick else max(1, len(bench.parts))
    return "" if len(parts) == wanted else "only a part of it was measured"


def keep(results: Sequence[Result], is_quick: bool) -> list[str]:
    """Says of each bench whether its results were kept, and why not."""
    said = []
    together = page.together(results)
    for name in dict.fromkeys(result.job.bench.name for result in results):
        parts = [result for result in results if result.job.bench.name == name]
        reason = reason_against(parts, is_quick)
        if not reason:
            try:
                day = max(part.began[:10] for part in parts)
                store.keep(name, store.measured(declare.find(name), together[name], day))
            except (ValueError, KeyError, TypeError) as error:
                reason = f"the documents can't show it: {error}"
        said.append(f"{name}: not kept, {reason}" if reason else f"{name}: kept")
    return said


def measured_state(root: Path, began: tuple[str, str]) -> str:
    """The page's line about the code; `began` is how the tree was before the first bench."""
    commit, changes = began
    said = commit + (" with changes" if changes else "")
    if state_of(root) != began:
        say("the tree is no longer as it was when the report began: later benches had other code")
        said += " (the tree changed during the run)"
    return said


def run_report(arguments: argparse.Namespace, root: Path, runner: Runner) -> int:
    """`runner.folder`: the folder above those of all commits and machines."""
    facts = machine.facts()
    slug = machine.slug(machine.model_name(), int(facts["CPUs that may be used"]))
    began = state_of(root)
    above = runner.folder
    folder = above / f"{'+'.join(filter(None, began))}-{slug}"
    runner.folder = folder / "quick" if arguments.quick else folder
    if began[1]:
        say(f"the tree has changes beside commit {began[0]}; the figures are of it with them")
    if arguments.list:
        show_plan(runner, arguments.jobs)
        return 0
    with alone(above):
        tell_of_others(above, folder, slug)
        said = began[0] + (" with changes" if began[1] else "")
        if not arguments.page:
            try:
                measure(runner, arguments)
            except KeyboardInterrupt:
                left = len(runner.left(arguments.jobs))
                say(f"stopped; {left} benches are left. Call it again to go on, or with --page")
                return 130
            said = measured_state(root, began)
        results = runner.results(arguments.jobs)
        about = page.About(slug, said, facts, arguments.quick)
        written = page.write(about, results, root / "docs" / "reports")
        print(written.relative_to(root))
        if arguments.keep:
            for line in keep(results, arguments.quick):
                say(line)
            documents.draw_all()
    failed = [one.job.name for one in results if one.status in (FAILED, MISSING)]
    if failed:
        say(f"not measured: {', '.join(failed)}; {written.name} says why")
    return 1 if failed else 0


def main(words: Sequence[str]) -> int:
    arguments = parse(words)
    if arguments.draw:
        return documents.draw_all()
    # A shell's background job has SIGINT ignored, and every bench would inherit that.
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    return run_report(arguments, ROOT, Runner(ROOT / ".build" / "report", ROOT))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
