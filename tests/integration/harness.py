"""Shared by the integration tests: model repositories, and a server that can be waited for.

Errors: as lumen_engine.Server has them, ServerError with the server's output.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lumen_engine
from integration.raw_http import TIMEOUT_S, Connection

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
FIXTURES = ROOT / "tests" / "fixtures" / "models"
# A sanitizer build needs minutes where a release build needs seconds.
SANITIZED = os.environ.get("LUMEN_PRESET", "release") in ("asan", "tsan")
PATIENCE = 6 if SANITIZED else 1
# AddressSanitizer keeps a shadow of each request's region, an eighth of it, and touches all of it
# when the arena goes: 18 GB and two minutes with the default of 1024.
SANITIZED_ACTIVE_REQUESTS = 64
# A change of the engine compiles models, and OpenVINO calls mbind() for that, which waits for a
# kernel thread of each CPU (__lru_add_drain_all). Where more threads than CPUs never rest, those
# were seen to wait 20 s for their turn (Linux 6.18), the requests being served meanwhile.
CHANGE_TIMEOUT_S = 180 * PATIENCE


def lumen_binary() -> Path:
    path = Path(os.environ.get("LUMEN_BINARY", ROOT / ".build" / "release" / "lumen"))
    assert path.is_file(), f"no executable {path}: run ./dev build"
    return path


def make_squeezenet() -> None:
    script = MODELS / "squeezenet" / "make.py"
    subprocess.run([sys.executable, script, "--if-missing"], check=True, stdout=subprocess.DEVNULL)


def copy_models(target: Path, sources: Iterable[Path]) -> Path:
    """A repository of its own, with files that a test may change."""
    for source in sources:
        for version in source.iterdir():
            if version.is_dir() and version.name.isdigit():
                shutil.copytree(version, target / source.name / version.name)
        if (source / "config.json").is_file():
            shutil.copy(source / "config.json", target / source.name / "config.json")
    return target


def preloaded(folder: Path, source: Path, sanitizer: str = "") -> dict[str, str]:
    """The environment in which a program runs with the C file `source` as a preloaded library."""
    library = folder / f"{source.stem}.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-fexceptions", "-o", library, source, "-ldl"], check=True
    )
    # AddressSanitizer wants to be the first library, unless it is told that another may be.
    options = [os.environ.get("ASAN_OPTIONS", ""), "verify_asan_link_order=0", sanitizer]
    return {"LD_PRELOAD": str(library), "ASAN_OPTIONS": ":".join(filter(None, options))}


def has_io_uring() -> bool:
    return not Path("/proc/sys/kernel/io_uring_disabled").read_text().startswith("2")


def eventually(
    is_so: Callable[[], bool], otherwise: Callable[[], str] = str, timeout_s: float = 20
) -> None:
    """For things without an event: a screen, a file's counters, a process that is not our child.

    `otherwise`: the message where it has not come in time.
    """
    end = time.monotonic() + timeout_s * PATIENCE
    while not is_so():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.02)  # sleep: see above


class Server(lumen_engine.Server):
    """A server whose log can be waited for, and its end watched, with any exit status."""

    def __init__(
        self,
        repository: Path | None,
        *arguments: str,
        http: str | None = "127.0.0.1:0",
        unix: str | None = "off",
        **popen: Any,
    ) -> None:
        if PATIENCE > 1 and "--max-active-requests" not in arguments:
            arguments = (*arguments, "--max-active-requests", str(SANITIZED_ACTIVE_REQUESTS))
        # Most tests hold answers against OpenVINO's own, bit for bit; and choosing takes time.
        if "--backend" not in arguments:
            arguments = (*arguments, "--backend", "openvino")
        # No load balancer is to notice that it ends.
        if "--drain-delay-ms" not in arguments:
            arguments = (*arguments, "--drain-delay-ms", "0")
        super().__init__(
            repository,
            arguments,
            executable=lumen_binary(),
            http=http,
            unix=unix,
            start_timeout_s=60.0 * PATIENCE,
            stop_timeout_s=30.0 * PATIENCE,
            **popen,
        )
        self.address = (self.host, self.port)
        named = {"http": self.url, "unix": self.unix_path}
        self.addresses = {name: address for name, address in named.items() if address}
        self._log_seen = 0

    def connect(self) -> Connection:
        """Over TCP."""
        return Connection(self.address)

    def reload(self) -> None:
        self.signal(signal.SIGHUP)

    def interrupt(self, number: int = signal.SIGTERM) -> None:
        self.signal(number)

    def wait(self) -> int:
        """The exit status; stop() has nothing left to do afterwards."""
        self.exit_code = self.process.wait(self._stop_timeout_s)
        self._wait_for_the_last_line()
        return self.exit_code

    def wait_for_log(self, *words: str, timeout_s: float = 30 * PATIENCE) -> str:
        """The next line of the log with all of `words` in it."""
        with self._news:
            line = self._news.wait_for(lambda: self._next_line(words), timeout_s)
        assert line, f"no log line with {words}:\n" + "\n".join(self.log)
        return line

    def _next_line(self, words: Sequence[str]) -> str | None:
        while self._log_seen < len(self.log):
            line = self.log[self._log_seen]
            self._log_seen += 1
            if all(word in line for word in words):
                return line
        return None


class ServeProcess(Server):
    """The same by its flags alone: `with ServeProcess("--http", "off", ...) as serve:`."""

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        descriptors: tuple[int, int] | None = None,
        **popen: Any,
    ) -> None:
        if descriptors is not None:
            # In the child, so that the hard limit of the tests' process stays.
            limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, descriptors)
            popen["preexec_fn"] = limit
        env = {"XDG_RUNTIME_DIR": "", **(env or {})}  # where another server may be
        super().__init__(None, *arguments, http=None, unix=None, env=env, **popen)


class UnixConnection(Connection):
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(os.fspath(path))
        self.received = b""


def run_serve(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A start that is to fail."""
    return subprocess.run(
        [str(lumen_binary()), "serve", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60 * PATIENCE,
        **options,
    )
