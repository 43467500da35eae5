"""Fixtures that the Python tests share: the built executable, and servers that stop cleanly."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

# Of the reference runtimes in this process: neither reports, nor writes below the home folder.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

import pytest
from integration import harness
from lumen_engine import Server

# A shell that runs the tests in the background has SIGINT ignored, and every process that a test
# starts to be interrupted would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def caches_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The measurements of `auto` are kept between the tests' servers, and not with the user's.
    Builds inside of tests go on with the user's ccache, which is there too: without, they took 6
    minutes.
    """
    if ccache := shutil.which("ccache"):
        asked = subprocess.run([ccache, "-k", "cache_dir"], stdout=subprocess.PIPE, text=True)
        if asked.returncode == 0:
            os.environ.setdefault("CCACHE_DIR", asked.stdout.strip())
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def project_root() -> Path:
    return harness.ROOT


@pytest.fixture(scope="session")
def lumen_binary() -> Path:
    """The executable under test: LUMEN_BINARY, or the one of ./dev build."""
    return harness.lumen_binary()


@pytest.fixture
def server() -> Iterator[Callable[..., Server]]:
    """`server(repository, *arguments)` starts one; after the test each must exit with status 0.

    A test that ends a server itself calls its `stop()` or `kill()`.
    """
    with ExitStack() as stack:

        def make(repository: str | os.PathLike[str], *arguments: str, **options: object) -> Server:
            started = harness.Server(Path(repository), *arguments, **options)
            stack.callback(started.stop)
            return started

        yield make


@pytest.fixture(scope="session")
def models_path() -> Path:
    """The repository of models in the tree."""
    return harness.MODELS
