"""Triton's perf_analyzer, as tritonclient 2.50.0 on PyPI has it, in .build/perf_analyzer.

The manylinux wheels of later versions hold no program. It needs libcudart.so.12, which PyPI has (no
GPU is used), and Debian's libb64-0d. Standard library only. Errors: SystemExit with pip's words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".build" / "perf_analyzer"
WHEELS = {"tritonclient": "2.50.0", "nvidia-cuda-runtime-cu12": "12.9.79"}
PLATFORMS = ("manylinux1_x86_64", "manylinux2014_x86_64")


def download(folder: Path) -> None:
    names = [f"{name}=={version}" for name, version in WHEELS.items()]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), *names]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    if subprocess.run(command).returncode != 0:
        raise SystemExit(f"pip could not download {' and '.join(names)} (see above)")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wheel.unlink()


def prepare() -> Path:
    """The program's path; it is downloaded where it is missing."""
    program = FOLDER / "tritonclient-2.50.0.data" / "data" / "bin" / "perf_analyzer"
    if not program.is_file():
        partial = FOLDER.with_name(f"perf_analyzer.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        download(partial)
        shutil.rmtree(FOLDER, ignore_errors=True)
        partial.rename(FOLDER)
    program.chmod(0o755)
    return program


def environment() -> dict[str, str]:
    libraries = FOLDER / "nvidia" / "cuda_runtime" / "lib"
    return {**os.environ, "LD_LIBRARY_PATH": str(libraries)}


if __name__ == "__main__":
    print(prepare())
