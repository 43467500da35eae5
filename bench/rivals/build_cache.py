"""Builds the Rust rivals of ./dev bench cache in a copy under .build, with the crates that its
lock file pins: quick_cache, moka, papaya, segcache, foyer-memory.

Each is a feature of its own: where all together fail (one asks for a newer Rust), each is tried
alone. Errors: a rival that can't be had is left out, and a line on stderr says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from build_hyper import fill_in_registry

SOURCE = Path(__file__).resolve().parent / "cache_rust"
RIVALS = ("quick_cache", "moka", "papaya", "segcache", "foyer")


def cargo(folder: Path, *words: str, quiet: bool = False) -> bool:
    done = subprocess.run(
        ["cargo", *words, "--quiet"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=subprocess.DEVNULL if quiet else None,
        # As our preset `native` has -march=native.
        env={**os.environ, "RUSTFLAGS": "-C target-cpu=native"},
        check=False,
    )
    return done.returncode == 0


def build_features(folder: Path, features: list[str], quiet: bool) -> bool:
    words = ["build", "--release", "--locked", "--features", ",".join(features)]
    return cargo(folder, *words, quiet=quiet)


def build_rust(build: Path) -> dict[str, list[str]]:
    """The command of each rival that could be built, less the row's arguments."""
    if shutil.which("cargo") is None:
        print("bench: Rust rivals left out: no cargo (apt-get install cargo-web)", file=sys.stderr)
        return {}
    folder = build / "cache_rust"
    shutil.copytree(SOURCE, folder, dirs_exist_ok=True)
    lock = folder / "Cargo.lock"
    lock.unlink(missing_ok=True)
    if not cargo(folder, "generate-lockfile"):
        print("bench: Rust rivals left out: cargo failed, see above", file=sys.stderr)
        return {}
    lock.write_text(fill_in_registry((SOURCE / "pinned.lock").read_text(), lock.read_text()))
    built = list(RIVALS)
    if not build_features(folder, built, quiet=True):
        built = [name for name in RIVALS if build_features(folder, [name], quiet=False)]
        for name in set(RIVALS) - set(built):
            print(f"bench: {name} left out: cargo failed, see above", file=sys.stderr)
        if not built or not build_features(folder, built, quiet=False):
            return {}
    program = str(folder / "target" / "release" / "bench_cache_rust")
    return {name: [program, "--contender", name] for name in built}
