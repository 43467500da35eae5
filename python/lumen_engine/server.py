"""Starts a Lumen server, waits until it is ready, and stops it.

Of one thread; a second one, its own, only drains the server's output, which would block the server
once the pipe is full. Says no by ServerError with what the server printed.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

# One of the two at least; the path comes last because it may hold spaces.
READY = re.compile(
    r"^lumen: ready(?= http=| unix=)(?: http=(?P<host>\S*):(?P<port>\d+))?(?: unix=(?P<unix>.+))?$"
)


class ServerError(RuntimeError):
    """The server could not be started, or did not stop as it should."""


def find_executable() -> Path:
    """`lumen` of this Python's environment, then of PATH; LUMEN_BINARY overrides both."""
    named = os.environ.get("LUMEN_BINARY")
    beside = Path(sysconfig.get_path("scripts")) / "lumen"
    for candidate in (named, str(beside), shutil.which("lumen")):
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise ServerError("no executable `lumen`: run `pip install .` or ./dev build")


class Server:
    """`with Server("models/") as server: ... server.url ...`

    `http` is HOST:PORT (port 0: a free one) or "off"; `unix` a path or "off". Off is the default:
    the server's own default path is for the one server that a user means to find there.
    `arguments` go to `lumen serve` as they are. Leaving the block sends SIGTERM and waits for the
    drain; an exit status other than 0 raises.
    """

    def __init__(
        self,
        model_repository: str | os.PathLike[str],
        arguments: Sequence[str] = (),
        *,
        executable: str | os.PathLike[str] | None = None,
        http: str = "127.0.0.1:0",
        unix: str | os.PathLike[str] = "off",
        env: dict[str, str] | None = None,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 30.0,
    ) -> None:
        self.host = ""
        self.port = 0
        self.unix_path = ""
        self.exit_code: int | None = None
        self._stop_timeout_s = stop_timeout_s
        self._lines: list[str] = []
        words = [str(executable or find_executable()), "serve", "--http", http]
        words += ["--unix", os.fspath(unix)]
        words += ["--model-repository", os.fspath(model_repository), *arguments]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
        try:
            self._wait_until_ready(start_timeout_s)
        except BaseException:
            self.kill()
            raise
        self._drainer = threading.Thread(target=self._drain, daemon=True)
        self._drainer.start()

    @property
    def url(self) -> str:
        """HOST:PORT, the form that tritonclient takes; empty without TCP."""
        return f"{self.host}:{self.port}" if self.port else ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """What the server has printed so far, standard output and error together."""
        return "".join(self._lines)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        """SIGHUP makes the server read its --config file again."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM, drain, exit status 0. A second call does nothing."""
        if self.exit_code is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self.exit_code = self._process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(
                f"lumen didn't exit within {self._stop_timeout_s} s of SIGTERM:\n{self.output}"
            ) from None
        self._drainer.join(5)
        if self.exit_code != 0:
            raise ServerError(f"lumen exited with {self.exit_code}, wanted 0:\n{self.output}")

    def kill(self) -> None:
        self._process.kill()
        self.exit_code = self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()

    def _wait_until_ready(self, timeout_s: float) -> None:
        """Reads the pipe unbuffered: select() can't see what a buffered reader holds back."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        end = time.monotonic() + timeout_s
        pending = b""
        while time.monotonic() < end:
            readable, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(pipe, 65536) if readable else b""
            if readable and not chunk:
                code = self._process.wait()
                raise ServerError(f"lumen exited with {code} before it was ready:\n{self.output}")
            pending += chunk
            *complete, pending = pending.split(b"\n")
            for line in complete:
                self._lines.append(line.decode(errors="replace") + "\n")
                match = READY.search(self._lines[-1])
                if match:
                    self.host, self.port = match["host"] or "", int(match["port"] or 0)
                    self.unix_path = match["unix"] or ""
                    self._lines.append(pending.decode(errors="replace"))
                    return
        raise ServerError(f"lumen wasn't ready within {timeout_s} s:\n{self.output}")

    def _drain(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line.decode(errors="replace"))
