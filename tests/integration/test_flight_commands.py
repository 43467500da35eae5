"""`lumen slow` and `lumen trace` over real servers, held against their telemetry CSV."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.harness import PATIENCE, Server
from integration.load import Load, make_cases, read_csv
from integration.raw_http import Connection, get, post_json
from integration.reference import Reference
from python.trace_rules import must_be_what_perfetto_reads

pytestmark = pytest.mark.tool

StartServer = Callable[..., Server]
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def run(binary: Path, *words: object) -> str:
    done = subprocess.run(
        [str(binary), *(str(word) for word in words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def nanoseconds(line: dict[str, str], stage: str) -> int | None:
    text = line[f"{stage}_us"]
    return int(text.replace(".", "")) if text else None


# One request after the other on a worker, several at once, and no worker at all.
@pytest.mark.parametrize("queue", ["mpmc", "batched", "inline"])
def test_they_agree_with_the_csv(
    server: StartServer, small_repository: Path, lumen_binary: Path, tmp_path: Path, queue: str
) -> None:
    stats, csv_path = tmp_path / "lumen.counters", tmp_path / "requests.csv"
    one = server(
        "--stats", str(stats), "--telemetry-csv-path", str(csv_path), "--queue-type", queue
    )
    cases = make_cases(Reference(small_repository), "mlp", [1, 1, 3, 1, 2], seed=7)
    Load(lambda: Connection(one.address), cases, 4, 100).join().check(400)
    with Connection(one.address) as connection:
        assert connection.exchange(get("/v2/health/live")).status == 200
    slow = json.loads(run(lumen_binary, "slow", stats, "--count", "20", "--json"))
    trace = json.loads(run(lumen_binary, "trace", stats, "-o", "-"))["traceEvents"]
    one.stop()
    lines = {line["request_id"]: line for line in read_csv(csv_path)}

    slowest = sorted((nanoseconds(line, "total") for line in lines.values()), reverse=True)  # type: ignore[type-var]
    assert [request["stages"]["total"] for request in slow["since_start"]] == slowest[:20]
    assert slow["last_minute"] == slow["since_start"], "the server is younger than a minute"
    for request in slow["since_start"]:
        line = lines[request["id"]]
        assert {name: nanoseconds(line, name) for name in request["stages"]} == request["stages"]
        assert (request["queue_type"], request["lane"]) == (queue, line["lane"])
        assert request["model"] == "mlp"
        assert str(request["rows"]) == line["rows"]

    must_be_what_perfetto_reads(trace)
    spans = [event for event in trace if event["ph"] == "b" and "args" in event]
    assert {event["args"]["id"] for event in spans} == set(lines)
    inferences = [e for e in trace if e["ph"] == "X" and e["name"] == "inference"]
    for event in inferences:
        line = lines[event["args"]["id"]]
        assert event["dur"] == pytest.approx(float(line["inference_us"]), abs=0.001)
    assert len(inferences) == 400
    tracks = {e["args"]["name"].split(",")[0] for e in trace if e["name"] == "thread_name"}
    assert "I/O thread 0" in tracks and (queue == "inline" or "worker 0" in tracks)


def test_a_traceparent_is_kept_and_a_killed_servers_requests_are_told(
    small_repository: Path, lumen_binary: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "lumen.counters"
    one = Server(small_repository, "--stats", str(stats))
    given = {"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    body: dict[str, Any] = {"id": "traced", "inputs": [given]}
    request = post_json("/v2/models/identity/infer", body)
    head, _, rest = request.partition(b"\r\n")
    request = head + f"\r\ntraceparent: {TRACEPARENT}\r\n".encode() + rest
    with Connection(one.address) as connection:
        assert connection.exchange(request).status == 200
        assert connection.exchange(get("/v2/health/live")).status == 200
    one.kill()
    told = run(lumen_binary, "slow", stats)
    assert told.startswith(f"lumen {one.pid} (dead): the slowest requests since it started, ms\n")
    assert "identity  -      " in told and told.count(f"traced  {TRACEPARENT}\n") == 2
    target = tmp_path / "t.json"
    assert run(lumen_binary, "trace", stats, "-o", target).startswith(f"{target}: 1 requests;")
    events = json.loads(target.read_text())["traceEvents"]
    (span,) = (event for event in events if event["ph"] == "b" and "args" in event)
    assert span["args"]["traceparent"] == TRACEPARENT and span["name"] == "identity 200"
