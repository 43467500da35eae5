"""Builds bench/rivals/hyper_ort in a copy under .build, with the crates that its lock file pins.

The lock file is kept without the address of the registry, which is the machine's to say: cargo
makes a lock of its own first, and its word for the registry is put into ours. None: no cargo, or it
failed; the line on stderr says which.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "hyper_ort"
PLACE = 'source = "registry"'


def fill_in_registry(pinned: str, made: str) -> str:
    """Our lock file with the registry as cargo has written it in its own."""
    found = re.search(r'^source = "registry\+[^"]*"$', made, re.MULTILINE)
    if found is None:
        raise RuntimeError("cargo's lock file names no registry")
    return pinned.replace(PLACE, found[0])


def build_hyper(build: Path) -> Path | None:
    cargo = shutil.which("cargo")
    if cargo is None:
        print("bench: hyper left out: no cargo (apt-get install cargo-web)", file=sys.stderr)
        return None
    copy = build / "hyper_ort"
    shutil.copytree(SOURCE, copy, dirs_exist_ok=True)
    (copy / "Cargo.lock").unlink(missing_ok=True)
    made = subprocess.run([cargo, "generate-lockfile", "--quiet"], cwd=copy, stdout=sys.stderr)
    if made.returncode == 0:
        lock = copy / "Cargo.lock"
        lock.write_text(fill_in_registry((SOURCE / "pinned.lock").read_text(), lock.read_text()))
        words = [cargo, "build", "--release", "--quiet", "--locked"]
        made = subprocess.run(words, cwd=copy, stdout=sys.stderr)
    if made.returncode != 0:
        print("bench: hyper left out: cargo failed, see above", file=sys.stderr)
        return None
    return copy / "target" / "release" / "bench_hyper_ort"


def onnxruntime_library() -> Path:
    """That of the wheel, so that all rivals with ONNX Runtime run the same one."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise RuntimeError("no onnxruntime: ./dev bench server installs it")
    return next((Path(spec.origin).parent / "capi").glob("libonnxruntime.so*"))
