"""`lumen slow` and `lumen trace` over known requests: exact values, and the rules of Perfetto."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from lumen_engine import slow, trace
from python.counters_file_writer import NONE, WINDOW_NS, CountersFileWriter
from python.trace_rules import must_be_what_perfetto_reads

Event = dict[str, Any]
SECOND = 1_700_000_000_000_000_000
TRACE = (1, bytes(range(16)), bytes(range(8)))


@pytest.fixture
def file(tmp_path: Path) -> CountersFileWriter:
    """Three requests: two of one batch that overlap, one that was refused."""
    file = CountersFileWriter(tmp_path / "f.counters", shards=2, pid=4711)
    file.model(0, "mlp")
    stages = {"parse": 1_000, "queue": 2_000, "preprocess": 500, "inference": 10_000}
    stages |= {"postprocess": 700, "write": 300, "total": 14_600}
    first = file.entry(1, first_byte=SECOND, id="a", stages=stages | {"connect": 9}, worker=0)
    second = file.entry(
        2,
        first_byte=SECOND + 500,
        stages=stages,
        worker=0,
        rows=4,
        cache=3 | 2 << 4,
        traceparent=TRACE,
    )
    refused = {"parse": 2_000, "write": 1_000, "total": 5_000_000}
    third = file.entry(3, first_byte=SECOND, stages=refused, status=429, model=0xFFFF)
    file.recent(0, first, second)
    file.recent(1, third)
    file.slow(0, 0, NONE, first, second)
    file.slow(1, 0, NONE, third)
    now = time.monotonic_ns() // WINDOW_NS
    file.slow(0, 1 + now % 6, now, second)
    return file


def test_slow_prints_the_slowest_first_with_their_stages(
    file: CountersFileWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slow.main([str(file.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "lumen 4711: the slowest requests since it started, ms"
    assert lines[1].split() == (
        "total parse queue preprocess inference postprocess write"
        " status rows worker model cache by at id traceparent".split()
    )
    assert lines[2].split()[:11] == "5.000 0.002 - - - - 0.001 429 1 - -".split()
    a = "0.015 0.001 0.002 0.001 0.010 0.001 0.000 200 1 0 mlp - http a -".split()
    assert [word for word in lines[3].split() if ":" not in word] == a
    assert lines[6] == "lumen 4711: the slowest requests of the last minute, ms"
    traceparent = "00-000102030405060708090a0b0c0d0e0f-0001020304050607-01"
    assert lines[8].split()[-2:] == ["2", traceparent] and len(lines) == 9


def test_slow_of_one_model_and_a_few(
    file: CountersFileWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slow.main([str(file.path), "--model", "mlp", "--count", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (request,) = told["since_start"]
    assert (request["id"], request["stages"]["inference"], request["rows"]) == ("a", 10_000, 1)
    assert request["stages"]["connect"] == 9 and told["is_alive"] is True
    (lately,) = told["last_minute"]
    assert lately["traceparent"] == "00-000102030405060708090a0b0c0d0e0f-0001020304050607-01"
    assert slow.main([str(file.path), "--model", "none"]) == 0
    assert capsys.readouterr().out.count("none") == 2


def test_slow_and_trace_of_a_file_that_is_none_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.write_text("hello")
    for name, main in (("slow", slow.main), ("trace", trace.main)):
        words = [str(path)] + (["-o", "-"] if name == "trace" else [])
        assert main(words) == 1
        told = capsys.readouterr()
        assert told.out == "" and told.err.startswith(f"lumen {name}: {path}: is no counters file")
    with pytest.raises(SystemExit):
        slow.main([str(path), "--count", "0"])
    assert "--count: got 0, wanted 1 or more" in capsys.readouterr().err


def written(file: CountersFileWriter, tmp_path: Path, *words: str) -> list[Event]:
    output = tmp_path / "t.json"
    assert trace.main([str(file.path), "-o", str(output), *words]) == 0
    events: list[Event] = json.loads(output.read_text())["traceEvents"]
    return events


def test_a_trace_has_a_track_for_each_thread_and_a_slice_for_each_stage(
    file: CountersFileWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = written(file, tmp_path)
    assert capsys.readouterr().out == (
        f"{tmp_path}/t.json: 3 requests; open it at https://ui.perfetto.dev\n"
    )
    must_be_what_perfetto_reads(events)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == [
        "I/O thread 0",
        "I/O thread 0, beside 1",
        "I/O thread 1",
        "worker 0",
        "worker 0, beside 1",
    ]
    slices = [
        (names[e["tid"]], e["name"], e["ts"], e["dur"], e["args"]["number"])
        for e in events
        if e["ph"] == "X"
    ]
    assert ("I/O thread 0", "parse", 0.0, 1.0, 1) in slices
    assert ("I/O thread 0, beside 1", "parse", 0.5, 1.0, 2) in slices
    assert ("worker 0", "inference", 3.5, 10.0, 1) in slices
    assert ("worker 0, beside 1", "inference", 4.0, 10.0, 2) in slices
    assert ("I/O thread 1", "write", 2.0, 1.0, 3) in slices
    assert len(slices) == 5 + 5 + 2, "queue is nobody's work"


def test_each_request_is_an_event_with_its_stages_and_its_facts(
    file: CountersFileWriter, tmp_path: Path
) -> None:
    events = written(file, tmp_path)
    begins = [e for e in events if e["ph"] == "b" and e["id"] == "0x2"]
    stages = [(e["name"], e["ts"]) for e in begins[1:]]
    assert stages == [
        ("parse", 0.5),
        ("queue", 1.5),
        ("preprocess", 3.5),
        ("inference", 4.0),
        ("postprocess", 14.0),
        ("write", 14.7),
    ]
    assert begins[0]["name"] == "mlp 200" and begins[0]["ts"] == 0.5
    assert begins[0]["args"] == {
        "id": "2",
        "number": 2,
        "model": "mlp",
        "status": 200,
        "rows": 4,
        "queue_type": "mpmc",
        "lane": "mpmc",
        "allocator_type": "lumen_arena",
        "cache": "miss",
        "transport": "grpc",
        "traceparent": "00-000102030405060708090a0b0c0d0e0f-0001020304050607-01",
    }
    (end,) = [e for e in events if e["ph"] == "e" and e["name"] == "no model 429"]
    assert end["ts"] == 5000.0, "its total is longer than its stages together"


def test_a_trace_of_one_model_goes_to_stdout(
    file: CountersFileWriter, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert trace.main([str(file.path), "-o", "-", "--model", "mlp"]) == 0
    told = json.loads(capsys.readouterr().out)
    must_be_what_perfetto_reads(told["traceEvents"])
    assert {e["id"] for e in told["traceEvents"] if e["ph"] == "b"} == {"0x1", "0x2"}
    assert told["otherData"]["begin_ns_since_epoch"] == str(SECOND)
    assert trace.main([str(file.path), "-o", str(tmp_path / "no" / "t.json")]) == 1
    assert "can't be written: No such file or directory" in capsys.readouterr().err
