# Starts `lumen serve` on a free port and stops it: the demo's, and short enough to copy.
# Says no: RuntimeError with what the server printed.
from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

READY = re.compile(r"^lumen: ready http=(\S+)", re.MULTILINE)


def find_binary(root: Path) -> Path:
    candidates = [
        Path(os.environ.get("LUMEN_BINARY", "/nonexistent")),
        root / ".venv" / "bin" / "lumen",
        root / ".build" / "release" / "lumen",
    ]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise RuntimeError("no lumen executable: run ./dev build first")


class Server:
    """A running server; `address` is HOST:PORT. Leaving the `with` block stops it, unless kept."""

    def __init__(self, binary: Path, repository: Path, log: Path, *arguments: str) -> None:
        self.keep = False
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        # A file, not a pipe: a server that is kept must not lose its standard output with us.
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [
                    str(binary),
                    "serve",
                    "--http",
                    "127.0.0.1:0",
                    "--unix",  # whose default path is for the server that the user means to keep
                    "off",
                    "--model-repository",
                    str(repository),
                    *arguments,
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.address = self._wait_until_ready(timeout_s=60)

    def _wait_until_ready(self, timeout_s: float) -> str:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if found := READY.search(self.log.read_text()):
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"the server did not become ready; it said:\n{self.log.read_text()}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            self.stop()
