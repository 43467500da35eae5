"""A reverse proxy that shows one server under a path and a name of its own, for tests.

Passes on the path and the Host header unchanged, and websockets; other paths get a 404 of its own.
A thread a connection; `paths` lists the requested paths.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

HEAD_END = b"\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy(socketserver.ThreadingTCPServer):
    """`prefix` such as /tools/lumen."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, upstream: tuple[str, int], prefix: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = upstream
        self.prefix = prefix
        self.paths: list[str] = []
        self.upgraded = 0

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Handler(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            head = self._read_head()
            if not head:
                return
            path = head.split(b" ", 2)[1].decode()
            self.server.paths.append(path)
            if not (path + "/").startswith(self.server.prefix + "/"):
                self.request.sendall(NOT_FOUND)
                return
            self.server.upgraded += b"upgrade: websocket" in head.lower()
            with socket.create_connection(self.server.upstream) as other:
                other.sendall(self._without_keep_alive(head))
                self._pump(other)

    def _read_head(self) -> bytes:
        data = b""
        while HEAD_END not in data:
            piece = self.request.recv(65536)
            if not piece:
                return b""
            data += piece
        return data

    def _without_keep_alive(self, head: bytes) -> bytes:
        """One request a connection, so that each path is looked at. An upgrade stays as it is."""
        if b"upgrade: websocket" in head.lower():
            return head
        lines = head.split(b"\r\n")
        lines = [line for line in lines if not line.lower().startswith(b"connection:")]
        return b"\r\n".join([lines[0], b"Connection: close", *lines[1:]])

    def _pump(self, other: socket.socket) -> None:
        back = threading.Thread(target=copy, args=(other, self.request), daemon=True)
        back.start()
        copy(self.request, other)
        back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy_to(upstream: tuple[str, int], prefix: str) -> Iterator[Proxy]:
    with Proxy(upstream, prefix) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy
        proxy.shutdown()
