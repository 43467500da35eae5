"""HTTP/2 frames by hand, for clients that no library would be."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import hpack
from integration.raw_http import Reply

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9,
)  # fmt: skip
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"
METADATA = "/inference.GRPCInferenceService/ModelMetadata"
WATCH = "/grpc.health.v1.Health/Watch"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(path: str, **changes: str | None) -> bytes:
    """Literals that nobody keeps. `changes`: by name, - as _ but for Triton's; None: left out."""
    headers: dict[str, str | None] = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "test",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    for name, value in changes.items():
        headers[name if name.startswith("triton") else name.replace("_", "-")] = value
    block = b""
    for name, value in headers.items():
        if value is not None:
            block += b"\0" + bytes([len(name)]) + name.encode()
            block += string(value.encode())
    return block


def string(value: bytes) -> bytes:
    """RFC 7541, 5.2, without Huffman's code."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest, length = len(value) - 127, b"\x7f"
    while rest >= 128:
        length += bytes([rest % 128 + 128])
        rest //= 128
    return length + bytes([rest]) + value


def call(stream: int, path: str, body: bytes, **changes: str | None) -> bytes:
    """A whole call; `body` as it goes over the wire, up to 16 KiB."""
    head = frame(HEADERS, END_HEADERS, stream, header_block(path, **changes))
    return head + frame(DATA, END_STREAM, stream, body)


def rest(
    stream: int,
    method: str,
    path: str,
    body: bytes = b"",
    cuts: Iterable[int] = (),
    **changes: str | None,
) -> bytes:
    """A whole request that is no call. `cuts`: where a frame of the body ends, 16 KiB apart at
    most."""
    headers = {":method": method, "content-type": None, "te": None, **changes}
    flags = END_HEADERS if body else END_HEADERS | END_STREAM
    frames = frame(HEADERS, flags, stream, header_block(path, **headers))
    ends = [*sorted(set(cuts)), len(body)] if body else []
    begin = 0
    for end in ends:
        is_last = end == len(body)
        frames += frame(DATA, END_STREAM if is_last else 0, stream, body[begin:end])
        begin = end
    return frames


def message(payload: bytes) -> bytes:
    return struct.pack(">BI", 0, len(payload)) + payload


def varint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value % 128 + 128])
        value //= 128
    return out + bytes([value])


def bytes_field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def identity(tensor: bytes, name: bytes = b"") -> bytes:
    """A ModelInferRequest with its prefix; the length of its id moves the tensor within it."""
    shape = b"\x01" + varint(len(tensor) // 4)
    given = bytes_field(1, b"input") + bytes_field(2, b"FP32") + bytes_field(3, shape)
    return message(
        bytes_field(1, b"identity")
        + bytes_field(3, name)
        + bytes_field(5, given)
        + bytes_field(7, tensor)
    )


@dataclass
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Connection:
    """`address`: of TCP, or the path of a unix socket."""

    def __init__(self, address: tuple[str, int] | str, *, begin: bool = True) -> None:
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(20)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout=20)
        self.table = hpack.Decoder()
        if begin:
            self.send(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, frames: bytes) -> None:
        self.socket.sendall(frames)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the server has closed")
            data += more
        return data

    def frames(self) -> Iterator[Frame]:
        """Until the server closes."""
        try:
            while True:
                head = self.read(9)
                length = int.from_bytes(head[:3], "big")
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                one = Frame(kind, flags, stream, self.read(length))
                if kind == HEADERS:
                    one.headers = {str(k): str(v) for k, v in self.table.decode(one.payload)}
                yield one
        except ConnectionError:
            return

    def take_settings(self) -> None:
        """The server's count from here on: its window for a stream, for one."""
        assert next(self.frames()).kind == SETTINGS
        self.send(frame(SETTINGS, ACK, 0))

    def end_of_data(self, stream: int) -> list[Frame]:
        """Up to the stream's next frame of data."""
        found = []
        for one in self.frames():
            found.append(one)
            if one.kind in (GOAWAY, RST_STREAM) or (one.kind == DATA and one.stream == stream):
                break
        return found

    def reply(self, stream: int) -> Reply:
        """The whole one of a request that is no call; the windows are kept open."""
        reply = Reply(0)
        for one in self.frames():
            if one.kind == DATA and one.payload:
                update = struct.pack(">I", len(one.payload))
                self.send(frame(WINDOW_UPDATE, 0, 0, update))
                if not one.flags & END_STREAM:
                    self.send(frame(WINDOW_UPDATE, 0, one.stream, update))
            if one.stream != stream:
                continue
            assert one.kind in (HEADERS, DATA, RST_STREAM, WINDOW_UPDATE), one
            if one.kind == RST_STREAM:
                raise ConnectionResetError(int.from_bytes(one.payload, "big"))
            if one.kind == HEADERS:
                reply.status = int(one.headers.pop(":status"))
                reply.headers = one.headers
            if one.kind == DATA:
                reply.body += one.payload
            if one.kind in (HEADERS, DATA) and one.flags & END_STREAM:
                return reply
        raise ConnectionError("the server has closed")

    def end_of(self, stream: int) -> list[Frame]:
        """The frames of a stream and of the connection, until one of them ends."""
        found = []
        for one in self.frames():
            if one.stream in (0, stream):
                found.append(one)
            ends = one.kind == RST_STREAM or bool(
                one.kind in (DATA, HEADERS) and one.flags & END_STREAM
            )
            if one.kind == GOAWAY or (one.stream == stream and ends):
                break
        return found
