"""A crash leaves a report and an exit status that a supervisor sees; the unit for systemd."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.harness import ROOT, SANITIZED, Server
from integration.raw_http import get, post_json

StartServer = Callable[..., Server]
UNIT = ROOT / "examples" / "systemd" / "lumen.service"
SECRET = "an-id-that-no-log-has"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def infer(server: Server, model: str, columns: int) -> int:
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, columns], "data": [0.0] * columns}
    lines = [f"traceparent: 00-{TRACE}-b7ad6b7169203331-01"]
    path = f"/v2/models/{model}/infer"
    with server.connect() as connection:
        return connection.exchange(
            post_json(path, {"id": SECRET, "inputs": [tensor]}, *lines)
        ).status


@pytest.mark.skipif(SANITIZED, reason="sanitizers have reports of their own")
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT], ids=str)
def test_a_crash_tells_the_last_requests_and_the_calls(
    server: StartServer, number: signal.Signals
) -> None:
    running = server()
    statuses = [infer(running, "mlp", 256) for _ in range(70)]
    statuses.append(infer(running, "mlp", 255))
    assert statuses == [200] * 70 + [400]
    # A request is noted behind its reply; the next answer comes when that is done.
    with running.connect() as connection:
        assert connection.exchange(get("/v2/health/live")).status == 200
    running.interrupt(number)
    assert running.wait() == -number
    text = "\n".join(running.log)
    assert f"lumen: crashed by {number.name} at address 0x" in text
    assert "lumen: the last 64 requests, newest first:" in text
    requests = re.findall(r"^lumen:   (\d+) ms since 1970, (.*?), status (\d+), rows", text, re.M)
    assert len(requests) == 64
    assert [int(ms) for ms, _, _ in requests] == sorted((int(r[0]) for r in requests), reverse=True)
    assert requests[0][1:] == ("mlp/1", "400")
    assert {request[1:] for request in requests[1:]} == {("mlp/1", "200")}
    assert "inference" in text and "lumen: the calls" in text
    calls = text.split("lumen: the calls")[1]
    assert re.search(r"\(\+0x[0-9a-f]+\)|\[0x[0-9a-f]+\]", calls), calls
    assert SECRET not in text and TRACE not in text, "the ids are the clients'"


@pytest.mark.skipif(SANITIZED, reason="sanitizers have reports of their own")
def test_a_crash_without_requests_is_told_too(server: StartServer) -> None:
    running = server()
    running.interrupt(signal.SIGFPE)
    assert running.wait() == -signal.SIGFPE
    text = "\n".join(running.log)
    assert "lumen: crashed by SIGFPE" in text and "lumen: the last 0 requests" in text


def test_the_unit_for_systemd_starts_a_crashed_server_again_but_not_for_ever() -> None:
    text = UNIT.read_text()
    for line in ("Restart=on-failure", "StartLimitIntervalSec=60", "StartLimitBurst=5"):
        assert line in text.splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # The program has to be there.
    text = UNIT.read_text().replace("/opt/lumen/bin/lumen", "/bin/true")
    (tmp_path / "lumen.service").write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "lumen.service")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "lumen.service" not in done.stderr, done.stderr
