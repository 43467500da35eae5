"""Fixtures that the Python tests share: the built executable, and servers that stop cleanly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lumen_engine import Server

ROOT = Path(__file__).resolve().parent.parent
# A sanitized server loads and answers several times slower.
PATIENCE = 6 if os.environ.get("LUMEN_PRESET", "release") in ("asan", "tsan") else 1


@pytest.fixture(scope="session")
def project_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def patience() -> int:
    """What to multiply a time limit with: 1, or more under a sanitizer."""
    return PATIENCE


@pytest.fixture(scope="session")
def lumen_binary() -> Path:
    """The executable under test: LUMEN_BINARY, or what ./dev build made."""
    path = Path(os.environ.get("LUMEN_BINARY", ROOT / ".build" / "release" / "lumen"))
    if not path.is_file():
        pytest.fail(f"no executable {path}: run ./dev build")
    return path


@pytest.fixture
def server(lumen_binary: Path) -> Iterator[Callable[..., Server]]:
    """`server(repository, *arguments)` starts one; after the test each must exit with status 0.

    A test that ends a server itself calls its `stop()` or `kill()`.
    """
    servers: list[Server] = []

    def make(repository: str | os.PathLike[str], *arguments: str, **options: object) -> Server:
        options.setdefault("executable", lumen_binary)
        options.setdefault("start_timeout_s", 60.0 * PATIENCE)
        options.setdefault("stop_timeout_s", 30.0 * PATIENCE)
        servers.append(Server(repository, arguments, **options))  # type: ignore[arg-type]
        return servers[-1]

    yield make
    # Each is stopped even where an earlier one did not stop as it should.
    problems = []
    for started in reversed(servers):
        try:
            started.stop()
        except Exception as error:
            problems.append(str(error))
    if problems:
        pytest.fail("\n".join(problems))


@pytest.fixture(scope="session")
def models_path() -> Path:
    """The repository of models in the tree."""
    return ROOT / "models"
