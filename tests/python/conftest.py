"""Fixtures of the tests of lumen_engine.bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.bus_pair import Pair


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a bus may listen."""
    return str(tmp_path / "bus")


@pytest.fixture
def make_pair(path: str) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(**options: Any) -> Pair:
        made.append(Pair(path, **options))
        return made[-1]

    yield make
    for pair in made:
        pair.close()
