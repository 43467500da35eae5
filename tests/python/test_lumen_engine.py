"""The package lumen_engine: its Server starts the executable, waits for it, and stops it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import lumen_engine
import pytest
from lumen_engine import Server, ServerError

StartServer = Callable[..., Server]


def script(path: Path, body: str) -> Path:
    """An executable in the server's place."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_server_is_ready_when_the_constructor_returns(
    server: StartServer, models_path: Path
) -> None:
    started = server(models_path)
    with urllib.request.urlopen(f"http://{started.url}/v2/health/ready", timeout=10) as answer:
        assert answer.status == 200
    assert started.is_alive() and started.port > 0
    started.stop()
    assert started.exit_code == 0 and not started.is_alive()
    assert "lumen: ready http=" in started.output


def over_unix(path: str, target: str, body: bytes | None = None) -> tuple[int, dict[str, object]]:
    """One exchange with a server that has no TCP."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    with closing(connection):
        connection.request("GET" if body is None else "POST", target, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")


def test_a_server_without_tcp_is_ready_and_reached_by_its_unix_socket(
    server: StartServer, models_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a socket"
    started = server(models_path, http="off", unix=path)
    assert (started.host, started.port, started.url) == ("", 0, "")
    assert started.unix_path == str(path)
    change = b'{"queue_type": "spsc"}'
    assert over_unix(started.unix_path, "/v2/lumen/engine", change)[0] == 200
    status, told = over_unix(started.unix_path, "/v2/lumen/engine")
    assert status == 200 and told["engine"]["queue_type"] == "spsc"  # type: ignore[index]
    started.stop()
    assert not path.exists()


def test_a_server_with_both_listeners_tells_both(
    server: StartServer, models_path: Path, tmp_path: Path
) -> None:
    started = server(models_path, unix=tmp_path / "lumen.sock")
    assert started.port > 0 and started.unix_path == str(tmp_path / "lumen.sock")


def test_a_server_has_no_unix_socket_unless_told(server: StartServer, models_path: Path) -> None:
    started = server(models_path, env={"XDG_RUNTIME_DIR": "/nowhere"})
    assert started.port > 0 and started.unix_path == ""
    assert "unix=" not in started.output


@pytest.mark.parametrize("line", ["lumen: ready", "lumen: ready soon", "not lumen: ready http=h:1"])
def test_a_line_without_an_address_is_no_ready_line(line: str, tmp_path: Path) -> None:
    vague = script(tmp_path / "lumen", f"echo {line}")
    with pytest.raises(ServerError, match="exited with 0 before it was ready"):
        Server(tmp_path, executable=vague)


def test_a_server_that_cannot_start_says_its_output(lumen_binary: Path) -> None:
    with pytest.raises(ServerError, match="exited with .* before it was ready:\n.*nowhere"):
        Server("/nowhere", executable=lumen_binary)


def test_a_server_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    silent = script(tmp_path / "lumen", "echo $$; exec cat /dev/zero > /dev/null")
    with pytest.raises(ServerError, match="wasn't ready within 0.5 s") as error:
        Server(tmp_path, executable=silent, start_timeout_s=0.5)
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(error.value).splitlines()[1]), 0)


# Was: `lumen perf` lost the process where Ctrl-C came just after it had begun, and did not wait for
# its end.
def test_a_signal_while_the_process_is_made_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(BaseException):
        pass

    @contextmanager
    def held() -> Iterator[None]:
        yield
        raise Interrupted

    made: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen

    def note(*words: Any, **options: Any) -> subprocess.Popen[str]:
        made.append(popen(*words, **options))
        return made[-1]

    monkeypatch.setattr(subprocess, "Popen", note)
    sleeper = script(tmp_path / "lumen", "exec sleep 60")
    with pytest.raises(Interrupted):
        Server(tmp_path, executable=sleeper, held=held())
    assert [process.returncode for process in made] == [-signal.SIGKILL]


def test_a_server_with_a_log_file_can_be_let_go_and_goes_on(
    lumen_binary: Path, models_path: Path, tmp_path: Path
) -> None:
    log = tmp_path / "lumen.log"
    with Server(models_path, executable=lumen_binary, log_file=log) as started:
        assert started.banner[-1] == f"lumen: ready http={started.url}"
        started.let_go()
    assert started.is_alive()
    started.exit_code = None
    started.stop()
    assert "drained" in log.read_text() and "drained" in started.output


def test_an_exit_status_other_than_zero_is_an_error(tmp_path: Path) -> None:
    bad = script(
        tmp_path / "lumen",
        'trap "echo goodbye; exit 3" INT\necho lumen: ready http=127.0.0.1:1\nwhile :; do :; done',
    )
    started = Server(tmp_path, executable=bad)
    with pytest.raises(ServerError, match="exited with 3, wanted 0:\n.*\n?goodbye"):
        started.stop()
    assert started.exit_code == 3


def test_a_server_that_ignores_the_stop_signal_is_killed(tmp_path: Path) -> None:
    deaf = script(
        tmp_path / "lumen",
        'trap "" INT\necho lumen: ready http=127.0.0.1:1\nexec cat /dev/zero > /dev/null',
    )
    with pytest.raises(ServerError, match="didn't exit within 0.2 s"):
        Server(tmp_path, executable=deaf, stop_timeout_s=0.2).stop()


def test_the_module_runs_the_executable_in_its_place(project_root: Path, tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "lumen_engine", "serve", "--flag"],
        env={
            **os.environ,
            "PYTHONPATH": str(project_root / "python"),
            "LUMEN_BINARY": str(script(tmp_path / "lumen", 'echo "$@"; kill -TERM $$')),
        },
        capture_output=True,
        text=True,
    )
    assert shown.stdout == "serve --flag\n"
    assert shown.returncode == -signal.SIGTERM


def test_the_version_is_that_of_the_build(project_root: Path, lumen_binary: Path) -> None:
    version = lumen_engine.__version__
    assert 'dynamic = ["version"]' in (project_root / "pyproject.toml").read_text()
    assert f"VERSION {version} " in (project_root / "CMakeLists.txt").read_text()
    shown = subprocess.run([lumen_binary, "--version"], capture_output=True, text=True).stdout
    assert version in shown
