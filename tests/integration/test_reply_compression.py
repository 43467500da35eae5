"""Compressed replies: tritonclient 2.73.0 (sync, aio), requests, and bytes by hand.

Each is compared with the same reply uncompressed.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import select
import shutil
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from integration.harness import MODELS, Server, copy_models, eventually
from integration.prometheus import parse
from integration.raw_http import Connection, Reply, get, head, post, post_json

CODINGS = ("gzip", "deflate")
INFLATE = {"gzip": gzip.decompress, "deflate": zlib.decompress}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_models(
        tmp_path_factory.mktemp("models") / "models", [MODELS / "mlp", MODELS / "identity"]
    )
    shutil.copytree(folder / "mlp", folder / "cached")
    (folder / "cached" / "config.json").write_text('{"response_cache": {"enable": true}}')
    return folder


@pytest.fixture(scope="module", params=["mpmc", "inline"])
def served(request: pytest.FixtureRequest, models: Path) -> Iterator[Server]:
    with Server(models, "--queue-type", request.param) as server:
        yield server


@pytest.fixture(scope="module")
def willing(models: Path) -> Iterator[Server]:
    with Server(models, "--reply-compression", "on") as server:
        yield server


def some_rows(rows: int = 40, seed: int = 1, columns: int = 256) -> np.ndarray:
    array = np.random.default_rng(seed).random((rows, columns), np.float32)
    array[:, ::3] = 0
    return array


def request_of(array: np.ndarray, binary: bool, model: str = "identity", *lines: str) -> bytes:
    tensor: dict[str, Any] = {"name": "input", "shape": list(array.shape), "datatype": "FP32"}
    path = f"/v2/models/{model}/infer"
    document = {"id": "7", "parameters": {"binary_data_output": binary}, "inputs": [tensor]}
    if not binary:
        tensor["data"] = array.ravel().tolist()
        return post_json(path, document, *lines)
    tensor["parameters"] = {"binary_data_size": array.nbytes}
    text = json.dumps(document).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(path, text + array.tobytes(), length, *lines)


def check_same(plain: Reply, packed: Reply, coding: str) -> None:
    """The compressed reply is the other one, in fewer bytes."""
    assert (plain.status, packed.status) == (200, 200)
    assert packed.headers.pop("content-encoding") == coding
    assert "content-encoding" not in plain.headers
    for headers in (plain.headers, packed.headers):
        del headers["date"], headers["content-length"]
    assert packed.headers == plain.headers
    assert INFLATE[coding](packed.body) == plain.body
    assert len(packed.body) < len(plain.body)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("binary", [True, False])
def test_a_compressed_reply_inflates_to_the_plain_one(
    served: Server, coding: str, binary: bool
) -> None:
    with served.connect() as connection:
        for rows in (10, 40, 3000):
            array = some_rows(rows)
            plain = connection.exchange(request_of(array, binary))
            line = f"Accept-Encoding: {coding}"
            check_same(
                plain, connection.exchange(request_of(array, binary, "identity", line)), coding
            )


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_reads_them(served: Server, coding: str, binary: bool) -> None:
    array = some_rows()
    inputs = [triton.InferInput("input", list(array.shape), "FP32").set_data_from_numpy(array)]
    outputs = [triton.InferRequestedOutput("output", binary_data=binary)]
    with triton.InferenceServerClient(served.url) as client:
        before = count(served)
        result = client.infer(
            "identity", inputs, outputs=outputs, response_compression_algorithm=coding
        )
        assert np.array_equal(result.as_numpy("output"), array)
        assert count(served) == before + 1

    async def ask() -> np.ndarray:
        async with triton_aio.InferenceServerClient(served.url) as aio:
            assert (await aio.get_model_config("identity"))["name"] == "identity"
            result = await aio.infer(
                "identity", inputs, outputs=outputs, response_compression_algorithm=coding
            )
            return result.as_numpy("output")

    assert np.array_equal(asyncio.run(ask()), array)
    assert count(served) == before + 2


def count(server: Server) -> float:
    families = parse(metrics(server))
    return next(iter(families["lumen_replies_compressed_total"].samples.values()))


def metrics(server: Server) -> str:
    with server.connect() as connection:
        return connection.exchange(get("/metrics")).body.decode()


def test_a_client_that_names_all_that_it_knows_is_asked_for_nothing(served: Server) -> None:
    """auto: requests names gzip and deflate whether its user wants them or not."""
    url = f"http://{served.url}/v2/models/identity/infer"
    body = {
        "inputs": [{"name": "input", "shape": [1, 900], "datatype": "FP32", "data": [0.5] * 900}]
    }
    reply = requests.post(url, json=body, timeout=30)
    assert "gzip, deflate" in reply.request.headers["Accept-Encoding"]
    assert "Content-Encoding" not in reply.headers
    asked = requests.post(url, json=body, headers={"Accept-Encoding": "gzip"}, timeout=30)
    assert asked.headers["Content-Encoding"] == "gzip"
    assert asked.json() == reply.json()


def test_on_compresses_for_a_list_and_off_for_nobody(willing: Server, models: Path) -> None:
    array = some_rows()
    request = request_of(array, True, "identity", "Accept-Encoding: br, deflate;q=0.5, gzip;q=0.9")
    with willing.connect() as connection:
        plain = connection.exchange(request_of(array, True))
        check_same(plain, connection.exchange(request), "gzip")
        refusing = request_of(array, True, "identity", "Accept-Encoding: gzip;q=0, identity")
        assert "content-encoding" not in connection.exchange(refusing).headers
    with Server(models, "--reply-compression", "off") as server, server.connect() as connection:
        reply = connection.exchange(request_of(array, True, "identity", "Accept-Encoding: gzip"))
        assert "content-encoding" not in reply.headers
        threads = Path(f"/proc/{server.process.pid}/task").glob("*/comm")
        assert "lumen-compress" not in {one.read_text().strip() for one in threads}


def test_documents_errors_and_small_replies_are_never_compressed(willing: Server) -> None:
    line = "Accept-Encoding: gzip"
    with willing.connect() as connection:
        model = "/v2/models/mlp"
        for path in ("/v2", model, f"{model}/config", "/metrics", "/", "/openapi.json"):
            reply = connection.exchange(get(path, line))
            assert (reply.status, "content-encoding" in reply.headers) == (200, False), path
        small = connection.exchange(request_of(some_rows(1, 1, 4), True, "identity", line))
        assert (small.status, "content-encoding" in small.headers) == (200, False)
        wrong = connection.exchange(request_of(some_rows(1, 1, 3000), True, "mlp", line))
        assert (wrong.status, "content-encoding" in wrong.headers) == (400, False)
        assert "input" in wrong.error


def test_bytes_that_do_not_get_smaller_are_sent_as_they_are(served: Server) -> None:
    noise = np.frombuffer(np.random.default_rng(3).bytes(1 << 18), np.float32).reshape(1, -1)
    noise = np.nan_to_num(noise, nan=1.0)
    with served.connect() as connection:
        reply = connection.exchange(request_of(noise, True, "identity", "Accept-Encoding: gzip"))
        assert (reply.status, "content-encoding" in reply.headers) == (200, False)
        assert reply.body.endswith(noise.tobytes())


def test_pipelined_requests_are_answered_in_order(served: Server) -> None:
    arrays = [some_rows(30, seed) for seed in range(12)]
    with served.connect() as connection:
        together = b""
        for i, array in enumerate(arrays):
            lines = [f"Accept-Encoding: {CODINGS[i % 2]}"] if i % 3 else []
            together += request_of(array, True, "identity", *lines)
        threading.Thread(target=connection.send, args=(together,)).start()
        for i, array in enumerate(arrays):
            reply = connection.reply()
            coding = reply.headers.get("content-encoding", "")
            assert coding == (CODINGS[i % 2] if i % 3 else "")
            body = INFLATE[coding](reply.body) if coding else reply.body
            assert body.endswith(array.tobytes())


@pytest.mark.parametrize("lines", [["Connection: keep-alive"], []])
def test_a_client_of_http_1_0_reads_to_the_end(served: Server, lines: list[str]) -> None:
    array = some_rows()
    whole = request_of(array, True, "identity", "Accept-Encoding: gzip", *lines)
    with served.connect() as connection:
        reply = connection.exchange(whole.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert reply.headers["connection"] == "close"
        assert gzip.decompress(reply.body).endswith(array.tobytes())
        assert connection.is_closed()


def test_a_raw_request_and_a_compressed_one_get_compressed_replies(served: Server) -> None:
    array = np.repeat(some_rows(1), 40, axis=0)  # so that the answers repeat, too
    raw = "Inference-Header-Content-Length: 0"
    path = "/v2/models/mlp/infer"
    with served.connect() as connection:
        plain = connection.exchange(post(path, array.tobytes(), raw))
        packed = gzip.compress(array.tobytes())
        lines = ("Content-Encoding: gzip", "Accept-Encoding: deflate", raw)
        check_same(plain, connection.exchange(post(path, packed, *lines)), "deflate")


def statistics(server: Server, model: str) -> dict[str, Any]:
    with server.connect() as connection:
        one = connection.exchange(get(f"/v2/models/{model}/stats")).json()["model_stats"][0]
    return {name: value["count"] for name, value in one["inference_stats"].items()}


def test_a_request_counts_once_and_a_cached_answer_is_compressed_too(served: Server) -> None:
    """Was feared: a reply that comes back a second time counts its request a second time."""
    array = some_rows(40, seed=served.port)
    request = request_of(array, False, "cached", "Accept-Encoding: gzip")
    before = statistics(served, "cached")
    with served.connect() as connection:
        replies = [connection.exchange(request) for _ in range(5)]
    assert len({reply.body for reply in replies}) == 1
    assert {reply.headers["content-encoding"] for reply in replies} == {"gzip"}
    after = statistics(served, "cached")
    assert {
        name: after[name] - before[name] for name in ("success", "cache_hit", "cache_miss")
    } == {
        "success": 5,
        "cache_hit": 4,
        "cache_miss": 1,
    }
    assert after["fail"] == 0


def test_clients_that_leave_meanwhile_cost_nothing(served: Server) -> None:
    array = some_rows(4000)
    request = request_of(array, True, "identity", "Accept-Encoding: gzip")
    for i in range(20):
        connection = served.connect()
        connection.send(request)
        if i % 2:
            connection.socket.recv(1)
        connection.socket.close()
    eventually(lambda: open_connections(served) == 1, "the connection of the scrape alone")
    with served.connect() as connection:
        plain = connection.exchange(request_of(array, True))
        check_same(plain, connection.exchange(request), "gzip")


def open_connections(server: Server) -> float:
    return next(iter(parse(metrics(server))["lumen_connections_open"].samples.values()))


def test_many_clients_at_once_get_their_own_answers(served: Server) -> None:
    failures: list[str] = []

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        with served.connect() as connection:
            for _ in range(30):
                array = some_rows(int(random.integers(1, 400)), int(random.integers(1 << 30)))
                wanted = random.choice(["gzip", "deflate", ""])
                lines = [f"Accept-Encoding: {wanted}"] if wanted else []
                reply = connection.exchange(request_of(array, True, "identity", *lines))
                coding = reply.headers.get("content-encoding", "")
                body = INFLATE[coding](reply.body) if coding else reply.body
                # Identity where much waits: the bound of the compressor's work.
                if not body.endswith(array.tobytes()) or coding not in ("", wanted):
                    failures.append(f"{wanted}: {reply.status} {reply.headers}")

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []


def test_a_large_reply_does_not_hold_up_other_clients(models: Path) -> None:
    """A reply of 16 MB is compressed for some 200 ms; others are answered before it is done."""
    large = some_rows(4_000, columns=1000)
    small = request_of(some_rows(20), True, "identity", "Accept-Encoding: gzip")

    def has_come(connection: Connection) -> bool:
        return bool(select.select([connection.socket], [], [], 0)[0])

    with (
        Server(models, "--queue-type", "inline") as server,
        server.connect() as slow,
        server.connect() as other,
    ):
        slow.send(request_of(large, True, "identity", "Accept-Encoding: gzip"))
        eventually(lambda: b"R" in state_of(server, "lumen-compress"), "a reply is compressed")
        answered_before = 0
        while not has_come(slow):
            assert other.exchange(small).status == 200
            answered_before += not has_come(slow)
        reply = slow.reply()
    assert reply.headers["content-encoding"] == "gzip"
    assert gzip.decompress(reply.body).endswith(large.tobytes())
    assert answered_before > 0


def state_of(server: Server, name: str) -> bytes:
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        text = (task / "stat").read_bytes()
        if f"({name})".encode() in text:
            return text.rpartition(b")")[2].split()[0]
    return b""


def test_a_stop_waits_for_replies_that_are_compressed(models: Path) -> None:
    array = some_rows(4000)
    with Server(models) as server:
        connections: list[Connection] = []
        for _ in range(4):
            one = server.connect()
            one.send(request_of(array, True, "identity", "Accept-Encoding: gzip"))
            connections.append(one)
        eventually(lambda: b"R" in state_of(server, "lumen-compress"), "a reply is compressed")
        server.interrupt()
        codings = []
        for one in connections:
            reply = one.reply()
            codings.append(reply.headers.get("content-encoding", ""))
            body = gzip.decompress(reply.body) if codings[-1] else reply.body
            assert body.endswith(array.tobytes())
            one.socket.close()
        assert "gzip" in codings, "of those behind 4 MiB of others each may go as it is"
        assert server.wait() == 0


def test_a_head_alone_asks_for_nothing(willing: Server) -> None:
    with willing.connect() as connection:
        reply = connection.exchange(head("GET", "/v2/health/live", "Accept-Encoding: gzip"))
        assert (reply.status, reply.body) == (200, b'{"live":true}')
