"""What the integration tests share: model repositories, and a server that can be waited for.

Says no as lumen_engine.Server does: ServerError with what the server printed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import lumen_engine

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
FIXTURES = ROOT / "tests" / "fixtures" / "models"
# A sanitizer build needs minutes where a release build needs seconds.
SANITIZED = os.environ.get("LUMEN_PRESET", "release") in ("asan", "tsan")
PATIENCE = 6 if SANITIZED else 1


def lumen_binary() -> Path:
    path = Path(os.environ.get("LUMEN_BINARY", ROOT / ".build" / "release" / "lumen"))
    assert path.is_file(), f"no executable {path}: run ./dev build"
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


class Server(lumen_engine.Server):
    """A server whose end can be watched, whatever its exit status."""

    def __init__(self, repository: Path, *arguments: str, http: str = "127.0.0.1:0") -> None:
        if PATIENCE > 1 and "--max-active-requests" not in arguments:
            # AddressSanitizer keeps a shadow of each request's region, an eighth of it, and touches
            # all of it when the arena goes: 18 GB and two minutes with the default of 1024.
            arguments = (*arguments, "--max-active-requests", "64")
        if "--unix" not in arguments:
            # The default is in the user's own runtime folder, where another server may be.
            arguments = (*arguments, "--unix", "off")
        super().__init__(
            repository,
            arguments,
            executable=lumen_binary(),
            http=http,
            start_timeout_s=60.0 * PATIENCE,
            stop_timeout_s=30.0 * PATIENCE,
        )
        self.banner = self.output.splitlines()
        self.address = (self.host, self.port)

    def interrupt(self, number: int = signal.SIGTERM) -> None:
        self.signal(number)

    def wait(self) -> int:
        """The exit status; stop() has nothing left to do afterwards."""
        self.exit_code = self._process.wait(self._stop_timeout_s)
        return self.exit_code
