"""`./dev report` runs benches one after the other, keeps finished ones, goes on with the rest."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from report import main as report_main
from report import plan, run
from report.run import Runner, alone, minutes

# Writes down when it begins and ends, then prints a row; its words say how it fails.
STUB = """
import json, os, pathlib, signal, sys, time
diary = pathlib.Path(os.environ["DIARY"])
name = pathlib.Path(sys.argv[0]).stem
def note(what):
    with diary.open("a") as file:
        file.write(f"{what} {name}\\n")
note("begin")
print("round 1 of 1", file=sys.stderr)
try:
    if os.environ.get("HANG") == name:
        print("ready", file=sys.stderr, flush=True)
        signal.pause()
except KeyboardInterrupt:
    note("stopped")
    raise
finally:
    note("end")
if os.environ.get("FAIL") == name:
    sys.exit("the rival has died")
row = {"row": name, "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0, "rival_name": "r"}
row |= {"ratio": 2.0, "spread": 0.1, "limit": None, "rounds": {"lumen": [1.0, 1.0]}}
print(json.dumps({"rows": [] if "--empty" in sys.argv else [row]}))
"""
PLAN = (
    plan.Bench("one", "One", ("--long",), 1.5),
    plan.Bench("two", "Two", (), 2.0),
    plan.Bench("three", "Three", (), 90.0),
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bench").mkdir()
    for bench in PLAN:
        (tmp_path / "bench" / f"{bench.name}.py").write_text(STUB)
    monkeypatch.setenv("DIARY", str(tmp_path / "diary"))
    return tmp_path


class Told(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def runner(tree: Path, is_quick: bool = False) -> Runner:
    return Runner(tree / "results", tree, tree, is_quick, sys.executable, Told())


def diary(tree: Path) -> list[str]:
    file = tree / "diary"
    return file.read_text().splitlines() if file.exists() else []


def test_benches_run_in_order_and_never_side_by_side(tree: Path) -> None:
    found = runner(tree).run(PLAN)
    assert [one.status for one in found] == ["ok"] * 3
    assert diary(tree) == [f"{what} {b.name}" for b in PLAN for what in ("begin", "end")]


def test_a_result_has_its_command_its_time_and_the_load_of_the_machine(tree: Path) -> None:
    runner(tree).run(PLAN[:1])
    kept = json.loads((tree / "results" / "one.json").read_text())
    assert kept["bench"] == "one" and kept["status"] == "ok" and kept["error"] == ""
    assert kept["command"].endswith("bench/one.py --json --long")
    assert kept["began"].startswith("20") and kept["seconds"] > 0
    assert set(kept["load"]) == {"seconds", "steal", "others_cpus", "load_average"}
    assert kept["document"]["rows"][0]["row"] == "one"
    assert "round 1 of 1" in (tree / "results" / "one.log").read_text()


def test_a_second_call_goes_on_with_the_missing_benches(tree: Path) -> None:
    runner(tree).run(PLAN[:2])
    (tree / "results" / "one.json").write_text('{"half a fi')
    found = runner(tree).run(PLAN)
    assert [one.status for one in found] == ["ok"] * 3
    begun = [line for line in diary(tree) if line.startswith("begin")]
    assert begun == ["begin one", "begin two", "begin one", "begin three"]


def test_a_result_of_another_command_is_measured_anew(tree: Path) -> None:
    runner(tree).run(PLAN[:1])
    changed = plan.Bench("one", "One", ("--longer",), 1.5)
    assert runner(tree).left([changed]) == [changed]
    assert runner(tree).left(PLAN[:1]) == []


def test_a_bench_that_fails_is_a_result_with_its_last_lines_and_is_tried_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "two")
    found = runner(tree).run(PLAN)
    assert [one.status for one in found] == ["ok", "failed", "ok"]
    assert "the rival has died" in found[1].error and "exit status 1" in found[1].error
    monkeypatch.delenv("FAIL")
    assert runner(tree).left(PLAN) == [PLAN[1]]
    assert [one.status for one in runner(tree).run(PLAN)] == ["ok"] * 3


def test_a_bench_without_rows_has_failed(tree: Path) -> None:
    (tree / "bench" / "one.py").write_text("print('usage: one')")
    (found,) = runner(tree).run(PLAN[:1])
    assert found.status == "failed" and "no JSON object with rows" in found.error


def test_a_bench_that_is_not_in_the_tree_is_said_and_not_run(tree: Path) -> None:
    later = plan.Bench("later", "Later", (), 1.0)
    assert [one.status for one in runner(tree).run([*PLAN[:1], later])] == [
        "ok",
        "not in this tree",
    ]


def test_each_bench_is_announced_with_its_time_and_that_of_all_that_is_left(tree: Path) -> None:
    one = runner(tree)
    one.run(PLAN)
    told = one.tell
    assert isinstance(told, Told)
    assert told[0] == "[1/3] one: about 1.5 min; all that is left about 1 h 33 min"
    assert told[2] == "[2/3] two: about 2.0 min; all that is left about 1 h 32 min"
    assert told[4] == "[3/3] three: about 1 h 30 min; all that is left about 1 h 30 min"
    assert told[1].startswith("    ok after ")


def test_a_time_is_said_in_the_unit_that_fits() -> None:
    assert [minutes(0.5), minutes(1.5), minutes(45), minutes(125)] == [
        "30 s",
        "1.5 min",
        "45 min",
        "2 h 05 min",
    ]


RUN = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from python.test_report_run import PLAN
from report import main
from report.run import Runner
import re
import signal
signal.signal(signal.SIGINT, main.interrupt)
signal.signal(signal.SIGTERM, main.interrupt)
tree = Path(sys.argv[3])
try:
    Runner(tree / "results", tree, tree, False).run(PLAN)
except KeyboardInterrupt:
    sys.exit(130)
"""


@contextmanager
def started(tree: Path, project_root: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of the plan whose second bench hangs, once that one has started; killed at the end."""
    words = [sys.executable, "-c", RUN, project_root / "tools", project_root / "tests", tree]
    process = subprocess.Popen(
        [str(word) for word in words],
        env={**os.environ, "HANG": "two"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        log = tree / "results" / "two.log"
        for line in process.stderr:
            if "[2/3]" in line:
                break
        while not (log.exists() and "ready" in log.read_text()):
            assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_bench_and_leaves_the_finished_ones(
    tree: Path, project_root: Path, number: signal.Signals
) -> None:
    with started(tree, project_root) as process:
        process.send_signal(number)
        assert process.wait(timeout=30) == 130
    assert diary(tree)[-2:] == ["stopped two", "end two"]
    assert (tree / "results" / "one.json").exists()
    assert not (tree / "results" / "two.json").exists()
    assert [one.name for one in runner(tree).left(PLAN)] == ["two", "three"]


def test_a_report_whose_reader_is_gone_ends_its_bench_all_the_same(
    tree: Path, project_root: Path
) -> None:
    """`./dev report 2>&1 | tail`: Ctrl-C ended tail first, and the bench ran on for an hour."""
    with started(tree, project_root) as process:
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) != 0
    assert diary(tree)[-2:] == ["stopped two", "end two"]


def test_a_second_report_at_once_is_refused_by_the_first_ones_process(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(SystemExit, match=rf"process {os.getpid()}"):
        with alone(tmp_path):
            pass
    with alone(tmp_path):  # it is free again
        with (tmp_path / ".lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_quick_report_takes_less_than_twenty_minutes_and_every_bench_is_in_one(
    project_root: Path,
) -> None:
    quick, full = plan.chosen(True), plan.chosen(False)
    assert plan.total_minutes(quick, True) <= plan.QUICK_LIMIT_MINUTES
    assert {bench.keeps for bench in quick} == {bench.keeps for bench in full}
    assert len({bench.name for bench in plan.PLAN}) == len(plan.PLAN)
    there = {path.stem for path in (project_root / "bench").glob("*.py")}
    # A look at memory by shapes, which no document shows; and modules that are no bench.
    unused = there - {bench.keeps for bench in plan.PLAN} - {"shape_cache", "compare", "paired"}
    assert not unused, f"add it to tools/report/plan.py: {unused}"


def test_a_name_that_no_bench_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert [one.name for one in report_main.parse(["--quick", "--only", "bus"]).benches] == ["bus"]
    parts = report_main.parse(["--only", "cache"]).benches
    assert len(parts) == 7 and all(one.keeps == "cache" for one in parts)
    with pytest.raises(SystemExit):
        report_main.parse(["--only", "buss"])
    assert "no bench 'buss' in the report; wanted some of: clients queue" in capsys.readouterr().err


def test_a_changed_tree_is_told_apart_and_documents_do_not_count(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "code.cc").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    commit, changes = report_main.state_of(tmp_path)
    assert len(commit) == 10 and changes == ""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("a page")
    assert report_main.state_of(tmp_path) == (commit, "")
    (tmp_path / "code.cc").write_text("2")
    second = report_main.state_of(tmp_path)
    (tmp_path / "new.cc").write_text("1")
    third = report_main.state_of(tmp_path)
    (tmp_path / "new.cc").write_text("2")
    assert len({second, third, report_main.state_of(tmp_path), (commit, "")}) == 4


def test_a_bench_that_hangs_is_ended_and_has_failed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANG", "one")
    monkeypatch.setattr(run, "LEAST_LIMIT_S", 1.0)
    monkeypatch.setattr(run, "TOO_LONG", 0.0)
    (found,) = runner(tree).run(PLAN[:1])
    assert found.status == "failed" and "ended after" in found.error


@pytest.fixture
def handlers() -> Iterator[None]:
    """main() sets its own."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in before:
        signal.signal(number, handler)


def call_main(tree: Path, *words: str, state: tuple[str, str] = ("abc", "")) -> int:
    arguments = report_main.parse(words)
    arguments.benches = list(PLAN[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_main, "state_of", lambda _: state)
        return report_main.main(arguments, tree, tree, sys.executable, lambda: None)


def test_a_report_says_its_time_writes_the_page_and_goes_on_the_next_time(
    tree: Path, handlers: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIL", "two")
    assert call_main(tree) == 1
    shown = capsys.readouterr()
    assert "2 of 2 benches are to be run (0 are done or not there), about 3.5 min" in shown.err
    assert "not measured: two; " in shown.err
    text = (tree / shown.out.strip()).read_text()
    assert "at commit abc: 1 of 2 benches" in text and "the rival has died" in text
    monkeypatch.delenv("FAIL")
    assert call_main(tree) == 0
    shown = capsys.readouterr()
    assert "1 of 2 benches are to be run (1 are done or not there), about 2.0 min" in shown.err
    assert "2 of 2 benches" in (tree / shown.out.strip()).read_text()
    assert [line for line in diary(tree) if line == "begin one"] == ["begin one"]
    assert call_main(tree, "--fresh") == 0
    assert [line for line in diary(tree) if line == "begin one"] == ["begin one"] * 2


def test_results_of_other_code_are_told_and_not_gone_on_with(
    tree: Path, handlers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_main(tree) == 0
    capsys.readouterr()
    assert call_main(tree, "--page", state=("abc", "d1ff")) == 1
    shown = capsys.readouterr()
    assert "2 results of abc are there" in shown.err and "they are of other code" in shown.err
    assert "the tree has changes beside commit abc" in shown.err
    assert "at commit abc with changes: 0 of 2" in (tree / shown.out.strip()).read_text()


def test_a_tree_that_changes_meanwhile_is_told(
    tree: Path, handlers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    states = iter([("abc", ""), ("def", "")])
    arguments = report_main.parse([])
    arguments.benches = list(PLAN[:1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_main, "state_of", lambda _: next(states))
        assert report_main.main(arguments, tree, tree, sys.executable, lambda: None) == 0
    shown = capsys.readouterr()
    assert "later benches had other code" in shown.err
    assert "abc (the tree changed during the run)" in (tree / shown.out.strip()).read_text()


def test_every_option_that_the_plan_gives_a_bench_is_one_that_it_has(project_root: Path) -> None:
    for bench in plan.PLAN:
        script = project_root / "bench" / f"{bench.script or bench.keeps}.py"
        if bench.script == "lumen" or not script.exists():
            continue
        known = set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', script.read_text()))
        given = {word for word in (*bench.full, *(bench.quick or ())) if word.startswith("--")}
        assert given | {"--json"} <= known, f"{bench.name}: {given - known}"
