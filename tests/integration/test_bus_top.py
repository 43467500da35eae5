"""`lumen bus top`: the figures of a bus whose two sides are in this process, by the C face."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

NEVER = 2**64 - 1
PUBLISH, SUBSCRIBE = 1, 2


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("role", ctypes.c_int),
        ("capacity", ctypes.c_uint64),
        ("slots", ctypes.c_uint32),
        ("max_connections", ctypes.c_uint32),
    ]


class Bus:
    """lumen_bus_*, each function with the type that it returns."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))

    def __call__(self, name: str, result: object, *arguments: object) -> object:
        function: Callable[..., object] = getattr(self.library, f"lumen_bus_{name}")
        function.restype = result  # type: ignore[attr-defined]
        return function(*arguments)

    def pointer(self, name: str, *arguments: object) -> ctypes.c_void_p:
        found = ctypes.c_void_p(self(name, ctypes.c_void_p, *arguments))  # type: ignore[arg-type]
        assert found, name
        return found


def top(lumen_binary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [lumen_binary, "bus", "top", *arguments], capture_output=True, text=True, timeout=60
    )


def test_a_ring_is_shown_with_its_fill_and_its_types(lumen_binary: Path, tmp_path: Path) -> None:
    bus = Bus(lumen_binary.parent / "liblumen_c.so")
    path = str(tmp_path / "bus")
    options = bus("default_options", Options, SUBSCRIBE)
    assert isinstance(options, Options)
    options.capacity = 4096
    listener = bus.pointer("listen", path.encode(), ctypes.byref(options), None)
    never = ctypes.c_uint64(NEVER)
    theirs = bus.pointer("connect", path.encode(), PUBLISH, never, False, None)
    ours = bus.pointer("accept", listener, never, None)
    publisher = bus.pointer("connection_publisher", theirs)
    for type_id in (7, 7, 9):
        sent = bus(
            "send", ctypes.c_int, publisher, b"x" * 1024, ctypes.c_size_t(1024),
            ctypes.c_uint32(type_id), ctypes.c_uint64(0), ctypes.c_uint64(0),
        )  # fmt: skip
        assert sent == 0
    done = top(lumen_binary, path, "--count", "1", "--interval", "0.05")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"bus {path}: 1 ring;")
    assert re.search(r"publisher +0 +0\.0 +75 % +0\.0 +0 +0$", lines[2])
    assert sorted(line.split()[1] for line in lines[3:]) == ["7", "9"]
    bus("close", None, theirs)
    bus("close", None, ours)
    bus("listener_close", None, listener)
    done = top(lumen_binary, path)
    assert done.returncode == 1
    assert re.search(rf"lumen bus top: bus {path}: .*nobody listens there", done.stderr)


def test_an_interval_that_makes_no_sense_is_refused(lumen_binary: Path) -> None:
    done = top(lumen_binary, "/nowhere/bus", "--interval", "0")
    assert done.returncode == 2
    assert "--interval" in done.stderr
