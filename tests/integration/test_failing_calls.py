"""The N-th call of a kind fails, for each N: the server answers or ends that one request or call,
lives on, and serves the next as if nothing had been."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from integration.harness import MODELS, SANITIZED, Server, copy_models, eventually, preloaded
from integration.load import infer_bytes, output_bytes
from integration.raw_http import Connection, get, post_json

pytestmark = pytest.mark.skipif(SANITIZED, reason="its allocator and interceptors come first")

NAMES = ("accept", "read", "write", "open", "mmap", "malloc")
KINDS = {name: number for number, name in enumerate(NAMES, 1)}
ROW = np.arange(256, dtype=np.float32).reshape(1, 256) / 256
RT_SIGTIMEDWAIT = 128  # x86-64
ENOUGH = 400  # calls of one kind; no operation here has as many but mallocs


class Faults:
    """The words of failing_calls.c."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(12))
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 12)

    def arm(self, kind: str, number: int) -> None:
        self._map[:12] = struct.pack("<IiI", 0, number, 0)
        self._map[:4] = struct.pack("<I", KINDS[kind])

    def disarm(self) -> int:
        """How many calls have failed."""
        self._map[:4] = bytes(4)
        return int(struct.unpack("<I", self._map[8:12])[0])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    source = Path(__file__).parent / "failing_calls.c"
    return preloaded(tmp_path_factory.mktemp("preload"), source)


@pytest.fixture(params=["openvino", "onnxruntime"])
def served(
    request: pytest.FixtureRequest, tmp_path: Path, library: dict[str, str]
) -> Iterator[tuple[Server, Faults]]:
    models = copy_models(tmp_path / "models", [MODELS / "mlp", MODELS / "identity"])
    faults = Faults(tmp_path / "faults")
    env = {**os.environ, **library, "LUMEN_FAILING_CALLS": str(tmp_path / "faults")}
    # io_uring's calls are not the C library's.
    words = ("--loop", "epoll", "--tcp-control", "on", "--backend", request.param)
    with Server(models, *words, env=env) as server:
        # It is ready a moment before its start is over: the main thread then waits for signals.
        call = Path("/proc") / str(server.pid) / "syscall"
        eventually(lambda: call.read_text().startswith(f"{RT_SIGTIMEDWAIT} "))
        yield server, faults


def infer(server: Server) -> bytes:
    with Connection(server.address) as connection:
        return output_bytes(connection.exchange(infer_bytes("mlp", "input", ROW)))


def attempt(server: Server, request: bytes) -> int | None:
    """The status; None: the connection was ended."""
    try:
        with Connection(server.address) as connection:
            return connection.exchange(request).status
    except (OSError, AssertionError):
        return None


def numbers(most: int) -> Iterator[int]:
    """Each of the first, then ever fewer."""
    number = 0
    while number < most:
        yield number
        number += 1 + number // 12


def fail_each(
    served: tuple[Server, Faults], kind: str, request: bytes, allowed: set[int | None], most: int
) -> int:
    """How many calls have failed in all."""
    server, faults = served
    wanted = infer(server)
    failed = 0
    for number in numbers(most):
        faults.arm(kind, number)
        status = attempt(server, request)
        hit = faults.disarm()
        assert status in (allowed if hit else {200}), (kind, number, status, server.log[-3:])
        assert infer(server) == wanted, (kind, number)
        failed += hit
        if not hit:
            break
    return failed


INFER = infer_bytes("mlp", "input", ROW)
REQUESTS = {
    "infer": INFER,
    "metrics": get("/metrics"),
    "index": post_json("/v2/repository/index", {}),
    "settings": post_json("/v2/logging", {"log_info": True}),
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("kind", ["accept", "read", "write"])
def test_a_connection_may_end_and_nothing_else(
    served: tuple[Server, Faults], kind: str, name: str
) -> None:
    assert fail_each(served, kind, REQUESTS[name], {None, 200}, ENOUGH) > 0


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("kind", ["malloc", "mmap"])
def test_a_request_without_memory_is_an_error_of_its_own(
    served: tuple[Server, Faults], kind: str, name: str
) -> None:
    failed = fail_each(served, kind, REQUESTS[name], {200, 429, 500, 503}, ENOUGH)
    if kind == "malloc" and name == "infer":
        assert failed == 0, "the data plane allocates nothing"


# Not "malloc": nlohmann-json, which reads and writes the kept choices, ends the process where its
# constructors and destructors find no memory.
@pytest.mark.parametrize("kind", ["open", "read", "mmap"])
def test_a_load_that_fails_leaves_the_old_model_serving(
    served: tuple[Server, Faults], kind: str, tmp_path: Path
) -> None:
    server, faults = served
    file = tmp_path / "models" / "mlp" / "1" / "model.onnx"
    again = tmp_path / "again"

    def touch() -> None:
        again.write_bytes(file.read_bytes())
        again.replace(file)

    wanted = infer(server)
    load = post_json("/v2/repository/models/mlp/load", {})
    failed = 0
    for number in numbers(ENOUGH):
        touch()
        faults.arm(kind, number)
        status = attempt(server, load)
        hit = faults.disarm()
        # A read that fails may be the connection's.
        assert status is not None or kind == "read", (kind, number)
        assert hit or status == 200, (kind, number, status)
        assert infer(server) == wanted, (kind, number)
        failed += hit
        if not hit:
            break
    assert failed > 0
    touch()
    assert attempt(server, load) == 200
    before = descriptors(server)
    touch()
    assert attempt(server, load) == 200
    eventually(lambda: descriptors(server) <= before)


def descriptors(server: Server) -> int:
    return len(list((Path("/proc") / str(server.pid) / "fd").iterdir()))
