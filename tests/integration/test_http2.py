"""The REST surface over HTTP/2: curl, a proxy in front, then requests that cut and break frames.

The proxy is nghttpx, whose clients speak HTTP/1.1. The answers of HTTP/1.1 are the oracle.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import PATIENCE, Server, eventually
from integration.http2_proxy import Proxy
from integration.raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LIVE,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Connection,
    call,
    frame,
    header_block,
    message,
    rest,
)

INFER = "/v2/models/mlp/infer"
NUMBERS = [round(i / 256, 6) for i in range(256)]
JSON = json.dumps(
    {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 256], "data": NUMBERS}]}
).encode()
NO_ERROR, REFUSED, CALM = 0, 7, 11


def binary(rows: int, seed: int = 1) -> tuple[bytes, dict[str, str]]:
    """A body for the model `identity`, and the header that tells where its text ends."""
    tensor = np.random.default_rng(seed).random((rows, 16), np.float32).tobytes()
    shape = {"name": "input", "datatype": "FP32", "shape": [rows, 16]}
    shape["parameters"] = {"binary_data_size": len(tensor)}
    wanted = {"name": "output", "parameters": {"binary_data": True}}
    text = json.dumps({"inputs": [shape], "outputs": [wanted]}).encode()
    return text + tensor, {"inference-header-content-length": str(len(text))}


@pytest.fixture
def http2(shared_server: Server) -> Iterator[Connection]:
    with Connection(shared_server.address) as connection:
        yield connection


def is_alive(server: Server) -> bool:
    with Connection(server.address) as other:
        other.send(rest(1, "GET", "/v2/health/live"))
        return other.reply(1).status == 200


# --- clients and proxies that nobody here wrote ---------------------------------------------------


def curl(server: Server, path: str, *words: str, data: bytes = b"") -> tuple[str, bytes]:
    """The versions of HTTP and the status, and the reply's body."""
    command = ["curl", "-sS", "--max-time", str(20 * PATIENCE), "--http2-prior-knowledge"]
    command += ["-w", "\n%{http_version} %{http_code}", *words, f"http://{server.url}{path}"]
    done = subprocess.run(command, input=data, capture_output=True, check=True)
    body, _, said = done.stdout.rpartition(b"\n")
    return said.decode(), body


def test_curl_reads_documents_and_infers(shared_server: Server, tmp_path: Path) -> None:
    said, body = curl(shared_server, "/v2/models/mlp")
    assert said == "2 200" and json.loads(body)["name"] == "mlp"
    said, body = curl(shared_server, INFER, "--data-binary", "@-", data=JSON)
    assert said == "2 200" and len(json.loads(body)["outputs"][0]["data"]) == 10
    # Without a length: curl does not know it beforehand.
    large, headers = binary(20_000)
    said, body = curl(
        shared_server,
        "/v2/models/identity/infer",
        *("-X", "POST", "-T", "-"),
        *(f"-H{name}: {value}" for name, value in headers.items()),
        data=large,
    )
    assert said == "2 200" and body.endswith(large[-20_000 * 64 :])
    said, body = curl(shared_server, "/v2/models/none")
    assert said == "2 404" and "none" in json.loads(body)["error"]
    said, body = curl(shared_server, "/nothing", "--data-binary", "@-", data=bytes(5 << 20))
    assert said == "2 404"


def test_the_unix_socket_may_change_models_over_http2_and_tcp_may_not(
    small_repository: Path, tmp_path: Path
) -> None:
    path = "/v2/repository/models/mlp/unload"
    socket = str(tmp_path / "s.sock")
    with Server(small_repository, "--model-control", "explicit", unix=socket) as one:
        with Proxy(one) as proxy:
            assert proxy.ask("POST", path, b"{}")[0] == 403
        with Proxy(one, unix=True) as proxy:
            assert proxy.ask("GET", "/v2/health/live", None)[0] == 200
            status, body = proxy.ask("POST", path, b"{}")
            assert status in (200, 400), body  # by the models that are loaded at the start


def test_requests_that_a_proxy_mixes_each_get_their_own_answer(shared_server: Server) -> None:
    with Proxy(shared_server) as proxy:
        failed: list[str] = []
        path = "/v2/models/identity/infer"

        def ask(seed: int) -> None:
            for i in range(20):
                body, headers = binary(1 + (seed * 37 + i * 101) % 3000, seed * 100 + i)
                tensor = body[int(headers["inference-header-content-length"]) :]
                status, reply = proxy.ask("POST", path, body, headers=headers)
                if status != 200 or not reply.endswith(tensor):
                    failed.append(f"client {seed}, request {i}")

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed


# --- against HTTP/1.1 -----------------------------------------------------------------------------

LIKE_REQUESTS = [
    ("GET", "/v2", b"", {}),
    ("HEAD", "/v2/models/mlp", b"", {}),
    ("GET", "/v2/models/mlp", b"", {"accept-encoding": "gzip"}),
    ("GET", "/v2/models/none", b"", {}),
    ("GET", "/", b"", {}),
    ("GET", "/openapi.json", b"", {"accept-encoding": "gzip"}),
    ("POST", "/v2", b"", {}),
    ("DELETE", "/v2/models/mlp", b"", {}),
    ("POST", INFER, b"", {}),
    ("POST", INFER, JSON, {}),
    ("POST", INFER, JSON[:-1], {}),
    ("POST", INFER, gzip.compress(JSON), {"content-encoding": "gzip"}),
    ("POST", INFER, JSON, {"content-encoding": "br"}),
    ("POST", INFER, JSON, {"inference-header-content-length": "9999"}),
    ("POST", INFER, JSON, {"inference-header-content-length": "x"}),
    ("POST", "/v2/models/identity/infer", *binary(3)),
    ("POST", "/v2/models/identity/infer", *binary(5_000)),
    ("OPTIONS", INFER, b"", {"origin": "http://a.example"}),
    ("GET", "/v2", b"", {"origin": "http://a.example"}),
    ("OPTIONS", "*", b"", {}),
]


@pytest.mark.parametrize("with_length", [True, False])
@pytest.mark.parametrize("number", range(len(LIKE_REQUESTS)))
def test_the_answer_is_that_of_http_1_1(
    shared_server: Server, http2: Connection, number: int, with_length: bool
) -> None:
    method, path, body, headers = LIKE_REQUESTS[number]
    numbers = random.Random(number)
    told = {**headers, "content-length": str(len(body))} if body and with_length else headers
    stream = 1
    for _ in range(5):
        # Every frame, and every receive, ends anywhere; one of them has a byte.
        cuts = {numbers.randrange(len(body)) for _ in range(9)} if body else set()
        cuts |= {1, *range(16_000, len(body), 16_000)} & set(range(len(body)))
        frames = rest(stream, method, path, body, cuts, **told)
        while frames:
            size = numbers.randrange(1, 1 + max(1, len(frames) // 3))
            http2.send(frames[:size])
            frames = frames[size:]
        reply = http2.reply(stream)
        with shared_server.connect() as http1:
            lines = {"host": "test", **headers}
            if body:
                lines["content-length"] = str(len(body))
            head = f"{method} {path} HTTP/1.1\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            http1.send(head.encode() + b"\r\n" + body)
            wanted = http1.reply(head_only=method == "HEAD")
        assert (reply.status, reply.body) == (wanted.status, wanted.body)
        for line in (reply.headers, wanted.headers):
            for name in ("date", "connection"):
                line.pop(name, None)
        assert reply.headers == wanted.headers
        stream += 2


def test_many_streams_of_one_connection_are_mixed_and_none_gets_anothers_bytes(
    http2: Connection,
) -> None:
    numbers = random.Random(3)
    bodies = {}
    queues = {}
    for stream in range(1, 120, 2):
        if stream % 10 == 9:  # a call of gRPC between them
            queues[stream] = [call(stream, LIVE, message(b""))]
            continue
        body, headers = binary(numbers.randrange(1, 900), stream)
        bodies[stream] = body[int(headers["inference-header-content-length"]) :]
        path = "/v2/models/identity/infer"
        cuts = range(numbers.randrange(1, 5000), len(body), numbers.randrange(1000, 9000))
        frames = rest(stream, "POST", path, body, cuts, **headers)
        parts = []
        while frames:
            size = 9 + int.from_bytes(frames[:3], "big")
            parts.append(frames[:size])
            frames = frames[size:]
        queues[stream] = parts
    # Heads in the order of their numbers, which HTTP/2 wants; then anyhow.
    order = [queues[stream].pop(0) for stream in sorted(queues)]
    left = [stream for stream in queues for _ in queues[stream]]
    numbers.shuffle(left)
    order += [queues[stream].pop(0) for stream in left]
    sender = threading.Thread(target=lambda: http2.send(b"".join(order)))
    sender.start()
    got: dict[int, bytes] = {stream: b"" for stream in bodies}
    ended: set[int] = set()
    for one in http2.frames():
        if one.kind == DATA and one.payload:
            update = struct.pack(">I", len(one.payload))
            http2.send(frame(WINDOW_UPDATE, 0, 0, update))
        assert one.kind not in (RST_STREAM, GOAWAY), one
        if one.stream in bodies:
            if one.kind == HEADERS:
                assert one.headers[":status"] == "200"
            if one.kind == DATA:
                got[one.stream] += one.payload
        if one.kind in (HEADERS, DATA) and one.flags & END_STREAM:
            ended.add(one.stream)
        if len(ended) == 60:
            break
    sender.join()
    assert all(got[stream].endswith(tensor) for stream, tensor in bodies.items())


# --- requests that break off, wait and harm -------------------------------------------------------


def test_a_client_that_expects_100_hears_it_before_its_body(http2: Connection) -> None:
    told = {"expect": "100-continue", "content-length": str(len(JSON))}
    headers = header_block(INFER, **{"content-type": None, "te": None, **told})
    http2.send(frame(HEADERS, END_HEADERS, 1, headers))
    interim = next(one for one in http2.frames() if one.kind == HEADERS)
    assert interim.headers == {":status": "100"} and not interim.flags & END_STREAM
    http2.send(frame(DATA, END_STREAM, 1, JSON))
    assert http2.reply(1).status == 200


def test_a_body_that_nobody_wants_is_read_for_a_while_and_the_connection_lives_on(
    http2: Connection,
) -> None:
    """Reset at once, curl 7.88 forgets the reply in four of five tries."""
    head = header_block("/nothing", **{"content-type": None, "te": None})
    http2.send(frame(HEADERS, END_HEADERS, 1, head))
    assert http2.reply(1).status == 404
    for _ in range(100):  # more than its window
        http2.send(frame(DATA, 0, 1, bytes(16_000)))
    found = http2.end_of(1)
    assert any(one.kind == WINDOW_UPDATE and one.stream == 1 for one in found)
    assert found[-1].kind == RST_STREAM
    assert int.from_bytes(found[-1].payload, "big") == NO_ERROR
    http2.send(rest(3, "POST", INFER, JSON))
    assert http2.reply(3).status == 200


@pytest.mark.parametrize("at", ["head", "body", "away", "reply"])
def test_a_request_that_its_client_gives_up_leaves_nothing_behind(
    server: Any, at: str, small_repository: Path
) -> None:
    with server("--max-active-requests", "4") as one:
        for _ in range(30):
            with Connection(one.address) as http2:
                large, headers = binary(60_000)
                frames = {
                    "head": frame(
                        HEADERS,
                        END_HEADERS,
                        1,
                        header_block(INFER, **{"content-type": None, "te": None}),
                    ),
                    "body": rest(1, "POST", INFER, JSON, [100])[:-200],
                    "away": rest(1, "POST", INFER, JSON),
                    "reply": b"",
                }[at]
                if at == "reply":
                    cuts = range(16_000, len(large), 16_000)
                    path = "/v2/models/identity/infer"
                    sent = rest(1, "POST", path, large, cuts, **headers)
                    sender = threading.Thread(target=http2.send, args=(sent,))
                    sender.start()
                    http2.end_of_data(1)
                    sender.join()
                http2.send(frames)
                if at != "body":
                    http2.send(frame(RST_STREAM, 0, 1, struct.pack(">I", 8)))
                    http2.send(rest(3, "GET", "/v2/health/live"))
                    assert http2.reply(3).status == 200
        with one.connect() as http1:
            http1.send(
                f"POST {INFER} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(JSON)}\r\n\r\n".encode()
                + JSON
            )
            assert http1.reply().status == 200
        assert one.stop() in (0, None)


def test_a_body_that_does_not_come_is_answered_with_408(server: Any) -> None:
    with server() as one, Connection(one.address) as http2:
        head = header_block(INFER, **{"content-type": None, "te": None})
        http2.send(frame(HEADERS, END_HEADERS, 1, head) + frame(DATA, 0, 1, JSON[:10]))
        assert http2.reply(1).status == 408
        http2.send(rest(3, "POST", INFER, JSON))
        assert http2.reply(3).status == 200


def test_a_head_that_does_not_come_ends_its_connection_and_is_not_answered(server: Any) -> None:
    """It was answered as a call of gRPC is: with 200, which a client of REST takes for a reply."""
    with server() as one, Connection(one.address) as http2:
        block = header_block("/v2", **{":method": "GET", "content-type": None, "te": None})
        http2.send(frame(HEADERS, END_STREAM, 1, block[:20]))
        found = list(http2.frames())
        assert not [each for each in found if each.kind == HEADERS]
        (ended,) = (each for each in found if each.kind == GOAWAY)
        assert int.from_bytes(ended.payload[4:8], "big") == CALM
        assert is_alive(one)


def test_a_client_that_gives_its_reply_no_window_is_reset(server: Any) -> None:
    with server("--write-timeout-ms", "300") as one, Connection(one.address, begin=False) as http2:
        http2.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 100)))
        http2.send(rest(1, "GET", "/openapi.json"))
        found = http2.end_of(1)
        assert found[-1].kind == RST_STREAM
        http2.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535)))
        http2.send(rest(3, "GET", "/v2/health/live"))
        assert http2.reply(3).status == 200


def test_a_field_that_would_be_a_line_of_its_own_in_http_1_1_reaches_nobody(
    shared_server: Server,
) -> None:
    bad = [
        {"x": "a\r\nb: c"},
        {"x": "a\0b"},
        {":path": "/v2 HTTP/1.1\r\nx: y"},
        {":path": "/v2 /v2"},
        {":method": "GET /v2/models/mlp"},
        {":authority": "a\r\nb: c"},
        {"transfer-encoding": "chunked"},
        {"connection": "keep-alive"},
        {"content-length": "5, 5"},
        {"content-length": "-1"},
        {"X-Upper": "a"},
        {"a b": "c"},
    ]
    for change in bad:
        with Connection(shared_server.address) as http2:
            headers = {":method": "GET", "content-type": None, "te": None}
            name, value = next(iter(change.items()))
            path = value if name == ":path" else "/v2"
            if not name.startswith(":"):
                block = header_block(path, **headers)
                block += b"\0" + bytes([len(name)]) + name.encode()
                block += bytes([len(value)]) + value.encode()
            else:
                block = header_block(path, **{**headers, name: value})
            http2.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block))
            ends = http2.end_of(1)
            statuses = [one.headers[":status"] for one in ends if one.kind == HEADERS]
            assert ends[-1].kind in (RST_STREAM, GOAWAY) or statuses in (["400"], ["405"]), change
    assert is_alive(shared_server)


def test_heads_that_are_too_long_are_refused(shared_server: Server, http2: Connection) -> None:
    told = {":method": "GET", "content-type": None, "te": None}
    many = {f"x{i}": "y" for i in range(150)}
    http2.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, header_block("/v2", **told, **many)))
    assert http2.reply(1).status == 431
    many = {f"x{i}": "y" * 1000 for i in range(9)}
    block = header_block("/v2", **told, **many)
    http2.send(frame(HEADERS, END_STREAM, 3, block[:5000]))
    http2.send(frame(CONTINUATION, END_HEADERS, 3, block[5000:]))
    assert http2.end_of(3)[-1].kind == RST_STREAM
    path = "/" + "a" * 7500
    http2.send(frame(HEADERS, END_HEADERS | END_STREAM, 5, header_block(path, **told)))
    assert http2.reply(5).status == 431
    # Its client goes on sending: not for ever.
    http2.send(frame(HEADERS, END_HEADERS, 7, header_block(path, **told)))
    assert http2.reply(7).status == 431
    assert http2.end_of(7)[-1].kind == RST_STREAM
    assert is_alive(shared_server)


def test_more_requests_than_the_server_takes_are_refused_as_not_begun(server: Any) -> None:
    """A client may send those again by itself (RFC 9113, 8.7)."""
    with server("--max-active-requests", "2") as one:
        connections = [Connection(one.address) for _ in range(40)]
        head = header_block(INFER, **{"content-type": None, "te": None})
        for connection in connections:
            for stream in (1, 3):  # as many as the server says that it takes
                connection.send(frame(HEADERS, END_HEADERS, stream, head))
        refused = [one_end(connection) for connection in connections]
        assert REFUSED in refused
        for connection in connections:
            connection.socket.close()
        eventually(lambda: is_alive(one))


def test_answered_requests_that_go_on_sending_keep_no_other_out_for_long(server: Any) -> None:
    with server("--max-active-requests", "4") as one:
        head = header_block("/nothing", **{"content-type": None, "te": None})
        # 68 are served at once. Each is answered, and its client does not end it.
        connections = [Connection(one.address) for _ in range(17)]
        for connection in connections:
            for stream in (1, 3, 5, 7):
                connection.send(frame(HEADERS, END_HEADERS, stream, head))
                assert connection.reply(stream).status == 404
        with Connection(one.address) as http2:
            for stream in range(1, 200, 2):
                http2.send(rest(stream, "GET", "/v2/health/live"))
                try:
                    assert http2.reply(stream).status == 200
                    break
                except ConnectionResetError as reset:
                    assert reset.args == (REFUSED,)
            else:
                pytest.fail("they linger for 5 s, and none of them made room")
        for connection in connections:
            connection.socket.close()


def one_end(connection: Connection) -> int | None:
    """The reason for which one of its streams is reset soon."""
    connection.socket.settimeout(0.2)
    try:
        for one in connection.frames():
            if one.kind == RST_STREAM:
                return int.from_bytes(one.payload, "big")
    except TimeoutError:
        pass
    return None


def test_a_stop_ends_requests_of_rest_with_their_answers(server: Any) -> None:
    one = server()
    with Connection(one.address) as http2:
        head = header_block(INFER, **{"content-type": None, "te": None})
        http2.send(frame(HEADERS, END_HEADERS, 1, head) + frame(DATA, 0, 1, JSON[:10]))
        http2.send(rest(3, "GET", "/v2/health/live"))
        assert http2.reply(3).status == 200
        one.interrupt()
        assert any(one.kind == GOAWAY for one in http2.frames())
        http2.send(frame(DATA, END_STREAM, 1, JSON[10:]))
        assert http2.reply(1).status == 200
    assert one.wait() == 0


def test_a_key_is_wanted_from_tcp_over_http2_too(server: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("infer 0123456789abcdef\n")
    keys.chmod(0o600)
    with server("--api-key-file", str(keys)) as one, Connection(one.address) as http2:
        http2.send(rest(1, "POST", INFER, JSON))
        reply = http2.reply(1)
        assert reply.status == 401 and reply.headers["www-authenticate"] == "Bearer"
        http2.send(rest(3, "POST", INFER, JSON, authorization="Bearer 0123456789abcdef"))
        assert http2.reply(3).status == 200
