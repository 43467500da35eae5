"""HTTP/1.1 as bytes: framing, keep-alive, pipelining, chunks, Expect, the tricks of smugglers."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from integration.harness import Server
from integration.raw_http import Connection, Reply, chunked, get, head, post, post_json

INFER = "/v2/models/identity/infer"
LIVE = "/v2/health/live"


def document(*values: float, **more: object) -> dict[str, object]:
    given = {"name": "input", "datatype": "FP32", "shape": [1, len(values)], "data": list(values)}
    return {"inputs": [given], **more}


def infer(*values: float, request_id: str = "") -> bytes:
    return post_json(INFER, document(*values, id=request_id))


def answer(reply: Reply) -> list[float]:
    assert reply.status == 200, reply
    return reply.json()["outputs"][0]["data"]


def binary_infer(values: list[float]) -> tuple[bytes, bytes]:
    """Request with the tensor behind the JSON, binary both ways; and the tensor's bytes."""
    payload = struct.pack(f"<{len(values)}f", *values)
    given = {"name": "input", "datatype": "FP32", "shape": [1, len(values)]}
    given["parameters"] = {"binary_data_size": len(payload)}
    text = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    return post(INFER, text + payload, f"Inference-Header-Content-Length: {len(text)}"), payload


def binary_answer(reply: Reply) -> bytes:
    assert reply.status == 200, reply
    return reply.body[int(reply.headers["inference-header-content-length"]) :]


@pytest.fixture
def connection(shared_server: Server) -> Iterator[Connection]:
    with Connection(shared_server.address) as connection:
        yield connection


def another(connection: Connection) -> Connection:
    return Connection(connection.address)


# --- one after the other --------------------------------------------------------------------------


def test_a_connection_stays_for_many_requests(connection: Connection) -> None:
    for i in range(100):
        reply = connection.exchange(infer(i))
        assert answer(reply) == [i]
        assert reply.headers.get("connection", "keep-alive").lower() == "keep-alive"


def test_connection_close_closes_after_the_reply(connection: Connection) -> None:
    reply = connection.exchange(get(LIVE, "Connection: close"))
    assert reply.status == 200
    assert reply.headers["connection"].lower() == "close"
    assert connection.is_closed()


def test_http_1_0_is_answered_and_closed(connection: Connection) -> None:
    assert connection.exchange(head("GET", LIVE, version="HTTP/1.0")).status == 200
    assert connection.is_closed()


def test_head_has_the_length_of_get_and_no_body(connection: Connection) -> None:
    full = connection.exchange(get("/v2"))
    connection.send(head("HEAD", "/v2"))
    bare = connection.reply(head_only=True)
    assert bare.status == 200
    assert bare.headers["content-length"] == full.headers["content-length"]
    assert connection.exchange(get(LIVE)).status == 200  # no stray bytes lie before this reply


def test_every_reply_has_a_date_and_a_length(connection: Connection) -> None:
    for request in (get(LIVE), get("/nowhere"), infer(1)):
        reply = connection.exchange(request)
        assert reply.headers["date"].endswith(" GMT")
        assert int(reply.headers["content-length"]) == len(reply.body)


def test_a_query_is_ignored(connection: Connection) -> None:
    assert connection.exchange(get(LIVE + "?x=1&y=2")).status == 200


def test_a_name_in_the_path_may_have_percent_escapes(connection: Connection) -> None:
    path = "/v2/models/%69dent%69ty/versions/%31/infer"
    assert answer(connection.exchange(post_json(path, document(6)))) == [6]
    metadata = connection.exchange(get("/v2/models/identit%79")).json()
    assert metadata["name"] == "identity"
    # Decoded once, and only after the path was cut into its segments.
    for wrong in ("%2569dentity", "%2e%2e", "%2E", "%2e%2e%2fidentity", "identity%2finfer"):
        assert connection.exchange(get(f"/v2/models/{wrong}")).status == 404
    assert connection.exchange(get("/v2/models/%00")).status == 400


def test_header_names_are_case_insensitive_and_values_may_have_spaces_around(
    connection: Connection,
) -> None:
    body = json.dumps(document(3)).encode()
    request = b"POST %s HTTP/1.1\r\nhOST: x\r\ncOnTeNt-LeNgTh: \t %d \t\r\n\r\n%s"
    assert answer(connection.exchange(request % (INFER.encode(), len(body), body))) == [3]


def test_empty_lines_before_a_request_are_tolerated(connection: Connection) -> None:
    assert connection.exchange(b"\r\n\r\n" + get(LIVE)).status == 200


# --- bytes in odd portions ------------------------------------------------------------------------


def test_a_request_may_come_one_byte_at_a_time(connection: Connection) -> None:
    request, payload = binary_infer([1.5, -2.5, 3.25])
    for i in range(len(request)):
        connection.send(request[i : i + 1])
    assert binary_answer(connection.reply()) == payload


def test_a_chunked_request_may_come_one_byte_at_a_time(connection: Connection) -> None:
    body = json.dumps(document(1, 2)).encode()
    request = chunked(INFER, [body[:1], body[1:20], body[20:]])
    for i in range(len(request)):
        connection.send(request[i : i + 1])
    assert answer(connection.reply()) == [1, 2]


@pytest.mark.parametrize("floats", [1, 1000, 20_000, 300_000])
def test_a_tensor_of_any_size_comes_back_whole(connection: Connection, floats: int) -> None:
    request, payload = binary_infer([float(i % 1000) for i in range(floats)])
    assert binary_answer(connection.exchange(request)) == payload
    assert answer(connection.exchange(infer(9))) == [9]


def test_a_tensor_cut_at_every_place_comes_back_whole(connection: Connection) -> None:
    request, payload = binary_infer([float(i) for i in range(8)])
    for cut in range(1, len(request), 7):
        connection.send(request[:cut])
        connection.send(request[cut:])
        assert binary_answer(connection.reply()) == payload


def test_json_longer_than_the_receive_buffer_is_read(connection: Connection) -> None:
    values = [float(i) for i in range(40_000)]  # about 300 KB of text
    assert answer(connection.exchange(infer(*values))) == values


# --- chunked --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_chunked_body_is_put_together(connection: Connection, size: int) -> None:
    body = json.dumps(document(*range(500))).encode()
    chunks = [body[i : i + size] for i in range(0, len(body), size)]
    assert answer(connection.exchange(chunked(INFER, chunks))) == list(range(500))
    assert answer(connection.exchange(infer(1))) == [1]


def test_a_chunked_body_may_carry_binary_tensors(connection: Connection) -> None:
    request, payload = binary_infer([0.5] * 50_000)
    lines, _, body = request.partition(b"\r\n\r\n")
    announced = next(x for x in lines.decode().split("\r\n") if x.startswith("Inference-Header"))
    chunks = [body[i : i + 30_000] for i in range(0, len(body), 30_000)]
    assert binary_answer(connection.exchange(chunked(INFER, chunks, announced))) == payload


def test_chunk_extensions_are_dropped(connection: Connection) -> None:
    body = json.dumps(document(5)).encode()
    framed = b"%x;name=value\r\n%s\r\n0;last\r\n\r\n" % (len(body), body)
    reply = connection.exchange(head("POST", INFER, "Transfer-Encoding: chunked") + framed)
    assert answer(reply) == [5]
    assert connection.exchange(get(LIVE)).status == 200


def test_trailers_are_refused_and_later_bytes_are_no_request(connection: Connection) -> None:
    body = json.dumps(document(5)).encode()
    framed = b"%x\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(body), body)
    request = head("POST", INFER, "Transfer-Encoding: chunked") + framed
    reply = connection.exchange(request + get(LIVE))
    assert reply.status == 400 and "trailers" in reply.error
    assert reply.headers["connection"].lower() == "close"
    assert connection.is_closed()


@pytest.mark.parametrize(
    "framed",
    [b"-1\r\nx\r\n0\r\n\r\n", b"0x1\r\nx\r\n0\r\n\r\n", b"1\nx\n0\n\n", b"1\r\nxy\r\n0\r\n\r\n"]
    + [b"fffffffffffffffff\r\n", b"\r\n", b"1 \r\nx\r\n0\r\n\r\n", b"1;" + b"e" * 300 + b"\r\n"],
)
def test_a_malformed_chunk_is_refused_and_the_connection_closed(
    connection: Connection, framed: bytes
) -> None:
    reply = connection.exchange(head("POST", INFER, "Transfer-Encoding: chunked") + framed)
    assert reply.status in (400, 413) and reply.error
    assert connection.is_closed()


def test_endless_tiny_chunks_are_stopped(connection: Connection) -> None:
    request = head("POST", INFER, "Transfer-Encoding: chunked") + b"1;xxxxxxxx\r\n \r\n" * 200_000
    try:
        connection.send(request)
    except (ConnectionResetError, BrokenPipeError):
        pass  # refused while we were still sending
    reply = connection.reply()
    assert reply.status == 400 and reply.error
    with another(connection) as fresh:
        assert fresh.exchange(get(LIVE)).status == 200


# --- expect ---------------------------------------------------------------------------------------


def test_expect_100_continue_is_answered_before_the_body(connection: Connection) -> None:
    body = json.dumps(document(8)).encode()
    lines = [f"Content-Length: {len(body)}", "Expect: 100-continue"]
    assert connection.exchange(head("POST", INFER, *lines)).status == 100
    assert answer(connection.exchange(body)) == [8]
    assert answer(connection.exchange(infer(2))) == [2]


def test_expect_with_the_body_already_there_gives_one_final_reply(connection: Connection) -> None:
    body = json.dumps(document(8)).encode()
    reply = connection.exchange(post(INFER, body, "Expect: 100-continue"))
    if reply.status == 100:
        reply = connection.reply()
    assert answer(reply) == [8]
    assert answer(connection.exchange(infer(2))) == [2]


def test_expect_for_an_unknown_model_gets_the_error_and_no_100(connection: Connection) -> None:
    lines = ["Content-Length: 100", "Expect: 100-continue"]
    assert connection.exchange(head("POST", "/v2/models/nobody/infer", *lines)).status == 404


def test_any_other_expectation_is_refused(connection: Connection) -> None:
    assert connection.exchange(post(INFER, b"{}", "Expect: miracles")).status == 417


# --- pipelining -----------------------------------------------------------------------------------


def test_ten_thousand_pipelined_gets_are_answered_in_order(connection: Connection) -> None:
    count = 10_000
    paths = ["/v2/models/mlp", "/v2/models/identity", "/v2/models/digits"]
    requests = b"".join(get(paths[i % 3]) for i in range(count))
    # The replies outgrow the socket's buffers, so we must read while we write, as any client would.
    connection.socket.setblocking(False)
    sent, received = 0, b""
    while sent < len(requests):
        try:
            sent += connection.socket.send(requests[sent : sent + 65536])
        except BlockingIOError:
            connection.socket.settimeout(30)
            received += connection.socket.recv(1 << 20)
            connection.socket.setblocking(False)
    connection.socket.settimeout(30)
    connection.received = received
    for i in range(count):
        reply = connection.reply()
        assert reply.json()["name"] == paths[i % 3].rpartition("/")[2]


def test_pipelined_infers_keep_their_order(connection: Connection) -> None:
    connection.send(b"".join(infer(i, request_id=str(i)) for i in range(200)))
    for i in range(200):
        reply = connection.reply()
        assert answer(reply) == [i]
        assert reply.json()["id"] == str(i)


def test_an_error_between_pipelined_requests_hurts_only_itself(connection: Connection) -> None:
    connection.send(infer(1) + post(INFER, b"{oops") + get("/nowhere") + infer(2))
    assert answer(connection.reply()) == [1]
    assert connection.reply().status == 400
    assert connection.reply().status == 404
    assert answer(connection.reply()) == [2]


def test_the_rest_of_a_refused_body_is_not_taken_for_a_request(connection: Connection) -> None:
    hidden = get(LIVE)
    body = hidden * 4000  # longer than the receive buffer, so that most of it is still to come
    connection.send(post("/v2/models/nobody/infer", body) + infer(3))
    assert connection.reply().status == 404
    assert answer(connection.reply()) == [3]


# --- clients that leave ---------------------------------------------------------------------------


def test_a_client_that_finishes_sending_still_gets_its_replies(connection: Connection) -> None:
    connection.send(infer(1) + infer(2))
    connection.finish_sending()
    assert answer(connection.reply()) == [1]
    assert answer(connection.reply()) == [2]
    assert connection.is_closed()


@pytest.mark.parametrize("portion", [0.1, 0.5, 0.99])
def test_a_client_that_leaves_in_the_middle_hurts_nobody(
    connection: Connection, portion: float
) -> None:
    request, _ = binary_infer([1.0] * 100_000)
    connection.send(request[: int(len(request) * portion)])
    connection.socket.close()
    with another(connection) as fresh:
        assert answer(fresh.exchange(infer(4))) == [4]


def test_a_client_that_resets_hurts_nobody(shared_server: Server) -> None:
    address = shared_server.address
    for _ in range(20):
        with Connection(address) as leaving:
            leaving.send(infer(*range(100)))
            leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with Connection(address) as fresh:
        assert answer(fresh.exchange(infer(4))) == [4]


# --- browsers -------------------------------------------------------------------------------------

BROWSER = ["Origin: http://attacker.example:8000", "Sec-Fetch-Site: same-origin", "Origin: null"]


def asking(host: str, *lines: str) -> bytes:
    return get(LIVE, *lines).replace(b"Host: localhost", f"Host: {host}".encode())


@pytest.mark.parametrize("line", BROWSER)
def test_a_page_does_not_reach_the_server_by_a_name_that_it_controls(
    connection: Connection, line: str
) -> None:
    port = connection.address[1]
    for host in (f"attacker.example:{port}", "attacker.example", "localhost.attacker.example"):
        reply = connection.exchange(asking(host, line))
        assert reply.status == 403
        assert host in reply.error and "--allowed-hosts" in reply.error
    request = post_json(INFER, document(1), line).replace(b"Host: localhost", b"Host: a.example")
    assert connection.exchange(request).status == 403
    assert answer(connection.exchange(infer(2))) == [2]  # its body was not taken for a request


@pytest.mark.parametrize("line", BROWSER)
def test_a_page_reaches_the_server_by_the_names_of_this_machine(
    connection: Connection, line: str
) -> None:
    port = connection.address[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "[::1]", socket.gethostname()):
        assert connection.exchange(asking(host, line)).status == 200


def test_proxies_and_other_clients_may_name_any_host(connection: Connection) -> None:
    proxy = ["Via: 1.1 proxy", "X-Forwarded-Host: models.example", "Forwarded: host=models.example"]
    for lines in ([], proxy, ["Referer: http://a.example/", "User-Agent: Mozilla/5.0"]):
        assert connection.exchange(asking("models.example", *lines)).status == 200


def test_an_allowed_host_is_a_name_for_pages_too(server: Callable[..., Server]) -> None:
    one = server("--allowed-hosts", "models.example,Other.Example")
    with Connection(one.address) as connection:
        for host, status in {
            "models.example": 200,
            "MODELS.example:8000": 200,
            "other.example": 200,
            "a.models.example": 403,
            "localhost": 200,
        }.items():
            assert connection.exchange(asking(host, BROWSER[0])).status == status


# --- pages of other origins (CORS) ----------------------------------------------------------------

PAGE = "Origin: https://app.example"
PREFLIGHT = (
    "Access-Control-Request-Method: POST",
    "Access-Control-Request-Headers: content-type,inference-header-content-length",
)


def preflight(*lines: str) -> bytes:
    return get(INFER, *lines, *PREFLIGHT).replace(b"GET ", b"OPTIONS ", 1)


def test_without_cors_origins_no_page_may_ask_and_the_answer_says_how_to_allow_it(
    connection: Connection,
) -> None:
    reply = connection.exchange(preflight(PAGE))
    assert reply.status == 403
    assert "https://app.example" in reply.error and "--cors-origins" in reply.error
    assert "access-control-allow-origin" not in reply.headers
    reply = connection.exchange(get(LIVE, PAGE))
    assert reply.status == 200 and "access-control-allow-origin" not in reply.headers


def test_a_page_of_an_allowed_origin_sends_requests_and_reads_replies_and_errors(
    server: Callable[..., Server],
) -> None:
    one = server("--cors-origins", "https://app.example,http://localhost:3000")
    with Connection(one.address) as connection:
        reply = connection.exchange(preflight(PAGE))
        assert reply.status == 200 and reply.body == b""
        assert reply.headers["access-control-allow-origin"] == "https://app.example"
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert reply.headers["access-control-allow-headers"] == "Authorization, *"
        for request, status in (
            (post_json(INFER, document(1), PAGE), 200),
            (post_json(INFER, {"inputs": []}, PAGE), 400),
            (get("/v2/models/none", PAGE), 404),
        ):
            reply = connection.exchange(request)
            assert reply.status == status
            assert reply.headers["access-control-allow-origin"] == "https://app.example"
            exposed = reply.headers["access-control-expose-headers"]
            assert exposed == "Inference-Header-Content-Length"
            assert reply.headers["vary"] == "Origin"
        reply = connection.exchange(preflight("Origin: https://other.example"))
        assert reply.status == 403 and "access-control-allow-origin" not in reply.headers
        reply = connection.exchange(get(LIVE, "Origin: http://app.example"))
        assert "access-control-allow-origin" not in reply.headers
        reply = connection.exchange(get(LIVE))
        assert "access-control-allow-origin" not in reply.headers


def test_options_that_are_no_preflight_are_refused_as_before(connection: Connection) -> None:
    for lines in ((), (PAGE,), PREFLIGHT):
        request = get(INFER, *lines).replace(b"GET ", b"OPTIONS ", 1)
        assert connection.exchange(request).status == 405


# --- smuggling and malformed heads ----------------------------------------------------------------

SMUGGLED = get("/v2/smuggled")
BODY = json.dumps(document(1)).encode()


def raw(lines: list[bytes], body: bytes = b"") -> bytes:
    return b"\r\n".join([b"POST " + INFER.encode() + b" HTTP/1.1", *lines]) + b"\r\n\r\n" + body


HOST = b"Host: x"
LENGTH = b"Content-Length: %d" % len(BODY)
MALFORMED: dict[str, tuple[bytes, set[int]]] = {
    "length and chunked": (
        raw([HOST, LENGTH, b"Transfer-Encoding: chunked"], b"0\r\n\r\n" + SMUGGLED),
        {400},
    ),
    "two differing lengths": (raw([HOST, b"Content-Length: 5", LENGTH], BODY + SMUGGLED), {400}),
    "length with a plus": (raw([HOST, b"Content-Length: +5"], b"12345" + SMUGGLED), {400}),
    "negative length": (raw([HOST, b"Content-Length: -1"], SMUGGLED), {400}),
    "length as a list": (raw([HOST, b"Content-Length: 5, 5"], b"12345" + SMUGGLED), {400}),
    "length with a space inside": (raw([HOST, b"Content-Length: 1 0"], SMUGGLED), {400}),
    "length in hex": (raw([HOST, b"Content-Length: 0x10"], SMUGGLED), {400}),
    "length of 30 digits": (raw([HOST, b"Content-Length: " + b"9" * 30]), {400, 413}),
    "empty length": (raw([HOST, b"Content-Length:"], SMUGGLED), {400}),
    "chunked not last": (raw([HOST, b"Transfer-Encoding: chunked, gzip"], SMUGGLED), {400, 501}),
    "chunked twice": (raw([HOST, b"Transfer-Encoding: chunked, chunked"], SMUGGLED), {400, 501}),
    "unknown coding": (raw([HOST, b"Transfer-Encoding: cow"], SMUGGLED), {400, 501}),
    "chunked in HTTP/1.0": (
        head("POST", INFER, "Transfer-Encoding: chunked", version="HTTP/1.0")
        + b"0\r\n\r\n"
        + SMUGGLED,
        {400},
    ),
    "space before the colon": (raw([HOST, b"Content-Length : 5"], b"12345" + SMUGGLED), {400}),
    "folded header": (raw([HOST, b"X: a", b" b"], SMUGGLED), {400}),
    "bare LF": (b"GET /v2 HTTP/1.1\nHost: x\n\n" + SMUGGLED, {400}),
    "bare CR in a value": (raw([HOST, b"X: a\rb"], SMUGGLED), {400}),
    "NUL in a value": (raw([HOST, b"X: a\x00b"], SMUGGLED), {400}),
    "control in a name": (raw([HOST, b"X\x01: a"], SMUGGLED), {400}),
    "empty name": (raw([HOST, b": a"], SMUGGLED), {400}),
    "line without a colon": (raw([HOST, b"nothing"], SMUGGLED), {400}),
    "no Host": (raw([LENGTH], BODY + SMUGGLED), {400}),
    "two Hosts": (raw([HOST, b"Host: y", LENGTH], BODY + SMUGGLED), {400}),
    "NUL in the path": (b"GET /v2\x00 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED, {400}),
    "space in the path": (b"GET /v2 /v2 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED, {400}),
    "no version": (b"GET /v2\r\nHost: x\r\n\r\n" + SMUGGLED, {400}),
    "HTTP/2.0": (b"GET /v2 HTTP/2.0\r\nHost: x\r\n\r\n" + SMUGGLED, {400, 505}),
    "method with a slash": (b"G/T /v2 HTTP/1.1\r\nHost: x\r\n\r\n" + SMUGGLED, {400}),
    "TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", {400}),
    "101 headers": (raw([HOST, *[b"X-%d: 1" % i for i in range(101)]]), {431}),
    "a header of 40 KB": (raw([HOST, b"X: " + b"a" * 40_000]), {431}),
    "a path of 9 KB": (get("/" + "a" * 9000), {414}),
    "JSON length that is no number": (
        raw([HOST, LENGTH, b"Inference-Header-Content-Length: ten"], BODY + SMUGGLED),
        {400},
    ),
    "negative JSON length": (
        raw([HOST, LENGTH, b"Inference-Header-Content-Length: -1"], BODY + SMUGGLED),
        {400},
    ),
}


@pytest.mark.parametrize("name", list(MALFORMED))
def test_a_malformed_request_is_refused_closed_and_nothing_after_it_is_served(
    connection: Connection, name: str
) -> None:
    request, statuses = MALFORMED[name]
    reply = connection.exchange(request)
    assert reply.status in statuses, reply
    assert reply.error
    assert reply.headers["connection"].lower() == "close"
    assert connection.is_closed(), f"bytes after the refusal: {connection.received!r}"
    with another(connection) as fresh:
        assert fresh.exchange(get(LIVE)).status == 200
