"""A real server process for the integration tests: start, wait for its ready line, stop.

One thread a server drains its standard output, so that the pipe never fills. Says no by RuntimeError
with what the server printed.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
FIXTURES = ROOT / "tests" / "fixtures" / "models"
READY = re.compile(r"lumen: ready http=(.+):(\d+)")
# A sanitizer build compiles SqueezeNet in tens of seconds.
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60


def lumen_binary() -> Path:
    path = Path(os.environ.get("LUMEN_BINARY", ROOT / ".build" / "release" / "lumen"))
    if not path.is_file():
        raise RuntimeError(f"no executable {path}: run ./dev build")
    return path


def make_squeezenet() -> None:
    script = MODELS / "squeezenet" / "make.py"
    subprocess.run([sys.executable, script, "--if-missing"], check=True, stdout=subprocess.DEVNULL)


def copy_models(target: Path, sources: Iterable[Path]) -> Path:
    """A repository of its own: the server refuses symbolic links, so the files are copied."""
    for source in sources:
        for version in source.iterdir():
            if version.is_dir() and version.name.isdigit():
                shutil.copytree(version, target / source.name / version.name)
        if (source / "config.json").is_file():
            shutil.copy(source / "config.json", target / source.name / "config.json")
    return target


class Server:
    """`lumen serve` on a free port."""

    def __init__(self, repository: Path, *arguments: str, http: str = "127.0.0.1:0") -> None:
        command = [str(lumen_binary()), "serve", "--http", http]
        command += ["--model-repository", str(repository), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.banner: list[str] = []
        self.errors: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._drain_output, daemon=True),
            threading.Thread(target=self._drain_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.host, self.port = self._wait_until_ready()
        self.address = f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def _drain_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _drain_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(line.rstrip("\n") for line in self.process.stderr)

    def _wait_until_ready(self) -> tuple[str, int]:
        while True:
            try:
                line = self._lines.get(timeout=START_TIMEOUT_S)
            except queue.Empty:
                line = None
            if line is None:
                self.kill()
                said = "\n".join([*self.banner, *self.errors])
                raise RuntimeError(f"the server did not become ready; it said:\n{said}")
            self.banner.append(line)
            if found := READY.fullmatch(line):
                return found[1], int(found[2])

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit status; everything that the server wrote is in `errors` afterwards."""
        status = self.process.wait(timeout=STOP_TIMEOUT_S)
        for thread in self._threads:
            thread.join(timeout=STOP_TIMEOUT_S)
        return status

    def stop(self) -> int:
        if self.process.poll() is None:
            self.interrupt()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.wait()
