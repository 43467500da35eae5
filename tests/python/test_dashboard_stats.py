"""The dashboard's arithmetic: percentiles, tails, throughput, stages, verdicts; names as text."""

from __future__ import annotations

import math
import random
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from dashboard.selection import Choice, Memo, Selection, options
from dashboard.stats import groups, stages, tail, timeline, verdict
from dashboard.stats.knee import knee
from dashboard.store import Store
from dashboard.text import code, figure_text, plain, sentence, time_text
from telemetry_writer import START, Rows, matrix_rows, record

BY = ("queue_type", "allocator_type")


def selection_of(rows: Rows, folder: Path, choice: Choice | None = None) -> Selection:
    content = Store([rows.write(folder / "t.csv")]).content()
    return Selection(content, choice or Choice(), Memo())


def nearest_rank(values: list[float], share: float) -> float:
    """By its definition, without the code under test."""
    return next(v for i, v in enumerate(values, 1) if i >= share * len(values) - 1e-9)


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, 1000])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(
    count: int, share: float
) -> None:
    values = [float(i) for i in range(count)]
    found = groups.percentile(np.asarray(values, dtype=np.float32), share)
    assert found == nearest_rank(values, share)


def test_each_series_has_all_of_its_rows_sorted(tmp_path: Path) -> None:
    rows = matrix_rows(200)
    chosen = selection_of(rows, tmp_path)
    series = groups.split_sorted(chosen.rows(*BY, "total_us"), BY, "total_us")
    assert len(series) == 10
    for each in series:
        wanted = rows.totals(queue_type=each.key[0], allocator_type=each.key[1])
        assert each.values.tolist() == pytest.approx(wanted)


def test_a_filter_leaves_the_named_rows(tmp_path: Path) -> None:
    rows = matrix_rows(100)
    choice = Choice(queue_type=("naive", "spsc"), model=("mlp",), status=("200",))
    found = selection_of(rows, tmp_path, choice).rows("total_us").collect()
    wanted = [
        each
        for each in rows.records
        if each["queue_type"] in ("naive", "spsc")
        and (each["model"], each["status"]) == ("mlp", "200")
    ]
    assert found.height == len(wanted) > 0


def test_warm_up_requests_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    rows = Rows([record(START, 1.0, request_id=name) for name in ("warm-up", "a", "warm-up")])
    chosen = selection_of(rows, tmp_path)
    assert chosen.rows("total_us").collect().height == 1
    with_them = Selection(chosen.content, Choice(warm_up=True), Memo())
    assert with_them.rows("total_us").collect().height == 3


def test_throughput_leaves_pauses_out(tmp_path: Path) -> None:
    # 100 requests in 99 ms and 10 us, then a pause of an hour, then the same again.
    times = [START + timedelta(milliseconds=i, hours=hour) for hour in (0, 1) for i in range(100)]
    chosen = selection_of(Rows([record(at, 10.0) for at in times]), tmp_path)
    columns = (*BY, *groups.LOAD_COLUMNS)
    (load,) = groups.loads(chosen.rows(*columns), BY)
    assert load.requests == 200
    assert load.active_s == pytest.approx(2 * 0.09901)
    assert load.mean_us == pytest.approx(10.0)


def test_requests_that_open_a_connection_each_are_no_throughput(tmp_path: Path) -> None:
    # As `lumen matrix` measures: 100 connections with a request each, 10 ms apart, between two
    # stretches of 100 requests on kept connections, 1 ms apart.
    rows = Rows()
    for begin, step_ms, connect in ((0, 1, ""), (3_000, 10, "30.0"), (6_000, 1, "")):
        at = [START + timedelta(milliseconds=begin + step_ms * i) for i in range(100)]
        rows.records += [record(each, 10.0, connect_us=connect) for each in at]
    columns = (*BY, *groups.LOAD_COLUMNS)
    (load,) = groups.loads(selection_of(rows, tmp_path).rows(*columns), BY)
    assert (load.requests, load.kept) == (300, 200)
    assert load.active_s == pytest.approx(2 * 0.09901)
    connecting = Rows([one for one in rows.records if one["connect_us"]])
    (load,) = groups.loads(selection_of(connecting, tmp_path).rows(*columns), BY)
    assert load.requests == 100 and math.isnan(load.per_second)


def test_the_tail_ends_with_the_slowest_and_has_its_rank() -> None:
    values = np.sort(np.random.default_rng(1).lognormal(3, 1, 12_345)).astype(np.float32)
    x, y = tail.tail_curve(groups.Series(("a",), values))
    assert (x[0], x[-1]) == (1.0, 12_345)
    assert (y[0], y[-1]) == (values[0], values[-1])
    assert np.all(np.diff(x) > 0) and np.all(np.diff(y) >= 0)
    assert len(x) <= tail.POINTS
    for place, value in zip(x, y):
        behind = 12_345 / place
        assert value == values[12_345 - round(behind)]


def test_stage_means_and_the_time_between_add_up_to_the_total(tmp_path: Path) -> None:
    rows = matrix_rows(50)
    rows.records[3]["inference_us"] = ""
    chosen = selection_of(rows, tmp_path)
    columns = [f"{name}_us" for name in stages.PARTS]
    found = stages.stage_means(chosen.rows(*BY, *columns, "total_us"), BY, None)
    first = next(each for each in found if each.key == ("mpmc", "lumen_arena"))
    mine = [each for each in rows.records if each["queue_type"] == "mpmc"][:50]
    assert first.parts_us["inference"] == pytest.approx(
        sum(float(each["inference_us"] or 0) for each in mine) / 50, rel=1e-5
    )
    assert sum(first.parts_us.values()) == pytest.approx(first.total_us, rel=1e-5)


def test_stages_of_the_slowest_are_of_the_slowest(tmp_path: Path) -> None:
    rows = matrix_rows(100)
    chosen = selection_of(rows, tmp_path)
    columns = [f"{name}_us" for name in stages.PARTS]
    found = stages.stage_means(chosen.rows(*BY, *columns, "total_us"), BY, 0.1)
    for each in found:
        wanted = rows.totals(queue_type=each.key[0], allocator_type=each.key[1])[-10:]
        assert each.total_us == pytest.approx(sum(wanted) / len(wanted), rel=0.1)


def test_bins_have_all_rows_and_their_maximum(tmp_path: Path) -> None:
    rows = matrix_rows(300, gap_us=10_000)
    chosen = selection_of(rows, tmp_path)
    columns = (*BY, *groups.LOAD_COLUMNS)
    lines, width = timeline.timelines(chosen.rows(*columns), BY, since_start=True)
    assert width in timeline.NICE_US
    for line in lines:
        wanted = rows.totals(queue_type=line.key[0], allocator_type=line.key[1])
        assert line.frame["requests"].sum() == len(wanted)
        assert line.frame["max"].max() == pytest.approx(wanted[-1])


def test_no_line_is_drawn_over_a_pause(tmp_path: Path) -> None:
    times = [START + timedelta(seconds=s) for s in (0, 1, 2, 100, 101)]
    chosen = selection_of(Rows([record(at, 10.0) for at in times]), tmp_path)
    columns = (*BY, *groups.LOAD_COLUMNS)
    ((line,), _) = timeline.timelines(chosen.rows(*columns), BY, since_start=True)
    drawn = line.frame["p99"].to_list()
    assert [value is None for value in drawn] == [False, False, False, True, False, False]


def noisy(seed: int, factor: float = 1.0, count: int = 20_000) -> np.ndarray:
    """Requests whose neighbours are alike: stalls of 200 requests."""
    random_numbers = np.random.default_rng(seed)
    stalls = np.repeat(random_numbers.lognormal(0, 0.3, count // 200), 200)
    return factor * stalls * random_numbers.lognormal(3, 0.3, count)


def test_a_run_that_is_slower_is_said_to_be() -> None:
    assert verdict.compare(noisy(1), noisy(2, 1.5), 0.5).word == verdict.SLOWER
    assert verdict.compare(noisy(1, 1.5), noisy(2), 0.99).word == verdict.FASTER


def test_runs_of_the_same_kind_are_within_noise_nearly_always() -> None:
    words = [verdict.compare(noisy(i), noisy(100 + i), 0.5).word for i in range(20)]
    # 5 of 100 intervals miss; stalls of half a block make that a few more.
    assert words.count(verdict.NOISE) >= 16


def test_the_interval_holds_the_ratio_and_is_the_same_each_time() -> None:
    one, two = noisy(3), noisy(4, 1.1)
    first = verdict.compare(one, two, 0.99)
    assert first.low < first.ratio < first.high
    assert first == verdict.compare(one, two, 0.99)


def test_too_few_requests_get_no_verdict() -> None:
    assert verdict.compare(noisy(1)[:500], noisy(2)[:500], 0.99).word == verdict.UNKNOWN
    assert verdict.compare(noisy(1)[:0], noisy(2), 0.5).word == verdict.UNKNOWN


def test_the_knee_has_the_most_throughput_for_its_latency() -> None:
    assert knee([(100, 10), (190, 11), (200, 20), (205, 40)]) == 1
    assert knee([(100, 10), (190, 11)]) is None


def test_options_have_all_values_however_the_choice_is(tmp_path: Path) -> None:
    chosen = selection_of(matrix_rows(20), tmp_path)
    found = options(chosen.content, Memo())
    assert found["queue_type"] == ["batched", "inline", "mpmc", "naive", "spsc"]
    assert found["status"] == ["200", "429"]
    assert found["run"] == ["t"]


EVIL = (
    "<img src=x onerror=alert(1)>",
    "<b>bold</b>",
    "**bold** [link](http://example.com) `code`",
    "%{x}<extra></extra>",
    "a\u202eb\x1b[31m",
    ":red[x] $x^2$ :material/home:",
)


@pytest.mark.parametrize("text", EVIL)
def test_names_of_files_become_no_markup(text: str) -> None:
    shown = figure_text(text)
    assert not re.search(r"<\w|%\{", shown)
    assert not re.search(r"[\x00-\x1f\u202e]", plain(text))
    spans = code(text)
    fence = re.match("`+", spans)
    assert (
        fence and spans.endswith(fence[0]) and fence[0] not in spans[len(fence[0]) : -len(fence[0])]
    )
    assert not re.search(r"(?<!\\)[<>*_`\[\]$:]", sentence(text))


@pytest.mark.parametrize(
    ("us", "wanted"),
    [(0.5, "0.5 µs"), (217.04, "217 µs"), (999.4, "999 µs"), (999.6, "1 ms"), (31_970, "32 ms"),
     (1.5e6, "1.5 s"), (math.nan, "—")],
)  # fmt: skip
def test_times_have_three_digits_and_a_unit(us: float, wanted: str) -> None:
    assert time_text(us) == wanted


def test_results_are_kept_and_the_oldest_goes() -> None:
    memo, made = Memo(entries=2), []
    for key in (1, 1, 2, 3, 1):
        memo.get(key, lambda key=key: made.append(key))
    assert made == [1, 2, 3, 1]


def test_random_rows_group_like_a_plain_loop(tmp_path: Path) -> None:
    source = random.Random(5)
    records = [
        record(START + timedelta(milliseconds=n), source.uniform(1, 1e6), status=source.choice(
            ["200", "429", "504"]), model=source.choice("abc"))
        for n in range(500)
    ]  # fmt: skip
    chosen = selection_of(Rows(records), tmp_path)
    by = ("model", "status")
    found = {s.key: len(s.values) for s in groups.split_sorted(
        chosen.rows(*by, "total_us"), by, "total_us")}  # fmt: skip
    wanted: dict[tuple[str, str], int] = {}
    for each in records:
        key = each["model"], each["status"]
        wanted[key] = wanted.get(key, 0) + 1
    assert found == wanted
