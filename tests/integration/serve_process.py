"""`lumen serve` as a process whose two outputs are apart: the banner on stdout, the log on stderr.

Of one thread, and one of its own that reads the log. Says no by AssertionError with the log so far.
"""

from __future__ import annotations

import os
import queue
import resource
import signal
import socket
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from types import TracebackType

from integration.harness import PATIENCE, lumen_binary
from integration.raw_http import TIMEOUT_S, Connection

READY = "lumen: ready"
# A change of the engine compiles models, and OpenVINO calls mbind() for that, which waits for a
# kernel thread of each CPU (__lru_add_drain_all). Where more threads than CPUs never rest, those
# were seen to wait 20 s for their turn (Linux 6.18), the requests being served meanwhile.
CHANGE_TIMEOUT_S = 180 * PATIENCE


class ServeProcess:
    """`with ServeProcess("--http", "off", ...) as serve:`; the end must be an exit status of 0."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        umask: int = -1,
        descriptors: tuple[int, int] | None = None,
    ) -> None:
        if PATIENCE > 1 and "--max-active-requests" not in arguments:
            arguments = (*arguments, "--max-active-requests", "64")  # as in harness.Server
        without_runtime = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
        # In the child, so that the hard limit of whoever runs the tests stays.
        limit = None
        if descriptors is not None:
            limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, descriptors)
        self.process = subprocess.Popen(
            [str(lumen_binary()), "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**without_runtime, **(env or {})},
            umask=umask,
            preexec_fn=limit,
        )
        self.log: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.banner = self._read_banner()
        self.addresses = dict(word.split("=", 1) for word in self.banner[-1].split()[2:])

    def connect(self) -> Connection:
        """Over TCP."""
        host, _, port = self.addresses["http"].rpartition(":")
        return Connection((host, int(port)))

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def wait_for_log(self, *words: str, timeout_s: float = 30 * PATIENCE) -> str:
        """The next line of the log with all of `words` in it."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no log line with {words}:\n" + "\n".join(self.log)
            if all(word in line for word in words):
                return line

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30 * PATIENCE) == 0, self.log
        self._reader.join(5)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> ServeProcess:
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

    def _read_banner(self) -> list[str]:
        assert self.process.stdout is not None
        killer = threading.Timer(60.0 * PATIENCE, self.process.kill)
        killer.start()
        banner: list[str] = []
        for line in self.process.stdout:
            banner.append(line.rstrip("\n"))
            if line.startswith(READY):
                break
        killer.cancel()
        if not banner or not banner[-1].startswith(READY):
            self.kill()
            self._reader.join(5)
            raise AssertionError("not ready:\n" + "\n".join(banner + self.log))
        return banner

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            self._lines.put(self.log[-1])
        self._lines.put(None)


class UnixConnection(Connection):
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(os.fspath(path))
        self.received = b""


def run_serve(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A start that is to fail."""
    return subprocess.run(
        [str(lumen_binary()), "serve", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60 * PATIENCE,
        **options,  # type: ignore[call-overload]
    )
