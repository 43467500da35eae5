"""./dev, the presets, the counting, and the ways to build that the README prints."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import dev_report
import dev_setup
import pytest
from dev_report import Count

COMMANDS = "setup build demo test bench lint fmt asan tsan fuzz soak ci".split()


def run(words: list[object], cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a step; its output shows where it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{words} exited with {done.returncode}:\n{done.stdout[-4000:]}"
    return done


def copy_of_tree(root: Path, target: Path) -> Path:
    """What a clone would hold, with the work in progress: the files that git doesn't ignore."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in run(words, root).stdout.split("\0"):
        if name and (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    return target


def test_dev_without_argument_lists_every_command_with_a_line(project_root: Path) -> None:
    shown = run([project_root / "dev"], project_root).stdout
    listed = re.findall(r"^  (\w+) +\S.*$", shown, re.MULTILINE)
    assert listed == COMMANDS


def test_dev_refuses_an_unknown_command(project_root: Path) -> None:
    done = subprocess.run([project_root / "dev", "brew"], capture_output=True, text=True)
    assert done.returncode == 2 and "'brew'" in done.stderr and done.stdout == ""


def test_a_soak_gives_its_larger_tests_more_time_than_the_preset_does(
    project_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was: stress tests of 20 times their size had the 300 s of the usual ones, so none passed."""
    loader = SourceFileLoader("dev_script", str(project_root / "dev"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    dev = importlib.util.module_from_spec(spec)
    loader.exec_module(dev)
    words: list[str] = []

    def run_ctest(_: str, *arguments: str, **__: object) -> Count:
        words.extend(arguments)
        return Count(1, 0)

    monkeypatch.setattr(dev, "setup", lambda *_: None)
    monkeypatch.setattr(dev, "build_preset", lambda *_: project_root)
    monkeypatch.setattr(dev, "run_ctest", run_ctest)
    monkeypatch.setattr(dev, "run_pytest", lambda *_: Count(1, 0))
    assert dev.cmd_soak(["0"]) == 0
    presets = json.loads((project_root / "CMakePresets.json").read_text())["testPresets"]
    usual = max(one.get("execution", {}).get("timeout", 0) for one in presets)
    assert usual > 0 and int(words[words.index("--timeout") + 1]) >= 10 * usual


def test_dev_bench_without_name_lists_the_benches(project_root: Path) -> None:
    shown = run([project_root / "dev", "bench"], project_root).stdout
    assert "NAME is one of" in shown


def test_each_building_command_has_its_preset(project_root: Path) -> None:
    presets = json.loads((project_root / "CMakePresets.json").read_text())
    named = {
        kind: {entry["name"] for entry in presets[kind] if not entry.get("hidden")}
        for kind in ("configurePresets", "buildPresets", "testPresets")
    }
    assert named["configurePresets"] == named["buildPresets"]
    assert {"release", "native", "v3", "debug", "asan", "tsan", "fuzz"} <= named["buildPresets"]
    assert {"release", "asan", "tsan"} <= named["testPresets"]


def test_every_python_requirement_is_pinned(project_root: Path) -> None:
    files = [project_root / "requirements.txt", *(project_root / "tools").glob("requirements*.txt")]
    for path in files:
        for name in dev_setup.names_in(path):
            assert re.fullmatch(r"[\w.\-]+(\[\w+\])?==[\w.]+", name), f"{path.name}: {name}"


def test_the_wheel_asks_for_the_same_openvino(project_root: Path) -> None:
    pinned = next(
        name for name in dev_setup.names_in(dev_setup.REQUIREMENTS) if name.startswith("openvino==")
    )
    assert (project_root / "pyproject.toml").read_text().count(f'"{pinned}"') == 2


def test_missing_packages_are_named() -> None:
    assert dev_setup.missing_packages(["dpkg", "no-such-package-of-lumen"]) == [
        "no-such-package-of-lumen"
    ]


def test_without_root_setup_prints_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev_setup, "root_prefix", lambda: None)
    with pytest.raises(SystemExit) as exit_:
        dev_setup.install_packages(["spin", "sbcl"])
    assert exit_.value.code == 1
    assert capsys.readouterr().out == "sudo apt-get install spin sbcl\n"


def write_gtest(path: Path, tests: int, failures: int, skipped: int) -> None:
    cases = [{"result": "SKIPPED"}] * skipped + [{"result": "COMPLETED"}] * (tests - skipped)
    report = {
        "tests": tests,
        "failures": failures,
        "errors": 0,
        "testsuites": [{"testsuite": cases}],
    }
    path.write_text(json.dumps(report))


def test_cases_are_counted_and_a_program_that_died_is_a_failure(tmp_path: Path) -> None:
    write_gtest(tmp_path / "good.json", tests=10, failures=0, skipped=2)
    write_gtest(tmp_path / "bad.json", tests=5, failures=2, skipped=0)
    write_gtest(tmp_path / "leaky.json", tests=3, failures=0, skipped=0)
    junit = tmp_path / "ctest.xml"
    junit.write_text(
        '<testsuite><testcase name="good" status="run"/><testcase name="bad" status="fail"/>'
        '<testcase name="leaky" status="fail"/><testcase name="crashed" status="fail"/>'
        '<testcase name="script" status="run"/></testsuite>'
    )
    # 8 + 3 + 3 + script; 2 of bad, the leak, the crash.
    assert dev_report.count_ctest(junit, tmp_path) == Count(15, 4)
    assert dev_report.count_ctest(tmp_path / "gone.xml", tmp_path) == Count(0, 1)


def test_pytest_cases_are_counted_without_the_skipped(tmp_path: Path) -> None:
    junit = tmp_path / "pytest.xml"
    junit.write_text(
        '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>'
    )
    assert dev_report.count_pytest(junit) == Count(5, 2)


def test_the_last_line_gives_the_count() -> None:
    assert dev_report.last_line_count("noise\n12 passed, 3 failed\n") == Count(12, 3)
    assert dev_report.last_line_count("killed\n") == Count(0, 1)
    assert Count(12, 3).line() == "12 passed, 3 failed"


def start_and_stop(
    executable: Path, arguments: list[str], env: dict[str, str] | None = None
) -> None:
    """The executable itself, by what it finds by itself: no harness, no environment of ours."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("LUMEN_")}
    process = subprocess.Popen(
        [str(executable), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**clean, **(env or {})},
    )
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if line.startswith("lumen: ready http="):
            break
    process.terminate()
    process.stdout.read()
    assert process.wait(30) == 0 and "lumen: ready http=" in printed[-1], "".join(printed)


@pytest.mark.slow
def test_the_classic_build_ends_in_a_server_that_runs(project_root: Path, tmp_path: Path) -> None:
    """The lines of the README, in a copy of the tree. It lends its .venv, as a second run would."""
    tree = copy_of_tree(project_root, tmp_path / "lumen")
    (tree / ".venv").symlink_to(project_root / ".venv")
    line = "mkdir build && cd build && cmake -DCMAKE_BUILD_TYPE=Release .. && make -j$(nproc)"
    run(["bash", "-c", line], tree)
    start_and_stop(tree / "build" / "lumen_engine", ["--http", "127.0.0.1:0"])


def test_cmake_says_to_run_setup_where_the_wheel_is_missing(
    project_root: Path, tmp_path: Path
) -> None:
    words = ["cmake", "-S", project_root, "-B", tmp_path, f"-DLUMEN_VENV={tmp_path}/nothing"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode != 0 and "Run ./dev setup" in done.stderr


@pytest.mark.slow
def test_pip_install_gives_the_executable_and_the_package(
    project_root: Path, tmp_path: Path
) -> None:
    """Into a fresh environment, without downloads: the build uses what .venv has, and the openvino
    of .venv is lent by a link. The executable must find it below its own environment."""
    tree = copy_of_tree(project_root, tmp_path / "lumen")
    venv = tmp_path / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", venv], tmp_path)
    python = venv / "bin" / "python"
    site = Path(
        run(
            [python, "-c", "import site; print(site.getsitepackages()[0])"], tmp_path
        ).stdout.strip()
    )
    ours = next((project_root / ".venv" / "lib").glob("python3*/site-packages"))
    for package in ("openvino", "numpy", "numpy.libs"):
        if (ours / package).exists():
            (site / package).symlink_to(ours / package)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--quiet", "--no-deps", "--no-index"]
    run([*pip, "wheel", *offline, "--no-build-isolation", "-w", tmp_path, tree], tmp_path)
    wheel = next(tmp_path.glob("lumen_engine-*.whl"))
    run([*pip, "--python", python, "install", *offline, wheel], tmp_path)
    shown = run(
        [python, "-c", "import lumen_engine as l; print(l.__version__, l.find_executable())"],
        tmp_path,
        env={"PATH": "/usr/bin:/bin"},
    ).stdout.split()
    assert shown == ["0.1.0", str(venv / "bin" / "lumen")]
    assert "serve" in run([python, "-m", "lumen_engine", "--help"], tmp_path).stdout
    models = ["--model-repository", str(project_root / "models")]
    start_and_stop(venv / "bin" / "lumen", ["serve", "--http", "127.0.0.1:0", *models])
