"""Gets and builds the rivals of ./dev bench bus under .build: Tachyon, Aeron and iceoryx2, pinned.

Tachyon comes as a source package that needs gcc 14 or clang 17: Debian's clang-19 with its linker
builds its C++ sources with bench/rivals/bus_tachyon, and its Python module. Aeron is a jar,
iceoryx2 a crate, and a wheel for Python. Errors: a rival that can't be had is None, a line on
stderr says why.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bench.rivals.build import SOURCE, build_cargo, has, is_fresh, run
from bench.runner.places import ROOT, left_out

TACHYON = "tachyon-ipc==0.5.1"
ICEORYX2 = "iceoryx2==0.10.0"
AERON = "io.aeron:aeron-all:1.51.0"
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
COMPILERS = ("clang++-19", "clang++-20", "clang++-18", "clang++-17")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def compiler() -> dict[str, str] | None:
    """The environment that makes pip use it. Its linker comes in a package of its own (lld-19)."""
    for name in COMPILERS:
        linker = name.replace("clang++", "ld.lld")
        if shutil.which(name) and shutil.which(linker):
            return {"CXX": name, "CC": name.replace("++", ""), "LDFLAGS": "-fuse-ld=lld"}
    left_out("tachyon", f"no {COMPILERS[0]} and ld.lld (apt-get install clang-19 lld-19)")
    return None


def tachyon_sources(folder: Path, env: dict[str, str]) -> Path | None:
    name, version = TACHYON.split("==")
    unpacked = folder / f"{name.replace('-', '_')}-{version}"
    if not unpacked.exists():
        words = [*PIP, "download", "--no-deps", "--no-binary", ":all:", "--dest", folder, TACHYON]
        if not run("tachyon", words, env):
            return None
        shutil.unpack_archive(f"{unpacked}.tar.gz", folder, filter="data")
    return unpacked / "_core_local"


def build_tachyon(build: Path) -> list[str] | None:
    """The command, with the flags of the package's own setup.py."""
    env = compiler()
    if env is None:
        return None
    folder = build / "bus_tachyon"
    folder.mkdir(parents=True, exist_ok=True)
    core = tachyon_sources(folder, env)
    if core is None:
        return None
    made = folder / "bench_tachyon"
    source = SOURCE / "bus_tachyon" / "tachyon_bench.cc"
    headers = [*(ROOT / "bench" / "bus").glob("*.h"), ROOT / "bench" / "queue" / "harness.h"]
    if is_fresh(made, [source, *headers]):
        return [str(made)]
    flags = "-std=c++23 -O3 -flto -fno-exceptions -fno-rtti -march=native -mtune=native".split()
    includes = [f"-I{core / 'include'}", f"-I{ROOT / 'include'}"]
    files = [source, *sorted((core / "src").glob("*.cpp"))]
    words = [env["CXX"], *flags, env["LDFLAGS"], *includes, *files, "-lrt", "-o", made]
    return [str(made)] if run("tachyon", words) else None


def install_python(build: Path) -> Path:
    """A folder for sys.path with the Python modules that could be had: tachyon, iceoryx2."""
    folder = build / "bus_python"
    env = compiler() or {}
    for package, module in ((TACHYON, "tachyon"), (ICEORYX2, "iceoryx2")):
        if not (folder / module).exists():
            words = [*PIP, "install", "--upgrade", "--target", folder, package]
            run(f"{module} for Python", words, env)
    return folder


def build_iceoryx2(build: Path) -> list[str] | None:
    made = build_cargo("bus_iceoryx2", build)
    return [str(made)] if made is not None else None


def build_aeron(build: Path) -> list[str] | None:
    """The command that runs BusAeron, less its arguments."""
    if not has("aeron", "default-jdk-headless maven", "java", "javac", "mvn"):
        return None
    folder = build / "bus_aeron"
    _, name, version = AERON.split(":")
    jar = folder / f"{name}-{version}.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = [f"-Dartifact={AERON}", f"-DoutputDirectory={folder}"]
        if not run("aeron", ["mvn", "-B", "-q", MAVEN_COPY, *options]):
            return None
    source = SOURCE / "bus_aeron" / "BusAeron.java"
    if not is_fresh(folder / "BusAeron.class", [source]):
        if not run("aeron", ["javac", "-XDignore.symbol.file", "-cp", jar, "-d", folder, source]):
            return None
    opens = [
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("jdk.internal.misc", "sun.nio.ch")
    ]
    # As its own documentation asks for in production.
    checks = "-Dagrona.disable.bounds.checks=true"
    return ["java", *opens, checks, "-cp", f"{jar}:{folder}", "BusAeron"]
