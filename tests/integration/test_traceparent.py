"""The server's record of a W3C traceparent: the file beside the telemetry CSV, line by line."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from integration import prometheus
from integration.harness import Server
from integration.load import infer_bytes, read_csv
from integration.raw_http import Connection, get

StartServer = Callable[..., Server]
VALID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "requests.csv"


def request(name: str, *headers: str, tensor: str = "input") -> bytes:
    """An infer request with that id and those header lines."""
    whole = infer_bytes("identity", tensor, np.zeros((1, 3)), request_id=name)
    first, separator, rest = whole.partition(b"\r\n")
    return first + b"".join(b"\r\n" + line.encode() for line in headers) + separator + rest


def traces(file: Path) -> list[dict[str, str]]:
    with file.with_name("requests.traceparent.csv").open(newline="") as opened:
        reader = csv.DictReader(opened, strict=True)
        assert reader.fieldnames == ["request_id", "timestamp", "traceparent"]
        return list(reader)


def test_requests_of_a_trace_have_a_line_that_joins_with_the_csv(
    server: StartServer, file: Path
) -> None:
    one = server("--telemetry-csv-path", str(file))
    later = "01" + VALID[2:-2] + "03-and-more"
    with Connection(one.address) as connection:
        for sent in (
            request("a,b", f"traceparent: {VALID}"),
            request("without"),
            request("later", f"TRACEPARENT:  {later} "),
        ):
            assert connection.exchange(sent).status == 200
        # Refused, and of a model that there is: it has a line in both files.
        wrong = request("wrong", f"traceparent: {VALID}", tensor="no_such_input")
        assert connection.exchange(wrong).status == 400
        metrics = prometheus.parse(connection.exchange(get("/metrics")).body.decode())
    one.stop()
    lines = {line["request_id"]: line for line in read_csv(file)}
    found = {line["request_id"]: line for line in traces(file)}
    assert {name: line["traceparent"] for name, line in found.items()} == {
        "a,b": VALID,
        "later": "00" + VALID[2:-2] + "03",
        "wrong": VALID,
    }
    assert len(lines) == 4 and lines["wrong"]["status"] == "400"
    for name, line in found.items():
        assert line["timestamp"] == lines[name]["timestamp"]
    assert prometheus.value(metrics, "lumen_trace_traceparents_dropped_total") == 0


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("traceparent: nonsense",),
        ("traceparent:",),
        (f"traceparent: {VALID.upper()}",),
        (f"traceparent: {VALID}-more",),
        (f"traceparent: ff{VALID[2:]}",),
        (f"traceparent: 00-{'0' * 32}-{VALID[36:]}",),
        (f"traceparent: {VALID}", f"traceparent: {VALID}"),
        ("tracestate: a=b",),
    ],
)
def test_without_a_valid_traceparent_a_request_is_served_and_no_file_is_made(
    server: StartServer, file: Path, headers: tuple[str, ...]
) -> None:
    one = server("--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        assert connection.exchange(request("a", *headers)).status == 200
    one.stop()
    assert len(read_csv(file)) == 1
    assert [path.name for path in file.parent.glob("requests*")] == ["requests.csv"]


def test_a_traceparent_is_of_its_request_alone(server: StartServer, file: Path) -> None:
    one = server("--telemetry-csv-path", str(file))
    with Connection(one.address) as connection:
        for number in range(20):
            mine = f"00-{number + 1:032x}-{number + 1:016x}-00"
            headers = (f"traceparent: {mine}",) if number % 2 else ()
            assert connection.exchange(request(f"r{number}", *headers)).status == 200
    one.stop()
    assert [(line["request_id"], line["traceparent"]) for line in traces(file)] == [
        (f"r{number}", f"00-{number + 1:032x}-{number + 1:016x}-00") for number in range(1, 20, 2)
    ]
