"""System shared memory as tritonclient 2.73.0 uses it, sync and aio, and as an attacker would."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from integration.harness import FIXTURES, MODELS, Server, UnixConnection, copy_models
from integration.raw_http import Connection, Reply
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

BYTES_MODEL = FIXTURES.parent / "backend" / "identity_bytes"
MLP = "/v2/models/mlp/infer"
REGION = "/v2/systemsharedmemory/region"
PREFIX = f"/test-{os.getpid()}-"
MLP_BYTES = 1024


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = copy_models(
        tmp_path_factory.mktemp("models") / "models",
        [MODELS / "mlp", MODELS / "digits", FIXTURES / "add_sub", BYTES_MODEL],
    )
    cached = {"response_cache": {"enable": True}}
    (models / "digits" / "config.json").write_text(json.dumps(cached))
    unix = str(models / "s.sock")
    with Server(models, "--tcp-shm", "on", unix=unix) as server:
        yield server


@pytest.fixture
def client(served: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(served.url, concurrency=4) as one:
        yield one
        one.unregister_system_shared_memory()


@pytest.fixture
def region(client: triton.InferenceServerClient) -> Iterator[Any]:
    """region("in", 100): made and registered; its handle."""
    handles = []

    def make(name: str, size: int, registered: int | None = None) -> Any:
        handles.append(shm.create_shared_memory_region(name, PREFIX + name, size))
        client.register_system_shared_memory(name, PREFIX + name, registered or size)
        return handles[-1]

    yield make
    for handle in handles:
        shm.destroy_shared_memory_region(handle)


def in_region(name: str, array: np.ndarray, datatype: str, region: str, offset: int = 0) -> Any:
    one = triton.InferInput(name, list(array.shape), datatype)
    size = len(serialize_byte_tensor(array).item()) if datatype == "BYTES" else array.nbytes
    one.set_shared_memory(region, size, offset)
    return one


def to_region(name: str, region: str, size: int, offset: int = 0) -> Any:
    one = triton.InferRequestedOutput(name)
    one.set_shared_memory(region, size, offset)
    return one


def direct(client: Any, model: str, arrays: dict[str, np.ndarray], output: str) -> np.ndarray:
    inputs = []
    for name, array in arrays.items():
        datatype = "BYTES" if array.dtype == np.object_ else "FP32"
        one = triton.InferInput(name, list(array.shape), datatype)
        one.set_data_from_numpy(array)
        inputs.append(one)
    return client.infer(model, inputs).as_numpy(output)


def test_inputs_and_outputs_lie_in_regions(client: Any, region: Any) -> None:
    rows = np.random.default_rng(3).random((3, 256), np.float32)
    into, out = region("in", rows.nbytes + 64), region("out", 4096)
    shm.set_shared_memory_region(into, [rows], offset=8)
    result = client.infer(
        "mlp",
        [in_region("input", rows, "FP32", "in", 8)],
        outputs=[to_region("output", "out", 120, 40)],
    )
    said = result.get_output("output")
    assert said == {"name": "output", "datatype": "FP32", "shape": [3, 10]}
    got = shm.get_contents_as_numpy(out, np.float32, [3, 10], offset=40)
    assert np.array_equal(got, direct(client, "mlp", {"input": rows}, "output"))
    assert not bytes(shm.get_contents_as_numpy(out, np.uint8, [40])).strip(b"\0")
    assert not bytes(shm.get_contents_as_numpy(out, np.uint8, [100], offset=160)).strip(b"\0")


def test_the_status_is_that_of_the_regions(client: Any, region: Any) -> None:
    region("a", 100)
    region("b", 5000, 4097)
    every = [
        {"name": "a", "key": PREFIX + "a", "offset": 0, "byte_size": 100},
        {"name": "b", "key": PREFIX + "b", "offset": 0, "byte_size": 4097},
    ]
    assert client.get_system_shared_memory_status() == every
    assert client.get_system_shared_memory_status("b") == every[1:]
    client.unregister_system_shared_memory("a")
    assert client.get_system_shared_memory_status() == every[1:]
    with pytest.raises(InferenceServerException, match="region 'a'.*not registered"):
        client.get_system_shared_memory_status("a")


def test_the_aio_client_uses_regions_too(served: Server, region: Any) -> None:
    rows = np.ones((1, 256), np.float32)
    shm.set_shared_memory_region(region("in", rows.nbytes), [rows])

    async def ask() -> Any:
        async with triton_aio.InferenceServerClient(served.url) as client:
            answer = await client.infer("mlp", [in_region("input", rows, "FP32", "in")])
            await client.unregister_system_shared_memory("in")
            assert await client.get_system_shared_memory_status() == []
            await client.unregister_cuda_shared_memory()
            assert await client.get_cuda_shared_memory_status() == []
            return answer.as_numpy("output")

    with triton.InferenceServerClient(served.url) as client:
        assert np.array_equal(asyncio.run(ask()), direct(client, "mlp", {"input": rows}, "output"))


def test_texts_go_both_ways(client: Any, region: Any) -> None:
    texts = np.array([b"a", b"", "ä€".encode(), b"x" * 300], np.object_)
    size = len(serialize_byte_tensor(texts).item())
    into, out = region("in", 1000), region("out", 1000)
    shm.set_shared_memory_region(into, [serialize_byte_tensor(texts)])
    name = client.get_model_metadata("identity_bytes")
    source, target = name["inputs"][0]["name"], name["outputs"][0]["name"]
    inputs = [in_region(source, texts, "BYTES", "in")]
    client.infer("identity_bytes", inputs, outputs=[to_region(target, "out", 1000)])
    got = shm.get_contents_as_numpy(out, np.object_, texts.shape)
    assert (got == texts).all()
    with pytest.raises(InferenceServerException, match=f"has {size} bytes.*is {size - 1}"):
        client.infer("identity_bytes", inputs, outputs=[to_region(target, "out", size - 1)])


def test_a_cached_answer_is_that_of_the_bytes_in_the_region(client: Any, region: Any) -> None:
    sizes = client.get_model_metadata("digits")
    source, target = sizes["inputs"][0], sizes["outputs"][0]["name"]
    shape = [1, *source["shape"][1:]]
    into, out = region("in", 100_000), region("out", 4096)
    for fill in (0.25, 0.75, 0.25):
        rows = np.full(shape, fill, np.float32)
        shm.set_shared_memory_region(into, [rows])
        client.infer(
            "digits",
            [in_region(source["name"], rows, "FP32", "in")],
            outputs=[to_region(target, "out", 4096)],
        )
        wanted = direct(client, "digits", {source["name"]: rows}, target)
        got = shm.get_contents_as_numpy(out, wanted.dtype, wanted.shape)
        assert np.array_equal(got, wanted), fill
    stats = client.get_inference_statistics("digits")["model_stats"][0]["inference_stats"]
    assert stats["cache_hit"]["count"] >= 1


def test_an_address_that_is_no_multiple_of_the_elements_size_is_taken(
    client: Any, region: Any
) -> None:
    rows = np.random.default_rng(5).random((1, 256), np.float32)
    into = region("in", 2000)
    for offset in (1, 2, 3, 7):
        shm.set_shared_memory_region(into, [rows], offset=offset)
        result = client.infer("mlp", [in_region("input", rows, "FP32", "in", offset)])
        wanted = direct(client, "mlp", {"input": rows}, "output")
        assert np.array_equal(result.as_numpy("output"), wanted)
    # A region itself may begin anywhere, too.
    shm.set_shared_memory_region(into, [rows], offset=13)
    client.register_system_shared_memory("odd", PREFIX + "in", 1024, offset=13)
    result = client.infer("mlp", [in_region("input", rows, "FP32", "odd")])
    assert np.array_equal(result.as_numpy("output"), wanted)


def test_places_outside_a_region_are_refused(client: Any, region: Any) -> None:
    rows = np.ones((1, 256), np.float32)
    region("in", 2000)
    for offset in (977, 2000, 2**64 - 1, 2**63):
        with pytest.raises(InferenceServerException, match="end beyond its 2000 bytes"):
            client.infer("mlp", [in_region("input", rows, "FP32", "in", offset)])
    good = triton.InferInput("input", [1, 256], "FP32").set_data_from_numpy(rows)
    with pytest.raises(InferenceServerException, match="end beyond its 2000 bytes"):
        client.infer("mlp", [good], outputs=[to_region("output", "in", 40, 1961)])
    with pytest.raises(InferenceServerException, match="region 'none'.*not registered") as caught:
        client.infer("mlp", [in_region("input", rows, "FP32", "none")])
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="has 40 bytes.*is 39"):
        client.infer("mlp", [good], outputs=[to_region("output", "in", 39)])
    assert client.infer("mlp", [good]).as_numpy("output").shape == (1, 10)


def post(server: Server, path: str, body: str | bytes) -> Reply:
    data = body if isinstance(body, bytes) else body.encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    with server.connect() as connection:
        connection.send(head.encode() + data)
        return connection.reply()


REFUSED = {
    "no body": ("", 400, "key: got none"),
    "no object": ("[]", 400, "no JSON object"),
    "no JSON": ("{", 400, "no JSON object"),
    "no key": ('{"byte_size": 1}', 400, "key: got none"),
    "a key that is a number": ('{"key": 1, "byte_size": 1}', 400, "key: got 1"),
    "a path": ('{"key": "../etc/passwd", "byte_size": 1}', 400, "without a slash"),
    "a path below": ('{"key": "/a/b", "byte_size": 1}', 400, "without a slash"),
    "a NUL": ('{"key": "a\\u0000b", "byte_size": 1}', 400, "without a slash"),
    "no such object": ('{"key": "/none-of-ours", "byte_size": 1}', 400, "no such"),
    "the server's own": ('{"key": "/lumen-0-1.counters", "byte_size": 1}', 403, "server's own"),
    "size 0": ('{"key": "KEY", "byte_size": 0}', 400, "byte_size is 0"),
    "no size": ('{"key": "KEY"}', 400, "byte_size is 0"),
    "a size below 0": ('{"key": "KEY", "byte_size": -1}', 400, "byte_size: got -1"),
    "a size with a point": ('{"key": "KEY", "byte_size": 1.5}', 400, "byte_size: got 1.5"),
    "a size as text": ('{"key": "KEY", "byte_size": "1"}', 400, 'byte_size: got "1"'),
    "a size beyond 64 bits": (
        '{"key": "KEY", "byte_size": 18446744073709551616}',
        400,
        "byte_size",
    ),
    "beyond the object": ('{"key": "KEY", "byte_size": 4097}', 400, "beyond the 4096 bytes"),
    "an offset behind it": ('{"key": "KEY", "offset": 4096, "byte_size": 1}', 400, "beyond"),
    "a sum beyond 64 bits": (
        '{"key": "KEY", "offset": 18446744073709551615, "byte_size": 2}',
        400,
        "beyond the 4096 bytes",
    ),
    "more than there is memory": (
        '{"key": "KEY", "byte_size": 18446744073709551615}',
        429,
        "this machine's memory",
    ),
    "nested deeply": ('{"key": ' + "[" * 50_000 + "]" * 50_000 + "}", 400, "nested"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_registration_that_means_nothing_is_refused(
    served: Server, client: Any, region: Any, name: str
) -> None:
    region("page", 4096)
    body, status, words = REFUSED[name]
    reply = post(served, f"{REGION}/attack/register", body.replace("KEY", PREFIX + "page"))
    assert (reply.status, words in reply.error) == (status, True), reply
    assert [one["name"] for one in client.get_system_shared_memory_status()] == ["page"]


def test_keys_have_the_prefix_and_users_the_bytes_that_are_set(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    flags = ["--tcp-shm", "on", "--shm-key-prefix", (PREFIX + "mine-").lstrip("/")]
    handles = [
        shm.create_shared_memory_region(name, PREFIX + name, 4096) for name in ("mine-1", "other")
    ]
    try:
        with Server(models, *flags, "--shm-user-bytes", "6000") as server:
            with triton.InferenceServerClient(server.url) as client:
                register = client.register_system_shared_memory
                with pytest.raises(InferenceServerException, match="--shm-key-prefix") as caught:
                    register("b", PREFIX + "other", 1024)
                assert caught.value.status() == "403"
                register("a", PREFIX + "mine-1", 4096)
                register("b", (PREFIX + "mine-1").lstrip("/"), 1904)
                with pytest.raises(InferenceServerException, match="6001 bytes, more") as caught:
                    register("c", PREFIX + "mine-1", 1)
                assert caught.value.status() == "429"
                client.unregister_system_shared_memory("b")
                register("c", PREFIX + "mine-1", 1)
    finally:
        for handle in handles:
            shm.destroy_shared_memory_region(handle)


def test_a_name_is_registered_once(client: Any, region: Any) -> None:
    region("once", 100)
    with pytest.raises(InferenceServerException, match="'once' is registered already") as caught:
        client.register_system_shared_memory("once", PREFIX + "once", 50)
    assert caught.value.status() == "400"
    client.unregister_system_shared_memory("once")
    client.register_system_shared_memory("once", PREFIX + "once", 50)
    with pytest.raises(InferenceServerException, match="wanted 1 to 128"):
        client.register_system_shared_memory("n" * 129, PREFIX + "once", 50)


def test_there_are_so_many_regions_and_no_more(client: Any, region: Any) -> None:
    region("one", 100)
    for i in range(1023):
        client.register_system_shared_memory(f"more{i}", PREFIX + "one", 50)
    with pytest.raises(InferenceServerException, match="1024 regions"):
        client.register_system_shared_memory("last", PREFIX + "one", 50)
    client.unregister_system_shared_memory()
    client.register_system_shared_memory("last", PREFIX + "one", 50)


def test_an_object_that_is_made_shorter_is_an_error_and_no_signal(
    served: Server, client: Any, region: Any
) -> None:
    rows = np.ones((256, 256), np.float32)
    into = region("in", rows.nbytes)
    region("out", 65536)
    shm.set_shared_memory_region(into, [rows])
    ask = [in_region("input", rows, "FP32", "in")]
    good = [triton.InferInput("input", [1, 256], "FP32").set_data_from_numpy(rows[:1])]
    client.infer("mlp", ask)
    os.truncate(f"/dev/shm{PREFIX}in", 4096)
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="made shorter"):
            client.infer("mlp", ask)
    os.truncate(f"/dev/shm{PREFIX}out", 0)
    with pytest.raises(InferenceServerException, match="made shorter"):
        client.infer("mlp", good, outputs=[to_region("output", "out", 40)])
    assert client.infer("mlp", good).as_numpy("output").shape == (1, 10)
    served.wait_for_log("has truncated", f"test-{os.getpid()}-in")
    # As the error says: it is registered anew, and serves again.
    os.truncate(f"/dev/shm{PREFIX}in", rows.nbytes)
    client.unregister_system_shared_memory("in")
    client.register_system_shared_memory("in", PREFIX + "in", rows.nbytes)
    shm.set_shared_memory_region(into, [rows])
    client.infer("mlp", ask)


def test_regions_come_and_go_while_requests_use_them(served: Server, region: Any) -> None:
    rows = np.ones((64, 256), np.float32)
    into = region("in", rows.nbytes)
    shm.set_shared_memory_region(into, [rows])
    stop = threading.Event()
    answered, missing = [0], [0]

    def ask() -> None:
        with triton.InferenceServerClient(served.url) as one:
            wanted = direct(one, "mlp", {"input": rows}, "output")
            while not stop.is_set():
                try:
                    got = one.infer("mlp", [in_region("input", rows, "FP32", "in")])
                    assert np.array_equal(got.as_numpy("output"), wanted)
                    answered[0] += 1
                except InferenceServerException as error:
                    assert error.status() == "404", error
                    missing[0] += 1

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for one in threads:
        one.start()
    with triton.InferenceServerClient(served.url) as client:
        for _ in range(200):
            client.unregister_system_shared_memory("in")
            client.register_system_shared_memory("in", PREFIX + "in", rows.nbytes)
    stop.set()
    for one in threads:
        one.join()
    assert answered[0] > 0


def test_over_tcp_it_needs_leave_and_over_the_unix_socket_none(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    unix = str(tmp_path / "s.sock")
    handle = shm.create_shared_memory_region("in", PREFIX + "leave", 1024)
    body = json.dumps({"key": PREFIX + "leave", "byte_size": 1024}).encode()
    register = (
        f"POST {REGION}/in/register HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    status = b"GET /v2/systemsharedmemory/status HTTP/1.1\r\nHost: x\r\n\r\n"
    try:
        with Server(models, unix=unix) as server:
            for request in (register, status):
                with server.connect() as connection:
                    connection.send(request)
                    reply = connection.reply()
                assert reply.status == 403
                assert b"--tcp-shm on" in reply.body
            with UnixConnection(unix) as connection:
                connection.send(register)
                assert connection.reply().status == 200
                connection.send(status)
                assert json.loads(connection.reply().body)[0]["name"] == "in"
                assert infer_in_region(connection).status == 200
            # A region is no secret between two clients: over TCP nobody uses it by its name.
            with server.connect() as connection:
                reply = infer_in_region(connection)
                assert (reply.status, "--tcp-shm on" in reply.error) == (403, True)
    finally:
        shm.destroy_shared_memory_region(handle)


ASK_AS_NOBODY = """
import os, socket, sys
os.setgid(65534), os.setuid(65534)
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
for path, method in (("status", "GET"), ("region/in/unregister", "POST"), ("unregister", "POST")):
    line = f"{method} /v2/systemsharedmemory/{path} HTTP/1.1"
    client.sendall(f"{line}\\r\\nHost: x\\r\\n\\r\\n".encode())
    print(client.recv(65536).decode().replace("\\r\\n", " "))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_sees_no_region_and_takes_none_away(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    handle = shm.create_shared_memory_region("in", PREFIX + "users", 1024)
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are shut to others
    folder.chmod(0o755)
    try:
        with Server(models, "--tcp-shm", "on", unix=str(folder / "s.sock")) as server:
            with triton.InferenceServerClient(server.url) as client:
                client.register_system_shared_memory("in", PREFIX + "users", 1024)
                os.chmod(server.unix_path, 0o666)
                done = subprocess.run(
                    [sys.executable, "-I", "-c", ASK_AS_NOBODY, str(server.unix_path)],
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                assert done.returncode == 0, done.stderr
                status, unregister, unregister_all = done.stdout.splitlines()
                assert " 200 " in status and status.endswith(" []"), status
                assert " 200 " in unregister, unregister
                assert " 200 " in unregister_all
                assert [r["name"] for r in client.get_system_shared_memory_status()] == ["in"]
    finally:
        shm.destroy_shared_memory_region(handle)
        shutil.rmtree(folder)


def infer_in_region(connection: Connection) -> Reply:
    place = {"shared_memory_region": "in", "shared_memory_byte_size": MLP_BYTES}
    tensor = {"name": "input", "shape": [1, 256], "datatype": "FP32", "parameters": place}
    body = json.dumps({"inputs": [tensor]}).encode()
    head = f"POST {MLP} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.send(head.encode() + body)
    return connection.reply()
