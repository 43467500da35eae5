"""Starts a Lumen server, waits until it is ready, and stops it.

Of one thread, and one of its own for each of the server's two outputs, which would block the server
once their pipes are full. Errors: ServerError with the server's output.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

# One of the two at least; the path comes last because it may hold spaces.
READY = re.compile(
    r"^lumen: ready(?= http=| grpc=| unix=| bus=)(?: http=(?P<host>\S*):(?P<port>\d+))?"
    r"(?: grpc=(?P<grpc>\S+))?"
    r"(?: unix=(?P<unix>.+?))?(?: bus=(?P<bus>.+))?$"
)


class ServerError(RuntimeError):
    """The server could not be started, or did not stop as it should."""


def find_executable() -> Path:
    """The executable of the wheel, `lumen` of this Python's environment, then of PATH; LUMEN_BINARY
    overrides all."""
    named = os.environ.get("LUMEN_BINARY")
    of_wheel = Path(__file__).parent / "bin" / "lumen"
    beside = Path(sysconfig.get_path("scripts")) / "lumen"
    for candidate in (named, str(of_wheel), str(beside), shutil.which("lumen")):
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise ServerError(
        "no executable `lumen`: run `pip install lumen-engine`, or ./dev build in a checkout"
    )


class Server:
    """`with Server("models/") as server: ... server.url ...`

    `http` is HOST:PORT (port 0: a free one) or "off"; `unix` a path or "off". Off is the default:
    the server's own default path is for the one server that a user means to find there. None of
    these three leaves it to `arguments`, which go to `lumen serve` as they are, or to its defaults.
    `under` are words in front of all others: `valgrind` and its options.
    `log_file` gets the server's output, both streams together, so that a server may be let go and
    outlive this process. `held` is entered while the process is made, and a signal handler's
    exception that it raises at its end ends the server. `popen` is for subprocess.Popen: `cwd`,
    `umask` and such. Leaving the block sends SIGINT and waits for the drain; an exit status other
    than 0 raises.
    """

    def __init__(
        self,
        model_repository: str | os.PathLike[str] | None,
        arguments: Sequence[str] = (),
        *,
        executable: str | os.PathLike[str] | None = None,
        http: str | None = "127.0.0.1:0",
        unix: str | os.PathLike[str] | None = "off",
        bus: str | os.PathLike[str] | None = "off",
        env: dict[str, str] | None = None,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 30.0,
        log_file: str | os.PathLike[str] | None = None,
        under: Sequence[str] = (),
        held: AbstractContextManager[None] | None = None,
        **popen: Any,
    ) -> None:
        self.host = ""
        self.port = 0
        self.grpc_address = ""  # HOST:PORT of `--grpc`
        self.unix_path = ""
        self.bus_path = ""
        self.exit_code: int | None = None
        self.banner: list[str] = []  # lines of the standard output
        self.log: list[str] = []  # lines of the standard error
        self._stop_timeout_s = stop_timeout_s
        self._news = threading.Condition()  # a line more, or the end of an output
        words = [*under, str(executable or find_executable()), "serve"]
        flags = {
            "--http": http,
            "--unix": unix,
            "--bus": bus,
            "--model-repository": model_repository,
        }
        for flag, value in flags.items():
            words += [flag, os.fspath(value)] if value is not None else []
        made: list[subprocess.Popen[str]] = []
        try:
            with ExitStack() as stack:
                out, error = subprocess.PIPE, subprocess.PIPE
                if log_file is not None:
                    out = stack.enter_context(open(log_file, "w")).fileno()
                    error = subprocess.STDOUT
                stack.enter_context(held or nullcontext())
                self.process = subprocess.Popen(
                    [*words, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=error,
                    text=True,
                    errors="replace",
                    env={**os.environ, **(env or {})},
                    **popen,
                )
                made.append(self.process)
            self._begin_to_read(log_file)
            self._wait_until_ready(start_timeout_s)
        except BaseException:
            if made:
                self.kill()
            raise

    def _begin_to_read(self, log_file: str | os.PathLike[str] | None) -> None:
        outputs: list[tuple[Iterable[str], list[str]]] = []
        if log_file is not None:
            outputs.append((self._follow(log_file), self.banner))
        else:
            assert self.process.stdout is not None and self.process.stderr is not None
            outputs.append((self.process.stdout, self.banner))
            outputs.append((self.process.stderr, self.log))
        self._reading = len(outputs)
        for read_lines in outputs:
            threading.Thread(target=self._read, args=read_lines, daemon=True).start()

    @property
    def url(self) -> str:
        """HOST:PORT, the form that tritonclient takes; empty without TCP."""
        return f"{self.host}:{self.port}" if self.port else ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """The server's output so far: its standard output, then its standard error."""
        return "".join(f"{line}\n" for line in [*self.banner, *self.log])

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: int) -> None:
        """SIGHUP makes the server read its --config file again."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """SIGINT, drain, exit status 0. A second call does nothing. After SIGTERM the server would
        serve on for its --drain-delay-ms."""
        if self.exit_code is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.exit_code = self.process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(
                f"lumen didn't exit within {self._stop_timeout_s} s of SIGINT:\n{self.output}"
            ) from None
        self._wait_for_the_last_line()
        if self.exit_code != 0:
            raise ServerError(f"lumen exited with {self.exit_code}, wanted 0:\n{self.output}")

    def kill(self) -> None:
        self.process.kill()
        self.exit_code = self.process.wait()

    def let_go(self) -> None:
        """The server goes on without us; not without `log_file`: a pipe ends with its reader."""
        self.exit_code = 0

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

    def _follow(self, file: str | os.PathLike[str]) -> Iterator[str]:
        """The lines of a file that the server writes, until it has ended."""
        line = ""
        with open(file, errors="replace") as grown:
            while True:
                ended = self.process.poll() is not None
                line += grown.readline()
                if line.endswith("\n"):
                    yield line
                    line = ""
                elif ended:
                    return
                else:
                    time.sleep(0.02)

    def _read(self, printed: Iterable[str], lines: list[str]) -> None:
        for line in printed:
            with self._news:
                lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._reading -= 1
            self._news.notify_all()

    def _wait_for_the_last_line(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._reading == 0, 5)

    def _ready_line(self) -> re.Match[str] | None:
        return next((match for line in self.banner if (match := READY.search(line))), None)

    def _wait_until_ready(self, timeout_s: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._ready_line() or self._reading == 0, timeout_s)
            match = self._ready_line()
            ended = self._reading == 0
        if match is not None:
            self.host, self.port = match["host"] or "", int(match["port"] or 0)
            self.grpc_address = match["grpc"] or ""
            self.unix_path = match["unix"] or ""
            self.bus_path = match["bus"] or ""
        elif ended:
            code = self.process.wait()
            raise ServerError(f"lumen exited with {code} before it was ready:\n{self.output}")
        else:
            raise ServerError(f"lumen wasn't ready within {timeout_s} s:\n{self.output}")
