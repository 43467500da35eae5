"""`lumen record`: a sample of the rows that clients send, from a running server to an .npz."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from integration.harness import Server, UnixConnection, lumen_binary
from integration.raw_http import get, post_json
from lumen_engine.client import Client
from lumen_engine.quantize import samples

PATH = "/v2/lumen/recording"
Start = Callable[..., Server]
COLUMNS = 256  # of mlp's input


def command(server: Server, *arguments: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    words = [str(lumen_binary()), "record", *arguments, "--unix", str(server.unix_path)]
    return subprocess.Popen(
        words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def run(server: Server, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    with command(server, *arguments, cwd=cwd) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.fixture
def recording(small_repository: Path, tmp_path: Path) -> Iterator[Server]:
    server = Server(
        small_repository, "--recording", "on", "--recording-bytes", "1048576",
        unix=str(tmp_path / "lumen.sock"), http="127.0.0.1:0",
    )  # fmt: skip
    yield server
    server.stop()


def row(number: float) -> np.ndarray[Any, Any]:
    """A row for mlp: its first column says which."""
    values = np.linspace(0, 1, COLUMNS, dtype=np.float32)
    values[0] = number
    return values


@contextmanager
def recorded(server: Server, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`lumen record` that has begun. Ctrl-C ends it once the block is done."""
    with command(server, *arguments, "--seconds", "120", cwd=folder) as process:
        server.wait_for_log("recording up to")
        yield process
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert out.startswith("written: "), out


def ask(server: Server, change: dict[str, Any] | None = None) -> Any:
    with UnixConnection(str(server.unix_path)) as connection:
        return connection.exchange(get(PATH) if change is None else post_json(PATH, change))


def test_all_rows_of_all_transports_come_where_there_is_room(
    small_repository: Path, tmp_path: Path
) -> None:
    bus = tmp_path / "lumen.bus"
    server = Server(
        small_repository, "--recording", "on", "--bus", str(bus),
        unix=str(tmp_path / "lumen.sock"), http="127.0.0.1:0",
    )  # fmt: skip
    try:
        with recorded(server, tmp_path, "mlp", "--rows", "100"):
            urls = [f"http://{server.host}:{server.port}", f"unix:{server.unix_path}", f"bus:{bus}"]
            for number, url in enumerate(urls):
                with Client(url) as client:
                    client.infer("mlp", {"input": row(10 * number)[np.newaxis]})
                    packed = [row(10 * number + i) for i in range(1, 8)]
                    client.infer("mlp", {"input": np.stack(packed)})
                    client.infer("identity", {"input": np.zeros((1, 3), np.float32)})
    finally:
        server.stop()
    found = np.load(tmp_path / "mlp-rows.npz")["input"]
    assert found.shape == (24, COLUMNS) and found.dtype == np.float32
    wanted = {10.0 * number + i for number in range(3) for i in range(8)}
    assert set(found[:, 0]) == wanted
    for values in found:
        assert np.array_equal(values, row(values[0]))


def test_a_sample_of_many_rows_comes_from_all_of_the_time(
    recording: Server, tmp_path: Path
) -> None:
    sent = 2000
    with recorded(recording, tmp_path, "mlp", "--rows", "200"):
        with Client(f"unix:{recording.unix_path}") as client:
            for first in range(0, sent, 20):
                packed = np.stack([row(number) for number in range(first, first + 20)])
                client.infer("mlp", {"input": packed})
    found = np.load(tmp_path / "mlp-rows.npz")["input"]
    numbers = np.sort(found[:, 0])
    assert len(numbers) == 200 and len(np.unique(numbers)) == 200
    # Quarters of the time: 50 each are expected, with a standard deviation of 5.8.
    quarters = np.histogram(numbers, bins=4, range=(0, sent))[0]
    assert quarters.min() > 50 - 7 * 5.8 and quarters.max() < 50 + 7 * 5.8, quarters


def test_the_file_is_its_owners_alone_and_lumen_quantize_reads_it(
    recording: Server, tmp_path: Path
) -> None:
    with recorded(recording, tmp_path, "mlp", "--output", "a.npz"):
        with Client(f"unix:{recording.unix_path}") as client:
            for number in range(12):
                client.infer("mlp", {"input": row(number)[np.newaxis]})
    path = tmp_path / "a.npz"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    port = samples.Port("input", np.dtype(np.float32), ("rows", COLUMNS))
    loaded = samples.load(path, [port])
    assert [call["input"][0, 0] for call in loaded.calls] == list(range(12))
    assert list(tmp_path.glob(".*")) == [], "a partial file was left"


def test_rows_with_nan_are_left_out(recording: Server, tmp_path: Path) -> None:
    with command(recording, "mlp", "--seconds", "120", cwd=tmp_path) as process:
        recording.wait_for_log("recording up to")
        with Client(f"unix:{recording.unix_path}") as client:
            for number in (1, np.nan, 2, np.inf, 3):
                client.infer("mlp", {"input": row(number)[np.newaxis]})
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert "3 of 5 rows; 2 with NaN or infinity left out" in out
    assert list(np.load(tmp_path / "mlp-rows.npz")["input"][:, 0]) == [1, 2, 3]


def test_rows_of_different_shapes_are_arrays_of_their_own(tmp_path: Path) -> None:
    """Under a name that numpy.savez() takes for its own parameter."""
    names = ["file", "y"]
    axes = [onnx.helper.make_tensor_value_info(name, 1, ["rows", "columns"]) for name in names]
    node = onnx.helper.make_node("Relu", names[:1], names[1:])
    graph = onnx.helper.make_graph([node], "relu", axes[:1], axes[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    folder = tmp_path / "models" / "relu" / "1"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    arrays = [np.full((1, 2 + i), i, np.float32) for i in range(3)]
    server = Server(
        tmp_path / "models", "--recording", "on", unix=str(tmp_path / "s"), http="127.0.0.1:0"
    )
    try:
        with recorded(server, tmp_path, "relu"), Client(f"unix:{server.unix_path}") as client:
            for array in arrays:
                client.infer("relu", {"file": array})
    finally:
        server.stop()
    with np.load(tmp_path / "relu-rows.npz") as file:
        for i, array in enumerate(arrays):
            assert np.array_equal(file[f"file/{i}"], array)


def test_answers_from_the_cache_are_recorded_too(small_repository: Path, tmp_path: Path) -> None:
    config = small_repository / "mlp" / "config.json"
    config.write_text(json.dumps({"response_cache": {"enable": True}}))
    server = Server(
        small_repository, "--recording", "on", unix=str(tmp_path / "s"), http="127.0.0.1:0"
    )
    try:
        with recorded(server, tmp_path, "mlp"), Client(f"unix:{server.unix_path}") as client:
            answers = [client.infer("mlp", {"input": row(1)[np.newaxis]}) for _ in range(5)]
        for name, array in answers[0].items():
            assert all(np.array_equal(one[name], array) for one in answers)
    finally:
        server.stop()
    assert np.load(tmp_path / "mlp-rows.npz")["input"].shape == (5, COLUMNS)


def test_without_the_setting_it_is_refused_and_the_log_says_by_which_process(
    small_repository: Path, tmp_path: Path
) -> None:
    server = Server(small_repository, unix=str(tmp_path / "s"), http="127.0.0.1:0")
    try:
        status, _, err = run(server, "mlp", cwd=tmp_path)
        assert status == 1
        assert "--recording on" in err and len(err.splitlines()) == 1
        line = server.wait_for_log("a recording was refused")
        assert f"uid {os.getuid()}" in line
        assert ask(server).status == 403
    finally:
        server.stop()
    assert list(tmp_path.glob("*.npz")) == []


def test_tcp_is_refused(recording: Server) -> None:
    with recording.connect() as connection:
        for request in (get(PATH), post_json(PATH, {"action": "begin", "model": "mlp"})):
            reply = connection.exchange(request)
            assert reply.status == 403
            assert PATH in reply.error and "unix socket" in reply.error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], ["model 'nothing' is not in the repository"]),
        (["mlp", "--version", "9"], ["version '9'"]),
        (["mlp", "--rows", "5000"], ["5000 rows of model 'mlp'", "ask for", "recording_bytes"]),
        (["mlp", "--rows", "100000"], ["wanted 1 to 65536"]),
        (["mlp", "--seconds", "0.2"], ["no row of mlp came"]),
        (["mlp", "--output", "nowhere/a.npz"], ["nowhere is no folder"]),
    ],
)
def test_each_fault_is_one_line_and_leaves_no_file(
    recording: Server, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    status, out, err = run(recording, *arguments, cwd=tmp_path)
    assert status == 1 and out == ""
    assert len(err.splitlines()) == 1
    for word in words:
        assert word in err
    assert list(tmp_path.glob("**/*.npz")) == []
    assert ask(recording).json() == {"recording": False}, "and no recording is left"


def test_a_file_that_is_there_is_left_as_it_is(recording: Server, tmp_path: Path) -> None:
    (tmp_path / "mlp-rows.npz").write_text("mine")
    status, _, err = run(recording, "mlp", "--seconds", "0.1", cwd=tmp_path)
    assert status == 1 and "--output" in err
    assert (tmp_path / "mlp-rows.npz").read_text() == "mine"


def test_no_server_is_one_line(recording: Server, tmp_path: Path) -> None:
    recording.stop()
    status, _, err = run(recording, "mlp", cwd=tmp_path)
    assert status == 1
    assert str(recording.unix_path) in err and len(err.splitlines()) == 1


def test_one_model_at_a_time(recording: Server, tmp_path: Path) -> None:
    with command(recording, "mlp", "--seconds", "120", cwd=tmp_path) as process:
        recording.wait_for_log("recording up to")
        status, _, err = run(recording, "identity", cwd=tmp_path)
        assert status == 1 and "one model at a time" in err
        assert ask(recording).json()["model"] == "mlp", "the first goes on"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.timing
def test_the_rows_of_a_client_that_was_killed_are_forgotten(
    recording: Server, tmp_path: Path
) -> None:
    with command(recording, "mlp", "--seconds", "120", cwd=tmp_path, start_new_session=True) as one:
        recording.wait_for_log("recording up to")
        os.killpg(one.pid, signal.SIGKILL)
    line = recording.wait_for_log("has not asked for 10 seconds")
    assert "the rows are forgotten" in line
    assert ask(recording).json() == {"recording": False}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", ["no JSON object"]),
        (b"[]", ["no JSON object"]),
        (b'{"action": "fly"}', ['the action "fly"', "wanted"]),
        (b'{"action": 1}', ['a "action" that is no string']),
        (b'{"action": "begin", "rows": -1}', ['"rows": -1, no whole number']),
        (b'{"action": "begin", "rows": 4294967296}', ['"rows": 4294967296, no whole number']),
        (b'{"action": "begin", "rows": [1]}', ['"rows": a list or object']),
        (b'{"action": "begin", "row": 1}', ['the key "row"']),
        (b'{"action": "begin", "model": "\xff"}', ["no JSON object"]),
        (b'{"action": "end"' + b" " * 70_000 + b"}", ["wanted 65536 at most"]),
        (b'{"action": "row", "number": 0}', ["row 0", "kept"]),
    ],
)
def test_bad_bodies_are_refused_with_the_form_that_is_wanted(
    recording: Server, body: bytes, words: list[str]
) -> None:
    with UnixConnection(str(recording.unix_path)) as connection:
        line = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        reply = connection.exchange(line.encode() + body)
        assert reply.status in (400, 404, 413)
        for word in words:
            assert word in reply.error
        assert connection.exchange(get("/v2/health/live")).status == 200


def test_a_sample_under_load_with_two_io_threads_has_whole_rows(
    small_repository: Path, tmp_path: Path
) -> None:
    server = Server(
        small_repository, "--recording", "on", "--io-threads", "2",
        unix=str(tmp_path / "s"), http="127.0.0.1:0",
    )  # fmt: skip
    stop = threading.Event()

    def load(offset: int) -> None:
        with Client(f"unix:{server.unix_path}") as client:
            number = offset
            while not stop.is_set():
                values = np.full((3, COLUMNS), number, np.float32) + np.arange(3)[:, np.newaxis]
                client.infer("mlp", {"input": values.astype(np.float32)})
                number += 12

    threads = [threading.Thread(target=load, args=(3 * i,)) for i in range(4)]
    try:
        for thread in threads:
            thread.start()
        for i in range(5):
            status, out, err = run(
                server, "mlp", "--rows", "20", "--seconds", "0.3", "--output", f"{i}.npz",
                cwd=tmp_path,
            )  # fmt: skip
            assert status == 0, err
            found = np.load(tmp_path / f"{i}.npz")["input"]
            assert found.shape == (20, COLUMNS)
            assert (found == found[:, :1]).all(), "a row has numbers of two"
            assert len(np.unique(found[:, 0])) == 20
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        server.stop()


def test_a_recording_outlives_changes_of_the_engine_and_ends_with_the_server(
    recording: Server, tmp_path: Path
) -> None:
    with recorded(recording, tmp_path, "mlp"), Client(f"unix:{recording.unix_path}") as client:
        for number, queue_type in enumerate(("inline", "batched", "mpmc")):
            with UnixConnection(str(recording.unix_path)) as connection:
                change = post_json("/v2/lumen/engine", {"queue_type": queue_type})
                assert connection.exchange(change).status == 200
            client.infer("mlp", {"input": row(number)[np.newaxis]})
    assert list(np.load(tmp_path / "mlp-rows.npz")["input"][:, 0]) == [0, 1, 2]
    with command(recording, "identity", "--seconds", "120", cwd=tmp_path) as process:
        recording.wait_for_log("recording up to")
        begun = time.monotonic()
        recording.stop()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and len(err.splitlines()) == 1
    assert time.monotonic() - begun < 60
