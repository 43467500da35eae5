"""Compressed infer requests: tritonclient 2.73.0 (sync, aio), plain requests, bombs and damage."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.raw_http import Reply

MLP = "/v2/models/mlp/infer"
MAX_BODY = 4 << 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = copy_models(
        tmp_path_factory.mktemp("models") / "models",
        [MODELS / "mlp", MODELS / "identity", FIXTURES / "add_sub"],
    )
    with Server(models, "--max-body-bytes", str(MAX_BODY), "--io-threads", "1") as server:
        yield server


def inputs(rows: np.ndarray, binary: bool = True) -> list[Any]:
    one = triton.InferInput("input", list(rows.shape), "FP32")
    return [one.set_data_from_numpy(rows, binary_data=binary)]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 700])
def test_a_compressed_request_gets_the_same_answer(
    served: Server, coding: str, binary: bool, rows: int
) -> None:
    array = np.random.default_rng(rows).random((rows, 256), np.float32)
    array[:, ::2] = 0
    with triton.InferenceServerClient(served.url) as client:
        wanted = client.infer("mlp", inputs(array)).as_numpy("output")
        got = client.infer(
            "mlp", inputs(array, binary), request_compression_algorithm=coding
        ).as_numpy("output")
        assert np.array_equal(got, wanted)

    async def ask() -> np.ndarray:
        async with triton_aio.InferenceServerClient(served.url) as aio:
            result = await aio.infer(
                "mlp",
                inputs(array, binary),
                request_compression_algorithm=coding,
                response_compression_algorithm=coding,
            )
            return result.as_numpy("output")

    assert np.array_equal(asyncio.run(ask()), wanted)


def post(body: bytes, coding: str, *headers: str) -> bytes:
    lines = [
        f"POST {MLP} HTTP/1.1",
        "Host: x",
        f"Content-Encoding: {coding}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def exchange(server: Server, request: bytes) -> Reply:
    with server.connect() as connection:
        connection.send(request)
        return connection.reply()


def mlp_json(rows: int = 1) -> bytes:
    tensor = {"name": "input", "shape": [rows, 256], "datatype": "FP32", "data": [0] * rows * 256}
    return json.dumps({"inputs": [tensor]}).encode()


def test_members_chunks_and_raw_bodies_are_taken(served: Server) -> None:
    text = mlp_json()
    members = gzip.compress(text[:50]) + gzip.compress(b"") + gzip.compress(text[50:])
    assert exchange(served, post(members, "gzip")).status == 200
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(part), part)
        for part in (members[i : i + 11] for i in range(0, len(members), 11))
    )
    head = f"POST {MLP} HTTP/1.1\r\nHost: x\r\nContent-Encoding: x-gzip\r\n"
    chunked = (head + "Transfer-Encoding: chunked\r\n\r\n").encode() + chunks + b"0\r\n\r\n"
    assert exchange(served, chunked).status == 200
    raw = zlib.compress(bytes(2 * 1024))
    reply = exchange(served, post(raw, "deflate", "Inference-Header-Content-Length: 0"))
    assert (reply.status, b'"shape":[2,10]' in reply.body) == (200, True)


def test_the_length_of_the_json_counts_plain_bytes(served: Server) -> None:
    text, data = mlp_json_binary(), bytes(1024)
    packed = gzip.compress(text + data)
    assert len(text) > len(packed)
    header = f"Inference-Header-Content-Length: {len(text)}"
    assert exchange(served, post(packed, "gzip", header)).status == 200
    late = exchange(served, post(packed, "gzip", "Inference-Header-Content-Length: 5000"))
    assert late.status == 400
    assert "5000" in late.error


def mlp_json_binary() -> bytes:
    parameters = {"binary_data_size": 1024}
    tensor = {"name": "input", "shape": [1, 256], "datatype": "FP32", "parameters": parameters}
    return json.dumps({"id": "an id that compresses well " * 10, "inputs": [tensor]}).encode()


DAMAGED = {
    "cut": lambda packed: packed[:-1],
    "cut in the middle": lambda packed: packed[: len(packed) // 2],
    "a wrong checksum": lambda packed: packed[:-8] + b"\0\0\0\0" + packed[-4:],
    "a wrong length": lambda packed: packed[:-4] + b"\1\2\3\4",
    "garbage behind it": lambda packed: packed + b"garbage",
    "zeros behind it": lambda packed: packed + bytes(8),
    "the head of a member behind it": lambda packed: packed + b"\x1f\x8b\x08",
    "compressed twice": gzip.compress,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_told_and_the_next_request_is_served(served: Server, name: str) -> None:
    packed = DAMAGED[name](gzip.compress(mlp_json()))
    reply = exchange(served, post(packed, "gzip"))
    assert reply.status == 400, reply
    assert exchange(served, post(gzip.compress(mlp_json()), "gzip")).status == 200


def test_a_bomb_is_refused_at_the_limit_and_holds_up_nobody(served: Server) -> None:
    bomb = gzip.compress(bytes(1 << 30), 9)  # 1 MiB that become 1 GiB
    assert len(bomb) < MAX_BODY
    times: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        with served.connect() as connection:
            while not stop.is_set():
                begin = time.monotonic()
                connection.send(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.reply().status == 200
                times.append(time.monotonic() - begin)

    other = threading.Thread(target=ask)
    other.start()
    before = served_memory(served)
    for _ in range(20):
        reply = exchange(served, post(bomb, "gzip"))
        assert (reply.status, "inflated" in reply.error) == (413, True)
    stop.set()
    other.join()
    assert served_memory(served) - before < 10 * MAX_BODY
    assert exchange(served, post(gzip.compress(mlp_json()), "gzip")).status == 200
    assert len(times) > 20, "the other connection was answered meanwhile"


def served_memory(server: Server) -> int:
    """Its resident bytes."""
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_other_calls_take_no_compressed_body(served: Server) -> None:
    body = gzip.compress(b"{}")
    head = f"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    reply = exchange(served, (head + "Content-Encoding: gzip\r\n\r\n").encode() + body)
    assert reply.status == 415
    assert reply.headers["accept-encoding"] == "gzip, deflate"
