#!/usr/bin/env python3
"""Runs every Spin model (*.pml) beside this file and compares the verdicts with their headers.

A model opens with `/* expect: pass; with -DBROKEN: fail; ... */`: the model itself, then each
broken variant, which must be found to fail, or the model proves nothing. No argument: all models.
Verdicts come from assertions, which each model's monitor makes once nothing can move any more; -E
switches Spin's own complaint about end states off, since a thread that sleeps for ever with nothing
to do is right.

Usage: run_spin.py [--changed] [--keep] [MODEL...]; without a model: all.
  --changed  only models that have changed since they were last checked, or that cite a source file
             which has; checked.tsv has a hash of these files. CTest runs this.
  --keep     writes the hashes of the models that were checked into checked.tsv

Exit 0: all verdicts as expected; 1: some differ; 2: spin or a C compiler is missing, or a model
cites a file that is not there.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))

import tidy_cpp  # noqa: E402

CHECKED = HERE / "checked.tsv"
TIMEOUT_S = 300


@dataclass(frozen=True)
class Case:
    model: Path
    define: str  # "" for the model itself
    expected: str  # "pass" or "fail"


def cases_of(model: Path) -> list[Case]:
    header = re.match(r"/\*\s*expect:\s*(.*)", model.read_text())
    if header is None:
        sys.exit(f"{model}: the first line must be '/* expect: pass; with -DBROKEN: fail'")
    found = []
    for part in header.group(1).rstrip(" */").split(";"):
        match = re.fullmatch(r"\s*(?:with -D(\w+):)?\s*(pass|fail)\s*", part)
        if match is None:
            sys.exit(f"{model}: can't read '{part}' in its first line")
        found.append(Case(model, match.group(1) or "", match.group(2)))
    if not any(case.expected == "fail" for case in found):
        sys.exit(f"{model}: no broken variant that must fail")
    return found


def run(command: list[str], cwd: str) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode != 0 and command[0] != "./pan":
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check(case: Case) -> tuple[Case, str, str]:
    with tempfile.TemporaryDirectory() as folder:
        define = [f"-D{case.define}"] if case.define else []
        run(["spin", *define, "-a", str(case.model)], folder)
        run(["cc", "-O2", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"], folder)
        out = run(["./pan", "-m1000000", "-E"], folder)
    errors = re.search(r"errors: (\d+)", out)
    states = re.search(r"([\d.e+]+) states, stored", out)
    if errors is None or "max search depth too small" in out or "out of memory" in out:
        return case, "incomplete", out
    verdict = "pass" if errors.group(1) == "0" else "fail"
    return case, verdict, f"{states.group(1) if states else '?'} states"


def cited_files(model: Path) -> list[Path]:
    """The source files that its comments name, by their path or the end of it."""
    comments = " ".join(re.findall(r"/\*.*?\*/", model.read_text(), re.DOTALL))
    sources = [path for top in ("src", "include") for path in sorted((ROOT / top).rglob("*.*"))]
    found: set[Path] = set()
    for name in re.findall(r"[\w/.-]+\.(?:h|cc)\b", comments):
        named = [path for path in sources if path.as_posix().endswith(f"/{name}")]
        if not named:
            print(f"{model.name} cites {name}, which is not in src or include", file=sys.stderr)
            sys.exit(2)
        found.update(named)
    return sorted(found)


def content_hash(model: Path) -> str:
    """Of the model, of the code that it cites without comments, and of this file, which runs it."""
    digest = hashlib.sha256()
    cited = cited_files(model)
    for path in (Path(__file__), model, *cited):
        content = path.read_bytes()
        if path in cited:
            content = tidy_cpp.without_comments(path.read_text()).encode()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def kept_hashes() -> dict[str, tuple[str, str]]:
    """Model: its hash when it was last checked, and the day."""
    lines = CHECKED.read_text().splitlines() if CHECKED.exists() else []
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return {name: (kept, day) for name, kept, day in rows}


def has_changed(model: Path) -> bool:
    kept, day = kept_hashes().get(model.name, ("", ""))
    if kept != content_hash(model):
        return True
    print(f"unchanged since it was checked on {day}: {model.name}")
    return False


def keep(models: list[Path]) -> None:
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    kept = kept_hashes() | {model.name: (content_hash(model), day) for model in models}
    lines = [f"{name}\t{digest}\t{day}" for name, (digest, day) in sorted(kept.items())]
    head = (
        "# model, hash of it and of the files that it cites, day of the check: run_spin.py --keep"
    )
    CHECKED.write_text("\n".join([head, *lines]) + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="runs the Spin models beside this file")
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args(arguments)
    models = [model.resolve() for model in options.models] or sorted(HERE.glob("*.pml"))
    if options.changed:
        models = [model for model in models if has_changed(model)]
        if not models:
            return 0
    for tool, package in (("spin", "spin"), ("cc", "gcc")):
        if shutil.which(tool) is None:
            print(f"run_spin: no '{tool}' in PATH: apt-get install {package}", file=sys.stderr)
            return 2
    cases = [case for model in models for case in cases_of(model)]
    failed: list[Path] = []
    with ThreadPoolExecutor(2) as pool:
        for case, verdict, detail in pool.map(check, cases):
            good = verdict == case.expected
            failed += [] if good else [case.model]
            name = case.model.name + (f" -D{case.define}" if case.define else "")
            print(
                f"{'ok    ' if good else 'FAILED'} {name}: {verdict}, as expected ({detail})"
                if good
                else f"FAILED {name}: {verdict}, expected {case.expected}\n{detail}",
                flush=True,
            )
    print(f"{len(cases) - len(failed)} verdicts as expected, {len(failed)} not")
    if options.keep:
        keep([model for model in models if model not in failed])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
