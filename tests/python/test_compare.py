"""./dev compare: two builds in turns, with a ratio, its interval and a verdict for CI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.compare import __main__ as compare
from bench.compare import builds, contests
from bench.runner.places import BenchError

# Prints a rate with 1 % of noise, and a benchmark of the same time; each run draws anew.
STUB = """#!{python}
import json, pathlib, random, sys
runs = pathlib.Path(__file__).with_name("runs")
with runs.open("a") as file:
    file.write("{name}\\n")
dice = random.Random("{name}" + str(len(runs.read_text())))
ns = {ns} * dice.lognormvariate(0, 0.01)
if "{kind}".startswith("benchmark_"):
    assert "--benchmark_format=json" in sys.argv
    one = dict(name="bm_a", cpu_time=ns, real_time=9e9, time_unit="ns", run_type="iteration")
    wall = dict(one, name="bm_b/real_time", real_time=ns / 1000, cpu_time=1, time_unit="us")
    mean = dict(one, name="bm_a_mean", run_type="aggregate")
    print(json.dumps(dict(benchmarks=[one, wall, mean])))
else:
    print(json.dumps(dict(per_second=1e9 / ns, ns=ns, name="x")))
"""


def make_build(folder: Path, ns: float, kind: str = "plain") -> Path:
    folder.mkdir()
    program = folder / "prog"
    text = STUB.format(python=sys.executable, ns=ns, name=folder.name, kind=kind)
    program.write_text(text)
    program.chmod(0o755)
    return folder


def run(folder: Path, ns: float, *words: str, kind: str = "plain") -> int:
    """Of a base of 100 ns and a head of `ns`."""
    base, head = make_build(folder / "base", 100, kind), make_build(folder / "head", ns, kind)
    return compare.main([str(base), str(head), "--program", "prog", *words])


def test_a_build_against_itself_is_within_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, 100, "--more", "per_second") == 0
    said = capsys.readouterr().out
    line = next(line for line in said.splitlines() if line.startswith("per_second"))
    assert line.endswith("within noise") and re.search(r"0\.99\d\d|1\.00\d\d", line)
    assert "8 pairs" in said


def test_a_slow_down_is_seen_and_the_exit_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, 106, "--less", "ns", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    (row,) = document["rows"]
    assert row["verdict"] == "slower" and row["low"] <= 1.06 <= row["high"]
    assert document["reached"] and len(row["pairs"]) == 8


def test_a_faster_build_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, 90, "--more", "per_second") == 0
    assert "faster" in capsys.readouterr().out


def test_a_difference_below_the_limit_passes_and_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, 106, "--less", "ns", "--limit", "10%") == 0
    assert "within noise (a difference, below the limit of 10.0%)" in capsys.readouterr().out


def test_slices_take_turns_and_the_order_is_of_the_seed(tmp_path: Path) -> None:
    assert run(tmp_path, 100, "--less", "ns", "--minutes", "0") == 0
    orders = {}
    for name in ("base", "head"):
        orders[name] = len((tmp_path / name / "runs").read_text().splitlines())
    assert orders == {"base": 8, "head": 8}  # four pairs, the fewest, of two slices each
    seen: list[tuple[int, ...]] = []

    class Contest:
        def block(self, who: tuple[int, ...]) -> list[dict[str, float]]:
            seen.append(tuple(who))
            return [{"t": 1.0 + 0.001 * at} for at in range(len(who))]

        def shown(self, metric: str, cost: float) -> str:
            return str(cost)

    for _ in range(2):
        compare.measure(Contest(), compare.parse(["a", "b", "--seed", "7"]))
    assert seen[:8] == seen[8:] and set(seen) == {(0, 1, 1, 0), (1, 0, 0, 1)}


def test_an_interval_that_stays_wide_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, 100, "--less", "ns", "--minutes", "0", "--within", "0.01%") == 0
    assert "minutes were not enough" in capsys.readouterr().out


def test_each_benchmark_of_a_google_benchmark_program_is_a_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, 110, kind="benchmark_filter") == 1
    said = capsys.readouterr().out
    assert re.search(r"^bm_a .*slower$", said, re.MULTILINE)
    assert re.search(r"^bm_b/real_time .*slower$", said, re.MULTILINE)
    assert "bm_a_mean" not in said


def test_builds_that_cannot_be_compared_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="say which keys of its JSON count"):
        run(tmp_path, 100)
    both = [builds.Build(name, name, tmp_path / name) for name in ("base", "head")]
    program = contests.Program(both, "prog", [], more=["rate"])
    with pytest.raises(BenchError, match="base: prog prints rate = None; wanted a number above 0"):
        program.block((0, 1))
    (tmp_path / "base" / "prog").write_text("#!/bin/sh\necho usage\n")
    with pytest.raises(BenchError, match="printed no JSON .*: 'usage"):
        program.block((0, 1))
    (tmp_path / "base" / "prog").write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    with pytest.raises(BenchError, match="exit status 3: broken"):
        program.block((0, 1))


def test_errors_have_an_exit_status_of_their_own(project_root: Path) -> None:
    words = [sys.executable, "-P", "-m", "bench.compare", "no-such-ref", "HEAD"]
    path = os.pathsep.join(str(project_root / folder) for folder in ("", "python"))
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'no-such-ref' is no folder and no git ref" in done.stderr
    done = subprocess.run([*words, "--limit", "2 percent"], env=env, capture_output=True)
    assert done.returncode == 2 and b"invalid share value" in done.stderr


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits of a project whose build makes `prog`, of a text."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init")
    (root / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(a LANGUAGES NONE)\n"
        "add_custom_command(OUTPUT prog DEPENDS ${CMAKE_SOURCE_DIR}/text\n"
        "  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/text prog)\n"
        "add_custom_target(all_of_it ALL DEPENDS prog)\n"
    )
    preset = {"name": "release", "generator": "Ninja"}
    preset["binaryDir"] = "${sourceDir}/.build/release"
    presets = {"version": 6, "configurePresets": [preset]}
    (root / "CMakePresets.json").write_text(json.dumps(presets))
    (root / ".gitignore").write_text(".build\n.venv\n")
    for text in ("first", "second"):
        (root / "text").write_text(text)
        git(root, "add", ".")
        git(root, "commit", "-m", text)
    return root


def test_a_ref_is_built_in_a_worktree_of_its_own_which_is_kept(repository: Path) -> None:
    before = (repository / "text").read_text()
    base = builds.find("HEAD~1", repository, "release", "prog")
    head = builds.find("HEAD", repository, "release", "prog")
    assert base.program("prog").read_text() == "first"
    assert head.program("prog").read_text() == "second"
    assert (repository / "text").read_text() == before
    assert base.what.startswith("commit ") and base.folder != head.folder
    stamp = head.program("prog").stat().st_mtime_ns
    again = builds.find("HEAD", repository, "release", "prog")
    assert again == head and again.program("prog").stat().st_mtime_ns == stamp


def test_a_bench_that_is_not_optimised_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bench_queue").write_bytes(b"libbenchmark.so")
    (tmp_path / "CMakeCache.txt").write_text("A:BOOL=ON\nLUMEN_TESTS:BOOL=ON\nB:BOOL=ON\n")
    build = builds.Build("old", "the folder old", tmp_path)
    with pytest.raises(BenchError, match="old has tests, .*bench_queue is not optimised"):
        contests.Program([build, build], "bench_queue", [])
    (tmp_path / "CMakeCache.txt").write_text("LUMEN_TESTS:BOOL=OFF\n")
    assert contests.Program([build, build], "bench_queue", []).is_google


def test_a_build_that_fails_says_its_last_lines(repository: Path) -> None:
    (repository / "CMakeLists.txt").write_text("nonsense(\n")
    git(repository, "commit", "-am", "broken")
    with pytest.raises(BenchError, match=r"(?s)configuring \w+ failed .*Parse error"):
        builds.find("HEAD", repository, "release", "prog")


@pytest.mark.parametrize("load", ["http", "bus"])
def test_two_servers_are_loaded_in_turn(lumen_binary: Path, load: str) -> None:
    both = [builds.Build(name, name, lumen_binary.parent) for name in ("base", "head")]
    slices = contests.Serving(both, "inline", slice_s=0.3, load=load).block((0, 1, 1, 0))
    assert len(slices) == 4
    for costs in slices:
        assert 0 < costs["requests/s"] < 0.3 and 0 < costs["CPU µs a request"] < 0.1


def test_models_that_are_loaded_together_have_metrics_of_their_own(lumen_binary: Path) -> None:
    build = builds.Build("head", "head", lumen_binary.parent)
    serving = contests.Serving([build, build], "auto", slice_s=1.0, load="mixed")
    (costs,) = serving.block((0,))
    assert list(costs) == ["mlp requests/s", "squeezenet requests/s"]
    assert serving.shown("mlp requests/s", costs["mlp requests/s"]).replace(",", "").isdigit()
