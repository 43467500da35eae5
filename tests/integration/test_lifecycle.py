"""Start, idle and stop of the real process: banner, ports, signals, drain, CPU at rest."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.harness import MODELS, PATIENCE, Server, eventually, lumen_binary
from integration.raw_http import Connection, get, post_json

INFER = "/v2/models/identity/infer"
StartServer = Callable[..., Server]


def infer_request(*values: float) -> bytes:
    given = {"name": "input", "datatype": "FP32", "shape": [1, len(values)], "data": list(values)}
    return post_json(INFER, {"inputs": [given]})


def run_to_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(lumen_binary()), "serve", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )


def without_log(banner: list[str]) -> list[str]:
    """Warnings stand between the banner's lines where both outputs are one."""
    return [line for line in banner if not re.match(r"\d{4}-\d\d-\d\dT", line)]


# --- start ----------------------------------------------------------------------------------------


def test_the_banner_is_short_and_ends_with_the_ready_line(server: StartServer) -> None:
    one = server()
    assert len(without_log(one.banner)) <= 12
    assert one.banner[-1] == f"lumen: ready http={one.url}"
    assert any("identity" in line for line in one.banner)


def test_the_banner_stays_short_with_many_models(server: StartServer, repository: Path) -> None:
    assert len(without_log(server(repository=repository).banner)) <= 13


def test_port_0_takes_a_free_port_and_says_which(server: StartServer) -> None:
    first, second = server(), server()
    assert 0 < first.port != second.port > 0
    for one in (first, second):
        with Connection(one.address) as connection:
            assert connection.exchange(get("/v2/health/live")).status == 200


def test_a_port_in_use_is_an_error_that_names_it(
    server: StartServer, small_repository: Path
) -> None:
    one = server()
    done = run_to_end("--http", one.url, "--model-repository", str(small_repository))
    assert done.returncode != 0
    assert str(one.port) in done.stderr
    assert "in use" in done.stderr.lower()
    assert "lumen: ready" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["--http", "nonsense"], "nonsense"),
        (["--http", "127.0.0.1:99999"], "99999"),
        (["--model-repository", "/no/such/folder"], "/no/such/folder"),
        (["--config", "/no/such/config.json"], "/no/such/config.json"),
        (["--thread-count", "many"], "many"),
        (["--thread-count", "257"], "thread"),
        (["--queue-capacity", "1000"], "1000"),
        (["--colour", "blue"], "--colour"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(
    small_repository: Path, arguments: list[str], culprit: str
) -> None:
    defaults = ["--http", "127.0.0.1:0", "--model-repository", str(small_repository)]
    done = run_to_end(*defaults, *arguments)
    assert done.returncode != 0
    assert culprit in done.stderr
    assert "lumen: ready" not in done.stdout


@pytest.mark.parametrize(
    ("text", "culprits"),
    [
        ('{"server": {"htp": "127.0.0.1:0"}}', ["htp", "http", ":1:"]),
        ('{\n "server": {\n  "max_body_bytes": "big"}}', ["max_body_bytes", "big", ":3:"]),
        ('{"engin": {}}', ["engin", "engine"]),
        ('{"engine": {"queue_type": "lifo"}}', ["queue_type", "lifo", "mpmc"]),
        ('{"engine": ', ["line 1"]),
    ],
)
def test_a_wrong_config_names_file_place_and_the_likely_key(
    tmp_path: Path, small_repository: Path, text: str, culprits: list[str]
) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    done = run_to_end("--config", str(file), "--model-repository", str(small_repository))
    assert done.returncode != 0
    for culprit in ["wrong.json", *culprits]:
        assert culprit in done.stderr


def test_flags_beat_the_config_file(server: StartServer, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"server": {"max_body_bytes": 1024}}))
    for arguments, status in (([], 413), (["--max-body-bytes", "100000"], 200)):
        one = server("--config", str(file), *arguments)
        with Connection(one.address) as connection:
            assert connection.exchange(infer_request(*range(400))).status == status


def test_the_version_is_printed() -> None:
    done = subprocess.run([str(lumen_binary()), "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("lumen ")


# --- stop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_with_status_0(
    server: StartServer, sent: signal.Signals
) -> None:
    one = server()
    with Connection(one.address) as idle:
        assert idle.exchange(infer_request(1)).status == 200
        one.interrupt(sent)
        assert one.wait() == 0
        assert idle.is_closed()


def test_after_sigterm_nothing_listens(server: StartServer) -> None:
    one = server()
    one.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(one.address, timeout=5)


def test_sigterm_lets_a_request_in_flight_finish(server: StartServer) -> None:
    one = server()
    request = infer_request(*range(1000))
    with Connection(one.address) as busy, Connection(one.address) as idle:
        assert idle.exchange(get("/v2/health/live")).status == 200
        body = busy.begin(request)
        busy.send(body[:200])
        one.interrupt()
        assert idle.is_closed()  # so the drain has begun, while the request is half here
        busy.send(body[200:])
        reply = busy.reply()
        assert reply.status == 200
        assert reply.headers["connection"].lower() == "close"
        assert busy.is_closed()
    assert one.wait() == 0


def one_round_trip(one: Server) -> bool:
    """True once the loop has turned since now: bytes sent to it before have been read."""
    with Connection(one.address) as connection:
        return connection.exchange(get("/v2/health/live")).status == 200


def test_sigterm_finishes_a_queue_of_requests(server: StartServer, repository: Path) -> None:
    one = server(repository=repository)
    values = [0.0] * (3 * 224 * 224)
    given = {"name": "data", "datatype": "FP32", "shape": [1, 3, 224, 224], "data": values}
    outputs = [{"name": "logits", "parameters": {"binary_data": True}}]
    request = post_json("/v2/models/squeezenet/infer", {"inputs": [given], "outputs": outputs})
    connections = [Connection(one.address) for _ in range(8)]
    try:
        for connection in connections:
            connection.send(connection.begin(request))
        one.interrupt()  # they are queued, running or still arriving
        for connection in connections:
            assert connection.reply().status == 200
            connection.socket.close()  # until then the server lingers, for 5 s at most
        assert one.wait() == 0
    finally:
        for connection in connections:
            connection.socket.close()


def test_a_drain_closes_a_connection_at_rest_whose_last_body_was_large(server: StartServer) -> None:
    one = server()
    with Connection(one.address) as idle:
        # Longer than the receive buffer: its end is read exactly, with no sign of whether more is
        # there. Once such a connection counted as one that had begun its next request.
        assert idle.exchange(infer_request(*range(40_000))).status == 200
        one.interrupt()
        idle.socket.settimeout(4.0 * PATIENCE)  # a request that has begun has 10 s
        assert idle.is_closed()
    assert one.wait() == 0


def test_a_second_sigterm_ends_a_drain_that_hangs(server: StartServer) -> None:
    one = server()
    with Connection(one.address) as idle, Connection(one.address) as stuck:
        assert idle.exchange(get("/v2/health/live")).status == 200
        stuck.begin(infer_request(*range(1000)))
        one.interrupt()
        assert idle.is_closed()
        one.interrupt()
        assert one.wait() == -signal.SIGTERM


# Was: signals waited until all models were loaded, minutes with some repositories.
@pytest.mark.parametrize("signals", [1, 2])
def test_a_stop_signal_while_models_load_ends_the_server_within_a_second(
    tmp_path: Path, signals: int
) -> None:
    for i in range(60):
        shutil.copytree(MODELS / "mlp" / "1", tmp_path / "models" / f"m{i}" / "1")
    arguments = ["--model-repository", str(tmp_path / "models"), "--backend", "auto"]
    socket_path = tmp_path / "lumen.sock"
    with subprocess.Popen(
        [str(lumen_binary()), "serve", "--http", "off", "--unix", str(socket_path), *arguments]
        + ["--backend-choices", "off", "--stats", "off"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as one:
        eventually(socket_path.exists)  # it listens before it loads
        sent = time.monotonic()
        for _ in range(signals):
            one.send_signal(signal.SIGTERM)
        _, log = one.communicate(timeout=60 * PATIENCE)
        assert one.returncode == 0, log
        assert time.monotonic() - sent < 1.5 * PATIENCE
    assert "ending while models load" in log


def status_of(one: Server, request: bytes) -> int:
    with Connection(one.address) as connection:
        return connection.exchange(request).status


def test_after_sigterm_the_server_serves_on_for_its_drain_delay_and_is_not_ready(
    server: StartServer,
) -> None:
    one = server("--drain-delay-ms", str(int(1500 * PATIENCE)))
    assert status_of(one, get("/v2/health/ready")) == 200
    with Connection(one.address) as old:
        assert old.exchange(infer_request(1)).status == 200
        began = time.monotonic()
        one.interrupt()
        one.wait_for_log("not ready any more")
        assert status_of(one, get("/v2/health/ready")) == 503
        assert status_of(one, get("/v2/health/live")) == 200
        assert status_of(one, infer_request(1)) == 200
        assert old.exchange(infer_request(1)).status == 200
        assert one.wait() == 0
        assert time.monotonic() - began >= 1.4 * PATIENCE


def test_a_second_signal_does_not_wait_for_the_drain_delay(server: StartServer) -> None:
    one = server("--drain-delay-ms", "3600000")
    one.interrupt()
    one.wait_for_log("not ready any more")
    one.interrupt()
    assert one.wait() == -signal.SIGTERM


def test_sigint_ends_a_server_without_the_drain_delay(server: StartServer) -> None:
    one = server("--drain-delay-ms", "3600000")
    one.interrupt(signal.SIGINT)
    assert one.wait() == 0


@pytest.mark.parametrize("sent", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXFSZ, signal.SIGPIPE])
def test_a_signal_that_means_nothing_does_not_end_the_server(
    server: StartServer, sent: signal.Signals
) -> None:
    one = server()
    one.signal(sent)
    assert status_of(one, infer_request(1)) == 200
    one.stop()


# --- at rest --------------------------------------------------------------------------------------


def cpu_ticks(pid: int) -> int:
    """utime + stime of all threads, in ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_an_idle_server_uses_no_cpu(server: StartServer) -> None:
    one = server()
    connections = [Connection(one.address) for _ in range(20)]
    try:
        for connection in connections:
            assert connection.exchange(infer_request(1)).status == 200
        before = cpu_ticks(one.pid)
        # Two seconds in which nothing happens: the silence itself is measured.
        readable, _, _ = select.select([c.socket for c in connections], [], [], 2.0)
        assert not readable
        assert cpu_ticks(one.pid) - before <= 1
    finally:
        for connection in connections:
            connection.socket.close()


def test_descriptors_and_memory_stay_flat_over_many_connections(server: StartServer) -> None:
    one = server()

    def visit(times: int) -> None:
        for _ in range(times):
            with Connection(one.address) as connection:
                assert connection.exchange(infer_request(1, 2)).status == 200

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{one.pid}/fd"))

    def resident_kib() -> int:
        status = Path(f"/proc/{one.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    visit(200)
    assert one_round_trip(one)
    before_fds, before_kib = descriptors(), resident_kib()
    visit(1000)
    assert one_round_trip(one)
    # The last close may still be on its way: one connection of slack.
    assert abs(descriptors() - before_fds) <= 1
    if PATIENCE == 1:  # AddressSanitizer keeps freed memory for a while
        assert resident_kib() - before_kib < 2048
