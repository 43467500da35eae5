"""The C++ libraries as other projects get them: docs/libraries.md, built outside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

COMPONENTS = ("queue", "memory", "cache", "bus")
pytestmark = pytest.mark.slow


def run(words: list[object], cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def programs_of_the_page(root: Path) -> dict[str, str]:
    text = (root / "docs" / "libraries.md").read_text()
    found = re.findall(r"^## (\w+)\n.*?^```cpp\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert tuple(name for name, _ in found) == COMPONENTS
    return dict(found)


def project_with(folder: Path, root: Path, how: str) -> Path:
    """A project with each program, which gets Lumen by the line `how`."""
    folder.mkdir()
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(outside LANGUAGES CXX)", how]
    for name, source in programs_of_the_page(root).items():
        (folder / f"{name}.cc").write_text(source)
        lines += [f"add_executable({name} {name}.cc)"]
        lines += [f"target_link_libraries({name} PRIVATE lumen::{name})"]
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    return folder


def build_and_run(project: Path, *options: object, names: Sequence[str] = COMPONENTS) -> None:
    run(["cmake", "-S", ".", "-B", "build", "-G", "Ninja", *options], project)
    run(["cmake", "--build", "build", "-j2", "--target", *names], project)
    for name in names:
        run([project / "build" / name], project)


@pytest.fixture(scope="session")
def prefix(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed from a build without the server, which finds no package of .venv."""
    folder = tmp_path_factory.mktemp("package")
    words = ["cmake", "-S", project_root, "-B", "build", "-G", "Ninja", "-DLUMEN_SERVER=OFF"]
    # With /usr Debian's folder of libraries counts, in the prefix too.
    shown = run([*words, "-DLUMEN_VENV=/nowhere", "-DCMAKE_INSTALL_PREFIX=/usr"], folder)
    assert "openvino" not in shown.lower()
    run(["cmake", "--build", "build", "-j2"], folder)
    run(["cmake", "--install", "build", "--prefix", folder / "prefix"], folder)
    run(["cpack", "-B", folder, "--config", "build/CPackConfig.cmake"], folder)
    shutil.rmtree(folder / "build")  # nothing of it may be needed any more
    return folder / "prefix"


def test_find_package_gives_each_component(
    project_root: Path, prefix: Path, tmp_path: Path
) -> None:
    how = f"find_package(lumen 0.1 REQUIRED COMPONENTS {' '.join(COMPONENTS)})"
    build_and_run(project_with(tmp_path / "p", project_root, how), f"-DCMAKE_PREFIX_PATH={prefix}")


def test_find_package_refuses_a_component_and_a_version_that_are_not_there(
    prefix: Path, tmp_path: Path
) -> None:
    wanted = "no component 'server'; wanted one of: base, c, queue, memory, cache, bus"
    for number, (how, says) in enumerate(
        {
            "find_package(lumen REQUIRED COMPONENTS server)": wanted,
            "find_package(lumen 1.0 REQUIRED)": "version: 0.1.0",
        }.items()
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"cmake_minimum_required(VERSION 3.25)\nproject(outside LANGUAGES CXX)\n{how}\n"
        (folder / "CMakeLists.txt").write_text(text)
        words = ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode != 0 and says in " ".join(done.stderr.split())


def test_fetch_content_builds_the_libraries_alone(project_root: Path, tmp_path: Path) -> None:
    how = f"""include(FetchContent)
FetchContent_Declare(lumen SOURCE_DIR {project_root})
FetchContent_MakeAvailable(lumen)"""
    project = project_with(tmp_path / "p", project_root, how)
    build_and_run(project, "-DLUMEN_VENV=/nowhere", names=["queue", "cache"])
    assert not list((project / "build").rglob("lumen_mod_server*"))
    # The project chooses its own way to be built.
    assert "CMAKE_BUILD_TYPE:STRING=\n" in (project / "build" / "CMakeCache.txt").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg wants to be root")
def test_the_debian_package_is_installed_used_and_removed(
    project_root: Path, prefix: Path, tmp_path: Path
) -> None:
    """By dpkg, into a root of its own, whose libc is this machine's."""
    (package,) = prefix.parent.glob("liblumen-dev_0.1.0_*.deb")
    root = tmp_path / "root"
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/dpkg/status").touch()
    dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless"]
    run([*dpkg, "--install", package], tmp_path)
    how = f"find_package(lumen 0.1 REQUIRED COMPONENTS {' '.join(COMPONENTS)})"
    project = project_with(tmp_path / "p", project_root, how)
    build_and_run(project, f"-DCMAKE_PREFIX_PATH={root}/usr", names=["queue", "bus"])
    run([*dpkg, "--remove", "liblumen-dev"], tmp_path)
    assert not list((root / "usr").rglob("*lumen*"))


def test_pkg_config_gives_the_libraries(project_root: Path, prefix: Path, tmp_path: Path) -> None:
    found = next(prefix.rglob("lumen.pc")).parent
    env = {"PKG_CONFIG_PATH": str(found), "LD_LIBRARY_PATH": str(found.parent)}
    assert run(["pkg-config", "--modversion", "lumen"], tmp_path, env) == "0.1.0\n"
    words = run(["pkg-config", "--cflags", "--libs", "lumen"], tmp_path, env).split()
    for name, source in programs_of_the_page(project_root).items():
        (tmp_path / f"{name}.cc").write_text(source)
        run(["g++", "-std=c++20", f"{name}.cc", "-o", name, *words], tmp_path, env)
        run([tmp_path / name], tmp_path, env)


def test_c_and_lisp_take_the_installed_library(
    project_root: Path, prefix: Path, tmp_path: Path
) -> None:
    found = next(prefix.rglob("lumen_c.pc")).parent
    env = {"PKG_CONFIG_PATH": str(found), "LD_LIBRARY_PATH": str(found.parent)}
    words = run(["pkg-config", "--cflags", "--libs", "lumen_c"], tmp_path, env).split()
    source = project_root / "examples" / "bus_c" / "prices.c"
    run(["gcc", "-std=gnu11", source, "-o", "prices", *words], tmp_path, env)
    run([tmp_path / "prices"], tmp_path, env)
    if shutil.which("sbcl"):
        program = project_root / "examples" / "lisp" / "main.lisp"
        run(["sbcl", "--script", program, found.parent / "liblumen_c.so"], tmp_path, env)
