"""bench/baselines: kept figures stand on the code as it is, or say that they don't."""

from __future__ import annotations

import json
from pathlib import Path

import baselines
import figures
import pytest

NAMES = sorted(baselines.benches())


def test_every_baseline_says_which_files_it_measures(project_root: Path) -> None:
    kept = sorted(file.stem for file in (project_root / "bench" / "baselines").glob("*.json"))
    missing = [name for name in NAMES if name not in kept]
    assert not set(kept) - set(NAMES)
    assert all(baselines.due(name) for name in missing), f"not measured yet: {missing}"


# Was: the tables of queue, memory and pipeline showed figures of code that had changed since, of
# another machine, without a word.
@pytest.mark.parametrize("name", [name for name in NAMES if not baselines.due(name)])
def test_no_figure_is_older_than_the_code_that_it_measures(name: str) -> None:
    for measurement in baselines.measurements(baselines.BASELINES / f"{name}.json"):
        assert baselines.is_fresh(name, measurement), (
            f"what bench/sources.toml lists for {name} has changed since {measurement['commit']}: "
            f"./dev bench {name} | tools/keep_baseline.py {name}"
        )
        for row in measurement["rows"]:
            assert row["rounds"], f"{name}, {row['row']}: no raw rounds"


@pytest.mark.parametrize("name", [name for name in NAMES if baselines.due(name)])
def test_a_baseline_that_may_be_older_for_now_is_and_loses_its_mark_once_measured(
    name: str,
) -> None:
    file = baselines.BASELINES / f"{name}.json"
    for measurement in baselines.measurements(file) if file.exists() else []:
        assert not baselines.is_fresh(name, measurement), (
            f"{name} is measured anew: remove its `due` from bench/sources.toml"
        )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One bench, two files, one of them measured."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "sources.toml").write_text('[a]\nfiles = ["src/{one,two}.h"]\n')
    (tmp_path / "src").mkdir()
    for name in ("one.h", "two.h", "three.h"):
        (tmp_path / "src" / name).write_text(name)
    return tmp_path


def test_a_change_of_a_measured_file_makes_the_figures_old(project: Path) -> None:
    measurement = {"sources": baselines.content_hash("a", project)}
    (project / "src" / "three.h").write_text("changed")
    assert baselines.is_fresh("a", measurement, project)
    (project / "src" / "two.h").write_text("changed")
    assert not baselines.is_fresh("a", measurement, project)
    (project / "src" / "two.h").write_text("two.h")
    assert baselines.is_fresh("a", measurement, project)


def test_a_listed_file_that_is_gone_is_an_error(project: Path) -> None:
    (project / "src" / "two.h").unlink()
    with pytest.raises(SystemExit, match="src/two.h, which isn't there"):
        baselines.content_hash("a", project)


def test_figures_without_a_hash_are_old() -> None:
    assert not baselines.is_fresh("queue", {"sources": None})


def test_a_table_says_that_figures_are_older_than_the_code_and_when_that_ends(
    tmp_path: Path,
) -> None:
    machine = {"cpu": "Abacus", "cpus": 2, "kernel": "6.1", "day": "2026-01-02"}
    row = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0, "rival_name": "r"}
    row |= {"ratio": 2.0, "spread": 0.1, "limit": None}
    old = {"kind": None, "machine": machine, "commit": "abc", "sources": None, "rows": [row]}
    (tmp_path / "server.json").write_text(json.dumps({"measurements": [old]}))
    drawn = figures.draw("server", tmp_path)
    assert "commit abc" in drawn
    assert "**Older than the code**" in drawn and baselines.due("server") in drawn
    fresh = {**old, "sources": baselines.content_hash("server")}
    (tmp_path / "server.json").write_text(json.dumps({"measurements": [fresh]}))
    assert "Older" not in figures.draw("server", tmp_path)


def test_near_and_far_stand_in_tables_of_their_own(tmp_path: Path) -> None:
    machine = {"cpu": "Abacus", "cpus": 2, "kernel": "6.1", "day": "2026-01-02"}
    row = {"row": "a", "metric": "mops", "unit": "M/s", "ours": 1.0, "rival": 2.0}
    row |= {"rival_name": "r", "ratio": 2.0, "spread": 0.1, "limit": None}
    both = [
        {"kind": kind, "machine": machine, "commit": "abc", "sources": None, "rows": [row]}
        for kind in ("far", "near")
    ]
    (tmp_path / "queue.json").write_text(json.dumps({"measurements": both}))
    drawn = figures.draw("queue", tmp_path)
    assert drawn.count("| best rival |") == 2
    assert drawn.index("far cores") < drawn.index("near cores")
