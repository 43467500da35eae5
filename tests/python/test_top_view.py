"""The arithmetic and the screen of `lumen top`, from made-up looks: rates, shares, order, text
that fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lumen_engine.counters_file import Histogram, ModelCounts, Snapshot, Writer
from lumen_engine.top import plain, screen, units
from lumen_engine.top.process import Process, Throttling, read_process, read_throttling
from lumen_engine.top.view import Look, View, view_of

S = 1_000_000_000
STAGES = ("connect", "parse", "queue", "inference", "write", "total")


def histogram(*values: int) -> Histogram:
    empty = Histogram.empty()
    counts = empty.counts.copy()
    for value in values:
        octave = max(value.bit_length() - 7, 0)
        counts[(octave << 6) + (value >> octave)] += 1
    return Histogram(counts, sum(values), min(values, default=0), max(values, default=0))


def model(index: int = 0, name: str = "mlp", generation: int = 1, **counters: int) -> ModelCounts:
    stages = {stage: Histogram.empty() for stage in STAGES}
    return ModelCounts(index, generation, name, "1", counters, stages)


def with_stages(counts: ModelCounts, **stages: Histogram) -> ModelCounts:
    return replace(counts, stages={**counts.stages, **stages})


def look(
    at_s: float,
    *models: ModelCounts,
    writers: tuple[Writer, ...] = (),
    is_alive: bool = True,
    process: Process | None = None,
    **server: int,
) -> Look:
    at = int(at_s * S)
    return Look(Snapshot(at, at, is_alive, server, list(models), list(writers)), process)


def writer(index: int, role: int, number: int, *spent: int, **more: int) -> Writer:
    doing, since, progress = (more.get(name, 0) for name in ("doing", "since", "progress"))
    return Writer(index, True, role, number, 100 + index, *spent, doing, since, progress)


def test_rates_are_of_the_time_between_two_looks() -> None:
    before = look(10, model(success=100, failure=1, inference=400, execution=100), requests=50)
    after = look(
        12,
        model(success=300, failure=5, failed_late=4, inference=1200, execution=200, queued=7),
        requests=250,
        connections_open=3,
    )
    view = view_of(before, after)
    (only,) = view.models
    assert (view.seconds, view.server.requests_per_s, view.server.connections_open) == (2, 100, 3)
    assert (only.requests_per_s, only.failures_per_s, only.queued) == (102, 2, 7)
    assert (only.rows_per_inference, only.requests, only.failures) == (8, 305, 5)
    assert only.failures_by_reason_per_s == {"late": 2} and only.failures_by_reason == {"late": 4}
    assert only.cache_hit_ratio is None and only.p99_ns is None


def test_percentiles_and_stages_are_of_the_requests_between_two_looks() -> None:
    old = with_stages(model(), total=histogram(5_000_000), parse=histogram(1000))
    new = with_stages(
        model(),
        total=histogram(5_000_000) + histogram(*[10_000] * 99, 90_000),
        parse=histogram(1000) + histogram(*[4_000] * 100),
        queue=histogram(*[12_000] * 50),
    )
    (only,) = view_of(look(1, old), look(2, new)).models
    assert only.p50_ns is not None and abs(only.p50_ns - 10_000) < 100
    assert only.p999_ns is not None and abs(only.p999_ns - 90_000) < 1000
    assert only.stage_ns == {"parse": 4_000, "queue": 6_000, "inference": 0, "write": 0}


def test_a_model_that_came_between_two_looks_has_counted_all_meanwhile() -> None:
    before = look(1, model(0, "old", generation=1, success=1_000))
    after = look(2, model(0, "new", generation=2, success=10), model(1, "b", 3, success=5))
    assert [m.requests_per_s for m in view_of(before, after).models] == [10, 5]


def test_hits_of_the_cache_are_of_those_looked_up() -> None:
    before = look(1, model(cache_hit=10, cache_miss=10, cache_hit_ns=5))
    after = look(2, model(cache_hit=40, cache_miss=20, cache_hit_ns=50))
    (only,) = view_of(before, after).models
    assert only.cache_hit_ratio == 0.75
    assert only.cache_per_s == {"hit": 30, "miss": 10}, "what is no time"


def test_threads_are_io_threads_then_workers_with_shares_that_make_one() -> None:
    before = look(1, writers=(writer(0, 2, 1, 0, 0, 0), writer(1, 1, 0, 5, 5, 5)))
    after = look(
        2,
        writers=(
            writer(0, 2, 1, 10, 30, 60),
            writer(1, 1, 0, 5, 5, 15),
            writer(2, 0, 0, 9, 9, 9),
            writer(3, 2, 0, 0, 0, 0),
        ),
    )
    threads = view_of(before, after).threads
    assert [(t.role, t.number, t.busy, t.spin, t.park) for t in threads] == [
        ("io", 0, 0, 0, 1),
        ("worker", 0, 0, 0, 0),
        ("worker", 1, 0.1, 0.3, 0.6),
    ]


def test_a_thread_that_hangs_and_a_server_that_is_stopped_or_dead_are_told() -> None:
    stuck = writer(4, 1, 3, 0, 0, 0, doing=0, since=1 * S)
    at_work = writer(5, 2, 0, 0, 0, 0, doing=0, since=10 * S - 1000)
    asleep = writer(6, 2, 1, 0, 0, 0, doing=2, since=1 * S)
    progress = writer(7, 2, 2, 0, 0, 0, doing=0, since=1 * S, progress=1)
    before = look(9, writers=(stuck, at_work, asleep, replace(progress, progress=0)))
    now = look(10, writers=(stuck, at_work, asleep, progress))
    (told,) = view_of(before, now).warnings
    assert told.startswith("I/O thread 3 (tid 104) has been at one piece of work for 9 s")
    stopped = Process("T", 0, 0, None)
    assert "is stopped" in view_of(look(9), look(10, process=stopped)).warnings[0]
    dead = view_of(look(9), look(10, writers=(stuck,), is_alive=False)).warnings
    assert dead == ["the server has ended; these are its last counts"]


def test_a_process_is_the_servers_only_if_it_began_when_the_server_did(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    fields = ["S", *["0"] * 10, "30", "12", *["0"] * 6, "4242", "0"]
    (folder / "stat").write_text("7 (a name) with paren) " + " ".join(fields))
    (folder / "statm").write_text("1000 25 3 0 0 0 0")
    (folder / "cgroup").write_text("0::/a/b\n")
    found = read_process(7, 4242, tmp_path)
    assert found is not None
    assert (found.state, found.rss_bytes % 25) == ("S", 0) and found.cpu_ns == 42 * 10_000_000
    assert read_process(7, 4243, tmp_path) is None, "another process by now"
    assert read_process(8, 4242, tmp_path) is None
    groups = tmp_path / "groups"
    (groups / "a" / "b").mkdir(parents=True)
    stat = "usage_usec 9\nnr_periods 10\nnr_throttled 3\nthrottled_usec 500000\n"
    (groups / "a" / "b" / "cpu.stat").write_text(stat)
    assert read_throttling(7, tmp_path, groups) == Throttling(10, 3, 500_000)
    (folder / "cgroup").write_text("4:cpu,cpuacct:/old\n")
    (groups / "cpu,cpuacct" / "old").mkdir(parents=True)
    old = "nr_periods 1\nnr_throttled 1\nthrottled_time 2000000\n"
    (groups / "cpu,cpuacct" / "old" / "cpu.stat").write_text(old)
    assert read_throttling(7, tmp_path, groups) == Throttling(1, 1, 2_000)


def test_cpu_time_and_throttling_are_shares_of_the_time() -> None:
    before = look(1, process=Process("S", 0, 5, Throttling(0, 0, 0)))
    after = look(3, process=Process("S", 3 * S, 6, Throttling(20, 5, 500_000)))
    server = view_of(before, after).server
    assert (server.cpu, server.rss_bytes, server.throttled, server.throttled_periods) == (
        1.5,
        6,
        0.25,
        5,
    )
    unseen = view_of(look(1), look(3)).server
    assert (unseen.cpu, unseen.rss_bytes, unseen.throttled) == (None, None, None)


@pytest.mark.parametrize(
    "ns, text",
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (81_240, "81.2 µs"),
        (999_700, "1.00 ms"),
        (134_000_000, "134 ms"),
        (2_500_000_000, "2.50 s"),
    ],
)
def test_durations_have_three_digits_in_seven_columns(ns: int | None, text: str) -> None:
    assert units.duration(ns) == text and len(text) <= 7


def test_numbers_and_bars_fit_their_columns() -> None:
    assert [units.count(n) for n in (0, 0.4, 9.94, 12.6, 191_343, 1_500_000)] == [
        "0",
        "0.4",
        "9.9",
        "13",
        "191,343",
        "1.5 M",
    ]
    assert units.size(1536) == "1.50 KiB" and units.size(None) == "-"
    assert units.age(90_061) == "1 d 1:01:01"
    assert units.sparkline([0, 1, 8], 5) == "  ▁▂█"
    assert units.sparkline([0, 0], 2) == "▁▁" and units.sparkline([], 2) == "  "
    assert units.parts_of([1, 1, 1], 10) == [4, 3, 3] and sum(units.parts_of([5, 3, 9], 7)) == 7
    assert units.parts_of([0, 0], 5) == [0, 0]


def busy_view() -> View:
    total, parse = histogram(*[20_000] * 10), histogram(*[4_000] * 10)
    names = ("squeezenet", "mlp", "a name that is much longer than any column would be")
    before = look(1, *(model(i, name, success=0) for i, name in enumerate(names)))
    models = [
        with_stages(
            model(i, name, success=(i + 1) * 123_456, failure=i, failed_queue_full=i),
            total=total,
            parse=parse,
            inference=histogram(*[12_000 * (i + 1)] * 10),
        )
        for i, name in enumerate(names)
    ]
    threads = tuple(writer(i, 1 + (i > 0), max(i - 1, 0), 10, 20, 70) for i in range(5))
    return view_of(before, look(2, *models, writers=threads))


@pytest.mark.parametrize("width", [60, 80, 81, 120, 200])
@pytest.mark.parametrize("has_colour", [True, False])
def test_no_line_of_the_screen_is_wider_than_it(width: int, has_colour: bool) -> None:
    view = busy_view()
    options = screen.Options(has_colour=has_colour, rates={("mlp", "1"): [1.0] * 50})
    text = screen.body_text(view, options, width)
    for line in text.split("\n"):
        if "failed" not in line.plain and width >= 80:
            assert line.cell_len <= width, line.plain
    assert screen.server_text(view.server, width).cell_len > 0


def test_without_colour_stages_are_letters() -> None:
    text = screen.body_text(busy_view(), screen.Options(has_colour=False), 80).plain
    assert "p parse q queue I inference w write" in text
    bar = next(line for line in text.splitlines() if line.startswith("squeezenet") and "II" in line)
    assert "pp" in bar and "q" not in bar.removeprefix("squeezenet") and "█" not in bar
    assert bar.count("I") == pytest.approx(3 * bar.count("p"), abs=4)


def test_models_are_sorted_and_filtered() -> None:
    view = busy_view()

    def names(**chosen: object) -> list[str]:
        return [m.name[:3] for m in screen.shown_models(view, screen.Options(**chosen))]  # type: ignore[arg-type]

    assert names() == ["a n", "mlp", "squ"], "most requests first"
    assert names(is_reversed=True) == ["squ", "mlp", "a n"]
    assert names(sort=0) == ["a n", "mlp", "squ"]
    assert names(sort=8) == ["a n", "mlp", "squ"], "most failures first"
    assert names(filter="MLP") == ["mlp"]
    empty = screen.body_text(view, screen.Options(filter="none"), 80).plain
    assert "no model has 'none' in its name" in empty


def test_failures_are_told_by_reason() -> None:
    lines = plain.failure_lines(busy_view().models)
    assert lines[0] == "failed mlp:1: queue_full 1.0/s (1 in all)"
    assert len(lines) == 2, "one that has never failed has no line"
