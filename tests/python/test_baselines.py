"""bench/baselines: kept figures tell their machine, day and commit."""

from __future__ import annotations

import json
from pathlib import Path

import baselines
import figures
import pytest

NAMES = sorted(baselines.benches())


def test_every_baseline_says_which_files_it_measures(project_root: Path) -> None:
    kept = sorted(file.stem for file in (project_root / "bench" / "baselines").glob("*.json"))
    assert kept == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_raw_rounds(name: str) -> None:
    for measurement in baselines.measurements(baselines.BASELINES / f"{name}.json"):
        for row in measurement["rows"]:
            assert row["rounds"], f"{name}, {row['row']}: no raw rounds"


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


# Was: a figure that was older than its code failed a test, and so kept defects from being mended.
def test_a_table_says_machine_day_and_commit_and_is_drawn_alike_when_the_code_changes(
    tmp_path: Path,
) -> None:
    machine = {"cpu": "Abacus", "cpus": 2, "kernel": "6.1", "day": "2026-01-02"}
    row = {"row": "a", "metric": "m s", "unit": "ns", "ours": 1.0, "rival": 2.0, "rival_name": "r"}
    row |= {"ratio": 2.0, "spread": 0.1, "limit": None}
    old = {"kind": None, "machine": machine, "commit": "abc", "sources": None, "rows": [row]}
    (tmp_path / "server.json").write_text(json.dumps({"measurements": [old]}))
    drawn = figures.draw("server", tmp_path)
    assert "Abacus" in drawn and "2026-01-02, commit abc" in drawn
    fresh = {**old, "sources": baselines.content_hash("server")}
    (tmp_path / "server.json").write_text(json.dumps({"measurements": [fresh]}))
    assert figures.draw("server", tmp_path) == drawn


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


def row_of(kind: str | None, ratio: float | None, **rounds: float) -> dict[str, object]:
    """`ratio`: against the best of those in `rounds`."""
    return {
        "row": "a",
        "metric": "M/s",
        "cpus": kind,
        "ours": rounds["lumen"],
        "rival": 1 if ratio else None,
        "rival_name": "boost" if ratio else None,
        "ratio": ratio,
        "spread": 0.1,
        "rounds": {name: [value] for name, value in rounds.items()},
    }


def grouped(*rows: dict[str, object]) -> dict[str, dict[str, object]]:
    found = baselines.by_kind({"rows": list(rows)})
    return {one["kind"]: one["rows"][0] for one in found}


# Was: "119 times", where the cores had moved apart for the round of the slowest rival only.
def test_a_row_is_not_ahead_of_rivals_that_only_the_other_kind_of_cores_met() -> None:
    rows = grouped(
        row_of("near", 1.1, lumen=10, boost=1, vyukov=9), row_of("far", 119, lumen=119, boost=1)
    )
    assert rows["near"]["ratio"] == 1.1 and "lacks" not in rows["near"]
    assert rows["far"]["ratio"] is None and rows["far"]["rival_name"] is None
    assert rows["far"]["lacks"] == ["vyukov"]
    assert figures.verdict(rows["far"]) == "not compared"


def test_a_row_that_is_behind_one_rival_says_so_with_any_rival_missing() -> None:
    rows = grouped(
        row_of("near", 1.1, lumen=10, boost=1, vyukov=9), row_of("far", 0.5, lumen=1, boost=2)
    )
    assert rows["far"]["ratio"] == 0.5 and figures.verdict(rows["far"]) == "**behind**"


def test_a_bench_that_does_not_tell_cores_apart_lacks_nobody() -> None:
    rows = [row_of(None, 2, lumen=2, boost=1), row_of(None, 3, lumen=3)]
    assert baselines.by_kind({"rows": rows})[0]["rows"] == rows
