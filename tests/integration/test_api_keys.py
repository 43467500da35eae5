"""Keys of clients that come over TCP: the roles, what is refused, and SIGHUP."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from integration.harness import (
    MODELS,
    Server,
    UnixConnection,
    copy_models,
    lumen_binary,
    run_serve,
)
from integration.raw_http import Connection, Reply
from lumen_engine.client import Client, InferError

INFER, CONTROL, LATER = "infer-key-0123456789", "control-key-0123456789", "later-key-0123456789"
BODY = json.dumps(
    {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
).encode()
LOAD = "/v2/repository/models/identity/load"

Start = Callable[..., Server]


def write_keys(path: Path, *lines: str) -> Path:
    path.touch(0o600)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys", "# of a test", f"infer {INFER}", f"control {CONTROL}")


@pytest.fixture
def one(server: Start, tmp_path: Path, keys: Path) -> Server:
    models = copy_models(tmp_path / "served", [MODELS / "identity"])
    unix = str(tmp_path / "lumen.sock")
    return server("--api-key-file", str(keys), "--unix", unix, repository=models)


def request(path: str, key: str | None = None, body: bytes | None = None, extra: str = "") -> bytes:
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"Authorization: {key}"] if key is not None else []
    lines += [f"Content-Length: {len(body)}"] if body is not None else []
    return ("\r\n".join(lines) + "\r\n" + extra + "\r\n").encode() + (body or b"")


def ask(server: Server, *arguments: object, **options: object) -> Reply:
    with Connection(server.address) as connection:
        return connection.exchange(request(*arguments, **options))  # type: ignore[arg-type]


def infer(server: Server, key: str | None) -> int:
    return ask(server, "/v2/models/identity/infer", key, BODY).status


def test_a_request_needs_a_key_and_a_refused_one_leaves_its_connection_in_order(
    one: Server,
) -> None:
    with Connection(one.address) as connection:
        for key in (None, "", "Bearer", f"Bearer {INFER}x", f"Basic {INFER}", INFER):
            reply = connection.exchange(request("/v2/models/identity/infer", key, BODY))
            assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer KEY" in reply.error or "wanted: Bearer KEY" in reply.error
            assert INFER not in reply.error
        good = request("/v2/models/identity/infer", f"Bearer {INFER}", BODY)
        assert connection.exchange(good).status == 200
    assert infer(one, f"bearer {CONTROL}") == 200
    assert not any(INFER in line or CONTROL in line for line in one.log)


def test_two_headers_with_a_key_are_refused(one: Server) -> None:
    twice = request("/v2", f"Bearer {INFER}", extra=f"Authorization: Bearer {CONTROL}\r\n")
    with Connection(one.address) as connection:
        reply = connection.exchange(twice)
    assert reply.status == 400 and "twice" in reply.error


@pytest.mark.parametrize(
    "path",
    [
        "/v2",
        "/v2/models/identity",
        "/v2/models/identity/ready",
        "/v2/models/identity/config",
        "/v2/models/stats",
        "/v2/systemsharedmemory/status",
        "/v2/logging",
        "/v2/lumen/engine",
        "/metrics",
    ],
)
def test_documents_need_a_key_too(one: Server, path: str) -> None:
    assert ask(one, path).status == 401
    assert ask(one, path, "Bearer wrong-key-0123456789").status == 401


def test_probes_need_none(one: Server) -> None:
    assert ask(one, "/v2/health/live").status == 200
    assert ask(one, "/v2/health/ready").status == 200


def test_only_a_control_key_changes_the_server(one: Server) -> None:
    assert ask(one, LOAD, body=b"{}").status == 401
    for path in (LOAD, "/v2/logging"):
        refused = ask(one, path, f"Bearer {INFER}", b"{}")
        assert refused.status == 403 and "role control" in refused.error
        assert ask(one, path, f"Bearer {CONTROL}", b"{}").status == 200
    # A page of another origin is refused with any key, and so are the calls of the unix socket.
    page = ask(one, LOAD, f"Bearer {CONTROL}", b"{}", extra="Origin: http://elsewhere.example\r\n")
    assert page.status == 403 and "elsewhere.example" in page.error
    assert ask(one, "/v2/lumen/engine", f"Bearer {CONTROL}", b"{}").status == 403
    assert ask(one, "/v2/systemsharedmemory/status", f"Bearer {CONTROL}").status == 403


def test_clients_of_the_unix_socket_need_none(one: Server) -> None:
    assert one.unix_path is not None
    with UnixConnection(one.unix_path) as connection:
        assert connection.exchange(request("/v2")).status == 200
        assert connection.exchange(request(LOAD, body=b"{}")).status == 200


def test_an_unmodified_client_sends_its_key_as_a_header(one: Server) -> None:
    headers = {"Authorization": f"Bearer {CONTROL}"}
    with triton.InferenceServerClient(one.url) as client:
        row = np.ones((1, 4), np.float32)
        given = triton.InferInput("input", [1, 4], "FP32").set_data_from_numpy(row)
        assert (client.infer("identity", [given], headers=headers).as_numpy("output") == row).all()
        client.load_model("identity", headers=headers)
        with pytest.raises(triton.InferenceServerException, match="a key is needed"):
            client.infer("identity", [given])


def test_sighup_reads_the_keys_again_and_a_fault_leaves_them(one: Server, keys: Path) -> None:
    write_keys(keys, f"infer {LATER}")
    one.reload()
    one.wait_for_log("SIGHUP: the keys of", "count now")
    assert infer(one, f"Bearer {LATER}") == 200
    assert infer(one, f"Bearer {INFER}") == 401
    for fault in ("nonsense", "", "infer short"):
        write_keys(keys, fault)
        one.reload()
        one.wait_for_log("the keys stay")
        assert infer(one, f"Bearer {LATER}") == 200
    write_keys(keys, f"infer {INFER}").chmod(0o644)
    one.reload()
    one.wait_for_log("chmod 600")
    assert infer(one, f"Bearer {INFER}") == 401


def test_a_server_whose_keys_can_not_be_read_does_not_start(tmp_path: Path) -> None:
    missing = run_serve("--api-key-file", str(tmp_path / "none"), "--http", "127.0.0.1:0")
    assert missing.returncode != 0 and "api_key_file" in missing.stderr + missing.stdout
    empty = write_keys(tmp_path / "empty")
    refused = run_serve("--api-key-file", str(empty), "--http", "127.0.0.1:0")
    assert refused.returncode != 0 and "it has no key" in refused.stderr + refused.stdout


def test_lumen_bench_and_the_python_client_send_a_key(one: Server) -> None:
    rows = {"input": np.arange(4, dtype=np.float32).reshape(1, 4)}
    with Client(f"http://{one.url}", api_key=INFER) as client:
        np.testing.assert_array_equal(client.infer("identity", rows)["output"], rows["input"])
        assert client.metadata("identity")["name"] == "identity"
    with Client(f"http://{one.url}") as client, pytest.raises(InferError) as refused:
        client.infer("identity", rows)
    assert refused.value.status == 401

    def bench(key: str | None) -> subprocess.CompletedProcess[str]:
        words = [str(lumen_binary()), "bench", f"http://{one.url}", "--model", "identity"]
        words += ["--clients", "2", "--requests", "50", "--warm-up", "0"]
        environment = {name: value for name, value in os.environ.items() if name != "LUMEN_API_KEY"}
        environment |= {} if key is None else {"LUMEN_API_KEY": key}
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)

    done = bench(INFER)
    assert done.returncode == 0, done.stderr
    assert "errors" in done.stdout and "none" in done.stdout
    for key in (None, "another-key-0123456789"):
        done = bench(key)
        assert done.returncode == 1 and "401" in done.stderr, done.stderr
    done = bench("two words-0123456789")
    assert done.returncode == 1 and "visible ASCII" in done.stderr
    assert "two words" not in done.stderr, "an error never says a key"
