"""The server's records of its requests: the telemetry CSV, and /metrics held against it."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from integration import prometheus
from integration.harness import ROOT, ServeProcess, Server, run_serve
from integration.load import (
    ALLOCATORS,
    QUEUE_TYPES,
    Case,
    Load,
    infer_bytes,
    make_cases,
    read_csv,
)
from integration.raw_http import Connection, get, post_json
from integration.reference import Reference

StartServer = Callable[..., Server]
HEADER = (
    "request_id,timestamp,model,queue_type,allocator_type,worker,connect_us,parse_us,queue_us,"
    "preprocess_us,inference_us,postprocess_us,write_us,total_us,rows,status,cache,transport,lane"
)
STAGES = ("parse", "queue", "preprocess", "inference", "postprocess", "write")
every_kind = pytest.mark.parametrize("queue", QUEUE_TYPES)


@pytest.fixture
def cases(small_repository: Path) -> list[Case]:
    return make_cases(Reference(small_repository), "mlp", [1, 1, 3, 1, 2], seed=7)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


def nanoseconds(line: dict[str, str], stage: str) -> int:
    """Three decimals of a microsecond, exactly."""
    text = line[f"{stage}_us"]
    assert re.fullmatch(r"\d+\.\d{3}", text), line
    return int(text.replace(".", ""))


def scrape(connection: Connection) -> dict[str, prometheus.Family]:
    reply = connection.exchange(get("/metrics"))
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return prometheus.parse(reply.body.decode())


def infer(values: list[float], **members: object) -> bytes:
    given = {"name": "input", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    return post_json("/v2/models/identity/infer", {"inputs": [given], **members})


# --- the lines ------------------------------------------------------------------------------------


@every_kind
def test_every_request_has_one_line_and_its_stages_add_up(
    server: StartServer, cases: list[Case], file: Path, queue: str
) -> None:
    allocator = ALLOCATORS[QUEUE_TYPES.index(queue) % 2]
    one = server(
        *("--queue-type", queue, "--allocator-type", allocator),
        *("--telemetry-csv-path", str(file)),
    )
    began = datetime.now(UTC)
    outcome = Load(lambda: Connection(one.address), cases, 5, 100).join()
    outcome.check(500)
    one.stop()
    ended = datetime.now(UTC)
    assert file.read_text().splitlines()[0] == HEADER
    lines = read_csv(file)
    assert sorted(line["request_id"] for line in lines) == sorted(outcome.ids)
    assert sum(int(line["rows"]) for line in lines) == outcome.rows
    for line in lines:
        assert (line["model"], line["queue_type"], line["allocator_type"]) == (
            "mlp",
            queue,
            allocator,
        )
        assert (line["lane"], line["worker"], line["status"]) == (queue, "0", "200")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["timestamp"])
        assert began <= datetime.fromisoformat(line["timestamp"]) <= ended
        # Stages follow one another, so they can't add up to more than all of it; inference is real.
        assert sum(nanoseconds(line, stage) for stage in STAGES) <= nanoseconds(line, "total")
        assert nanoseconds(line, "inference") > 0 and nanoseconds(line, "write") > 0
        # A connection's first request, and no other.
        assert (line["connect_us"] != "") == line["request_id"].endswith("-00000000")


def test_a_body_that_comes_in_parts_is_in_parse(server: StartServer, file: Path) -> None:
    one = server("--telemetry-csv-path", str(file))
    request = infer_bytes("identity", "input", np.zeros((1, 100_000), np.float32))
    with Connection(one.address) as connection, Connection(one.address) as other:
        assert connection.exchange(request).status == 200
        connection.send(request[:-1])
        # The one I/O thread has seen the first part once it has answered the other connection.
        assert other.exchange(get("/v2/health/live")).status == 200
        begin = time.monotonic_ns()
        for _ in range(50):
            assert other.exchange(get("/v2/health/live")).status == 200
        between = time.monotonic_ns() - begin
        assert connection.exchange(request[-1:]).status == 200
    one.stop()
    whole, parts = read_csv(file)
    for line in (whole, parts):
        assert sum(nanoseconds(line, stage) for stage in STAGES) <= nanoseconds(line, "total")
    # 50 round trips lie between its first byte and its last.
    assert nanoseconds(parts, "parse") >= between


@every_kind
def test_a_refused_request_has_a_line_without_the_stages_it_did_not_reach(
    server: StartServer, file: Path, queue: str
) -> None:
    one = server("--queue-type", queue, "--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        wrong = infer_bytes("identity", "no_such_input", np.zeros((1, 1)), request_id="wrong")
        assert connection.exchange(wrong).status == 400
        unknown = infer_bytes("no_such_model", "input", np.zeros((1, 1)), request_id="unknown")
        assert connection.exchange(unknown).status == 404
        assert connection.exchange(get("/v2/health/live")).status == 200
        assert connection.exchange(get("/v2/models/identity")).status == 200
        assert connection.exchange(infer([1.0], id="right")).status == 200
    one.stop()
    # Only requests to a model that there is: nothing else has its stages.
    wrong_line, right_line = read_csv(file)
    assert (wrong_line["request_id"], wrong_line["status"]) == ("wrong", "400")
    assert all(wrong_line[f"{stage}_us"] == "" for stage in STAGES)
    assert nanoseconds(wrong_line, "total") > 0 and nanoseconds(wrong_line, "connect") > 0
    assert (wrong_line["queue_type"], wrong_line["worker"]) == (queue, "")
    assert (right_line["request_id"], right_line["status"]) == ("right", "200")
    assert (right_line["queue_type"], right_line["worker"]) == (queue, "0")
    assert right_line["connect_us"] == ""


def test_with_auto_the_queue_type_is_the_configured_one_and_the_lane_the_real_one(
    server: StartServer, file: Path
) -> None:
    one = server("--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        assert connection.exchange(infer([1.0], id="right")).status == 200
        wrong = infer_bytes("identity", "no_such_input", np.zeros((1, 1)), request_id="wrong")
        assert connection.exchange(wrong).status == 400
    one.stop()
    lines = read_csv(file)
    assert {line["queue_type"] for line in lines} == {"auto"}
    assert {line["lane"] for line in lines} <= {"inline", "mpmc", "batched"}


@pytest.mark.parametrize(
    ("name", "written"),
    [(name, name) for name in ("plain", "a,b", 'say "hi"', "two\nlines", "ümläut ☃", "x" * 40, " ")]
    # Formulas to a spreadsheet, which takes them as text behind an apostrophe.
    + [(name, f"'{name}") for name in ("\r\n", "=1+1", "@a")],
)
def test_an_id_is_written_so_that_it_reads_back(
    server: StartServer, file: Path, name: str, written: str
) -> None:
    one = server("--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        reply = connection.exchange(infer([1.0], id=name))
        assert reply.json()["id"] == name
    one.stop()
    with file.open(newline="", encoding="utf-8") as opened:
        (line,) = csv.DictReader(opened, strict=True)
    assert line["request_id"] == written and line["status"] == "200"


def test_without_an_id_that_fits_the_number_of_the_request_stands(
    server: StartServer, file: Path
) -> None:
    one = server("--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        for members in ({}, {"id": "x" * 41}, {"id": ""}):
            assert connection.exchange(infer([1.0], **members)).status == 200
    one.stop()
    assert [line["request_id"] for line in read_csv(file)] == ["1", "2", "3"]


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("io_threads", ["1", "3"])
def test_after_sigterm_under_load_every_answer_is_in_the_file(
    server: StartServer, cases: list[Case], file: Path, io_threads: str
) -> None:
    one = server("--io-threads", io_threads, "--telemetry-csv-path", str(file))
    load = Load(lambda: Connection(one.address), cases, 6)
    load.wait_for(600)
    one.stop()  # under way: the clients see their connections close
    outcome = load.join()
    lines = read_csv(file)
    assert len(lines) >= 600
    answered = {line["request_id"] for line in lines}
    assert len(answered) == len(lines) and set(outcome.ids) <= answered
    assert {line["status"] for line in lines} == {"200"}
    assert file.read_bytes().endswith(b"\n")
    assert not any(": 5" in failure for failure in outcome.failures)


def test_a_long_file_is_rotated_and_no_line_is_lost_or_split(
    server: StartServer, cases: list[Case], file: Path
) -> None:
    one = server(
        *("--telemetry-csv-path", str(file), "--telemetry-csv-max-bytes", "65536"),
        *("--telemetry-csv-keep", "1000"),
    )
    outcome = Load(lambda: Connection(one.address), cases, 4, 750).join()
    outcome.check(3000)
    with Connection(one.address) as connection:
        metrics = scrape(connection)
    one.stop()
    rotated = sorted(
        file.parent.glob("trace.csv.*"), key=lambda path: int(path.suffix[1:]), reverse=True
    )
    assert len(rotated) >= 3
    assert [path.suffix for path in rotated] == [f".{n}" for n in range(len(rotated), 0, -1)]
    lines = []
    for path in [*rotated, file]:
        assert path.read_text().startswith(HEADER + "\n") and path.stat().st_size <= 65536
        lines += read_csv(path)
    assert sorted(line["request_id"] for line in lines) == sorted(outcome.ids)
    assert prometheus.value(metrics, "lumen_trace_rotations_total") <= len(rotated)


@pytest.mark.parametrize(("keep", "left"), [("0", []), ("2", ["trace.csv.1", "trace.csv.2"])])
def test_no_more_rotated_files_are_kept_than_was_said(
    server: StartServer, cases: list[Case], file: Path, keep: str, left: list[str]
) -> None:
    one = server(
        *("--telemetry-csv-path", str(file), "--telemetry-csv-max-bytes", "65536"),
        *("--telemetry-csv-keep", keep),
    )
    Load(lambda: Connection(one.address), cases, 4, 750).join().check(3000)
    one.stop()
    assert sorted(path.name for path in file.parent.glob("trace.csv.*")) == left
    assert file.stat().st_size <= 65536 and file.read_text().startswith(HEADER + "\n")


def test_a_second_start_goes_on_with_the_file(server: StartServer, file: Path) -> None:
    for number in range(2):
        one = server("--telemetry-csv-path", str(file))
        with Connection(one.address) as connection:
            assert connection.exchange(infer([1.0], id=f"start-{number}")).status == 200
        one.stop()
    assert file.read_text().count(HEADER) == 1
    assert [line["request_id"] for line in read_csv(file)] == ["start-0", "start-1"]


def test_half_a_line_of_a_killed_server_is_cut_off(server: StartServer, file: Path) -> None:
    file.write_text(HEADER + "\nhalf,2026-01-0")
    one = server("--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        assert connection.exchange(infer([1.0], id="whole")).status == 200
    one.stop()
    assert [line["request_id"] for line in read_csv(file)] == ["whole"]


def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(
    small_repository: Path, file: Path
) -> None:
    file.write_text("name,salary\n")
    words = ["--http", "127.0.0.1:0", "--unix", "off", "--model-repository", str(small_repository)]
    done = run_serve(*words, "--telemetry-csv-path", str(file))
    assert done.returncode == 1 and "trace.csv" in done.stderr
    assert file.read_text() == "name,salary\n"


def test_a_relative_path_counts_from_the_working_directory(
    small_repository: Path, tmp_path: Path
) -> None:
    work = tmp_path / "deep" / "work"
    work.mkdir(parents=True)
    words = ["--http", "127.0.0.1:0", "--unix", "off", "--model-repository", str(small_repository)]
    path = "../made/for/it/trace.csv"
    with ServeProcess(*words, "--telemetry-csv-path", path, cwd=work) as serve:
        wanted = tmp_path / "deep" / "made" / "for" / "it" / "trace.csv"
        assert f"csv {wanted}" in serve.banner
        with serve.connect() as connection:
            assert connection.exchange(infer([1.0])).status == 200
    assert len(read_csv(wanted)) == 1


def test_a_full_disk_costs_lines_and_not_one_answer(server: StartServer, cases: list[Case]) -> None:
    one = server("--telemetry-csv-path", "/dev/full")
    Load(lambda: Connection(one.address), cases, 4, 100).join().check(400)
    with Connection(one.address) as connection:
        metrics = scrape(connection)
    assert prometheus.value(metrics, "lumen_trace_records_written_total") == 0
    one.stop()
    assert any("error" in line and "No space left" in line for line in one.output.splitlines())


# --- /metrics -------------------------------------------------------------------------------------


@every_kind
def test_metrics_and_csv_tell_the_same(
    server: StartServer, cases: list[Case], file: Path, queue: str
) -> None:
    one = server("--queue-type", queue, "--telemetry-csv-path", str(file))
    outcome = Load(lambda: Connection(one.address), cases, 4, 100).join()
    outcome.check(400)
    with Connection(one.address) as connection:
        metrics = scrape(connection)
    one.stop()
    lines = read_csv(file)
    model = {"model": "mlp", "version": "1"}
    assert prometheus.value(metrics, "lumen_inference_total", **model) == outcome.rows
    assert prometheus.value(metrics, "lumen_inference_success_total", **model) == 400
    assert prometheus.value(metrics, "lumen_inference_failure_total", **model) == 0
    assert 0 < prometheus.value(metrics, "lumen_execution_total", **model) <= 400
    assert prometheus.value(metrics, "lumen_responses_total", **{"class": "2xx"}) == 400
    assert prometheus.value(metrics, "lumen_requests_total") == 401
    assert prometheus.value(metrics, "lumen_connections_accepted_total") == 5
    name = "lumen_stage_duration_seconds"
    for stage in ("connect", *STAGES, "total"):
        labels = {**model, "stage": stage}
        times = [nanoseconds(line, stage) for line in lines if line[f"{stage}_us"] != ""]
        assert len(times) == (4 if stage == "connect" else 400)
        assert prometheus.value(metrics, f"{name}_count", **labels) == len(times)
        assert prometheus.value(metrics, f"{name}_sum", **labels) == pytest.approx(sum(times) / 1e9)
        # Up to 1.6 % above a bound are let in.
        for bound in ("1e-05", "0.0001", "0.001"):
            counted = prometheus.value(metrics, f"{name}_bucket", **labels, le=bound)
            at_least = sum(time <= float(bound) * 1e9 for time in times)
            at_most = sum(time <= float(bound) * 1.016e9 for time in times)
            assert at_least <= counted <= at_most, (stage, bound)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_the_allocators_really_differ(
    server: StartServer, cases: list[Case], allocator: str
) -> None:
    one = server("--allocator-type", allocator)

    def counted(connection: Connection) -> tuple[float, float]:
        metrics = scrape(connection)
        heap_calls = prometheus.value(metrics, "lumen_request_heap_calls_total")
        return heap_calls, prometheus.value(metrics, "lumen_request_arena_bytes_total")

    with Connection(one.address) as connection:
        before = counted(connection)
        for case in cases * 20:
            assert connection.exchange(case.request).status == 200
        after = counted(connection)
    heap_calls, arena_bytes = (b - a for a, b in zip(before, after))
    if allocator == "lumen_arena":
        assert heap_calls == 0
        assert arena_bytes >= 100 * 1024  # each has a row of 1 KiB at least
    else:
        assert heap_calls >= 2 * 100  # each asks for memory, and gives it back
        assert arena_bytes == 0


def test_metrics_have_the_names_that_the_page_has(server: StartServer, file: Path) -> None:
    page = (ROOT / "docs" / "formats" / "metrics.md").read_text()
    documented = set(
        re.findall(
            r"`(lumen_[a-z0-9_]+_(?:total|open|seconds|bytes|requests|instances|info))[`{]", page
        )
    ) | set(re.findall(r"`(nv_(?:inference|cache)_[a-z_]+)`", page))
    # Only of models that have a response cache or keep states; response_cache_test.cc has one, and
    # test_sequences.py.
    documented -= {"lumen_cache_bytes", "lumen_cache_max_bytes", "lumen_sequence_state_bytes"}
    documented -= {"lumen_sequences_started_total", "lumen_sequences_dropped_total"}
    choosing = ("--backend", "auto", "--backend-trial-ms", "10", "--backend-choices", "off")
    spans = ("--otlp-endpoint", f"unix:{file}.no-collector")
    one = server("--telemetry-csv-path", str(file), *choosing, *spans)
    with Connection(one.address) as connection:
        assert set(scrape(connection)) == documented


def test_metrics_are_whole_with_every_model_there_is(server: StartServer, repository: Path) -> None:
    one = server(repository=repository)
    with Connection(one.address) as connection:
        samples = scrape(connection)["lumen_inference_total"].samples
        models = {dict(labels)["model"] for _, labels in samples}
        assert {"mlp", "squeezenet", "identity"} <= models
        assert connection.exchange(get("/v2/health/live")).status == 200


def test_a_head_request_for_metrics_has_no_body(server: StartServer) -> None:
    one = server()
    with Connection(one.address) as connection:
        connection.send(b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = connection.reply(head_only=True)
        assert reply.status == 200 and int(reply.headers["content-length"]) > 1000
        assert json.loads(connection.exchange(get("/v2/health/live")).body) == {"live": True}
