"""Fixtures of the integration tests: server processes over copies of the model repositories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.harness import FIXTURES, MODELS, Server, copy_models, make_squeezenet

# Input that no client should send, and lives of many changes: where memory goes wrong first. In
# .ci/run the sanitizers look at these alone; ./dev asan and ./dev soak at all.
HOSTILE = {
    f"test_{name}.py"
    for name in (
        "compressed_requests",
        "errors",
        "failed_runs",
        "grpc",
        "grpc_landing",
        "http2",
        "http_raw",
        "json_numbers",
        "lifecycle",
        "limits",
        "live_swap",
        "load_files",
        "many_tensors",
        "passed_on_outputs",
        "picture_refusals",
        "pictures",
        "reloads",
        "shape_memory",
        "streamed_bodies",
        "tls",
        "unix_socket",
    )
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in HOSTILE:
            item.add_marker("hostile")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All models of models/ and tests/fixtures/models/ in one repository."""
    make_squeezenet()
    target = tmp_path_factory.mktemp("models")
    sources = [p for folder in (MODELS, FIXTURES) for p in sorted(folder.iterdir()) if p.is_dir()]
    return copy_models(target, sources)


@pytest.fixture(scope="session")
def shared_server(repository: Path) -> Iterator[Server]:
    """One server for all tests that leave it as they found it; it must exit cleanly at the end."""
    server = Server(repository)
    yield server
    server.stop()


@pytest.fixture
def small_repository(tmp_path: Path) -> Path:
    """Models that load at once."""
    return copy_models(
        tmp_path / "models", [MODELS / "identity", MODELS / "mlp", FIXTURES / "add_sub"]
    )


@pytest.fixture
def server(small_repository: Path) -> Iterator[Callable[..., Server]]:
    """A factory: server(*arguments, repository=..., http=...). Servers that still run are
    stopped."""
    with ExitStack() as stack:

        def start(
            *arguments: str, repository: Path = small_repository, http: str = "127.0.0.1:0"
        ) -> Server:
            one = Server(repository, *arguments, http=http)
            stack.callback(one.stop)
            return one

        yield start
