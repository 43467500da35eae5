#!/usr/bin/env python3
"""Runs every Spin model (*.pml) beside this file and compares the verdicts with their headers.

A model opens with `/* expect: pass; with -DBROKEN: fail; ... */`: the model itself, then each
broken variant, which must be found to fail, or the model proves nothing. No argument: all models.
Verdicts come from assertions, which each model's monitor makes once nothing can move any more; -E
switches Spin's own complaint about end states off, since a thread that sleeps for ever with nothing
to do is right.
Exit 0: all verdicts as expected; 1: some differ; 2: spin or a C compiler is missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
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


def main(arguments: list[str]) -> int:
    for tool, package in (("spin", "spin"), ("cc", "gcc")):
        if shutil.which(tool) is None:
            print(f"run_spin: no '{tool}' in PATH: apt-get install {package}", file=sys.stderr)
            return 2
    models = [Path(a).resolve() for a in arguments] or sorted(HERE.glob("*.pml"))
    cases = [case for model in models for case in cases_of(model)]
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for case, verdict, detail in pool.map(check, cases):
            good = verdict == case.expected
            failed += not good
            name = case.model.name + (f" -D{case.define}" if case.define else "")
            print(
                f"{'ok    ' if good else 'FAILED'} {name}: {verdict}, as expected ({detail})"
                if good
                else f"FAILED {name}: {verdict}, expected {case.expected}\n{detail}",
                flush=True,
            )
    print(f"{len(cases) - failed} verdicts as expected, {failed} not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
