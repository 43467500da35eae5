"""The unix socket beside TCP: its path, its mode, the files that it replaces and leaves."""

from __future__ import annotations

import os
import signal
import socket
import stat
from pathlib import Path

import pytest
from integration.harness import ServeProcess, UnixConnection, run_serve
from integration.raw_http import get, post_json


@pytest.fixture
def base(small_repository: Path) -> list[str]:
    return ["--http", "127.0.0.1:0", "--model-repository", str(small_repository)]


def is_live(path: Path) -> bool:
    with UnixConnection(path) as connection:
        return connection.exchange(get("/v2/health/live")).status == 200


def test_both_listeners_answer_alike(base: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lumen.sock"
    with ServeProcess(*base, "--unix", str(path)) as serve:
        given = {"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
        request = post_json("/v2/models/identity/infer", {"id": "7", "inputs": [given]})
        with UnixConnection(path) as over_unix, serve.connect() as over_tcp:
            for _ in range(3):
                one, other = over_unix.exchange(request), over_tcp.exchange(request)
                assert one.status == other.status == 200
                assert one.body == other.body


def test_a_client_of_the_unix_socket_may_name_any_host(base: list[str], tmp_path: Path) -> None:
    """No browser opens one; a proxy before it passes on a browser's requests."""
    path = tmp_path / "lumen.sock"
    with ServeProcess(*base, "--unix", str(path)), UnixConnection(path) as connection:
        request = get("/v2/health/live", "Origin: http://models.example")
        request = request.replace(b"Host: localhost", b"Host: models.example")
        assert connection.exchange(request).status == 200


def test_many_connections_on_several_io_threads_are_answered(
    base: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "lumen.sock"
    with ServeProcess(*base, "--unix", str(path), "--io-threads", "3"):
        connections = [UnixConnection(path) for _ in range(50)]
        try:
            for connection in connections:
                assert connection.exchange(get("/v2/health/ready")).status == 200
        finally:
            for connection in connections:
                connection.socket.close()


def test_the_ready_line_has_the_absolute_path(base: list[str], tmp_path: Path) -> None:
    with ServeProcess(*base, "--unix", "a.sock", cwd=tmp_path) as serve:
        assert serve.banner[-1].startswith("lumen: ready http=127.0.0.1:")
        assert serve.addresses["unix"] == str(tmp_path / "a.sock")
        assert is_live(tmp_path / "a.sock")


def test_without_tcp_the_unix_socket_is_enough(small_repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "lumen.sock"
    arguments = ["--http", "off", "--unix", str(path), "--model-repository", str(small_repository)]
    with ServeProcess(*arguments) as serve:
        assert serve.banner[-1] == f"lumen: ready unix={path}"
        assert is_live(path)


def test_the_default_path_is_in_the_runtime_folder(base: list[str], tmp_path: Path) -> None:
    with ServeProcess(*base, env={"XDG_RUNTIME_DIR": str(tmp_path)}) as serve:
        assert serve.addresses["unix"] == str(tmp_path / "lumen.sock")
        assert is_live(tmp_path / "lumen.sock")
    with ServeProcess(*base) as serve:
        assert "unix" not in serve.addresses


def test_a_default_path_that_is_taken_leaves_tcp_alone(base: list[str], tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with ServeProcess(*base, env=env), ServeProcess(*base, env=env) as second:
        assert "unix" not in second.addresses
        assert is_live(tmp_path / "lumen.sock")


def test_a_default_path_that_is_taken_is_an_error_without_tcp(
    base: list[str], tmp_path: Path
) -> None:
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    with ServeProcess(*base, env={"XDG_RUNTIME_DIR": str(tmp_path)}):
        done = run_serve(*base, "--http", "off", env=env)
        assert done.returncode == 1
        assert "another server listens there" in done.stderr


def test_off_makes_no_socket(base: list[str], tmp_path: Path) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with ServeProcess(*base, "--unix", "off", env=env) as serve:
        assert "unix" not in serve.addresses
        assert list(tmp_path.glob("*.sock")) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_user_and_group_may_connect_with_any_umask(
    base: list[str], tmp_path: Path, umask: int
) -> None:
    path = tmp_path / "lumen.sock"
    with ServeProcess(*base, "--unix", str(path), umask=umask):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_the_file_goes_with_the_server(base: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lumen.sock"
    with ServeProcess(*base, "--unix", str(path)) as serve:
        assert is_live(path)
        serve.stop()
        assert not path.exists()


def test_a_file_that_took_its_place_stays(base: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lumen.sock"
    with ServeProcess(*base, "--unix", str(path)) as first:
        path.unlink()
        with ServeProcess(*base, "--unix", str(path)):
            first.stop()
            assert is_live(path)


def test_the_files_of_a_killed_server_are_replaced(base: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lumen.sock"
    killed = ServeProcess(*base, "--unix", str(path))
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    assert path.is_socket()
    with ServeProcess(*base, "--unix", str(path)):
        assert is_live(path)


def test_a_socket_that_answers_is_refused_and_left_alone(base: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lumen.sock"
    with ServeProcess(*base, "--unix", str(path)):
        done = run_serve(*base, "--unix", str(path))
        assert done.returncode == 1
        assert f"{path}: another server listens there" in done.stderr
        assert is_live(path)


def test_somebody_elses_live_socket_is_left_alone(base: list[str], tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert run_serve(*base, "--unix", str(path)).returncode == 1
        assert path.is_socket()


def test_a_file_that_is_no_socket_is_never_removed(base: list[str], tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("kept")
    done = run_serve(*base, "--unix", str(path))
    assert done.returncode == 1
    assert "no socket" in done.stderr
    assert path.read_text() == "kept"


def test_a_path_that_is_too_long_says_how_long_it_may_be(base: list[str], tmp_path: Path) -> None:
    done = run_serve(*base, "--unix", str(tmp_path / ("x" * 120)))
    assert done.returncode == 1
    assert "wanted 1 to 107" in done.stderr
