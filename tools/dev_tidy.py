"""Which sources clang-tidy has to see, and running it on them.

A source is checked where its code changed since the last landing, and so is every such header,
through one source that includes it: the source of the same name where there is one. A source that
was clean on this machine, with the same headers, settings and pins, is known by a hash and not read
again. Of one thread, but for the runs; reads the tree and git, writes empty files in the cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import tidy_cpp
from dev_setup import ROOT, run_quietly

SOURCES = ("src/*.cc", "apps/*.cc", "tests/*.cc", "bench/*.cc", "examples/*.cc")
HEADERS = ("include/*.h", "src/*.h", "apps/*.h", "tests/*.h", "bench/*.h")
INCLUDE_ROOTS = ("include", "src", "apps", "tests", "bench")
# Beside the sources these decide the findings of clang-tidy.
DECIDING = (
    ".clang-tidy",
    "tests/.clang-tidy",
    "tools/requirements-lint.txt",
    "requirements.txt",
    "tools/apt-packages.txt",
)
# A fresh clone of a push has nothing that says where the push began. This file names the commit
# that had landed when somebody last looked: an older one only makes clang-tidy read more.
NOTED = ".ci/landed"
KEEP_KNOWN_SECONDS = 30 * 24 * 3600
# Comments that speak to clang-tidy: NOLINT, and the name of an argument, as in f(/*rows=*/2).
FOR_CLANG_TIDY = re.compile(r"NOLINT\w*(?:\([^)]*\))?|/\*\s*\w+\s*=\s*\*/")
# clang reads no header that gcc has precompiled, and so finds an include that a test lacks.
OF_GCC_ALONE = re.compile(
    r" -Winvalid-pch -include \S+cmake_pch\.hxx| -fpch-preprocess"
    r"| -Wno-(stringop-overflow|restrict)"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def tracked(patterns: Iterable[str]) -> list[str]:
    """Files of git's index that still exist, new ones included, ignored ones not."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns)
    return sorted({name for name in listed if (ROOT / name).is_file()})


def landed() -> str | None:
    """The commit that last landed, or an earlier one; None: not known, so check everything."""
    named = os.environ.get("LUMEN_TIDY_BASE", "")
    if named:
        return named
    head = git("rev-parse", "HEAD")
    merged = git("merge-base", "HEAD", "origin/main")
    if merged and merged != head:
        return merged[0]
    note = ROOT / NOTED
    noted = note.read_text().strip() if note.exists() else ""
    return noted if noted and git("merge-base", noted, "HEAD") == [noted] else None


def changed_files(base: str) -> set[str] | None:
    """Since `base`, uncommitted changes included; None: git doesn't know `base`."""
    if not git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"):
        return None
    untracked = git("ls-files", "--others", "--exclude-standard")
    changed = {*git("diff", "--name-only", base, "--"), *untracked}
    return {name for name in changed if not has_same_code(base, name)}


def has_same_code(base: str, name: str) -> bool:
    """Only comments have changed, and none that speaks to clang-tidy."""
    if not name.endswith((".h", ".cc")) or not (ROOT / name).is_file():
        return False
    before = git("show", f"{base}:{name}")  # nothing of a new file
    return bool(before) and checked_part("\n".join(before)) == checked_part(
        (ROOT / name).read_text(errors="replace")
    )


def checked_part(text: str) -> tuple[str, list[str]]:
    return tidy_cpp.without_comments(text), FOR_CLANG_TIDY.findall(text)


@cache
def included(name: str) -> tuple[str, ...]:
    """The files of the tree that `name` itself includes."""
    found = []
    for word in INCLUDE.findall((ROOT / name).read_text(errors="replace")):
        places = [Path(name).parent / word, *[Path(root) / word for root in INCLUDE_ROOTS]]
        found += [str(place) for place in places if (ROOT / place).is_file()][:1]
    return tuple(os.path.normpath(one) for one in found)


@cache
def closure(name: str) -> frozenset[str]:
    """`name` and all of the tree that it includes, through others too."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += included(one)
    return frozenset(seen)


def own_source(header: str, sources: Sequence[str]) -> list[str]:
    """The source of the same name that includes it: none, or one."""
    same = [name for name in sources if Path(name).stem == Path(header).stem]
    return [name for name in same if header in closure(name)][:1]


def includer(header: str, sources: Sequence[str], chosen: set[str]) -> list[str]:
    """None where a chosen source sees `header`, else the smallest that does."""
    seeing = [name for name in sources if header in closure(name)]
    if chosen.intersection(seeing):
        return []
    return sorted(seeing, key=lambda name: (len(closure(name)), name))[:1]


def sources_to_check(everything: bool) -> list[str]:
    sources = tracked(SOURCES)
    base = None if everything else landed()
    changed = changed_files(base) if base else None
    if changed is None or ".clang-tidy" in changed:
        changed = {*sources, *tracked(HEADERS)}
    headers = [name for name in tracked(HEADERS) if name in changed]
    chosen = {name for name in sources if name in changed}
    for header in headers:
        chosen.update(own_source(header, sources))
    for header in headers:
        chosen.update(includer(header, sources, chosen))
    return sorted(chosen)


# --- running --------------------------------------------------------------------------------------


@dataclass
class Tidy:
    """clang-tidy over the compile commands of `build`."""

    program: Path
    build: Path
    jobs: int
    commands: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entries = json.loads((self.build / "compile_commands.json").read_text())
        for entry in entries:
            entry["command"] = OF_GCC_ALONE.sub("", entry["command"])
        self.folder = self.build / "tidy"  # with compile commands of its own
        self.folder.mkdir(exist_ok=True)
        (self.folder / "compile_commands.json").write_text(json.dumps(entries))
        for entry in entries:
            name = os.path.relpath(entry["file"], ROOT)
            # Another clone, and CI's stricter build, find the same.
            command = entry["command"].replace(str(ROOT), ".")
            self.commands[name] = command.replace(" -Werror ", " ")

    def run(self, names: Sequence[str]) -> Report:
        known = known_folder()
        report = Report([name for name in names if name not in self.commands])
        keys = {name: self.key(name) for name in names if name in self.commands}
        todo = [name for name in keys if not (known / keys[name]).exists()]
        report.known = len(keys) - len(todo)
        # The largest first, so that none of them is alone at the end.
        todo.sort(key=lambda name: len(closure(name)), reverse=True)
        with ThreadPoolExecutor(self.jobs) as pool:
            for name, output in zip(todo, pool.map(self.check, todo)):
                if output is None:
                    (known / keys[name]).touch()
                else:
                    report.failed[name] = output
        return report

    def key(self, name: str) -> str:
        told = hashlib.sha256(self.commands[name].encode())
        for file in (*DECIDING, *sorted(closure(name))):
            told.update(file.encode() + b"\0" + (ROOT / file).read_bytes() + b"\0")
        return told.hexdigest()

    def check(self, name: str) -> str | None:
        """None if it is clean, or the output of clang-tidy."""
        done = run_quietly([self.program, "--quiet", "-p", self.folder, name])
        return None if done.returncode == 0 else done.stdout


@dataclass
class Report:
    not_built: list[str]  # no preset compiles them here
    known: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def known_folder() -> Path:
    """Empty files named by the hash of clean sources; those of long ago are removed."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(home) / "lumen-tidy"
    folder.mkdir(parents=True, exist_ok=True)
    end = time.time() - KEEP_KNOWN_SECONDS
    for file in folder.iterdir():
        if file.stat().st_mtime < end:
            file.unlink(missing_ok=True)
    return folder
