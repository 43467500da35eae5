"""Gets and builds rivals in copies under .build, so that the tree stays clean.

A lock file is kept without the address of its registry, which is the machine's to say: cargo makes
a lock of its own first, and its word for the registry is put into ours. Errors: a rival that can't
be had is None, and a line on stderr says why.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.runner.places import BenchError, left_out

SOURCE = Path(__file__).resolve().parent
PLACE = 'source = "registry"'
LAST_LINES = 8
TIMEOUT_S = 600.0
RUST_CACHES = ("quick_cache", "moka", "papaya", "segcache", "foyer")


def run(
    name: str,
    words: Sequence[object],
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    is_quiet: bool = False,
) -> bool:
    """A step of the build of `name`; after a failure its last lines are printed."""
    try:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        left_out(name, f"{words[0]} took more than {TIMEOUT_S:.0f} s")
        return False
    if done.returncode != 0 and not is_quiet:
        print("\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:]), file=sys.stderr)
        left_out(name, f"{Path(str(words[0])).name} failed, see above")
    return done.returncode == 0


def has(name: str, package: str, *programs: str) -> bool:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        left_out(name, f"no {' and '.join(missing)} (apt-get install {package})")
    return not missing


def is_fresh(made: Path, sources: Sequence[Path]) -> bool:
    return made.exists() and all(made.stat().st_mtime > one.stat().st_mtime for one in sources)


def fill_in_registry(pinned: str, made: str) -> str:
    """Our lock file with the registry as cargo has written it in its own."""
    found = re.search(r'^source = "registry\+[^"]*"$', made, re.MULTILINE)
    if found is None:
        raise BenchError("cargo's lock file names no registry")
    return pinned.replace(PLACE, found[0])


def copy_crate(folder: str, build: Path) -> Path | None:
    """The crate in bench/rivals/FOLDER under `build`, locked as its pinned.lock says, if any."""
    if not has(folder, "cargo-web", "cargo"):
        return None
    copy = build / folder
    shutil.copytree(SOURCE / folder, copy, dirs_exist_ok=True)
    pinned, lock = SOURCE / folder / "pinned.lock", copy / "Cargo.lock"
    if pinned.exists():
        lock.unlink(missing_ok=True)
        if not run(folder, ["cargo", "generate-lockfile", "--quiet"], cwd=copy):
            return None
        lock.write_text(fill_in_registry(pinned.read_text(), lock.read_text()))
    return copy


def cargo_build(copy: Path, *more: str, is_quiet: bool = False) -> bool:
    # As our preset `native` has -march=native.
    env = {"RUSTFLAGS": "-C target-cpu=native"}
    locked = ["--locked"] if (copy / "pinned.lock").exists() else []
    words = ["cargo", "build", "--release", "--quiet", *locked, *more]
    return run(copy.name, words, env, copy, is_quiet)


def build_cargo(folder: str, build: Path) -> Path | None:
    """bench_FOLDER, the program of the crate in bench/rivals/FOLDER."""
    copy = copy_crate(folder, build)
    if copy is None or not cargo_build(copy):
        return None
    return copy / "target" / "release" / f"bench_{folder.removeprefix('bus_')}"


def build_rust_caches(build: Path) -> dict[str, list[str]]:
    """The command of each Rust cache that could be built, less the row's arguments. Each is a
    feature: where all together fail (one asks for a newer Rust), each is tried alone."""
    copy = copy_crate("cache_rust", build)
    if copy is None:
        return {}
    built = list(RUST_CACHES)
    if not cargo_build(copy, "--features", ",".join(built), is_quiet=True):
        built = [name for name in RUST_CACHES if cargo_build(copy, "--features", name)]
        for name in sorted(set(RUST_CACHES) - set(built)):
            left_out(name, "cargo failed, see above")
        if not built or not cargo_build(copy, "--features", ",".join(built)):
            return {}
    program = str(copy / "target" / "release" / "bench_cache_rust")
    return {name: [program, "--contender", name] for name in built}


def build_caffeine(build: Path) -> list[str] | None:
    """`[*build_caffeine(...), "HitRatio", FILE, ...]` runs it. pom.xml pins it."""
    source, folder = SOURCE / "caffeine", build / "caffeine"
    if not has("caffeine", "default-jdk-headless maven", "java", "javac", "mvn"):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    jars, pom = folder / "jars", source / "pom.xml"
    if not is_fresh(folder / "jars.made", [pom]):
        shutil.rmtree(jars, ignore_errors=True)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        words = ["mvn", "-B", "-q", "-f", pom, goal, f"-DoutputDirectory={jars}"]
        if not run("caffeine", [*words, f"-DbuildDirectory={folder}"]):
            return None
        (folder / "jars.made").touch()
    sources = sorted(source.glob("*.java"))
    if not is_fresh(folder / "classes.made", [*sources, folder / "jars.made"]):
        words = ["javac", "-cp", f"{jars}/*", "-d", folder / "classes", *sources]
        if not run("caffeine", words):
            return None
        (folder / "classes.made").touch()
    return ["java", "-cp", f"{jars}/*{os.pathsep}{folder / 'classes'}"]


def onnxruntime_library() -> Path:
    """That of the wheel, so that all rivals with ONNX Runtime run the same one."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise BenchError("no onnxruntime: ./dev bench server installs it")
    return next((Path(spec.origin).parent / "capi").glob("libonnxruntime.so*"))
