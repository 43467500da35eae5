"""Requests to a server's control calls, by its unix socket: for `lumen record`, `load` and others.

Threads: one. Errors: ControlError, whose text names the fault and the fix.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

REPLY_SECONDS = 60.0  # the server may be loading a model


class ControlError(RuntimeError):
    """Its text names the fault and the fix."""


def default_socket() -> str:
    folder = os.environ.get("XDG_RUNTIME_DIR")
    if not folder:
        raise ControlError(
            "XDG_RUNTIME_DIR is not set: name the server's socket by --unix PATH (its banner names"
            " it as unix=PATH; if it does not, the server has none: start it with --unix PATH)"
        )
    return str(Path(folder) / "lumen.sock")


class UnixHttpConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Control:
    """A connection to the server whose unix socket is `path`."""

    def __init__(self, path: str, reply_seconds: float | None = REPLY_SECONDS) -> None:
        self._path = path
        self._connection = UnixHttpConnection(path, reply_seconds)

    def ask(self, path: str, body: Any = None, method: str = "") -> bytes:
        """The reply's body. `body`: as JSON; without one and a method: GET."""
        try:
            text = None if body is None else json.dumps(body).encode()
            self._connection.request(method or ("GET" if text is None else "POST"), path, text)
            reply = self._connection.getresponse()
            content = reply.read()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or error or type(error).__name__
            raise ControlError(f"unix socket {self._path}: {reason}") from error
        if reply.status != 200:
            raise ControlError(str(json.loads(content)["error"]))
        return content

    def json(self, path: str, body: Any = None, method: str = "") -> Any:
        return json.loads(self.ask(path, body, method))
