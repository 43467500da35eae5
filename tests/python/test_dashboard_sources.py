"""The dashboard's sources: telemetry CSVs that grow, turn over, are cut off or foreign; JSON."""

from __future__ import annotations

import json
import math
import os
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from dashboard.sources import follow
from dashboard.sources.errors import SourceError
from dashboard.sources.json_files import read_document
from dashboard.sources.paths import find_files, short_names
from dashboard.sources.telemetry_csv import end_of_records
from dashboard.store import Content, Store
from telemetry_writer import HEADER, START, Rows, forms_document, large_file, matrix_rows, record


class Watched:
    """A store without the pause between two looks."""

    def __init__(self, *paths: Path) -> None:
        self.store = Store(list(paths))

    def look(self) -> Content:
        self.store._looked = 0.0
        return self.store.content()


def line(**changes: str) -> str:
    return ",".join(record(START, 10.0, **changes).values()) + "\n"


def test_rows_have_the_values_of_the_file(tmp_path: Path) -> None:
    rows = matrix_rows(60)
    found = Watched(rows.write(tmp_path / "t.csv")).look().rows
    assert found.height == 600
    assert sorted(found["total_us"].to_list()) == pytest.approx(rows.totals())
    assert found["time"][0] == START + timedelta(microseconds=100)
    assert found["status"].to_list() == [int(each["status"]) for each in rows.records]
    assert set(found["run"].unique().to_list()) == {"t"}


def test_an_empty_stage_is_null_and_not_zero(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HEADER + line(inference_us="", queue_us="0.000"))
    found = Watched(tmp_path / "t.csv").look().rows
    assert found["inference_us"][0] is None
    assert found["queue_us"][0] == 0.0


def test_a_file_that_grows_is_read_on_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + line(request_id="a"))
    watched = Watched(path)
    assert watched.look().rows.height == 1
    half = line(request_id="b")
    with path.open("a") as file:
        file.write(half[:40])
    cut_off = watched.look()
    assert cut_off.rows.height == 1
    assert any("last line has no end (40 bytes)" in problem for problem in cut_off.problems)
    with path.open("a") as file:
        file.write(half[40:] + line(request_id="c"))
    whole = watched.look()
    assert whole.rows.height == 3
    assert whole.problems == []


def test_nothing_new_is_the_same_content(tmp_path: Path) -> None:
    watched = Watched(matrix_rows(5).write(tmp_path / "t.csv"))
    assert watched.look() is watched.look()


def test_a_rotated_file_keeps_its_rows_and_is_not_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + line(request_id="old") * 3)
    watched = Watched(path)
    before = watched.look()
    os.rename(path, tmp_path / "t.csv.1")
    with (tmp_path / "t.csv.1").open("a") as file:
        file.write(line(request_id="last of the old"))
    path.write_text(HEADER + line(request_id="new") * 2)
    after = watched.look()
    assert (before.rows.height, after.rows.height) == (3, 6)
    (tmp_path / "t.csv.1").unlink()
    assert watched.look().rows.height == 2


def test_a_file_that_was_cut_off_and_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + line(model="old") * 3)
    watched = Watched(path)
    watched.look()
    # In place, so that the inode is the same; longer, so that the size does not tell.
    path.write_text(HEADER + line(model="another") * 9)
    found = watched.look().rows
    assert found.height == 9
    assert found["model"].unique().to_list() == ["another"]


def test_a_record_over_several_lines_is_one(tmp_path: Path) -> None:
    rows = Rows([record(START, 5.0, request_id='two\nlines, a comma and a "quote"')] * 3)
    found = Watched(rows.write(tmp_path / "t.csv")).look()
    assert found.rows.height == 3
    assert found.slowest["request_id"][0] == 'two\nlines, a comma and a "quote"'


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", 0),
        (b"half", 0),
        (b"a\nb", 2),
        (b"a\nb\n", 4),
        (b'a\n"b\nc', 2),
        (b'"a\nb"\n', 6),
        (b'"a\nb', 0),
    ],
)
def test_records_end_at_line_feeds_outside_quotes(data: bytes, wanted: int) -> None:
    assert end_of_records(data) == wanted


def test_blocks_end_between_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BLOCK_BYTES", 1_000)
    rows = matrix_rows(40)
    rows.records[17]["request_id"] = "a\nb"
    found = Watched(rows.write(tmp_path / "t.csv")).look()
    assert sorted(found.rows["total_us"].to_list()) == pytest.approx(rows.totals())
    assert found.problems == []


@pytest.mark.parametrize("bad", ["total_us", "timestamp", "status"])
def test_a_line_that_cannot_be_read_is_left_out_and_told(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + line() + line(**{bad: "rubbish"}) + line())
    found = Watched(path).look()
    assert found.rows.height == 2
    (problem,) = found.problems
    assert "1 lines can't be read" in problem and "rubbish" in problem and str(path) in problem


def test_bytes_that_are_no_utf8_in_an_id_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes((HEADER + line(request_id="@@")).encode().replace(b"@@", b"\xff\xfe"))
    found = Watched(path).look()
    assert (found.rows.height, found.problems) == (1, [])


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"", "is empty"),
        (b"request_id,time", "not yet a whole line"),
        (b"a,b,c\n1,2,3\n", "is no telemetry CSV"),
        (b"\x00\x01\x02\xff" * 3000, "is no telemetry CSV"),
        (b'\xff\n"', "is no telemetry CSV"),
    ],
)
def test_empty_and_foreign_files_get_a_message(tmp_path: Path, content: bytes, wanted: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    (problem,) = Watched(path).look().problems
    assert wanted in problem and str(path) in problem


def test_a_missing_file_is_told_and_read_once_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    watched = Watched(path)
    (problem,) = watched.look().problems
    assert "there is no such file" in problem
    path.write_text(HEADER + line())
    assert watched.look().rows.height == 1


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    os.mkfifo(path)
    (problem,) = Watched(path).look().problems
    assert "no regular file" in problem


def test_a_clock_that_is_set_back_is_told_with_its_place(tmp_path: Path) -> None:
    times = [START + timedelta(seconds=s) for s in (0, 1, 2, -30, -29, 700)]
    rows = Rows([record(at, 10.0) for at in times])
    problems = Watched(rows.write(tmp_path / "t.csv")).look().problems
    assert len(problems) == 2
    assert "at record 4 the clock was set back by 32.0 s" in problems[0]
    assert "at record 6 the clock goes on 729 s later" in problems[1]


def test_the_slowest_requests_of_each_combination_keep_their_ids(tmp_path: Path) -> None:
    rows = matrix_rows(100)
    found = Watched(rows.write(tmp_path / "t.csv")).look().slowest
    first = found.sort("total_us", descending=True).row(0, named=True)
    slowest = max(rows.records, key=lambda each: float(each["total_us"]))
    assert first["request_id"] == slowest["request_id"]
    assert first["total_us"] == pytest.approx(float(slowest["total_us"]))
    naive = found.filter(pl.col("queue_type") == "naive")["total_us"].max()
    assert naive == pytest.approx(rows.totals(queue_type="naive")[-1])


def test_a_folder_gives_its_files_and_names_tell_them_apart(tmp_path: Path) -> None:
    given = ("a/micro/x.csv", "b/micro/x.csv", "b/y.json", "b/.hidden.csv", "b/n.txt")
    for name in (*given, "a/micro/x.traceparent.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    found, problems = find_files([tmp_path])
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "a/micro/x.csv",
        "b/micro/x.csv",
        "b/y.json",
    ]
    assert problems == []
    assert list(short_names(found).values()) == ["a/micro/x", "b/micro/x", "y"]


def test_the_baselines_of_the_project_are_read(project_root: Path) -> None:
    folder = project_root / "bench" / "baselines"
    content = Watched(folder).look()
    assert content.problems == []
    assert {cell.queue_type for cell in content.documents.cells} >= {"mpmc", "naive"}
    document = json.loads((folder / "matrix_mlp.json").read_text())
    row = document["measurements"][0]["rows"][0]
    same = [c for c in content.documents.cells if c.values == {
        key: value for key, value in row.items() if isinstance(value, float)}]  # fmt: skip
    assert len(same) == 1
    assert {"server", "queue"} <= {row.bench for row in content.documents.rivals}


def test_a_baseline_with_rows_of_its_own_shape_is_no_error() -> None:
    rival = {"bench": "b", "row": "r", "ours": 1.0, "rival": 2.0}
    found = read_document({"measurements": [{"rows": [{"slices": 5}, rival]}]}, "x", "x.json")
    assert [(each.bench, each.row) for each in found.rivals] == [("b", "r")]
    whole = {"bench": "w", "rows": [{"row": "r", "ours": 1.0, "rival": 2.0}]}
    assert [each.bench for each in read_document(whole, "x", "x.json").rivals] == ["w"]


def test_a_bench_is_read(tmp_path: Path) -> None:
    row = {
        "clients": 4, "per_second": 100.5, "requests": 50, "errors": {"count": 1},
        "latency_us": {"mean": 5.0, "p50": 4.0, "p90": 8.0, "p99": 9.0, "p999": 9.5, "max": 10},
        "server": {"stages_us": {"queue": 1.0, "total": 3.0}},
    }  # fmt: skip
    (load,) = read_document({"model": "mlp", "rows": [row]}, "b", "b.json").loads
    assert (load.clients, load.per_second, load.latency_us["p99"]) == (4, 100.5, 9.0)
    assert load.stages_us == {"queue": 1.0, "total": 3.0}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{", "is no JSON"),
        ("[]", "nothing that the dashboard knows"),
        ('{"rows": [{"a": 1}]}', "rows[0] is nothing that the dashboard knows: got keys a"),
        ('{"rows": [{"clients": "x", "per_second": 1, "latency_us": {"p50": 1, "p99": 1}}]}',
         "has no number in 'clients'"),
        ('{"rows": [{"clients": 1, "per_second": NaN, "latency_us": {"p50": 1, "p99": 1}}]}',
         "has no number in 'per_second'"),
        ("[" * 100_000, "is no JSON"),
    ],
)  # fmt: skip
def test_foreign_json_gets_a_message_with_the_place(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    (problem,) = Watched(path).look().problems
    assert wanted in problem and str(path) in problem


def test_perf_counters_that_were_not_measured_are_none(tmp_path: Path) -> None:
    document = {
        "model": "squeezenet", "hardware_counters": False, "verdict": "v", "notes": ["n"],
        "phases": [
            {"clients": 4, "requests_each": 200, "rows": {"ipc": None, "p99_ms": 31.97}},
            {"clients": 16, "requests_each": 50, "rows": {"ipc": 1.105, "p99_ms": 74.56}},
        ],
        "simulated_a_request": {"instructions": 5.0},
    }  # fmt: skip
    first, second = read_document(document, "p", "p.json").perf
    assert first.values == {"ipc": None, "p99_ms": 31.97, "simulated_instructions": 5.0}
    assert (second.label, second.values["ipc"]) == ("16 × 50", 1.105)


def test_forms_of_a_model_are_read_and_one_that_no_backend_runs_is_left_out() -> None:
    first, chosen = read_document(forms_document(), "q", "q.json").forms
    assert (first.form, first.us, first.is_chosen) == ("f32", 3315.1, False)
    assert (chosen.backend, chosen.sqnr_db, chosen.top1, chosen.metric) == (
        "openvino", 34.8, 1.0, None,
    )  # fmt: skip
    assert chosen.is_chosen and chosen.why == "2.00 times as fast"
    for broken in ({"us": None}, {"sqnr_db": "34"}, {"top1": float("nan")}):
        with pytest.raises(SourceError, match=r"q\.json: candidates\[1\]"):
            read_document(forms_document(**broken), "q", "q.json")


def test_a_matrix_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mlp.csv"
    path.write_text(
        "queue_type,allocator_type,round_trip_p99_us,queue_p99_us,error\n"
        'mpmc,standard,12.5,,\nnaive,standard,,,"it fell"\n'
    )
    good, failed = Watched(path).look().documents.cells
    assert (good.values, good.model) == ({"round_trip_p99_us": 12.5}, "mlp")
    assert failed.error == "it fell"


def test_a_large_file_takes_little_memory_a_row(tmp_path: Path) -> None:
    content = Watched(large_file(tmp_path / "t.csv", 200_000)).look()
    assert content.rows.height == 200_000
    assert content.rows.estimated_size() / content.rows.height < 90
    assert math.isclose(content.rows["total_us"].median() or 0, math.exp(3), rel_tol=0.02)
