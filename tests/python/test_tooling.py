"""./dev, the presets, the counting, and the ways to build that docs/build.md prints."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path

import ci
import dev_fuzz
import dev_report
import dev_setup
import dev_tidy
import pytest
from dev_report import Count

COMMANDS = (
    "setup build wheel demo test bench report compare docs lint fmt asan tsan fuzz"
    " judge soak ci".split()
)


def run(
    words: list[object], cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a step; its output shows where it fails."""
    done = dev_setup.run_quietly(words, cwd, env)
    assert done.returncode == 0, f"{words} exited with {done.returncode}:\n{done.stdout[-4000:]}"
    return done


def copy_of_tree(root: Path, target: Path) -> Path:
    """The files of a clone, with the work in progress: the files that git doesn't ignore."""
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
    environments: list[dict[str, str]] = []

    def call(_: object, env: dict[str, str] | None = None, **__: object) -> int:
        if env is not None:  # the simulation has its own arguments instead
            environments.append(env)
        return 0

    def run_ctest(_: str, *arguments: str, **__: object) -> Count:
        words.extend(arguments)
        return Count(1, 0)

    monkeypatch.setattr(dev, "setup", lambda *_: None)
    monkeypatch.setattr(dev, "build_preset", lambda *_: project_root)
    monkeypatch.setattr(dev, "call", call)
    monkeypatch.setattr(dev, "run_ctest", run_ctest)
    monkeypatch.setattr(dev, "run_pytest", lambda *_: Count(1, 0))
    monkeypatch.setattr(dev, "run_judge", lambda *_: Count(1, 0))
    monkeypatch.setattr(dev, "run_random_models", lambda *_: Count(1, 0))
    monkeypatch.delenv("LUMEN_SOAK_REQUESTS", raising=False)
    assert dev.cmd_soak(["0"]) == 0
    assert [env["LUMEN_SOAK_REQUESTS"] for env in environments] == ["100000"]
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


def test_tests_that_tsan_leaves_out_have_no_threads(project_root: Path) -> None:
    text = (project_root / "tools" / "cmake" / "options.cmake").read_text()
    found = re.search(r"set\(LUMEN_TEST_FILES_LEFT_OUT (\w[^)]*)\)", text)
    assert found
    for name in found[1].split():
        source = (project_root / "tests" / "unit" / "cache" / f"{name}_test.cc").read_text()
        assert not re.search(r"thread\b|std::async|BackgroundTick|pthread", source), name


def test_every_python_requirement_is_pinned(project_root: Path) -> None:
    files = [project_root / "requirements.txt", *(project_root / "tools").glob("requirements*.txt")]
    for path in files:
        for name in dev_setup.names_in(path):
            # A version may have an epoch: 1!2.0.
            pattern = r"[\w.\-]+(\[\w+\])?==(\d+!)?[\w.]+"
            assert re.fullmatch(pattern, name), f"{path.name}: {name}"


@pytest.mark.parametrize("package", ["openvino", "onnxruntime"])
def test_the_wheel_asks_for_the_same_runtimes(project_root: Path, package: str) -> None:
    names = dev_setup.names_in(dev_setup.REQUIREMENTS)
    pinned = next(name for name in names if name.startswith(f"{package}=="))
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
    reason = [{"message": "a_test.cc:7\nno second CPU\n"}]
    cases = [{"name": "B", "result": "SKIPPED", "skipped": reason}] * skipped
    cases += [{"name": "C", "result": "COMPLETED"}] * (tests - skipped)
    report = {
        "tests": tests,
        "failures": failures,
        "errors": 0,
        "testsuites": [{"name": "A", "testsuite": cases}],
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


def test_the_slowest_tests_of_all_reports_are_named_in_order(tmp_path: Path) -> None:
    (tmp_path / "gtest").mkdir()
    cases = [{"name": "Quick", "time": "0.01s"}, {"name": "Slow", "time": "7.5s"}]
    report = {"testsuites": [{"name": "A", "testsuite": cases}]}
    (tmp_path / "gtest" / "unit_x.json").write_text(json.dumps(report))
    (tmp_path / "ctest.xml").write_text(
        '<testsuite><testcase name="unit_x" time="7.6"/><testcase name="script" time="3"/>'
        "</testsuite>"
    )
    (tmp_path / "pytest.xml").write_text(
        '<testsuites><testsuite><testcase classname="python.test_z" name="test_q" time="9.25"/>'
        "</testsuite></testsuites>"
    )
    assert dev_report.slowest(tmp_path, 3) == [
        "  9.25 s  python.test_z.test_q",
        "  7.50 s  unit_x: A.Slow",
        "  3.00 s  script",
    ]


def test_pytest_cases_are_counted_without_the_skipped(tmp_path: Path) -> None:
    junit = tmp_path / "pytest.xml"
    junit.write_text(
        '<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>'
    )
    assert dev_report.count_pytest(junit) == Count(5, 2)


def test_skipped_tests_are_named_with_their_reason(tmp_path: Path) -> None:
    """Was: a test that no machine ever ran was counted nowhere and named nowhere."""
    write_gtest(tmp_path / "unit_x.json", tests=3, failures=0, skipped=1)
    junit = tmp_path / "ctest.xml"
    junit.write_text(
        '<testsuite><testcase name="unit_x" status="run"/><testcase name="spin_y" status="notrun">'
        '<skipped message="SKIP_RETURN_CODE=77"/></testcase></testsuite>'
    )
    counted = dev_report.count_ctest(junit, tmp_path)
    python = tmp_path / "pytest.xml"
    python.write_text(
        '<testsuites><testsuite tests="2" failures="0" errors="0" skipped="1"><testcase '
        'classname="python.test_z" name="test_q"/><testcase classname="python.test_z" '
        'name="test_r"><skipped message="needs&#10;a display"/></testcase></testsuite></testsuites>'
    )
    counted += dev_report.count_pytest(python)
    assert counted == Count(3, 0)
    assert counted.skipped_lines() == [
        "skipped: unit_x: A.B: no second CPU",
        "skipped: spin_y: SKIP_RETURN_CODE=77",
        "skipped: python.test_z.test_r: needs a display",
    ]


def test_ci_ends_with_the_skipped_tests_and_the_time_of_each_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "dev").write_text(
        "#!/bin/sh\necho 'skipped: spin_y: no spin'\n"
        'echo "2 passed, $(test $1 = lint; echo $?) failed"\n'
    )
    (tmp_path / "dev").chmod(0o755)
    monkeypatch.setattr(ci, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["ci.py", "test", "lint"])
    assert ci.main() == 1
    last = capsys.readouterr().out.splitlines()[-6:]
    assert last[:2] == ["skipped: test: spin_y: no spin", "skipped: lint: spin_y: no spin"]
    assert re.fullmatch(r"=== \./dev test: 2 passed, 1 failed \(\d+ s\)", last[2])
    assert re.fullmatch(r"=== \./dev lint: 2 passed, 0 failed \(\d+ s\)", last[3])
    assert re.fullmatch(r"=== all: \d+\.\d minutes", last[4])
    assert last[5] == "4 passed, 1 failed"


@pytest.fixture
def small_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository: two sources, a header with a source of its own, and one that both include."""
    files = {
        "src/net/a.cc": '#include "net/a.h"\n',
        "src/net/a.h": "#include <lumen/base/all.h>\n",
        "src/net/b.cc": '#include "a.h"\n#include <vector>\n',
        "include/lumen/base/all.h": "\n",
        "tests/unit/c_test.cc": "#include <lumen/base/all.h>\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for key in ("GIT_DIR", "GIT_INDEX_FILE", "LUMEN_TIDY_BASE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(dev_tidy, "ROOT", tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path)
    return tmp_path


def git(tree: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return run(["git", *who, *words], tree).stdout.strip()


def commit(tree: Path) -> None:
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "x")


def note_landing(tree: Path) -> None:
    """HEAD has landed, as the file in .ci says, and a fresh clone knows no more."""
    (tree / ".ci").mkdir()
    (tree / ".ci" / "landed").write_text(git(tree, "rev-parse", "HEAD") + "\n")


def to_tidy(everything: bool = False) -> list[str]:
    dev_tidy.included.cache_clear()
    dev_tidy.closure.cache_clear()
    return dev_tidy.sources_to_check(everything)


def test_tidy_sees_all_commits_of_a_push_in_a_fresh_clone_not_only_the_last(
    small_tree: Path,
) -> None:
    """Was: where HEAD is origin/main, only the last commit's changes were checked."""
    note_landing(small_tree)
    (small_tree / "src/net/b.cc").write_text('#include "a.h"\nint b;\n')
    commit(small_tree)
    (small_tree / "README.md").write_text("new\n")
    commit(small_tree)
    git(small_tree, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert to_tidy() == ["src/net/b.cc"]


def test_tidy_reaches_a_changed_header_through_a_source_that_includes_it(small_tree: Path) -> None:
    """Was: a header that changed alone was checked by nobody."""
    note_landing(small_tree)
    (small_tree / "src/net/a.h").write_text("#include <lumen/base/all.h>\nint a;\n")
    assert to_tidy() == ["src/net/a.cc"], "its own source"
    (small_tree / "include/lumen/base/all.h").write_text("int all;\n")
    assert to_tidy() == ["src/net/a.cc"], "which sees the other header as well"
    git(small_tree, "checkout", "-q", "src")
    assert to_tidy() == ["tests/unit/c_test.cc"], "the smallest that sees it"


def test_tidy_leaves_out_a_source_in_which_only_comments_changed(small_tree: Path) -> None:
    note_landing(small_tree)
    (small_tree / "src/net/b.cc").write_text('#include "a.h"\n// Other words.\n#include <vector>\n')
    assert to_tidy() == []
    (small_tree / "src/net/b.cc").write_text('#include "a.h"\n#include <vector>  // NOLINT(a)\n')
    assert to_tidy() == ["src/net/b.cc"], "this comment speaks to clang-tidy"
    (small_tree / "src/net/b.cc").write_text('#include "a.h"\n#include <vector>  /*rows=*/\n')
    assert to_tidy() == ["src/net/b.cc"], "and so does the name of an argument"


def test_tidy_checks_everything_where_the_base_or_the_settings_say_so(
    small_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = ["src/net/a.cc", "src/net/b.cc", "tests/unit/c_test.cc"]
    assert to_tidy() == everything, "no landing is known"
    note_landing(small_tree)
    assert to_tidy() == [] and to_tidy(everything=True) == everything
    (small_tree / ".clang-tidy").write_text("Checks: '*'\n")
    assert to_tidy() == everything
    (small_tree / ".clang-tidy").unlink()
    monkeypatch.setenv("LUMEN_TIDY_BASE", "no-such-commit")
    assert to_tidy() == everything


def test_a_clean_file_is_not_checked_again_until_something_that_it_reads_changes(
    small_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_tree / "cache"))
    for name in dev_tidy.DECIDING:
        (small_tree / name).parent.mkdir(exist_ok=True)
        (small_tree / name).touch()
    ran = small_tree / "ran"
    program = small_tree / "clang-tidy"
    program.write_text(f'#!/bin/sh\necho "$4" >> {ran}\necho finding\ntest $4 != src/net/b.cc\n')
    program.chmod(0o755)
    names = ["src/net/a.cc", "src/net/b.cc"]

    def compiled_by(command: str) -> None:
        commands = [{"file": str(small_tree / name), "command": command} for name in names]
        (small_tree / "compile_commands.json").write_text(json.dumps(commands))

    compiled_by("g++ -O2 x")

    def checked() -> tuple[set[str], int, set[str]]:
        ran.write_text("")
        to_tidy()
        report = dev_tidy.Tidy(program, small_tree, 2).run([*names, "src/net/new.cc"])
        assert report.not_built == ["src/net/new.cc"]
        return set(ran.read_text().split()), report.known, set(report.failed)

    assert checked() == (set(names), 0, {"src/net/b.cc"})
    assert checked() == ({"src/net/b.cc"}, 1, {"src/net/b.cc"}), "what failed is run again"
    compiled_by("g++ -O2 -Werror x")
    assert checked() == ({"src/net/b.cc"}, 1, {"src/net/b.cc"}), "as CI builds"
    compiled_by("g++ -O3 x")
    assert checked() == (set(names), 0, {"src/net/b.cc"})
    (small_tree / "include/lumen/base/all.h").write_text("// new\n")
    assert checked() == (set(names), 0, {"src/net/b.cc"})


def test_each_fuzz_target_has_a_corpus_and_a_run_of_its_own_seed(
    project_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in dev_fuzz.targets():
        assert any((dev_fuzz.CORPUS / name).iterdir()), name
    seen: list[str] = []

    def fake(words: list[str]) -> subprocess.CompletedProcess[str]:
        seen.extend(word for word in words if word.startswith("-seed="))
        return subprocess.CompletedProcess(words, len(seen) - 1, "number_of_executed_units: 1234\n")

    monkeypatch.setattr(dev_fuzz, "run_quietly", fake)
    monkeypatch.setattr(dev_fuzz.Fuzzer, "scratch", lambda self, name: project_root)
    fuzzer = dev_fuzz.Fuzzer(project_root, 30, False)
    assert dev_fuzz.run_all(fuzzer, ["npy", "chunked"], 1) == Count(1, 1)
    said = capsys.readouterr().err
    assert len(set(seen)) == 2, "a fixed seed looks for the same inputs each time"
    for word in seen:
        assert f"seed {word.removeprefix('-seed=')}, 1,234 inputs" in said


def test_the_last_line_gives_the_count() -> None:
    assert dev_report.last_line_count("noise\n12 passed, 3 failed\n") == Count(12, 3)
    assert dev_report.last_line_count("killed\n") == Count(0, 1)
    assert Count(12, 3).line() == "12 passed, 3 failed"


def start_and_stop(
    executable: Path, arguments: list[str], env: dict[str, str] | None = None
) -> str:
    """The executable itself, with the files that it finds by itself: no harness, no environment of
    ours. Returns its output until it was ready."""
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
    return "".join(printed)


@pytest.mark.slow
def test_the_classic_build_ends_in_a_server_of_the_model_that_its_configuration_names(
    project_root: Path, tmp_path: Path
) -> None:
    """The line of docs/build.md, in a copy of the tree, with the .venv of this one.

    Two folders deep, as ./dev builds: paths are then the same, and ccache has the objects.
    """
    tree = copy_of_tree(project_root, tmp_path / "lumen")
    (tree / ".venv").symlink_to(project_root / ".venv")
    line = "mkdir -p build/x && cd build/x && cmake -DCMAKE_BUILD_TYPE=Release ../.. && make -j2"
    run(["bash", "-c", line], tree)
    model = tree / "models" / "squeezenet" / "1" / "model.onnx"
    assert model.is_file()
    csv = json.loads((tree / "config.json").read_text())["engine"]["telemetry_csv_path"]
    assert Path(csv).name.startswith("squeezenet_")
    banner = start_and_stop(tree / "build" / "x" / "lumen_engine", ["--http", "127.0.0.1:0"])
    assert "squeezenet/1" in banner


def test_the_build_makes_a_missing_model_and_leaves_one_that_is_there(
    project_root: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    (models / "squeezenet").mkdir(parents=True)
    for name in ("onnx_tools.py", "squeezenet/make.py"):
        shutil.copy(project_root / "models" / name, models / name)
    look = ["cmake", f"-DMODELS={models}", f"-DPYTHON={sys.executable}"]
    look += ["-P", str(project_root / "tools" / "cmake" / "models.cmake")]
    run(look, tmp_path)
    model = models / "squeezenet" / "1" / "model.onnx"
    assert model.stat().st_size > 4_900_000
    assert [file.name for file in model.parent.iterdir()] == ["model.onnx"]
    model.write_bytes(b"trained by somebody")
    run(look, tmp_path)
    assert model.read_bytes() == b"trained by somebody"
    model.unlink()
    look[2] = "-DPYTHON=/nowhere/python"
    assert "Run ./dev setup" in run(look, tmp_path).stdout
    assert not model.exists()


def test_cmake_says_to_run_setup_where_the_wheel_is_missing(
    project_root: Path, tmp_path: Path
) -> None:
    words = ["cmake", "-S", project_root, "-B", tmp_path, f"-DLUMEN_VENV={tmp_path}/nothing"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode != 0 and "Run ./dev setup" in done.stderr


@pytest.mark.slow
def test_the_wheel_serves_in_an_environment_with_an_empty_path(
    project_root: Path, tmp_path: Path
) -> None:
    """Into a fresh environment, without downloads: the build uses the packages of .venv, and the
    runtimes of .venv are lent by links. The executable must find them beside its package."""
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
    for package in ("openvino", "onnxruntime", "nanobind_backend", "numpy", "numpy.libs"):
        if (ours / package).exists():
            (site / package).symlink_to(ours / package)
    build = [sys.executable, project_root / "tools" / "wheel.py", "--tree", tree]
    wheel = Path(run([*build, "--output", tmp_path], tmp_path).stdout.splitlines()[-1])
    assert re.fullmatch(r"lumen_engine-0\.1\.0-cp311-abi3-manylinux_\S+_x86_64\.whl", wheel.name)
    inside = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("/licenses/debian/libnghttp2-14.txt") for name in inside)
    assert not any("openvino" in Path(name).name for name in inside)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], tmp_path)
    empty = {"PATH": ""}
    shown = run(
        [python, "-c", "import lumen_engine as l; print(l.__version__, l.find_executable())"],
        tmp_path,
        env=empty,
    ).stdout.split()
    executable = site / "lumen_engine" / "bin" / "lumen"
    assert shown == ["0.1.0", str(executable)]
    assert "serve" in run([python, "-m", "lumen_engine", "--help"], tmp_path, env=empty).stdout
    listen = "from lumen_engine import bus; bus.listen('bus', role='publish').close()"
    run([python, "-c", listen], tmp_path, env=empty)
    # A command that is Python: the environment's own, with the wheel's package.
    for lumen in (venv / "bin" / "lumen", executable):
        shown_help = run(
            [lumen, "slow", "--help"], tmp_path, env={**empty, "LUMEN_PYTHON": str(python)}
        ).stdout
        assert "usage: lumen slow" in shown_help
    pages = "from lumen_engine import dashboard; print(dashboard.pages_folder())"
    assert run([python, "-c", pages], tmp_path).stdout.endswith("/_app/dashboard\n")
    models = ["--model-repository", str(project_root / "models")]
    start_and_stop(venv / "bin" / "lumen", ["serve", "--http", "127.0.0.1:0", *models])
    # Only ONNX Runtime can serve it: the exit status says that it was found.
    only = tmp_path / "only"
    shutil.copytree(project_root / "models" / "tabular" / "1", only / "tabular" / "1")
    run([venv / "bin" / "lumen", "models", "--model-repository", only], tmp_path, env=empty)
