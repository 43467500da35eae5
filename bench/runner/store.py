"""The kept figures: bench/baselines/NAME.json, and whether the code has changed since.

A file holds {"measurements": [...]}, one for each kind of machine ("near", "far", or null where the
bench does not tell them apart), each with `machine`, `commit`, `sources` (a hash of the content of
the files that the bench names) and `rows` with their raw rounds, a line a row. Age fails nothing:
`./dev report --due` lists the benches whose code is newer. Threads: one. Errors: ValueError names
the figures that are not fit to be kept, or the listed file that isn't there.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.runner.goals import without_rows
from bench.runner.places import ROOT
from bench.runner.rows import by_kind

if TYPE_CHECKING:
    from bench.runner.declare import Bench

BASELINES = ROOT / "bench" / "baselines"
# The settings on which a kernel's speed depends most, by the kernel's names for them.
TELLING_FLAGS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}

Measurement = dict[str, Any]


def describe_cpu(cpuinfo: str) -> str:
    """ "AMD EPYC 9B45, AVX-512": the first CPU of /proc/cpuinfo, which has one paragraph a CPU."""
    first = cpuinfo.split("\n\n")[0]
    found = dict(re.findall(r"^(model name|flags)\s*: (.*)$", first, re.MULTILINE))
    name = re.sub(r"\((R|TM)\)| Processor", "", found.get("model name", "unknown CPU")).strip()
    flags = found.get("flags", "").split()
    kinds = [text for flag, text in TELLING_FLAGS.items() if flag in flags]
    if "AVX-512" in kinds and "AVX2" in kinds:
        kinds.remove("AVX2")
    hypervisor = ["virtual"] if "hypervisor" in flags else []
    return ", ".join([name, *kinds, *hypervisor])


def describe_machine(day: str = "") -> dict[str, Any]:
    return {
        "cpu": describe_cpu(Path("/proc/cpuinfo").read_text()),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "day": day or datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


# --- the code that a figure is of -----------------------------------------------------------------


def expand(pattern: str) -> list[str]:
    """a{b,c}d: abd and acd; one pair of braces, which pathlib's globs don't have."""
    match = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", pattern)
    if match is None:
        return [pattern]
    before, choices, after = match.groups()
    return [before + choice + after for choice in choices.split(",")]


def sources(bench: Bench, root: Path = ROOT) -> list[str]:
    found: set[str] = {f"bench/{bench.name}.py"}
    for pattern in [one for listed in bench.sources for one in expand(listed)]:
        # pathlib's "**" matches folders only.
        paths = root.glob(pattern + "/*" if pattern.endswith("**") else pattern)
        kept = [p for p in paths if p.is_file() and not {"__pycache__", "target"} & {*p.parts}]
        if not kept:
            raise ValueError(f"bench/{bench.name}.py: sources has {pattern}, which isn't there")
        found.update(path.relative_to(root).as_posix() for path in kept)
    return sorted(found)


def content_hash(bench: Bench, root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    for path in sources(bench, root):
        content = (root / path).read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def git(*words: str, root: Path = ROOT) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(bench: Bench, root: Path = ROOT) -> str:
    """The commit at hand, and whether the files that are measured differ from it."""
    changed = git("status", "--porcelain", "--", *sources(bench, root), root=root)
    head = git("rev-parse", "--short=10", "HEAD", root=root)
    return head + (" with changes" if changed else "")


def age(commit_said: str, root: Path = ROOT) -> str:
    """ "12 commits ago"; a commit that this history does not have is said."""
    try:
        count = int(git("rev-list", "--count", f"{commit_said.split()[0]}..HEAD", root=root))
    except subprocess.CalledProcessError:
        return "of a history before this one"
    return f"{count} commits ago" if count != 1 else "1 commit ago"


# --- files ----------------------------------------------------------------------------------------


def path_of(name: str, folder: Path | None = None) -> Path:
    return (folder or BASELINES) / f"{name}.json"


def load(name: str, folder: Path | None = None) -> list[Measurement]:
    """Empty: no figures are kept."""
    file = path_of(name, folder)
    found: list[Measurement] = json.loads(file.read_text())["measurements"] if file.exists() else []
    return found


def is_fresh(bench: Bench, measurement: Measurement, root: Path = ROOT) -> bool:
    return bool(measurement["sources"] == content_hash(bench, root))


def is_due(bench: Bench) -> bool:
    """Its figures are older than its code, or not there."""
    found = load(bench.name)
    return not found or not all(is_fresh(bench, one) for one in found)


def measured(bench: Bench, document: dict[str, Any], day: str = "") -> list[Measurement]:
    """One for each kind of machine that the rows name. `day`: if it was not measured today."""
    rows = document["rows"]
    if not rows:
        raise ValueError("it has no rows")
    bare = [row for row in rows if not row.get("rounds")]
    if bare:
        raise ValueError(f"{len(bare)} rows have no raw rounds, the first is {bare[0].get('row')}")
    open_goals = without_rows(bench.goals, rows)
    if open_goals and bench.has_a_row_for_each_goal:
        raise ValueError(f"it has no row for the goal {open_goals[0].rows!r}")
    made = {
        "machine": describe_machine(day),
        "commit": commit(bench),
        "sources": content_hash(bench),
    }
    return [{"kind": one["kind"], **made, **one} for one in by_kind(document)]


def keep(name: str, fresh: Sequence[Measurement]) -> None:
    """A measurement of another kind that is there already stays, with its own commit and day."""
    kinds = {one["kind"] for one in fresh}
    others = [one for one in load(name) if one["kind"] not in kinds]
    together = sorted([*fresh, *others], key=lambda one: str(one["kind"]))
    path_of(name).write_text(as_text(together))


def as_text(measurements: Sequence[Measurement]) -> str:
    """JSON with a line for each row, so that a difference names the rows that changed."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    written = []
    for one in measurements:
        more = [f'"{key}":{line(value)}' for key, value in one.items() if key != "rows"]
        rows = ",\n".join(line(row) for row in one["rows"])
        written.append("{" + ",\n".join([*more, f'"rows":[\n{rows}\n]']) + "}")
    return '{"measurements":[\n' + ",\n".join(written) + "\n]}\n"
