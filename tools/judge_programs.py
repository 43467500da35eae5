"""Judges that are not installed on the machine, each in a folder of its own below .build/judges.

    python3 tools/judge_programs.py [triton | kserve | sslyze | nghttpx | h2spec | ...]...

They are made where they are missing. Those from PyPI want packages of versions that differ from
ours: each has an environment with tools/requirements-NAME.txt and nothing else. Triton's server is
inside the wheel nvidia-pytriton; its Python backend was built for NumPy 1 (with NumPy 2 each output
that it reads is empty). Those of Debian are its packages, unpacked: installed they would be
services.
Those of Go are built where there is a Go.
Standard library only. Errors: SystemExit with the words of pip, apt or go.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".build" / "judges"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@contextmanager
def alone() -> Iterator[None]:
    """Tests run in several processes, and one makes a judge."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def environment(name: str) -> Path:
    """The folder of the judge's environment."""
    requirements = ROOT / "tools" / f"requirements-{name}.txt"
    key = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = FOLDER / f"{name}-{key}"
    mark = folder / "made"  # written last: a half-made environment has none
    with alone():
        if mark.is_file():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        command = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        command += ["install", "--quiet", "--no-deps", "-r", str(requirements)]
        if subprocess.run(command).returncode != 0:
            raise SystemExit(f"pip could not install {requirements.name} (see above)")
        mark.touch()
    return folder


# Debian's packages, by the program's name. Their libraries are in apt-packages-test.txt.
PACKAGES = {
    "prometheus": ("prometheus", "usr/bin/prometheus"),
    "nghttpx": ("nghttp2-proxy", "usr/sbin/nghttpx"),
    "nginx": ("nginx", "usr/sbin/nginx"),
}


def debian_program(name: str) -> Path:
    package, path = PACKAGES[name]
    folder = FOLDER / name
    program = folder / path
    with alone():
        if program.is_file() and not list(folder.glob("*.deb")):  # removed last
            return program
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        download = ["apt-get", "download", "-qq", package]
        if subprocess.run(download, cwd=folder).returncode != 0:
            # The lists of packages may be missing or old.
            root = ["sudo", "-n"] if os.geteuid() != 0 else []
            subprocess.run([*root, "apt-get", "update", "-qq"])
            subprocess.run(download, cwd=folder)
        archives = list(folder.glob(f"{package}_*.deb"))
        if len(archives) != 1:
            raise SystemExit(f"apt-get could not download {package} (see above)")
        subprocess.run(["dpkg-deb", "-x", archives[0], folder], check=True)
        archives[0].unlink()
    return program


# Modules of Go, by the program's name. They want a newer Go than Debian 12 has.
GO_MODULES = {
    "h2spec": "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible",
    "grpcurl": "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3",
    "grpc-health-probe": "github.com/grpc-ecosystem/grpc-health-probe@v0.4.63",
    "ghz": "github.com/bojand/ghz/cmd/ghz@v0.120.0",
}


def find_go() -> str | None:
    return shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")


def go_program(name: str) -> Path:
    module = GO_MODULES[name]
    folder = FOLDER / "go" / module.rpartition("@")[2]
    program = folder / name
    with alone():
        if not program.is_file():
            go = find_go()
            if go is None:
                raise SystemExit(f"{name} needs Go: put its program `go` on the PATH")
            told = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"}
            if subprocess.run([go, "install", module], env=told).returncode != 0:
                raise SystemExit(f"go could not install {module} (see above)")
    return program


def interpreter(name: str) -> Path:
    return environment(name) / "bin" / "python"


def triton() -> Path:
    """The folder with bin/tritonserver and backends/."""
    packages = environment("triton") / "lib" / f"python{VERSION}" / "site-packages"
    server = packages / "pytriton" / "tritonserver"
    stub = server / "python_backend_stubs" / VERSION / "triton_python_backend_stub"
    if not stub.is_file():
        raise SystemExit(f"nvidia-pytriton has no Python backend for Python {VERSION}")
    place = server / "backends" / "python" / stub.name
    with alone():
        if not place.is_file():
            shutil.copy(stub, place)
        for program in (server / "bin" / "tritonserver", place):
            program.chmod(0o755)
    return server


def triton_environment() -> dict[str, str]:
    """The variables that its server wants: its libraries, and the Python of its backend."""
    libraries = [str(triton().parents[1] / "nvidia_pytriton.libs")]
    if where := sysconfig.get_config_var("LIBDIR"):
        libraries.append(where)
    programs = [str(interpreter("triton").parent), os.environ.get("PATH", "")]
    changed = {"LD_LIBRARY_PATH": ":".join(libraries), "PATH": ":".join(programs)}
    return {**os.environ, **changed}


if __name__ == "__main__":
    for judge in sys.argv[1:] or ("triton", "kserve", "mlserver", "prometheus"):
        if judge in GO_MODULES:
            print(go_program(judge))
        elif judge in PACKAGES:
            print(debian_program(judge))
        else:
            print(triton() if judge == "triton" else environment(judge))
