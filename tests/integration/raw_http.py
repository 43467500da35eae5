"""HTTP/1.1 by hand over a socket, for bytes that a client library would never send.

One connection a thread. Reads block, bounded by a timeout that only a hung server reaches. Errors:
AssertionError: a reply that is not well-formed HTTP is a failed test.
"""

from __future__ import annotations

import fcntl
import json
import socket
import termios
import time
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 30


@dataclass
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""

    @property
    def error(self) -> str:
        """The text of {"error": ...}; anything else fails the test."""
        assert self.headers.get("content-type", "").startswith("application/json"), self
        document = json.loads(self.body)
        assert list(document) == ["error"] and isinstance(document["error"], str), self
        return document["error"]

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_into_kernel(self, data: bytes) -> None:
        """Until the peer's kernel has acknowledged it, which on a busy machine takes a while."""
        self.send(data)
        self.wait_until_acknowledged()

    def wait_until_acknowledged(self) -> None:
        """By the peer's kernel. It may do that 40 ms after the data: send over all connections
        first."""
        unacknowledged = bytearray(4)
        while True:
            fcntl.ioctl(self.socket, termios.TIOCOUTQ, unacknowledged)
            if not any(unacknowledged):
                return
            time.sleep(0.001)  # sleep: a socket has no event for this

    def finish_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def _more(self) -> bool:
        data = self.socket.recv(1 << 20)
        self.received += data
        return bool(data)

    def _take(self, count: int) -> bytes:
        while len(self.received) < count:
            assert self._more(), f"closed after {len(self.received)} of {count} body bytes"
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def reply(self, head_only: bool = False) -> Reply:
        """The next reply; head_only: it answers a HEAD, so no body follows."""
        while b"\r\n\r\n" not in self.received:
            assert self._more(), f"closed with no whole head: {self.received!r}"
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        status_line, *lines = head.decode("ascii").split("\r\n")
        version, status, _ = (status_line + " ").split(" ", 2)
        assert version == "HTTP/1.1", status_line
        reply = Reply(int(status))
        for line in lines:
            name, separator, value = line.partition(": ")
            assert separator and name.lower() not in reply.headers, line
            reply.headers[name.lower()] = value
        if reply.status >= 200 and not head_only:
            reply.body = self._take(int(reply.headers["content-length"]))
        return reply

    def begin(self, request: bytes) -> bytes:
        """Sends the head of a POST and proves that the server has begun it; returns the body.

        The proof is the answer to `Expect: 100-continue`: no other sign comes before the reply.
        """
        start, separator, body = request.partition(b"\r\n\r\n")
        assert self.exchange(start + b"\r\nExpect: 100-continue" + separator).status == 100
        return body

    def is_closed(self) -> bool:
        """Waits for the server's close; False when bytes come instead (or nothing, in time)."""
        if self.received:
            return False
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def exchange(self, data: bytes) -> Reply:
        self.send(data)
        return self.reply()


def head(method: str, path: str, *lines: str, version: str = "HTTP/1.1") -> bytes:
    return "\r\n".join([f"{method} {path} {version}", "Host: localhost", *lines, "", ""]).encode(
        "latin-1"
    )


def get(path: str, *lines: str) -> bytes:
    return head("GET", path, *lines)


def post(path: str, body: bytes, *lines: str) -> bytes:
    return head("POST", path, f"Content-Length: {len(body)}", *lines) + body


def post_json(path: str, document: Any, *lines: str) -> bytes:
    return post(path, json.dumps(document).encode(), *lines)


def chunked(path: str, chunks: list[bytes], *lines: str) -> bytes:
    framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head("POST", path, "Transfer-Encoding: chunked", *lines) + framed + b"0\r\n\r\n"
