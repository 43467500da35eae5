"""Kept figures tell their machine, day, commit and code; other text is not kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.runner import Bench, Goal, declare, store

CPUINFO = """processor\t: 0
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu avx2 avx512f amx_tile hypervisor

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
ROW = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1, "rounds": {"lumen": [1, 2, 1]}}


def bench(**more: Any) -> Bench:
    """A bench that is not of this tree."""
    made = Bench("A", lambda run: None, ("src/{one,two}.h",), 1.0, 1.0, name="queue")
    return replace(made, **more)


@pytest.mark.parametrize("name", [one.name for one in declare.all_benches() if one.is_kept])
def test_every_kept_figure_has_its_raw_rounds_in_a_line_of_its_own(name: str) -> None:
    measurements = store.load(name)
    for measurement in measurements:
        for row in measurement["rows"]:
            assert row["rounds"], f"{name}, {row['row']}: no raw rounds"
    text = store.path_of(name).read_text()
    assert text == store.as_text(measurements)
    rows = sum(len(measurement["rows"]) for measurement in measurements)
    assert rows < text.count("\n") < 1.2 * rows + 15


def test_no_figures_are_kept_of_a_bench_that_is_gone() -> None:
    kept = {file.stem for file in store.BASELINES.glob("*.json")}
    assert kept == {one.name for one in declare.all_benches() if one.is_kept}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One bench, three files, two of them measured."""
    for name in ("bench/queue.py", "src/one.h", "src/two.h", "src/three.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("changed", ["src/two.h", "bench/queue.py"])
def test_a_change_of_a_measured_file_makes_the_figures_old(project: Path, changed: str) -> None:
    measurement = {"sources": store.content_hash(bench(), project)}
    (project / "src" / "three.h").write_text("changed")
    assert store.is_fresh(bench(), measurement, project)
    (project / changed).write_text("changed")
    assert not store.is_fresh(bench(), measurement, project)
    (project / changed).write_text(changed)
    assert store.is_fresh(bench(), measurement, project)


def test_a_listed_file_that_is_gone_is_an_error(project: Path) -> None:
    (project / "src" / "two.h").unlink()
    with pytest.raises(ValueError, match="sources has src/two.h, which isn't there"):
        store.content_hash(bench(), project)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "BASELINES", tmp_path)
    return tmp_path


def keep(*rows: dict[str, Any], **more: Any) -> None:
    store.keep(
        "queue", store.measured(replace(declare.find("queue"), goals=()), {"rows": [*rows], **more})
    )


def test_machine_day_commit_code_and_raw_rounds_stand_beside_the_rows(folder: Path) -> None:
    keep(ROW, model="mlp")
    (measurement,) = store.load("queue")
    assert measurement["rows"] == [ROW] and measurement["model"] == "mlp"
    assert set(measurement["machine"]) == {"cpu", "cpus", "kernel", "day"}
    assert measurement["machine"]["cpus"] >= 1
    assert measurement["commit"]
    assert measurement["sources"] == store.content_hash(declare.find("queue"))
    assert '"lumen":[1,2,1]' in (folder / "queue.json").read_text()


def test_each_kind_of_machine_is_kept_apart_and_the_other_kind_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = ({**ROW, "cpus": kind} for kind in ("near", "far"))
    keep(near, far)
    assert [one["kind"] for one in store.load("queue")] == ["far", "near"]
    keep({**near, "ours": 2})
    assert [one["rows"][0]["ours"] for one in store.load("queue")] == [1, 2]
    monkeypatch.setattr(store, "content_hash", lambda _: "other code")
    keep(near)
    assert [one["sources"] == "other code" for one in store.load("queue")] == [False, True]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"rows": []}, "it has no rows"),
        ({"rows": [{"row": "a", "ours": 1}]}, "1 rows have no raw rounds, the first is a"),
    ],
)
def test_figures_that_nobody_could_compute_again_are_not_kept(
    document: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        store.measured(declare.find("queue"), document)


def test_figures_without_a_row_for_a_goal_are_not_kept_where_each_goal_has_one() -> None:
    goal = Goal("no such row", "at_most", 1, "1")
    measured = replace(declare.find("queue"), goals=(goal,), has_a_row_for_each_goal=True)
    with pytest.raises(ValueError, match="no row for the goal 'no such row'"):
        store.measured(measured, {"rows": [ROW]})
    assert store.measured(replace(measured, has_a_row_for_each_goal=False), {"rows": [ROW]})


def test_a_cpu_is_told_by_its_name_and_its_instructions() -> None:
    assert store.describe_cpu(CPUINFO) == "Intel Xeon, AMX, AVX-512, virtual"
    assert store.describe_cpu("") == "unknown CPU"


def test_a_commit_tells_its_age_and_one_of_another_history_is_said() -> None:
    assert store.age(store.git("rev-parse", "HEAD")) == "0 commits ago"
    assert store.age("0123456789 with changes") == "of a history before this one"


def test_each_row_is_a_line_of_json() -> None:
    text = store.as_text([{"kind": None, "rows": [ROW, ROW]}])
    assert json.loads(text)["measurements"][0]["rows"] == [ROW, ROW]
    assert len([line for line in text.splitlines() if line.startswith('{"row":"a"')]) == 2
