"""`./dev report` runs benches one after the other, keeps finished ones, goes on with the rest."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.report import __main__ as report_main
from bench.report import run
from bench.report.run import Job, Runner, alone, chosen, minutes, total_minutes
from bench.runner import Bench, declare

# Writes down when it begins and ends, then prints a row; its words say how it fails.
STUB = """
import json, os, pathlib, signal, sys
diary = pathlib.Path(os.environ["DIARY"])
name = pathlib.Path(sys.argv[0]).stem
def note(what):
    with diary.open("a") as file:
        file.write(f"{what} {name}\\n")
note("begin")
print("round 1 of 1", file=sys.stderr)
try:
    if os.environ.get("HANG") == name:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        print("ready", file=sys.stderr, flush=True)
        # Not signal.pause(): a signal just before it would leave it waiting for ever.
        signal.sigwait({signal.SIGINT})
        raise KeyboardInterrupt
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


def job(name: str, took: float, *words: str) -> Job:
    bench = Bench(name, lambda run: None, ("dev",), took, 1.0, name=name)
    return Job(bench, name, name, took, words)


PLAN = (job("one", 1.5, "--long"), job("two", 2.0), job("three", 90.0))


def stub_command(tree: Path) -> Callable[[Job], list[str]]:
    """Instead of the bench: bench/NAME.py in that tree."""
    return lambda one: [
        sys.executable,
        str(tree / "bench" / f"{one.name}.py"),
        "--json",
        *one.words,
    ]


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


def runner(tree: Path) -> Runner:
    return Runner(tree / "results", tree, {}, stub_command(tree), Told())


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
    assert kept["command"].endswith("one.py --json --long")
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
    changed = job("one", 1.5, "--longer")
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
import signal
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:4]
from python.test_report_run import PLAN, stub_command
from bench.report import __main__ as main
from bench.report.run import Runner
signal.signal(signal.SIGINT, main.interrupt)
signal.signal(signal.SIGTERM, main.interrupt)
tree = Path(sys.argv[4])
try:
    Runner(tree / "results", tree, {}, stub_command(tree)).run(PLAN)
except KeyboardInterrupt:
    sys.exit(130)
"""


@contextmanager
def started(tree: Path, project_root: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of the plan whose second bench hangs, once that one has started; killed at the end."""
    paths = [project_root, project_root / "python", project_root / "tests"]
    words = [sys.executable, "-c", RUN, *paths, tree]
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


def test_a_quick_report_takes_less_than_twenty_minutes_and_every_bench_is_in_one() -> None:
    quick, full = chosen(True), chosen(False)
    assert total_minutes(quick) <= run.QUICK_LIMIT_MINUTES
    kept = {bench.name for bench in declare.all_benches() if bench.is_kept}
    assert {one.bench.name for one in quick} == {one.bench.name for one in full} == kept
    assert len({one.name for one in full}) == len(full)


def test_some_benches_of_a_report_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    quick = report_main.parse(["--quick", "--only", "bus"]).jobs
    assert [one.name for one in quick] == ["bus"]
    parts = report_main.parse(["--only", "cache"]).jobs
    assert len(parts) == 7 and all(one.bench.name == "cache" for one in parts)
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


def call_main(
    tree: Path, *words: str, states: Sequence[tuple[str, str]] = (("abc", ""),) * 2
) -> int:
    arguments = report_main.parse(words)
    arguments.jobs = list(PLAN[:2])
    one = Runner(tree / ".build" / "report", tree, {}, stub_command(tree))
    seen = iter(states)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_main, "state_of", lambda _: next(seen))
        patch.setattr(declare, "find", lambda name: next(p.bench for p in PLAN if p.name == name))
        patch.setattr(signal, "signal", lambda *_: None)
        return report_main.run_report(arguments, tree, one)


def test_a_report_says_its_time_writes_the_page_and_goes_on_the_next_time(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIL", "two")
    assert call_main(tree) == 1
    shown = capsys.readouterr()
    assert "2 of 2 benches are to be run (0 are done), about 3.5 min" in shown.err
    assert "not measured: two; " in shown.err
    text = (tree / shown.out.strip()).read_text()
    assert "at commit abc: 1 of 2 benches" in text and "the rival has died" in text
    monkeypatch.delenv("FAIL")
    assert call_main(tree) == 0
    shown = capsys.readouterr()
    assert "1 of 2 benches are to be run (1 are done), about 2.0 min" in shown.err
    assert "2 of 2 benches" in (tree / shown.out.strip()).read_text()
    assert [line for line in diary(tree) if line == "begin one"] == ["begin one"]
    assert call_main(tree, "--fresh") == 0
    assert [line for line in diary(tree) if line == "begin one"] == ["begin one"] * 2


def test_results_of_other_code_are_told_and_not_gone_on_with(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_main(tree) == 0
    capsys.readouterr()
    assert call_main(tree, "--page", states=[("abc", "d1ff")]) == 1
    shown = capsys.readouterr()
    assert "2 results of abc are there" in shown.err and "they are of other code" in shown.err
    assert "the tree has changes beside commit abc" in shown.err
    assert "at commit abc with changes: 0 of 2" in (tree / shown.out.strip()).read_text()


def test_a_tree_that_changes_meanwhile_is_told(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call_main(tree, states=[("abc", ""), ("def", "")]) == 0
    shown = capsys.readouterr()
    assert "later benches had other code" in shown.err
    assert "abc (the tree changed during the run)" in (tree / shown.out.strip()).read_text()
