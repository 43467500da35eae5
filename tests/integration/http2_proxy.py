"""nghttpx in front of a server: its clients speak HTTP/1.1, and it speaks HTTP/2 to the server."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from contextlib import closing
from typing import Any

from integration.harness import PATIENCE, ROOT, Server, eventually

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Proxy:
    """`with Proxy(server) as proxy:`; proxy.url is HOST:PORT. `unix`: to the server's socket."""

    def __init__(self, server: Server, *, unix: bool = False) -> None:
        self.port = free_port()
        self.url = f"127.0.0.1:{self.port}"
        host, port = server.address
        backend = f"unix:{server.unix_path}" if unix else f"{host},{port}"
        program = judge_programs.debian_program("nghttpx")
        words = [str(program), "--conf=/dev/null", "--workers=1", "--errorlog-file=/dev/stderr"]
        words += [f"--frontend=127.0.0.1,{self.port};no-tls", f"--backend={backend};;proto=h2"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        eventually(self._listens, lambda: f"{words}: {self.process.poll()}")

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()[1]
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20 * PATIENCE)

    def ask(self, method: str, path: str, body: bytes | None, **more: Any) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as client:
            client.request(method, path, body, **more)
            reply = client.getresponse()
            return reply.status, reply.read()
