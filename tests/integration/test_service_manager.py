"""Under a service manager: notices of readiness, and sockets that it listens on.

Judges: systemd-socket-activate, systemd-analyze; a datagram socket as sd_notify(3) describes it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from integration.harness import Server, UnixConnection, lumen_binary
from integration.http2_proxy import free_port
from integration.raw_http import Connection, get

ACTIVATE = shutil.which("systemd-socket-activate")
needs_activate = pytest.mark.skipif(ACTIVATE is None, reason="there is no systemd")


class Notices:
    """The notices that the manager gets."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + path[1:] if path.startswith("@") else path)
        self.socket.settimeout(30)

    def next(self) -> str:
        return self.socket.recv(4096).decode()


@pytest.mark.parametrize("is_abstract", [False, True])
def test_the_manager_hears_of_ready_reloading_and_stopping(
    small_repository: Path, tmp_path: Path, is_abstract: bool
) -> None:
    path = f"@lumen-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    notices = Notices(path)
    with Server(small_repository, env={"NOTIFY_SOCKET": path}) as server:
        assert notices.next() == "READY=1"
        with Connection(server.address) as connection:
            assert connection.exchange(get("/v2/health/ready")).status == 200
        server.signal(signal.SIGHUP)
        assert [notices.next(), notices.next()] == ["RELOADING=1", "READY=1"]
    assert notices.next() == "STOPPING=1"


@pytest.mark.parametrize("path", ["/no/such/socket", "x" * 200, "@", ""])
def test_a_manager_that_does_not_listen_is_no_reason_to_end(
    small_repository: Path, path: str
) -> None:
    with Server(small_repository, env={"NOTIFY_SOCKET": path}) as server:
        with Connection(server.address) as connection:
            assert connection.exchange(get("/v2/health/ready")).status == 200


@contextmanager
def activated(
    repository: Path, listen: list[str], *flags: str, kind: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """systemd-socket-activate, which listens, and becomes the server at the first client."""
    words = [str(ACTIVATE), *kind, *(f"--listen={one}" for one in listen)]
    words += [str(lumen_binary()), "serve", "--model-repository", str(repository)]
    words += ["--backend", "openvino", "--drain-delay-ms", "0", *flags]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        for _ in listen:
            assert process.stdout.readline().startswith("Listening on ")
        yield process
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[str]) -> str:
    """Its output, until it was ready and from SIGTERM on."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("lumen: ready"):
            break
    process.send_signal(signal.SIGTERM)
    return said + process.communicate(timeout=60)[0]


def connected(port: int) -> Connection:
    return Connection(("127.0.0.1", port))


@needs_activate
@pytest.mark.parametrize("io_threads", ["1", "2"])
def test_a_client_that_came_before_the_server_is_answered(
    small_repository: Path, tmp_path: Path, io_threads: str
) -> None:
    port, path = free_port(), tmp_path / "s.sock"
    listen = [f"127.0.0.1:{port}", str(path)]
    with activated(small_repository, listen, "--io-threads", io_threads) as process:
        with connected(port) as connection:
            assert connection.exchange(get("/v2/models/mlp/ready")).status == 200
        for _ in range(8):
            with connected(port) as tcp, UnixConnection(path) as local:
                for each in (tcp, local):
                    assert each.exchange(get("/v2/health/ready")).status == 200
                # Its users may change the engine; those of TCP may not.
                assert local.exchange(get("/v2/lumen/engine")).status == 200
                assert tcp.exchange(get("/v2/lumen/engine")).status == 403
        said = ended(process)
        assert process.returncode == 0, said
        assert f"lumen: ready http=127.0.0.1:{port} unix={path}\n" in said
        assert f"127.0.0.1:{port} is a socket of the service manager, in place of --http" in said
        assert path.exists(), "it is the manager's"


@needs_activate
def test_an_address_beyond_this_machine_is_warned_of(small_repository: Path) -> None:
    port = free_port()
    with activated(small_repository, [f"0.0.0.0:{port}"], "--unix", "off") as process:
        with connected(port) as connection:
            assert connection.exchange(get("/v2/health/ready")).status == 200
        said = ended(process)
    assert re.search(r"warning listening on 0\.0\.0\.0:\d+, beyond this machine", said), said


@needs_activate
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--datagram"], "descriptor 3: wanted a stream socket"),
        (["--seqpacket"], "descriptor 3: wanted a stream socket"),
        ([], "wanted at most two of TCP and a unix socket"),
    ],
)
def test_sockets_that_no_server_can_use_are_refused(
    small_repository: Path, tmp_path: Path, words: list[str], told: str
) -> None:
    kind = {"--datagram": socket.SOCK_DGRAM, "--seqpacket": socket.SOCK_SEQPACKET}
    paths = [str(tmp_path / f"{number}.sock") for number in range(1 if words else 4)]
    with (
        activated(small_repository, paths, kind=tuple(words)) as process,
        socket.socket(socket.AF_UNIX, kind.get("".join(words), socket.SOCK_STREAM)) as client,
    ):
        client.connect(paths[0])
        if words == ["--datagram"]:
            client.send(b"x")
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert told in said, said


def test_sockets_of_another_process_are_left_alone(small_repository: Path) -> None:
    """$LISTEN_PID names the process that they are for."""
    with Server(small_repository, env={"LISTEN_FDS": "1", "LISTEN_PID": "1"}) as server:
        with Connection(server.address) as connection:
            assert connection.exchange(get("/v2/health/ready")).status == 200
