"""Shared by tests of lumen_engine.bus: a ring within one process, and processes at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from lumen_engine import bus

PATIENCE = 30.0


class Pair:
    """Both sides in one process: this one publishes into the ring that it reads."""

    def __init__(self, path: str, **options: Any) -> None:
        self.listener = bus.listen(path, **options)
        self.theirs = bus.connect(path, role="publish")
        self.ours = self.listener.accept(PATIENCE)
        self.publisher = self.theirs.publisher
        self.subscriber = self.ours.subscriber

    def close(self) -> None:
        self.theirs.close()
        self.ours.close()
        self.listener.close()


def rows(count: int, start: int = 0) -> np.ndarray[Any, Any]:
    return np.arange(start * 16, (start + count) * 16, dtype="f4").reshape(count, 16)


def wait_for_state(pid: int, state: str) -> None:
    """S: its main thread sleeps; T: it is stopped."""
    stat = Path(f"/proc/{pid}/task/{pid}/stat")
    while (now := stat.read_text().rpartition(")")[2].split()[0]) != state:
        assert now != "Z", "it has ended"


def is_in_use(subscriber: bus.Subscriber) -> bool:
    """By another thread, which waits then."""
    try:
        subscriber.read_into(np.zeros((0, 16)))  # refused in any case, without a wait
    except ValueError as error:
        return "in use by another thread" in str(error)
    raise AssertionError("an array of no rows was filled")


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python with the package and these tests on its path; killed at the end if it still runs."""
    folders = [Path(bus.__file__).parents[1], Path(__file__).parents[1]]
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
