"""gRPC on the HTTP port: tritonclient unmodified, then clients that break the rules."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration import raw_http2
from integration.harness import (
    FIXTURES,
    MODELS,
    PATIENCE,
    ROOT,
    Server,
    copy_models,
    eventually,
    has_io_uring,
)
from integration.raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INFER,
    LIVE,
    METADATA,
    PING,
    RST_STREAM,
    SETTINGS,
    STREAM_INFER,
    WATCH,
    Connection,
    Frame,
    call,
    frame,
    header_block,
    message,
)

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

CALLS = Path(__file__).with_name("grpc_calls.py")
# The judge imports packages of its own environment alone.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def models_at(folder: Path) -> Path:
    typed = sorted((FIXTURES.parent / "backend").glob("identity_*"))
    copy_models(folder, [*typed, MODELS / "mlp", MODELS / "digits"])
    steps = [
        {"model": "identity_fp32", "outputs": {"y": "between"}},
        {"model": "identity_fp32", "inputs": {"x": "between"}},
    ]
    (folder / "ensemble").mkdir()
    (folder / "ensemble" / "config.json").write_text(json.dumps({"ensemble": {"steps": steps}}))
    return folder


@pytest.fixture(scope="module", params=["epoll", "io_uring"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("grpc")
    loop = "auto" if request.param == "io_uring" and not has_io_uring() else request.param
    flags = ["--loop", loop, "--backend", "onnxruntime", "--max-active-requests", "32"]
    unix = str(folder / "s.sock")
    with Server(models_at(folder / "models"), *flags, unix=unix) as server:
        yield server
        assert_serves(server)
    assert server.exit_code == 0


def assert_serves(server: Server) -> None:
    """Both protocols, on connections of their own."""
    with Connection(server.address) as connection:
        connection.send(call(1, LIVE, message(b"")))
        assert body_of(connection.end_of(1)) == message(b"\x08\x01")
    assert http_status(server) == 200


def http_status(server: Server) -> int:
    with urllib.request.urlopen(f"http://{server.url}/v2/health/ready", timeout=20) as reply:
        return int(reply.status)


def body_of(frames: list[Frame]) -> bytes:
    return b"".join(one.payload for one in frames if one.kind == DATA)


# aio by itself: grpc's two kinds of loops do not share a process well.
CHECKS = (
    ["documents", "health", "refusals", "parts_of_a_reply", "many_at_once"],
    ["tensors_of_all_types_come_back", "typed_contents_are_read", "texts_come_back"],
    ["ensembles", "streams", "compressed_messages", "large_messages", "calls_that_are_given_up"],
    ["aio"],
)


def run_checks(url: str, checks: list[str]) -> None:
    done = subprocess.run(
        [judge_programs.interpreter("grpc"), CALLS, url, *checks],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=150 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == checks


@pytest.mark.parametrize("over", ["tcp", "unix"])
@pytest.mark.parametrize("checks", CHECKS, ids=lambda checks: checks[0])
def test_tritonclient_gets_what_it_asks_for(served: Server, over: str, checks: list[str]) -> None:
    run_checks(served.url if over == "tcp" else f"unix:{served.unix_path}", checks)


def test_tritonclient_changes_the_server(tmp_path: Path) -> None:
    unix = str(tmp_path / "s.sock")
    over_unix = ["control", "settings", "shared_memory", "refused_changes"]
    flags = ["--model-control", "explicit", "--backend", "onnxruntime"]
    with Server(models_at(tmp_path / "models"), *flags, unix=unix) as server:
        run_checks(server.url, ["changes_are_for_the_unix_socket"])
        run_checks(f"unix:{unix}", over_unix)


def status_of(frames: list[Frame]) -> str:
    """Of gRPC; empty: the stream ended without."""
    last = [one for one in frames if one.kind == HEADERS][-1]
    assert last.flags & END_STREAM
    return last.headers.get("grpc-status", "")


@pytest.mark.parametrize(
    ("status", "body", "path"),
    [
        ("13", message(b"")[:3], INFER),  # cut in its prefix
        ("13", message(b"abcdef")[:-1], INFER),  # cut in its message
        ("13", message(b"") + message(b""), INFER),  # two on a unary call
        ("13", b"", INFER),  # none
        ("13", b"\x01" + message(b"\x0a\x03mlp")[1:], INFER),  # compressed
        ("8", b"\x00\xff\xff\xff\xff", INFER),  # 4 GiB
        ("3", message(b"\x0a\x05ab"), INFER),  # its field ends behind it
        ("3", message(b"\xff" * 60), INFER),  # a number without an end
        ("3", message(b"\x0b" * 60), INFER),  # groups
        ("12", message(b""), "/inference.GRPCInferenceService/Nothing"),
        ("12", message(b""), "/"),
    ],
)
def test_a_call_that_is_none_is_refused(
    served: Server, status: str, body: bytes, path: str
) -> None:
    with Connection(served.address) as connection:
        connection.send(call(1, path, body))
        frames = connection.end_of(1)
        assert status_of(frames) == status and not body_of(frames)
        # The connection lives on.
        connection.send(call(3, LIVE, message(b"")))
        assert body_of(connection.end_of(3)) == message(b"\x08\x01")


@pytest.mark.parametrize(
    ("status", "changes"), [("415", {"content_type": "text/plain"}), ("405", {":method": "GET"})]
)
def test_a_request_that_is_not_grpc_is_refused_by_http(
    served: Server, status: str, changes: dict[str, str]
) -> None:
    with Connection(served.address) as connection:
        connection.send(call(1, LIVE, b"", **changes))
        frames = connection.end_of(1)
        assert status_of(frames) == "" and not body_of(frames)
        assert frames[-1].headers[":status"] == status
        connection.send(call(3, LIVE, message(b"")))
        assert body_of(connection.end_of(3)) == message(b"\x08\x01")


def test_the_preface_may_come_in_pieces(served: Server) -> None:
    with Connection(served.address, begin=False) as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        everything = raw_http2.PREFACE + frame(SETTINGS, 0, 0) + call(1, LIVE, message(b""))
        for at in range(len(everything)):
            connection.send(everything[at : at + 1])
        assert body_of(connection.end_of(1)) == message(b"\x08\x01")


def test_a_request_of_http_1_that_begins_like_the_preface_is_one(served: Server) -> None:
    for first in (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"PRI / HTTP/1.1\r\nHost: x\r\n\r\n"):
        with socket.create_connection(served.address, timeout=20) as connection:
            connection.sendall(first)
            assert connection.recv(100).startswith(b"HTTP/1.1 ")


def test_a_name_that_is_no_utf8_is_refused_and_not_printed(tmp_path: Path) -> None:
    """protobuf's library told of each one on the server's stderr."""
    methods = ("ModelStatistics", "ModelConfig")
    with Server(models_at(tmp_path)) as server:
        with Connection(server.address) as client:
            for number, method in enumerate(methods):
                name = raw_http2.bytes_field(1, b"\xff") + raw_http2.bytes_field(2, b"\xff")
                path = f"/inference.GRPCInferenceService/{method}"
                client.send(call(2 * number + 1, path, message(name)))
                assert status_of(client.end_of(2 * number + 1)) == "3", method
    assert not [line for line in server.log if "protobuf" in line]


def random_frames(seed: int) -> bytes:
    """Some of them whole, some not, all after a good begin."""
    rng = hashlib.shake_128(str(seed).encode()).digest(4000)
    frames, at = raw_http2.PREFACE + frame(SETTINGS, 0, 0), 0
    for number in range(1, 40):
        kind, flags, size, stream = rng[at], rng[at + 1], rng[at + 2] % 60, rng[at + 3] % 8
        payload = rng[at + 4 : at + 4 + size]
        if kind % 3 == 0:
            frames += call(2 * number - 1, INFER, payload)
        else:
            frames += frame(kind % 11, flags, stream, payload)
        at += 4 + size
    return frames


@pytest.mark.parametrize("seed", range(30))
def test_random_frames_end_their_own_connection_only(served: Server, seed: int) -> None:
    with Connection(served.address) as other:
        with Connection(served.address, begin=False) as connection:
            with contextlib.suppress(OSError):
                connection.send(random_frames(seed))
                connection.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                for _ in connection.frames():
                    pass
        other.send(call(1, LIVE, message(b"")))
        assert body_of(other.end_of(1)) == message(b"\x08\x01")


def attack(server: Server, frames: bytes, times: int) -> list[Frame]:
    """Sends them again and again, and reads meanwhile; returns the last frames."""
    last: list[Frame] = []
    with Connection(server.address) as connection:

        def read() -> None:
            with contextlib.suppress(OSError):
                for one in connection.frames():
                    last.append(one)
                    del last[:-5]

        reader = threading.Thread(target=read)
        reader.start()
        with contextlib.suppress(OSError):
            for _ in range(times):
                connection.send(frames)
            connection.socket.shutdown(socket.SHUT_WR)
        reader.join()
    return last


def test_floods_are_answered_or_ended_and_others_are_served(served: Server) -> None:
    resets = b"".join(
        frame(HEADERS, END_HEADERS, 2 * number + 1, header_block(INFER))
        + frame(RST_STREAM, 0, 2 * number + 1, b"\0\0\0\x08")
        for number in range(5_000)
    )
    last = attack(served, resets, 1)
    assert not last or last[-1].kind == GOAWAY, last  # or reset, where bytes were still to come
    assert_serves(served)
    for flood in (
        frame(SETTINGS, 0, 0) * 200,
        frame(PING, 0, 0, b"12345678") * 200,
        frame(PING, 1, 0, b"12345678") * 200,  # answers to nothing
        frame(DATA, 0, 1, b"") * 200,
    ):
        attack(served, flood, 100)
        assert_serves(served)
    # A head without an end, and one that grows by a table of its own.
    endless = frame(HEADERS, 0, 1, header_block(LIVE))
    endless += frame(CONTINUATION, 0, 1, b"\0\x03abc\x03def" * 100) * 2_000
    attack(served, endless, 1)
    bomb = frame(HEADERS, END_HEADERS, 1, header_block(LIVE) + b"\x40\x01x\x7f\x00" + b"y" * 127)
    attack(served, bomb + frame(HEADERS, END_HEADERS, 3, b"\xbe" * 10_000), 1)
    assert_serves(served)


def test_calls_that_never_end_hold_up_others_for_seconds_only(served: Server) -> None:
    connections = [Connection(served.address) for _ in range(5)]
    half = message(b"\x0a\x03mlp" + b"\0" * 1000)[:-1]
    for connection in connections:  # 150 calls that never end, of 96 that the server takes
        connection.send(
            b"".join(
                frame(HEADERS, END_HEADERS, stream, header_block(INFER))
                + frame(DATA, 0, stream, half)
                for stream in range(1, 60, 2)
            )
        )
    # It waits for those, and is refused if they are there for longer than it may wait.
    assert live_status(served) in ("0", "8")
    assert http_status(served) == 200
    for connection in connections:
        connection.socket.close()
    eventually(lambda: live_status(served) == "0")


def test_a_message_byte_by_byte_is_ended_by_its_time(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    ended = threading.Event()
    with Server(models) as server, Connection(server.address) as connection:

        def send_slowly() -> None:
            for one in infer_message("a"):
                for stream in (1, 3):
                    connection.send(frame(DATA, 0, stream, bytes([one])))
                if ended.wait(0.2):
                    return

        for stream, method in ((1, INFER), (3, STREAM_INFER)):
            connection.send(frame(HEADERS, END_HEADERS, stream, header_block(method)))
        sender = threading.Thread(target=send_slowly)
        sender.start()  # for 200 s, if it is not ended
        found = []
        for one in connection.frames():
            if one.kind == HEADERS:
                found.append(one.headers["grpc-status"])
            if len(found) == 2:
                break
        ended.set()
        sender.join()
        assert found == ["4", "4"]
        with urllib.request.urlopen(f"http://{server.url}/metrics") as reply:
            assert "\nlumen_timeouts_total 2\n" in reply.read().decode()


def live_status(server: Server) -> str:
    with Connection(server.address) as connection:
        connection.send(call(1, LIVE, message(b"")))
        return status_of(connection.end_of(1))


def test_a_client_that_reads_nothing_holds_up_nobody(served: Server) -> None:
    with Connection(served.address) as idle:
        for stream in range(1, 20_001, 2):
            try:
                idle.send(call(stream, LIVE, message(b"")))
            except OSError:
                break
            if stream % 2_000 == 1:
                assert_serves(served)


def test_a_port_of_its_own_speaks_what_the_other_one_speaks(server: Any) -> None:
    for flags in (("--grpc", "127.0.0.1:0"), ("--grpc", "127.0.0.1:0", "--io-threads", "2")):
        one = server(*flags)
        assert one.grpc_address and one.grpc_address != one.url
        host, _, port = one.grpc_address.rpartition(":")
        for address in (one.address, (host, int(port))):
            for _ in range(4):  # both I/O threads
                with Connection(address) as client:
                    client.send(call(1, LIVE, message(b"")))
                    assert client.end_of(1)[-1].headers["grpc-status"] == "0"
                    client.send(raw_http2.rest(3, "GET", "/v2/health/ready"))
                    assert client.reply(3).status == 200
            with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/v2") as reply:
                assert reply.status == 200


def test_a_server_may_have_the_port_of_grpc_alone(server: Any) -> None:
    one = server("--grpc", "127.0.0.1:0", http="off")
    assert one.port == 0
    host, _, port = one.grpc_address.rpartition(":")
    with Connection((host, int(port))) as client:
        client.send(call(1, LIVE, message(b"")))
        assert client.end_of(1)[-1].headers["grpc-status"] == "0"


def test_a_key_is_wanted_from_tcp_alone(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("infer 0123456789abcdef\n")
    keys.chmod(0o600)
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    unix = str(tmp_path / "s.sock")
    metadata = message(b"\x0a\x03mlp")
    with Server(models, "--api-key-file", str(keys), unix=unix) as server:
        with Connection(server.address) as connection:
            connection.send(call(1, LIVE, message(b"")))  # a probe has none
            assert body_of(connection.end_of(1)) == message(b"\x08\x01")
            connection.send(call(3, METADATA, metadata))
            frames = connection.end_of(3)
            assert not body_of(frames) and status_of(frames) == "16"
            connection.send(call(5, METADATA, metadata, authorization="Bearer 0123456789abcdeX"))
            frames = connection.end_of(5)
            assert not body_of(frames) and status_of(frames) == "16"
            connection.send(call(7, METADATA, metadata, authorization="Bearer 0123456789abcdef"))
            assert status_of(connection.end_of(7)) == "0"
        with Connection(unix) as connection:
            connection.send(call(1, METADATA, metadata))
            assert status_of(connection.end_of(1)) == "0"


def stream_replies(frames: list[Frame]) -> list[tuple[str, str]]:
    """Of ModelStreamInfer: the error and the id of each reply."""
    body, found = body_of(frames), []
    while body:
        length = int.from_bytes(body[1:5], "big")
        one, body = body[5 : 5 + length], body[5 + length :]
        error = identity = b""
        while one:  # fields of texts and messages alone
            tag, size, at = one[0], one[1], 2
            if size >= 128:
                size, at = (size & 127) + (one[2] << 7), 3
            value, one = one[at : at + size], one[at + size :]
            if tag == 0x0A:
                error = value
            elif b"\x1a\x01" in value:
                identity = value[value.index(b"\x1a\x01") + 2 :][:1]
        found.append((error.decode(), identity.decode()))
    return found


def infer_message(identity: str, model: bytes = b"mlp") -> bytes:
    """A row of zeros."""
    given = b"\x0a\x05input\x12\x04FP32\x1a\x03\x01\x80\x02"  # shape [1, 256]
    head = (
        b"\x0a\x03"
        + model
        + b"\x1a\x01"
        + identity.encode()
        + b"\x2a"
        + bytes([len(given)])
        + given
    )
    return message(head + b"\x3a\x80\x08" + b"\0" * 1024)


def test_a_stream_answers_each_message_and_goes_on_after_an_error(served: Server) -> None:
    bad = infer_message("b", model=b"not")
    with Connection(served.address) as connection:
        connection.send(call(1, STREAM_INFER, infer_message("a") + bad + infer_message("c")))
        frames = connection.end_of(1)
        assert status_of(frames) == "0"
        replies = {identity: error for error, identity in stream_replies(frames)}
        assert replies["a"] == replies["c"] == ""
        assert "'not' is not in" in replies["b"]
        connection.send(call(3, STREAM_INFER, bad + infer_message("c"), triton_grpc_error="true"))
        assert status_of(connection.end_of(3)) == "5"  # NOT_FOUND ends this one


def test_a_stream_in_pieces_of_any_size_is_read_as_one(served: Server) -> None:
    whole = b"".join(infer_message(one) for one in "abcdefgh")
    for size in (1, 5, 7, 1000, 1100, 1101, 5000):
        with Connection(served.address) as connection:
            connection.send(frame(HEADERS, END_HEADERS, 1, header_block(STREAM_INFER)))
            connection.send(
                b"".join(frame(DATA, 0, 1, whole[i : i + size]) for i in range(0, len(whole), size))
            )
            connection.send(frame(DATA, END_STREAM, 1))
            frames = connection.end_of(1)
        assert sorted(stream_replies(frames)) == [("", one) for one in "abcdefgh"]


def test_a_stream_with_more_messages_than_requests_loses_none(served: Server) -> None:
    """Of 96 requests, of which one model may not have all; the rest waits in the stream."""
    names = [chr(ord("0") + i % 70) for i in range(700)]
    with Connection(served.address) as connection:
        connection.take_settings()
        connection.send(frame(HEADERS, END_HEADERS, 1, header_block(STREAM_INFER)))
        sender = threading.Thread(
            target=lambda: (
                [connection.send(frame(DATA, 0, 1, infer_message(one))) for one in names]
                + [connection.send(frame(DATA, END_STREAM, 1))]
            )
        )
        sender.start()
        frames = connection.end_of(1)
        sender.join()
    replies = stream_replies(frames)
    assert sorted(identity for _, identity in replies) == sorted(names)
    assert {error for error, _ in replies} == {""}


def test_streams_that_are_left_open_keep_no_request(served: Server) -> None:
    connections = [Connection(served.address) for _ in range(8)]
    for connection in connections:
        for stream in range(1, 60, 2):
            connection.send(frame(HEADERS, END_HEADERS, stream, header_block(STREAM_INFER)))
        connection.send(frame(DATA, 0, 1, infer_message("a")))
    assert_serves(served)
    for connection in connections:
        assert any(one.kind == DATA for one in connection.end_of_data(1))
        connection.socket.close()
    assert_serves(served)


def test_watch_tells_that_the_server_leaves(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    flags = ["--drain-delay-ms", "1500"]
    with Server(models, *flags) as server, Connection(server.address) as connection:
        head = frame(HEADERS, END_HEADERS, 1, header_block(WATCH))
        connection.send(head + frame(DATA, END_STREAM, 1, message(b"")))
        assert connection.end_of_data(1)[-1].payload == message(b"\x08\x01")
        server.interrupt()  # it serves on
        assert connection.end_of_data(1)[-1].payload == message(b"\x08\x02")
        connection.send(call(3, LIVE, message(b"")))
        assert body_of(connection.end_of(3)) == message(b"\x08\x01")
        frames = [one for one in connection.frames() if one.stream == 1]
        assert not body_of(frames) and status_of(frames) == "14"
        assert server.wait() == 0


def test_a_stop_answers_the_messages_of_a_stream_and_ends_it(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    with Server(models) as server, Connection(server.address) as connection:
        head = frame(HEADERS, END_HEADERS, 1, header_block(STREAM_INFER))
        connection.send(head + frame(DATA, 0, 1, infer_message("a")))
        assert connection.end_of_data(1)[-1].payload
        server.interrupt()
        frames = [one for one in connection.frames() if one.stream == 1]
        assert not body_of(frames) and status_of(frames) == "14"
        assert server.wait() == 0


def test_a_compressed_message_is_read(served: Server) -> None:
    plain = infer_message("a")[5:]
    for coding, packed in (("gzip", gzip.compress(plain)), ("deflate", zlib.compress(plain))):
        body = b"\x01" + len(packed).to_bytes(4, "big") + packed
        with Connection(served.address) as connection:
            connection.send(call(1, INFER, body, grpc_encoding=coding))
            assert status_of(connection.end_of(1)) == "0"
            connection.send(call(3, STREAM_INFER, body + infer_message("b"), grpc_encoding=coding))
            assert len(stream_replies(connection.end_of(3))) == 2
            connection.send(call(5, INFER, body, grpc_encoding="zstd"))
            assert status_of(connection.end_of(5)) == "12"
            cut = b"\x01" + (len(packed) - 9).to_bytes(4, "big") + packed[:-9]
            connection.send(call(7, INFER, cut, grpc_encoding=coding))
            assert status_of(connection.end_of(7)) == "13"


def test_a_compressed_message_that_grows_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    packed = gzip.compress(b"\0" * 5_000_000)
    body = b"\x01" + len(packed).to_bytes(4, "big") + packed
    with Server(models, "--max-body-bytes", "4000000") as server:
        with Connection(server.address) as connection:
            connection.send(call(1, INFER, body, grpc_encoding="gzip"))
            assert status_of(connection.end_of(1)) == "8"
        assert http_status(server) == 200


def test_a_client_that_gives_its_replies_no_window_is_reset(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    no_window = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
    with Server(models, "--write-timeout-ms", "1000") as server:
        with Connection(server.address) as connection:
            connection.send(no_window + call(1, INFER, infer_message("a")))
            assert connection.end_of(1)[-1].kind == RST_STREAM
        assert http_status(server) == 200
