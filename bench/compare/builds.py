"""The two builds of ./dev compare: a folder as it is, or a git ref, built once and kept.

A ref is checked out in .build/compare/SHA, a git worktree that shares this tree's .venv and ccache,
and built there with its own CMake files; the next comparison finds it. Threads: one.
Errors: BenchError names the argument that is neither a folder nor a ref, or has the build's last
lines.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.runner.places import BenchError

LAST_LINES = 15
WITH_TESTS = "\nLUMEN_TESTS:BOOL=ON\n"  # a line of CMakeCache.txt


@dataclass(frozen=True)
class Build:
    name: str  # as the user gave it
    what: str  # the commit, or the folder
    folder: Path

    def program(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            raise BenchError(
                f"{self.name} has no program {name}: {path} is not there. Wanted one that "
                "its build makes (bench_* are in the preset native)"
            )
        cache = self.folder / "CMakeCache.txt"
        if name.startswith("bench_") and cache.exists() and WITH_TESTS in cache.read_text():
            raise BenchError(
                f"{self.name} has tests, and beside them {name} is not optimised "
                "(bench/CMakeLists.txt). Give a build of the preset native, or a git ref, which is "
                "built with it"
            )
        return path


def run(words: Sequence[object], cwd: Path, what: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-LAST_LINES:])
        raise BenchError(f"{what} failed ({done.returncode}):\n{last}")
    return done.stdout.strip()


def commit_of(text: str, root: Path) -> str | None:
    words = ["git", "rev-parse", "--quiet", "--verify", "--end-of-options", f"{text}^{{commit}}"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    return done.stdout.strip() or None


def check_out(sha: str, root: Path) -> Path:
    """The worktree of that commit; one whose folder was removed by hand is made again."""
    tree = root / ".build" / "compare" / sha[:12]
    if not (tree / "CMakeLists.txt").exists():
        run(["git", "worktree", "prune"], root, "git worktree prune")
        words = ["git", "worktree", "add", "--force", "--detach", tree, sha]
        run(words, root, f"checking {sha[:12]} out")
    link = tree / ".venv"
    if not link.is_symlink():
        link.symlink_to(root / ".venv")
    return tree


def build(tree: Path, preset: str, target: str) -> Path:
    """ninja finds out by itself that nothing is to be done."""
    run(["cmake", "--preset", preset, "--log-level=WARNING"], tree, f"configuring {tree.name}")
    folder = tree / ".build" / preset
    words = ["ninja", "-C", folder, "--quiet", *([target] if target else [])]
    run(words, tree, f"building {target or preset} of {tree.name}")
    return folder


def find(text: str, root: Path, preset: str, target: str) -> Build:
    """`target`: the program that the comparison runs."""
    folder = Path(text)
    if (folder / target).exists():
        return Build(text, f"the folder {folder}", folder.resolve())
    sha = commit_of(text, root)
    if sha is None:
        there = f"a folder without the program {target}" if folder.is_dir() else "no folder"
        raise BenchError(
            f"{text!r} is {there} and no git ref. Wanted a build folder (.build/release) "
            "or a branch, tag or commit (HEAD~1)"
        )
    print(f"compare: building {target} of {text} ({sha[:12]})", file=sys.stderr, flush=True)
    return Build(text, f"commit {sha[:12]}", build(check_out(sha, root), preset, target))
