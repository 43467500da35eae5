"""The table of `lumen perf` of two phases: side by side, the change, figures not measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from lumen_engine.perf import perf_stat
from lumen_engine.perf.callgrind import Totals, parse_totals
from lumen_engine.perf.load import LoadFigures, read_row
from lumen_engine.perf.options import PhasePlan, make_parser, parse_options
from lumen_engine.perf.process_figures import ProcessFigures, parse_stat
from lumen_engine.perf.programs import PerfError
from lumen_engine.perf.result import Phase, Result, document, verdict
from lumen_engine.perf.table import make_table

RECORDINGS = Path(__file__).resolve().parents[1] / "fixtures" / "perf_stat"
QUIET = ProcessFigures(1.0, 0.5, 10, 0, 300, 21, 4)


def make_load(per_second: float, p99_ms: float, queue_ms: float = 1.0) -> LoadFigures:
    return LoadFigures(
        requests=800,
        seconds=800 / per_second,
        per_second=per_second,
        p50_ms=p99_ms / 2,
        p90_ms=p99_ms / 1.5,
        p99_ms=p99_ms,
        p999_ms=p99_ms * 2,
        max_ms=p99_ms * 3,
        errors=0,
        stages_ms={"queue": queue_ms, "inference": 3.0},
    )


def make_phase(plan: PhasePlan, load: LoadFigures, recording: str | None = None) -> Phase:
    counts = {}
    if recording is not None:
        counts = perf_stat.parse((RECORDINGS / f"{recording}.csv").read_text())
    return Phase(plan, load, QUIET, counts)


def origin() -> Result:
    """The throughput of its first phase is not known; p99 and the counts are."""
    result = Result("squeezenet", ["engine naive x standard"], {"cpu": "a CPU"}, has_counters=True)
    result.phases = [
        make_phase(PhasePlan(4, 200), make_load(290.0, 31.97), "origin_4_clients"),
        make_phase(PhasePlan(16, 50), make_load(295.48, 74.56, 43.1), "origin_16_clients"),
    ]
    return result


def line_of(text: str, label: str) -> list[str]:
    (found,) = [line for line in text.splitlines() if line.startswith(label)]
    return found.removeprefix(label).split("  ")


def cells(text: str, label: str) -> list[str]:
    return [cell.strip() for cell in line_of(text, label) if cell.strip()]


def test_the_case_that_started_it_all_stands_side_by_side_with_its_changes() -> None:
    text = make_table(origin())
    assert cells(text, "instructions a cycle (IPC)") == ["1.265", "1.105", "−12.6 %"]
    assert cells(text, "LLC miss rate") == ["60.37 %", "75.11 %", "+14.74 points"]
    assert cells(text, "p99, ms") == ["31.97", "74.56", "+133.2 %"]
    assert cells(text, "context switches") == ["8,662", "8,767", "+1.2 %"]
    assert cells(text, "requests/s")[1] == "295.48"
    assert "Over-concurrency" in text and "42.1 ms more of it" in text
    assert "simulated" not in text.lower()


def test_a_figure_that_was_not_counted_is_called_not_measured_and_never_a_number() -> None:
    result = origin()
    result.has_counters = False
    result.phases = [replace(phase, counts={}) for phase in result.phases]
    text = make_table(result)
    assert cells(text, "instructions a cycle (IPC)") == ["not measured"] * 2
    assert cells(text, "LLC miss rate") == ["not measured"] * 2
    assert "Not measured either: L1 data miss rate" in text
    # The kernel's own count of the server's threads.
    assert cells(text, "context switches") == ["321", "321", "+0.0 %"]
    rows = document(result)["phases"][0]["rows"]
    assert rows["ipc"] is None and rows["llc_miss_rate"] is None


def test_switches_that_perf_counts_of_the_user_side_are_taken_from_the_kernel() -> None:
    phase = make_phase(PhasePlan(1, 1), make_load(1, 1), "unprivileged")
    assert phase.counts["context-switches"].value == 0
    assert phase.context_switches == 321 and phase.migrations == 4 and phase.page_faults == 10


def test_simulated_figures_are_labelled_as_such() -> None:
    result = origin()
    result.simulated = Totals(2.5e8, 1e8, 1.7e7, 2e5)
    result.simulated_how = "callgrind, x86-64-v3 build"
    text = make_table(result)
    assert "Simulated, a request (callgrind, x86-64-v3 build):" in text
    assert cells(text, "  instructions") == ["250,000,000"]
    assert document(result)["simulated_a_request"]["ll_misses"] == 2e5


def test_counts_that_perf_extrapolated_are_told() -> None:
    result = origin()
    result.phases[0] = make_phase(PhasePlan(4, 200), make_load(290, 31.97), "multiplexed")
    assert "extrapolated from 25 % or more of the time" in make_table(result)


@pytest.mark.parametrize(
    "second, said",
    [
        (make_load(101, 20), "Over-concurrency"),
        (make_load(150, 20), "More is served, and each waits longer"),
        (make_load(150, 10), "had room"),
        (make_load(101, 10.5), "Little changed"),
    ],
)
def test_the_verdict_weighs_throughput_against_the_tail(second: LoadFigures, said: str) -> None:
    first = make_phase(PhasePlan(4, 200), make_load(100, 10))
    assert said in verdict(first, make_phase(PhasePlan(16, 50), second))


def test_the_json_has_the_rows_their_changes_and_the_raw_counts() -> None:
    found = json.loads(json.dumps(document(origin())))
    assert found["change"]["p99_ms"] == pytest.approx(1.332, abs=1e-3)
    assert found["phases"][1]["counts"]["context-switches"]["value"] == 8767
    assert found["phases"][0]["clients"] == 4 and found["phases"][1]["requests_each"] == 50


def test_one_phase_alone_has_no_change_and_no_verdict() -> None:
    result = origin()
    del result.phases[1]
    text = make_table(result)
    assert "change" not in text and document(result)["verdict"] == ""
    assert cells(text, "p99, ms") == ["31.97"]


def test_a_row_of_the_bench_is_read_with_its_stages_and_refusals() -> None:
    row = {
        "requests": 20,
        "seconds": 2.0,
        "per_second": 10.0,
        "latency_us": {"p50": 1500, "p90": 2000, "p99": 3000, "p999": 4000, "max": 5000},
        "errors": {"count": 3, "by_status": {"429": 3}},
        "server": {"stages_us": {"queue": 250.0}},
    }
    found = read_row(row)
    assert found.p50_ms == 1.5 and found.p99_ms == 3.0 and found.errors_by_status == {"429": 3}
    assert found.stages_ms == {"queue": 0.25}


def test_totals_of_callgrind_are_read_though_zeros_at_their_end_are_left_out() -> None:
    text = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nsummary: 100 40 10 3 5 1 2\n"
    assert parse_totals(text) == Totals(100, 50, 6, 2)
    assert parse_totals(text).by(2).instructions == 50


@pytest.mark.parametrize(
    "text, said",
    [("", "no events"), ("events: Ir\nsummary: 5\n", "lacks"), ("events: Ir\n", "no events or")],
)
def test_a_file_that_callgrind_did_not_finish_is_refused(text: str, said: str) -> None:
    with pytest.raises(PerfError, match=said):
        parse_totals(text)


def test_a_process_name_with_blanks_and_brackets_does_not_shift_its_figures() -> None:
    text = "7 (a) b (c)) S 1 1 1 0 -1 4194304 11 0 22 0 300 100 0 0 20 0 5 0 99 1 2"
    minor, major, user_s, system_s = parse_stat(text)
    assert (minor, major) == (11, 22) and user_s == 3 * system_s


def test_phases_are_clients_times_requests() -> None:
    assert parse_options([]).phases == (PhasePlan(4, 200), PhasePlan(16, 50))
    assert parse_options(["--clients", "2x3, 5×7"]).phases == (PhasePlan(2, 3), PhasePlan(5, 7))
    arguments = ["--server-arg=--spin=off", "--", "--queue-type", "naive"]
    assert parse_options(arguments).server_arguments == ("--spin=off", "--queue-type", "naive")


@pytest.mark.parametrize("text", ["", "4", "4x", "0x5", "4x0", "4x200,", "99999x1", "axb", "-1x5"])
def test_phases_that_can_not_be_are_refused_with_an_example(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        parse_options([f"--clients={text}"])
    assert raised.value.code == 2
    assert "wanted CLIENTSxREQUESTS" in capsys.readouterr().err


def test_a_flame_graph_in_a_folder_that_is_not_there_is_refused_before_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--flame", "/no/such/folder/out.svg"])
    assert "/no/such/folder" in capsys.readouterr().err


def test_the_help_names_settings_that_are_changed_and_put_back() -> None:
    text = make_parser().format_help()
    assert "perf_event_paranoid" in text and "put back" in text and "--no-callgrind" in text


def test_a_miss_rate_of_other_events_is_told_as_such() -> None:
    result = origin()
    result.phases[0] = make_phase(PhasePlan(4, 200), make_load(290, 31.97), "amd_zen")
    assert "cache-misses and cache-references" in make_table(result)
    assert "cache-references" not in make_table(origin())
