"""Chunked and compressed bodies that come in pieces: tensors are decoded into their places.

The oracle is the model: `identity_types` gives its inputs back, bit for bit.
"""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.raw_http import Connection, Reply
from integration.triton_server import TYPED
from tritonclient.utils import triton_to_np_dtype

PATH = "/v2/models/identity_types/infer"
MAX_BODY = 16 << 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    sources = [FIXTURES / "identity_types", MODELS / "identity"]
    models = copy_models(tmp_path_factory.mktemp("models") / "models", sources)
    flags = ["--backend", "onnxruntime", "--max-body-bytes", str(MAX_BODY), "--io-threads", "1"]
    with Server(models, *flags) as server:
        yield server


def arrays_of(dice: random.Random, count: int) -> dict[str, bytes]:
    """Some compress well, some not at all."""
    arrays = {}
    for name in TYPED:
        size = count * np.dtype(triton_to_np_dtype(name)).itemsize
        data = dice.randbytes(size) if dice.random() < 0.5 else bytes(size)
        arrays[name] = bytes(byte & 1 for byte in data) if name == "BOOL" else data
    return arrays


def request_of(arrays: dict[str, bytes], count: int) -> tuple[bytes, bytes]:
    inputs = [
        {
            "name": f"{name.lower()}_in",
            "shape": [count],
            "datatype": name,
            "parameters": {"binary_data_size": len(data)},
        }
        for name, data in arrays.items()
    ]
    document = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    return json.dumps(document).encode(), b"".join(arrays.values())


def coded(body: bytes, coding: str) -> bytes:
    return {"": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[coding](body)


def pieces_of(dice: random.Random, data: bytes, most: int) -> list[bytes]:
    pieces = []
    while data:
        size = dice.randint(1, most)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def framed(dice: random.Random, json_bytes: int, body: bytes, coding: str, chunked: bool) -> bytes:
    lines = [f"POST {PATH} HTTP/1.1", "Host: x", f"Inference-Header-Content-Length: {json_bytes}"]
    lines += [f"Content-Encoding: {coding}"] if coding else []
    if not chunked:
        head = [*lines, f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(head).encode() + body
    chunks = pieces_of(dice, body, max(1000, len(body) // 10))
    parts = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    head = [*lines, "Transfer-Encoding: chunked", "", ""]
    return "\r\n".join(head).encode() + b"".join(parts) + b"0\r\n\r\n"


def send_in_pieces(connection: Connection, dice: random.Random, data: bytes, most: int) -> None:
    for piece in pieces_of(dice, data, most):
        connection.send_into_kernel(piece)


def outputs_of(reply: Reply) -> list[bytes]:
    assert reply.status == 200, reply.body[:500]
    size = int(reply.headers["inference-header-content-length"])
    rest, found = reply.body[size:], []
    for output in json.loads(reply.body[:size])["outputs"]:
        bytes_of_it = output["parameters"]["binary_data_size"]
        found.append(rest[:bytes_of_it])
        rest = rest[bytes_of_it:]
    assert rest == b""
    return found


FORMS = [(coding, chunked) for coding in ("", "gzip", "deflate") for chunked in (False, True)][1:]


@pytest.mark.parametrize(("coding", "chunked"), FORMS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_bodies_in_pieces_are_the_tensors_that_were_sent(
    served: Server, coding: str, chunked: bool, seed: int
) -> None:
    dice = random.Random(f"{coding} {chunked} {seed}")
    with served.connect() as connection:
        for _ in range(4):
            count = dice.choice([1, 5, 1000, 20_000, 100_000])
            arrays = arrays_of(dice, count)
            text, data = request_of(arrays, count)
            whole = framed(dice, len(text), coded(text + data, coding), coding, chunked)
            send_in_pieces(connection, dice, whole, max(200, len(whole) // dice.choice([1, 4, 40])))
            assert outputs_of(connection.reply()) == list(arrays.values()), seed


def test_bodies_that_follow_each_other_at_once_keep_their_order(served: Server) -> None:
    dice = random.Random(7)
    whole, wanted = b"", []
    for coding, chunked in FORMS * 3:
        count = dice.choice([3, 30_000])
        arrays = arrays_of(dice, count)
        text, data = request_of(arrays, count)
        whole += framed(dice, len(text), coded(text + data, coding), coding, chunked)
        wanted.append(list(arrays.values()))
    with served.connect() as connection, ThreadPoolExecutor(1) as sender:
        # Beside the replies, which are as long as the requests: neither side waits for the other.
        sent = sender.submit(connection.send, whole)
        assert [outputs_of(connection.reply()) for _ in wanted] == wanted
        sent.result()


def large(count: int = 200_000) -> tuple[bytes, bytes]:
    """Of `identity`: its only tensor does not compress, so it comes in many pieces."""
    data = random.Random(3).randbytes(4 * count)
    tensor: dict[str, Any] = {"name": "input", "shape": [1, count], "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": len(data)}
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    return json.dumps(document).encode(), data


def changed(name: str, text: bytes, data: bytes) -> tuple[bytes, str]:
    """The gzipped body, and the words of its refusal."""
    packed = gzip.compress(text + data)
    return {
        "a byte more": (gzip.compress(text + data + b"x"), "more bytes follow the JSON"),
        "another tensor more": (gzip.compress(text + data + data), "more bytes follow the JSON"),
        "a byte less": (gzip.compress(text + data[:-1]), "ends before the binary_data_size"),
        "half": (gzip.compress(text + data[: len(data) // 2]), "ends before the binary_data_size"),
        "cut": (packed[:-1], "within its compressed data"),
        "cut in the middle": (packed[: len(packed) // 2], "within its compressed data"),
        "a wrong checksum": (packed[:-8] + b"\0\0\0\0" + packed[-4:], "checksum"),
        "damaged in the middle": (
            packed[:400_000] + bytes(1000) + packed[401_000:],
            "",
        ),
        "garbage behind it": (packed + b"garbage", ""),
    }[name]


WRONG = [
    "a byte more",
    "another tensor more",
    "a byte less",
    "half",
    "cut",
    "cut in the middle",
    "a wrong checksum",
    "damaged in the middle",
    "garbage behind it",
]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("name", WRONG)
def test_a_body_with_a_wrong_length_or_damage_is_refused(
    served: Server, name: str, chunked: bool
) -> None:
    dice = random.Random(name)
    text, data = large()
    body, words = changed(name, text, data)
    request = framed(dice, len(text), body, "gzip", chunked)
    request = request.replace(b"identity_types", b"identity")
    with served.connect() as connection:
        send_in_pieces(connection, dice, request[:200_000], 50_000)
        connection.send(request[200_000:])
        reply = connection.reply()
        assert reply.status == 400, reply
        assert words in reply.error
    assert_identity_is_served(served)


def assert_identity_is_served(served: Server) -> None:
    text, data = large(1000)
    dice = random.Random(1)
    request = framed(dice, len(text), gzip.compress(text + data), "gzip", chunked=False)
    with served.connect() as connection:
        connection.send(request.replace(b"identity_types", b"identity"))
        assert connection.reply().status == 200


def test_a_model_that_is_not_there_is_told_before_the_body_has_come(served: Server) -> None:
    """The text is whole in the first piece."""
    text, data = large()
    wrong = text.replace(b'"input"', b'"other"')
    request = framed(random.Random(1), len(wrong), gzip.compress(wrong + data), "gzip", False)
    with served.connect() as connection:
        connection.send(request.replace(b"identity_types", b"identity")[:300_000])
        reply = connection.reply()
        assert (reply.status, "no input 'other'" in reply.error) == (400, True)


def test_a_compressed_body_is_in_memory_once(tmp_path: Path) -> None:
    """Its tensors take the memory that those of a plain one take: collected, they took it twice."""
    sources = copy_models(tmp_path / "models", [MODELS / "identity"])
    count = 15 << 18
    text, data = large(count)

    def most_resident(server: Server) -> int:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    flags = ["--backend", "onnxruntime", "--max-body-bytes", str(MAX_BODY), "--io-threads", "1"]
    with Server(sources, *flags) as server:
        used = []
        for coding in ("", "gzip"):
            body = coded(text + data, coding)
            request = framed(random.Random(1), len(text), body, coding, chunked=False)
            with server.connect() as connection:
                connection.send(request.replace(b"identity_types", b"identity"))
                assert connection.reply().status == 200
            used.append(most_resident(server))
    plain, compressed = used
    assert compressed - plain < len(data) // 3, used
