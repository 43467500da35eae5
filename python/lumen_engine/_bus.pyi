"""Shared-memory rings between processes. Use lumen_engine.bus."""

from collections.abc import Sequence
from typing import Any

import numpy
import numpy.typing


class BusError(ConnectionError):
    """The bus can't go on."""

class PeerClosed(BusError):
    """The other side has closed the connection."""

class PeerDied(BusError):
    """The other side has ended without closing it."""

class Dropped(BusError):
    """
    The publisher has dropped this subscriber, which held the ring too long.
    """

class PeerInvalid(BusError):
    """
    The other side has broken the protocol and is not listened to any more.
    """

class ForkedError(BusError):
    """This handle belongs to the parent process: connect anew in the child."""

class HeldError(BufferError):
    """
    Nothing can come: the publisher waits for room that this process holds.
    """

class Publisher:
    """Writes frames into a ring."""

    def send(self, data: object, type_id: int = 0, id: int = 0, timeout: float | None = None, flush: bool = True) -> None:
        """Copy a buffer into a frame of its own."""

    def send_batch(self, array: object, type_id: int = 0, timeout: float | None = None) -> int:
        """
        Copy an array: each item of its first axis is a frame. Returns how many.
        """

    def reserve(self, size: int, type_id: int = 0, id: int = 0, timeout: float | None = None) -> Reservation:
        """Room for a frame that is written in place."""

    def flush(self) -> None:
        """Publish all that was committed, and wake who sleeps."""

    def wait_for_subscribers(self, count: int = 1, timeout: float | None = None) -> None:
        """Until so many subscribers are attached."""

    @property
    def subscribers(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def stalls(self) -> int:
        """How often it had to wait for room."""

class Reservation:
    """Room for a frame: a writable buffer until it is committed."""

    def commit(self, size: int | None = None, flush: bool = True) -> None:
        """Send it, or its beginning."""

    def abandon(self) -> None:
        """Don't send it."""

    @property
    def is_open(self) -> bool: ...

    def __len__(self) -> int: ...

class Frame:
    """One frame where it lies: a read-only buffer; or a writable copy of it."""

    @property
    def data(self) -> memoryview: ...

    @property
    def type_id(self) -> int: ...

    @property
    def id(self) -> int: ...

    def __len__(self) -> int: ...

    def release(self) -> None:
        """Give its slot back. BufferError while views of it are alive."""

class Item:
    """What the bytes of a frame are: a NumPy dtype, looked up once."""

    def __init__(self, dtype: object) -> None: ...

    @property
    def bytes(self) -> int: ...

class Subscriber:
    """Reads frames where they lie."""

    def take_batch(self, most: int, item: Item, min: int = 1, timeout: float | None = None, copy: bool = False) -> numpy.typing.NDArray[Any] | None:
        """
        A read-only view of the ring; copy: a writable copy, whose slots go back at once.
        """

    def take(self, timeout: float | None = None, copy: bool = False) -> Frame | None:
        """
        The next frame where it lies; copy: a writable copy, whose slot goes back at once.
        """

    def read_into(self, array: object, min: int = 1, timeout: float | None = None) -> int: ...

    def release(self) -> None: ...

    @property
    def type_id(self) -> int:
        """Of the frames that were taken last."""

    @property
    def views(self) -> int:
        """How many views of the ring are alive."""

    @property
    def held_frames(self) -> int: ...

    @property
    def capacity(self) -> int: ...

class Connection:
    """Rings that two processes share."""

    @property
    def publisher(self) -> Publisher | None: ...

    @property
    def subscriber(self) -> Subscriber | None: ...

    def read(self, timeout: float | None = None) -> tuple[bytes, int, int, int] | None:
        """
        With role='lossy': (data, frames missed before it, type_id, id), or None at the end.
        """

    @property
    def lost(self) -> int: ...

    @property
    def peer_pid(self) -> int: ...

    @property
    def is_alive(self) -> bool:
        """Whether the other side is there."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None:
        """End it; views stay readable."""

class Listener:
    """Where processes connect to the bus."""

    def __init__(self, path: str, role: str = 'subscribe', capacity: int = 1048576, slots: int = 0, area_bytes: int = 0, max_connections: int = 64, max_hold: float = 1.0, users: Sequence[int] = []) -> None: ...

    def accept(self, timeout: float | None = None) -> Connection:
        """The next connection."""

    @property
    def publisher(self) -> Publisher:
        """With role='publish': its one publisher."""

    @property
    def connections(self) -> int: ...

    @property
    def path(self) -> str: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...

def connect(path: str, role: str = 'subscribe', timeout: float | None = 10.0, wait: bool = True) -> Connection: ...

class RequesterBase:
    """Requests over a ring, replies over another."""

    def __init__(self, path: str, timeout: float | None = 10.0, in_flight: int = 1024) -> None: ...

    def send(self, data: object, type_id: int = 0, timeout: float | None = None) -> int | None: ...

    def cancel(self, id: int) -> bool: ...

    def try_take(self) -> tuple[int, bool, int, int, bytes] | None: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def call_raw(self, data: object, type_id: int = 0, timeout: float | None = None) -> tuple[int, int, bytes]: ...

    def descriptors(self) -> list[int]: ...

    def announce(self) -> bool: ...

    def woken(self) -> None: ...

    def check_peer(self) -> None: ...

    @property
    def in_flight(self) -> int: ...

    def close(self) -> None: ...

class ResponderBase:
    """Answers requests."""

    def __init__(self, listener: Listener, timeout: float | None = None) -> None: ...

    def take_raw(self, timeout: float | None = None) -> tuple[int, int, bytes, bool] | None: ...

    def reply(self, id: int, data: object, type_id: int = 0, status: int = 0, timeout: float | None = None) -> None: ...

    def close(self) -> None: ...

class InferBase:
    """Inference over the bus."""

    def __init__(self, path: str, timeout: float | None = 10.0) -> None: ...

    @property
    def area(self) -> numpy.typing.NDArray[numpy.uint8]: ...

    def send(self, verb: int, model: str, version: str, inputs: Sequence[tuple[str, int, Sequence[int], int, int]], outputs: Sequence[str], reply_offset: int, reply_room: int, timeout_us: int | None = None, no_cache: bool = False, ttl_ms: int | None = None, priority: int = 0, sequence_id: int = 0, sequence_start: bool = False, sequence_end: bool = False) -> int | None: ...

    def cancel(self, id: int) -> None: ...

    def flush(self) -> None: ...

    def try_take(self) -> tuple[int, int, str, list[tuple[str, int, list[int], int, int]], str] | None: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def descriptors(self) -> list[int]: ...

    def announce(self) -> bool: ...

    def woken(self) -> None: ...

    @property
    def is_alive(self) -> bool: ...

    def close(self) -> None: ...
