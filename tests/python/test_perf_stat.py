"""The parser of `perf stat -x,` and the figures computed from it, on recordings of many
machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from lumen_engine.perf import perf_stat
from lumen_engine.perf.figures import derive
from lumen_engine.perf.perf_stat import NOT_COUNTED, NOT_SUPPORTED, Count, PerfStatError

RECORDINGS = Path(__file__).resolve().parents[1] / "fixtures" / "perf_stat"


def read(name: str) -> dict[str, Count]:
    return perf_stat.parse((RECORDINGS / f"{name}.csv").read_text())


@pytest.mark.parametrize(
    "name, ipc, miss_rate, switches",
    [("origin_4_clients", 1.265, 0.6037, 8662), ("origin_16_clients", 1.105, 0.7511, 8767)],
)
def test_the_case_that_started_it_all(
    name: str, ipc: float, miss_rate: float, switches: int
) -> None:
    counts = read(name)
    found = derive(counts)
    assert found.instructions_per_cycle == pytest.approx(ipc)
    assert found.llc_miss_rate == pytest.approx(miss_rate)
    assert counts["context-switches"].value == switches


def test_a_machine_without_counters_keeps_the_software_ones() -> None:
    counts = read("virtual_machine")
    assert counts["cycles"].status == NOT_SUPPORTED and counts["cycles"].value is None
    assert counts["context-switches"].value == 885
    assert counts["task-clock"].value == pytest.approx(1417.53)
    found = derive(counts)
    assert found.instructions_per_cycle is None
    assert found.llc_miss_rate is None and found.l1_miss_rate is None and found.top_down is None


def test_counts_that_shared_a_counter_say_from_how_much_of_the_time_they_are() -> None:
    counts = read("multiplexed")
    assert counts["instructions"].is_estimate and counts["instructions"].share == 50.0
    assert not counts["task-clock"].is_estimate
    assert counts["branch-misses"].status == NOT_COUNTED and not counts["branch-misses"].is_estimate
    assert derive(counts).l1_miss_rate == pytest.approx(0.05)


def test_both_kinds_of_cores_of_a_hybrid_cpu_are_added_up() -> None:
    counts = read("hybrid")
    assert counts["cycles"].value == 4e9 and counts["instructions"].value == 1e10
    assert counts["cycles"].share == pytest.approx(28.57)
    assert counts["instructions"].user_only and not counts["cycles"].user_only
    # An event that one kind of core does not count, the other still counts, whichever line comes
    # first.
    assert counts["LLC-loads"].value == 5000 and counts["LLC-load-misses"].value == 1000
    assert derive(counts).llc_miss_rate == pytest.approx(0.2)


def test_a_ratio_of_the_user_side_to_both_sides_is_none() -> None:
    assert derive(read("hybrid")).instructions_per_cycle is None


def test_a_decimal_comma_is_read_as_such() -> None:
    counts = read("comma_locale")
    assert counts["task-clock"].value == pytest.approx(1417.53)
    assert counts["context-switches"].value == 885
    assert counts["cycles"].value == 4242424242 and counts["cycles"].share == 50.0


def test_names_of_amd_and_of_old_options_are_the_same_events() -> None:
    counts = read("amd_zen")
    found = derive(counts)
    assert found.instructions_per_cycle == pytest.approx(1.5)
    assert counts["context-switches"].value == 100 and counts["cpu-migrations"].value == 3
    assert found.llc_miss_rate == pytest.approx(0.1)
    assert found.llc_events == "cache-misses / cache-references"


def test_shares_of_slots_add_up_and_lines_of_metrics_are_skipped() -> None:
    counts = read("top_down_perf_6_12")
    found = derive(counts).top_down
    assert found is not None
    assert found["back end bound"] == pytest.approx(0.4)
    assert sum(found.values()) == pytest.approx(1)
    assert "event=0x3c,umask=0x00" in counts  # a raw event's commas are its own


def test_an_old_perf_that_prints_three_fields_is_understood() -> None:
    counts = read("perf_4_4")
    assert counts["task-clock"].value == pytest.approx(1417.529485)
    assert counts["context-switches"].share == 100.0
    assert counts["cycles"].status == NOT_SUPPORTED


def test_the_counts_of_an_ordinary_user_are_known_to_be_the_user_side() -> None:
    counts = read("unprivileged")
    assert counts["page-faults"].user_only
    assert counts["context-switches"].user_only and counts["context-switches"].value == 0


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "empty"),
        ("# started on Wed\n\n", "empty"),
        ("Error: Access to performance monitoring is limited.\n", "line 1: got 'Error"),
        ("885,,context-switches,1,100.00,,\ncycles,885\n", "line 2: got 'cycles,885'"),
        ("-5,,cycles,1,100.00,,\n", "line 1"),
        ("<broken>,,cycles,1,100.00,,\n", "line 1"),
    ],
)
def test_a_line_that_perf_does_not_print_is_refused(text: str, said: str) -> None:
    with pytest.raises(PerfStatError, match="wanted") as raised:
        perf_stat.parse(text)
    assert said in str(raised.value)
