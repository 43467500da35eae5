"""Tensors of gRPC that are received to their places: large frames, cut and mixed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import MODELS, Server, copy_models, eventually, has_io_uring
from integration.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INFER,
    LIVE,
    RST_STREAM,
    SETTINGS,
    STREAM_INFER,
    WINDOW_UPDATE,
    Connection,
    call,
    frame,
    header_block,
    identity,
    message,
)

PADDED = 8
INITIAL_WINDOW_SIZE = 4
LARGE = 600_000


def some_floats(seed: int, count: int) -> bytes:
    return np.random.default_rng(seed).random(count, np.float32).tobytes()


@pytest.fixture(params=["epoll", "io_uring"])
def loop(request: pytest.FixtureRequest) -> str:
    missing = request.param == "io_uring" and not has_io_uring()
    return "auto" if missing else str(request.param)


@pytest.fixture
def served(server: Any, tmp_path: Path, loop: str) -> Iterator[Server]:
    models = copy_models(tmp_path / "identity_alone", [MODELS / "identity"])
    yield server("--loop", loop, "--max-active-requests", "4", repository=models)


def begin(served: Server) -> Connection:
    """Replies may be large, and frames from here on."""
    connection = Connection(served.address)
    connection.take_settings()
    window = struct.pack(">I", 1 << 30)
    connection.send(frame(SETTINGS, 0, 0, struct.pack(">H", INITIAL_WINDOW_SIZE) + window))
    connection.send(frame(WINDOW_UPDATE, 0, 0, window))
    return connection


def some_frames(rng: random.Random, stream: int, body: bytes) -> list[bytes]:
    """The last one ends the stream. A third of them are padded."""
    frames, at = [], 0
    while at < len(body):
        size = rng.choice([1, 5, 100, 16_384, 200_000, LARGE])
        piece = body[at : at + size]
        at += size
        flags = END_STREAM if at >= len(body) else 0
        if rng.random() < 0.3:
            padding = rng.randrange(200)
            piece = bytes([padding]) + piece + b"\0" * padding
            flags |= PADDED
        frames.append(frame(DATA, flags, stream, piece))
    return frames


@pytest.mark.parametrize("seed", range(6))
def test_frames_of_any_size_that_streams_mix_bring_each_its_own_tensor(
    served: Server, seed: int
) -> None:
    rng = random.Random(seed)
    with begin(served) as connection:
        for turn in range(6):
            streams = [2 * (4 * turn + i) + 1 for i in range(rng.randint(1, 4))]
            tensors = {}
            frames: list[list[bytes]] = []
            window = 900_000  # of the connection's 8 MiB, and a stream's 1 MiB
            for stream in streams:
                tensors[stream] = some_floats(
                    1000 * seed + stream, rng.choice([1, 300, 20_000, window // 8])
                )
                body = identity(tensors[stream], b"n" * rng.randrange(64))
                connection.send(frame(HEADERS, END_HEADERS, stream, header_block(INFER)))
                frames.append(some_frames(rng, stream, body))
            mixed = b""
            while any(frames):
                mixed += rng.choice([left for left in frames if left]).pop(0)
            while mixed:
                size = rng.choice([1, 9, 1000, 30_000, 100_000, len(mixed)])
                connection.send(mixed[:size])
                mixed = mixed[size:]
            assert replies(connection, streams) == tensors


def replies(connection: Connection, streams: list[int]) -> dict[int, bytes]:
    """The tensor of each; it is the last part of its message."""
    bodies = {stream: b"" for stream in streams}
    left = set(streams)
    for one in connection.frames():
        assert one.kind not in (GOAWAY, RST_STREAM), one
        if one.kind == DATA:
            bodies[one.stream] += one.payload
        elif one.kind == HEADERS and one.flags & END_STREAM:
            assert one.headers["grpc-status"] == "0", one.headers
            left.discard(one.stream)
        if not left:
            break
    return {stream: body[-tensor_bytes(body) :] for stream, body in bodies.items()}


def tensor_bytes(body: bytes) -> int:
    """By the output's shape [1, n], which stands before it."""
    at = body.index(b"FP32") + 4
    assert body[at] == 3 << 3 | 2 and body[at + 2] == 1
    count, shift, at = 0, 0, at + 3
    while True:
        count |= (body[at] & 127) << shift
        shift += 7
        if body[at] < 128:
            return 4 * count
        at += 1


@pytest.mark.parametrize("method", [INFER, STREAM_INFER])
def test_a_tensor_that_stops_within_its_frame_gives_its_request_back(
    served: Server, method: str
) -> None:
    """More of them than the server has requests: each waits for bytes to its own memory."""
    tensor = some_floats(1, LARGE // 4)
    body = frame(DATA, 0, 1, identity(tensor))
    half = len(body) // 2
    stuck = []
    for _ in range(90):
        connection = begin(served)
        connection.send(frame(HEADERS, END_HEADERS, 1, header_block(method)) + body[:half])
        stuck.append(connection)
    statuses = [end_of_stream(connection, 1) for connection in stuck]
    assert set(statuses) <= {"4", "8"} and "4" in statuses  # too late, or no request for so long
    eventually(lambda: is_served(served, tensor))
    # The rest of the frame is nobody's, least of all that of a request which has the memory now.
    # And the connection serves its next call.
    other_tensor = some_floats(2, LARGE // 4)
    other_body = frame(DATA, END_STREAM, 1, identity(other_tensor))
    for connection in stuck:
        with begin(served) as other:
            head = frame(HEADERS, END_HEADERS, 1, header_block(INFER))
            other.send(head + other_body[: len(other_body) - 50_000])
            connection.send(body[half:] + frame(RST_STREAM, 0, 1, struct.pack(">I", 8)))
            connection.send(call(3, LIVE, message(b"")))
            assert end_of_stream(connection, 3) == "0"
            connection.socket.close()
            other.send(other_body[-50_000:])
            assert replies(other, [1]) == {1: other_tensor}


def end_of_stream(connection: Connection, stream: int) -> str:
    return next(
        one.headers["grpc-status"]
        for one in connection.end_of(stream)
        if one.kind == HEADERS and "grpc-status" in one.headers
    )


def is_served(served: Server, tensor: bytes) -> bool:
    with begin(served) as connection:
        connection.send(frame(HEADERS, END_HEADERS, 1, header_block(INFER)))
        connection.send(frame(DATA, END_STREAM, 1, identity(tensor)))
        return replies(connection, [1]) == {1: tensor}


def test_a_client_that_leaves_within_a_frame_leaves_nothing_behind(served: Server) -> None:
    tensor = some_floats(2, LARGE // 4)
    body = frame(DATA, END_STREAM, 1, identity(tensor))
    rng = random.Random(3)
    for turn in range(100):
        with begin(served) as connection:
            connection.send(frame(HEADERS, END_HEADERS, 1, header_block(INFER)))
            connection.send(body[: rng.randrange(len(body))])
            if turn % 2 == 0:  # a reset, and not an end
                linger = struct.pack("ii", 1, 0)
                connection.socket.setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
    assert is_served(served, tensor)


def test_a_stop_while_a_tensor_comes_ends_in_time(served: Server) -> None:
    body = frame(DATA, END_STREAM, 1, identity(some_floats(4, LARGE // 4)))
    with begin(served) as connection:
        connection.send(frame(HEADERS, END_HEADERS, 1, header_block(INFER)) + body[:100_000])
        served.stop()
    assert served.exit_code == 0


def test_a_goaway_with_a_long_text_ends_its_connection(served: Server) -> None:
    """Its text is the only part of a frame that nghttp2 keeps: a frame may have 1 MiB here."""
    with begin(served) as connection:
        connection.send(
            call(1, LIVE, message(b""))
        )  # behind its answer the larger frames are known
        assert end_of_stream(connection, 1) == "0"
        connection.send(frame(GOAWAY, 0, 0, b"\0" * 8 + b"x" * 500_000))
        last = list(connection.frames())[-1:]
        # Or reset, where bytes were still to come. 11: calm.
        assert not last or (last[0].kind == GOAWAY and last[0].payload[7] == 11), last
