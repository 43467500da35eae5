"""Gets Caffeine by Maven and compiles its benches HitRatio and Timing under .build.

pom.xml pins it. `command(ROOT / ".build")` is the command that runs one of the two, less its name
and its arguments. Errors: None where it can't be had, a line on stderr says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "caffeine"
ROOT = SOURCE.parent.parent.parent


def left_out(why: str) -> None:
    print(f"bench: caffeine left out: {why}", file=sys.stderr)


def run(words: Sequence[object], timeout_s: float) -> bool:
    """No progress lines; after a failure mvn's last lines are printed."""
    try:
        done = subprocess.run(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        left_out(f"{words[0]} took more than {timeout_s:.0f} s")
        return False
    if done.returncode != 0:
        print("\n".join((done.stdout + done.stderr).splitlines()[-8:]), file=sys.stderr)
        left_out(f"{words[0]} failed, see above (it needs its package registry the first time)")
    return done.returncode == 0


def is_fresh(made: Path, sources: Sequence[Path]) -> bool:
    return made.exists() and all(made.stat().st_mtime > one.stat().st_mtime for one in sources)


def get_jars(folder: Path) -> Path | None:
    """A folder with Caffeine's jar and its dependencies."""
    jars = folder / "jars"
    pom = SOURCE / "pom.xml"
    if is_fresh(folder / "jars.made", [pom]):
        return jars
    shutil.rmtree(jars, ignore_errors=True)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    words = ["mvn", "-B", "-q", "-f", pom, goal, f"-DoutputDirectory={jars}"]
    if not run([*words, f"-DbuildDirectory={folder}"], 300):
        return None
    (folder / "jars.made").touch()
    return jars


def command(build: Path) -> list[str] | None:
    """`[*command(build), "HitRatio", FILE, ...]` runs it."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        left_out(f"no {' and '.join(missing)} (apt-get install default-jdk-headless maven)")
        return None
    folder = build / "caffeine"
    folder.mkdir(parents=True, exist_ok=True)
    jars = get_jars(folder)
    if jars is None:
        return None
    sources = sorted(SOURCE.glob("*.java"))
    made = folder / "classes.made"
    if not is_fresh(made, [*sources, folder / "jars.made"]):
        if not run(["javac", "-cp", f"{jars}/*", "-d", folder / "classes", *sources], 120):
            return None
        made.touch()
    return ["java", "-cp", f"{jars}/*{os.pathsep}{folder / 'classes'}"]


if __name__ == "__main__":
    found = command(ROOT / ".build")
    if found is None:
        sys.exit(1)
    print(" ".join(found))
