"""A running server as the dashboard sees it: the counts between two looks at its counters file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from counters_file_writer import CountersFileWriter
from dashboard.sources import live


@pytest.fixture(autouse=True)
def each_look_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FRESH_S", 0.0)


def one_model(path: Path) -> CountersFileWriter:
    file = CountersFileWriter(path)
    file.model(0, "mlp")
    file.writer(0, role=1, number=0)
    file.writer(1, role=2, number=0)
    return file


def look(server: live.LiveServer) -> live.LiveView:
    view = server.look()
    assert view is not None, server.problem
    return view


def test_rates_and_percentiles_are_of_requests_between_two_looks(tmp_path: Path) -> None:
    file = one_model(tmp_path / "c")
    file.model_slot(0, 1, "success", 1_000)
    file.record(0, "total", *[5_000_000] * 100)
    server = live.LiveServer(tmp_path / "c")
    first = look(server)
    assert first.models[0].points == ()
    file.model_slot(0, 1, "success", 1_090)
    file.model_slot(0, 1, "failure", 10)
    file.model_slot(0, 1, "failed_queue_full", 10)
    file.model_slot(0, 1, "cache_hit", 30)
    file.model_slot(0, 1, "cache_miss", 10)
    file.model_slot(0, 1, "queued", 4)
    file.record(0, "total", *[100_000] * 98, 900_000, 900_000)
    second = look(server)
    (model,) = second.models
    (point,) = model.points
    assert point.per_second * second.interval_s == pytest.approx(100)
    assert point.failed_per_second * second.interval_s == pytest.approx(10)
    assert point.p50_us == pytest.approx(100, rel=0.01)
    assert point.p99_us == pytest.approx(900, rel=0.01)
    assert (point.queued, point.cache_hit_share) == (4, 0.75)
    assert model.failures == {"queue_full": 10}


def test_a_look_without_requests_has_no_percentiles(tmp_path: Path) -> None:
    one_model(tmp_path / "c")
    server = live.LiveServer(tmp_path / "c")
    look(server)
    (point,) = look(server).models[0].points
    assert point.per_second == 0
    assert math.isnan(point.p99_us) and math.isnan(point.cache_hit_share)


def test_shares_of_threads_are_of_the_time_between_two_looks(tmp_path: Path) -> None:
    file = one_model(tmp_path / "c")
    file.server_slot(0, "busy_ns", 7_000)
    server = live.LiveServer(tmp_path / "c")
    look(server)
    file.server_slot(0, "busy_ns", 10_000)
    file.server_slot(0, "park_ns", 1_000)
    (thread,) = look(server).threads
    assert (thread.name, thread.busy, thread.spin, thread.park) == ("I/O thread 0", 0.75, 0, 0.25)


def test_stages_are_means_of_the_last_looks(tmp_path: Path) -> None:
    file = one_model(tmp_path / "c")
    server = live.LiveServer(tmp_path / "c")
    look(server)
    file.record(0, "total", 10_000, 30_000)
    file.record(0, "inference", 8_000, 24_000)
    (model,) = look(server).models
    assert model.stages_us["inference"] == pytest.approx(16, rel=0.02)


def test_a_server_that_has_ended_shows_its_last_counts(tmp_path: Path) -> None:
    file = one_model(tmp_path / "c")
    server = live.LiveServer(tmp_path / "c")
    assert look(server).is_alive
    file.close()
    assert not look(server).is_alive


def test_another_server_under_the_same_path_begins_anew(tmp_path: Path) -> None:
    file = one_model(tmp_path / "c")
    server = live.LiveServer(tmp_path / "c")
    look(server)
    file.close()
    (tmp_path / "c").unlink()
    other = one_model(tmp_path / "c")
    other.model(0, "another", generation=7)
    view = look(server)
    assert (view.is_alive, view.models[0].name, view.models[0].points) == (True, "another", ())


@pytest.mark.parametrize("content", [None, b"", b"rubbish" * 100])
def test_a_file_that_is_none_gives_a_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "c"
    if content is not None:
        path.write_bytes(content)
    server = live.LiveServer(path)
    assert server.look() is None
    assert str(path) in server.problem


def test_the_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HISTORY", 3)
    one_model(tmp_path / "c")
    server = live.LiveServer(tmp_path / "c")
    for _ in range(9):
        look(server)
    assert len(look(server).models[0].points) == 3
