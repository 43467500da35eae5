"""The shared-memory bus: frames between processes of one machine, read where they lie.

    with bus.listen("/tmp/prices.bus") as listener:      # this side subscribes
        with listener.accept() as connection:
            for batch in connection.subscriber.batches(256, dtype="float32"):
                total += batch.sum()                     # a (n, items) view of the ring, no copy

    with bus.connect("/tmp/prices.bus", role="publish") as connection:   # another process
        connection.publisher.send_batch(array)           # each row is a frame

A view keeps its slots: they go back to the publisher when the last object that refers to it is
gone, in any order. Views are read-only and stay readable after the connection's end. If this
process holds everything that the ring has room for, the next wait raises HeldError, which names the
views that are held. Only a subscriber that was dropped (see `max_hold`) has views that are written
over.

With writable=True (listen, connect) each batch and frame is copied once into this process's own
memory, for consumers that take no read-only arrays: JAX's DLPack, torch before 2.0. It may be
written to, which the publisher never sees, and its slots go back at once.

Threads: each publisher, subscriber, requester and responder belongs to one thread at a time; views
may end on any. Waiting releases the interpreter's lock, and Ctrl-C breaks it. Timeouts are seconds.
Errors: TimeoutError; BusError (a ConnectionError) with PeerClosed, PeerDied, PeerInvalid, Dropped
and ForkedError; HeldError (a BufferError); ValueError for a frame that is larger than the ring.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from lumen_engine import _bus
from lumen_engine._bus import (
    BusError,
    Dropped,
    ForkedError,
    Frame,
    HeldError,
    PeerClosed,
    PeerDied,
    PeerInvalid,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = [
    "BusError",
    "Connection",
    "Dropped",
    "ForkedError",
    "Frame",
    "HeldError",
    "Listener",
    "LossyFrame",
    "PeerClosed",
    "PeerDied",
    "PeerInvalid",
    "Publisher",
    "Reply",
    "Request",
    "Requester",
    "Responder",
    "Subscriber",
    "connect",
    "listen",
]

Item = TypeVar("Item")
Role = Literal["publish", "subscribe", "lossy", "both"]


class _UntilNone(Iterator[Item]):
    """Not a generator: that would keep the frame that it has yielded last, and so its slots."""

    def __init__(self, take: Callable[[], Item | None]) -> None:
        self._take = take

    def __next__(self) -> Item:
        taken = self._take()
        if taken is None:
            raise StopIteration
        return taken


class Publisher:
    """Writes frames into a ring. Waits while the ring is full."""

    def __init__(self, raw: _bus.Publisher) -> None:
        self._raw = raw

    def send(
        self,
        data: Any,
        type_id: int = 0,
        id: int = 0,
        timeout: float | None = None,
        flush: bool = True,
    ) -> None:
        """Copies a C-contiguous buffer into a frame. flush=False: seen with the next flush()."""
        self._raw.send(data, type_id, id, timeout, flush)

    def send_batch(self, array: Any, type_id: int = 0, timeout: float | None = None) -> int:
        """Copies a C-contiguous array; each item of its first axis is a frame. Returns how many."""
        return self._raw.send_batch(array, type_id, timeout)

    @contextmanager
    def reserve(
        self,
        size: int,
        type_id: int = 0,
        id: int = 0,
        timeout: float | None = None,
        flush: bool = True,
    ) -> Iterator[memoryview]:
        """A frame that is written in place: a writable memoryview, sent at the block's end.

        Not sent if the block raises. Arrays over it must be gone by then: else BufferError.
        """
        place = self._raw.reserve(size, type_id, id, timeout)
        view = memoryview(place)  # type: ignore[arg-type]
        try:
            yield view
        except BaseException:
            place.abandon()
            raise
        try:
            view.release()
            place.commit(flush=flush)
        finally:
            if place.is_open:
                place.abandon()

    def flush(self) -> None:
        """Publishes frames sent without a flush, and wakes sleeping subscribers."""
        self._raw.flush()

    def wait_for_subscribers(self, count: int = 1, timeout: float | None = None) -> None:
        """Of a listener's publisher: until so many are attached."""
        self._raw.wait_for_subscribers(count, timeout)

    @property
    def subscribers(self) -> int:
        return self._raw.subscribers

    @property
    def capacity(self) -> int:
        """Bytes of payload of the ring."""
        return self._raw.capacity

    @property
    def stalls(self) -> int:
        """How often it had to wait for room."""
        return self._raw.stalls


class Subscriber:
    """Reads frames where they lie; with writable=True, copies of them."""

    def __init__(self, raw: _bus.Subscriber, writable: bool = False) -> None:
        self._raw = raw
        self._copy = writable

    def batches(
        self, most: int, dtype: DTypeLike = "uint8", min: int = 1, timeout: float | None = None
    ) -> Iterator[NDArray[Any]]:
        """Views of shape (n, items) over the ring, until the publisher closes the stream.

        With writable=True they are copies, and C-contiguous for any size of a frame. A batch has
        the frames that are there, at most `most` and at most half of the ring, so that the last
        batch may still be held while the next is waited for. It ends where size or type changes
        (`type_id` says which it was), and waits for `min` frames, or fewer once `timeout` is over;
        TimeoutError with none. Frames of no bytes are of shape (n, 0). ValueError where an item
        does not divide the size; the frames are still there then. Rows lie a multiple of 64 bytes
        apart, so a batch is C-contiguous where the size is one.
        """
        item = _bus.Item(dtype)
        return _UntilNone(lambda: self._raw.take_batch(most, item, min, timeout, self._copy))

    def frames(self, timeout: float | None = None) -> Iterator[Frame]:
        """Single frames; each gives its slot back with release(), or when it is gone."""
        return _UntilNone(lambda: self.take(timeout))

    def take(self, timeout: float | None = None) -> Frame | None:
        """The next frame; None once the publisher has closed the stream."""
        return self._raw.take(timeout, self._copy)

    def read_into(self, array: Any, min: int = 1, timeout: float | None = None) -> int:
        """Copies frames into the rows of an array and gives their slots back at once.

        Returns how many rows; 0 once the stream is closed. A row is as large as a frame, else
        ValueError. Up to where size or type changes, as batches().
        """
        return self._raw.read_into(array, min, timeout)

    def release(self) -> None:
        """Checks that everything was given back: BufferError while views are alive."""
        self._raw.release()

    @property
    def type_id(self) -> int:
        """Of the frames that were taken last."""
        return self._raw.type_id

    @property
    def views(self) -> int:
        """How many views of the ring are alive."""
        return self._raw.views

    @property
    def held_frames(self) -> int:
        return self._raw.held_frames

    @property
    def capacity(self) -> int:
        """Bytes of payload of the ring."""
        return self._raw.capacity


class LossyFrame(NamedTuple):
    data: bytes
    lost: int  # frames that were missed before it
    type_id: int
    id: int


class Connection:
    """Rings that two processes share, until one of them closes it or ends."""

    def __init__(self, raw: _bus.Connection, writable: bool = False) -> None:
        self._raw = raw
        publisher, subscriber = raw.publisher, raw.subscriber
        self._publisher = None if publisher is None else Publisher(publisher)
        self._subscriber = None if subscriber is None else Subscriber(subscriber, writable)

    @property
    def publisher(self) -> Publisher:
        if self._publisher is None:
            raise ValueError("this side of the connection does not publish")
        return self._publisher

    @property
    def subscriber(self) -> Subscriber:
        if self._subscriber is None:
            raise ValueError("this side of the connection does not subscribe; lossy: use read()")
        return self._subscriber

    def read(self, timeout: float | None = None) -> LossyFrame | None:
        """With role="lossy": a copy of the next frame, or None at the end of the stream."""
        frame = self._raw.read(timeout)
        return None if frame is None else LossyFrame(*frame)

    @property
    def lost(self) -> int:
        """With role="lossy": frames that were missed so far."""
        return self._raw.lost

    @property
    def peer_pid(self) -> int:
        return self._raw.peer_pid

    @property
    def is_alive(self) -> bool:
        """Whether the other side is there."""
        return self._raw.is_alive

    def close(self) -> None:
        """Publishes sent frames and ends the connection; views stay readable."""
        self._raw.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Listener:
    """Where processes connect; made by listen()."""

    def __init__(self, raw: _bus.Listener, writable: bool = False) -> None:
        self._raw = raw
        self._writable = writable

    def accept(self, timeout: float | None = None) -> Connection:
        return Connection(self._raw.accept(timeout), self._writable)

    def responder(self, timeout: float | None = None) -> Responder:
        """With role="both": answers the requests of the next process that connects."""
        return Responder(_bus.ResponderBase(self._raw, timeout))

    @property
    def publisher(self) -> Publisher:
        """With role="publish": the one publisher for all connections."""
        return Publisher(self._raw.publisher)

    @property
    def connections(self) -> int:
        return self._raw.connections

    @property
    def path(self) -> str:
        return self._raw.path

    def fileno(self) -> int:
        """Readable while accept() would not wait."""
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def listen(
    path: str | os.PathLike[str],
    role: Role = "subscribe",
    *,
    capacity: int = 1 << 20,
    slots: int = 0,
    max_connections: int = 64,
    max_hold: float = 1.0,
    users: Sequence[int] = (),
    writable: bool = False,
) -> Listener:
    """Makes a socket at `path`, where the other side connects.

    role: the role of this side ("both": request and reply). capacity: bytes of payload of each
    ring, a power of two from 4 KiB to 1 GiB; slots: frames of each ring, 0 for a 64th of it.
    max_hold:
    with "publish", how long a subscriber may hold the ring back before it is dropped; negative: for
    ever. users: the user ids that may connect; none: this user and root. writable: frames of this
    side's subscription are copied once a batch or frame, and the copies may be written to.
    """
    _check_writable(role, writable)
    raw = _bus.Listener(
        os.fspath(path), role, capacity, slots, 0, max_connections, max_hold, list(users)
    )
    return Listener(raw, writable)


def connect(
    path: str | os.PathLike[str],
    role: Role = "subscribe",
    *,
    timeout: float | None = 10.0,
    wait: bool = True,
    writable: bool = False,
) -> Connection:
    """Connects to a listener; `wait`: until `timeout`, where nobody listens yet.

    writable: batches and frames are copies, made once each, that may be written to.
    """
    _check_writable(role, writable)
    return Connection(_bus.connect(os.fspath(path), role, timeout, wait), writable)


def _check_writable(role: Role, writable: bool) -> None:
    if writable and role not in ("subscribe", "both"):
        raise ValueError(f"writable: role={role!r} has no views; wanted 'subscribe' or 'both'")


class Reply(NamedTuple):
    id: int
    timed_out: bool
    status: int  # 0 is success
    type_id: int
    data: bytes


class Request(NamedTuple):
    id: int
    type_id: int
    data: bytes
    is_cancel: bool  # the request with this id is not wanted any more


class Requester:
    """Requests over a ring, replies over another: call(), or several in flight, or `await`."""

    def __init__(
        self, path: str | os.PathLike[str], *, timeout: float | None = 10.0, in_flight: int = 1024
    ) -> None:
        self._raw = _bus.RequesterBase(os.fspath(path), timeout, in_flight)
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._watched: list[int] = []

    def call(self, data: Any, type_id: int = 0, timeout: float | None = None) -> Reply:
        """One request and its reply. Not while others are in flight."""
        return Reply(0, False, *self._raw.call_raw(data, type_id, timeout))

    def send(self, data: Any, type_id: int = 0, timeout: float | None = None) -> int | None:
        """Its id; None while no more may be in flight: take replies first."""
        return self._raw.send(data, type_id, timeout)

    def cancel(self, id: int) -> bool:
        """Its reply is not wanted any more. False: it is not in flight."""
        return self._raw.cancel(id)

    def replies(self, timeout: float | None = None) -> Iterator[Reply]:
        """Replies as they come, until none is in flight or `timeout` passes without one."""
        while True:
            while (reply := self._raw.try_take()) is not None:
                yield Reply(*reply)
            if not self._raw.wait(timeout):
                return

    async def acall(self, data: Any, type_id: int = 0, timeout: float | None = None) -> Reply:
        """As call(), with any number in flight on one event loop."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            while (id := self._raw.send(data, type_id, timeout)) is None:
                if not self._waiting:
                    raise BusError("bus: replies to send() are not taken: see replies()")
                await asyncio.wait(self._waiting.values(), return_when=asyncio.FIRST_COMPLETED)
            future: asyncio.Future[Reply] = loop.create_future()
            self._waiting[id] = future
            self._watch(loop)
            self._drain()
            try:
                reply = await future
            except BaseException:
                self._waiting.pop(id, None)
                self._raw.cancel(id)
                raise
            finally:
                if not self._waiting:
                    self._unwatch(loop)
        if reply.timed_out:
            raise TimeoutError("bus: the reply did not come in time")
        return reply

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watched:
            return
        self._watched = self._raw.descriptors()
        for descriptor in self._watched:
            loop.add_reader(descriptor, self._on_readable, loop)

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        for descriptor in self._watched:
            loop.remove_reader(descriptor)
        self._watched = []

    def _on_readable(self, loop: asyncio.AbstractEventLoop) -> None:
        self._raw.woken()
        self._drain()
        try:
            self._raw.check_peer()
        except BusError as error:
            self._unwatch(loop)
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                if not future.done():
                    future.set_exception(error)

    def _drain(self) -> None:
        """Takes the messages that are there, and announces a sleep that a reply will end."""
        while True:
            while (reply := self._raw.try_take()) is not None:
                future = self._waiting.pop(reply[0], None)
                if future is not None and not future.done():
                    future.set_result(Reply(*reply))
            if not self._raw.announce():
                return

    @property
    def in_flight(self) -> int:
        return self._raw.in_flight

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Requester:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Responder:
    """Answers requests; made by Listener.responder()."""

    def __init__(self, raw: _bus.ResponderBase) -> None:
        self._raw = raw

    def requests(self, timeout: float | None = None) -> Iterator[Request]:
        """Requests as they come, until the requester closes the connection."""
        while (request := self._raw.take_raw(timeout)) is not None:
            yield Request(*request)

    def reply(
        self,
        id: int,
        data: Any,
        type_id: int = 0,
        status: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Answers a request, in any order. status 0 is success; all else is yours to define.

        data: a C-contiguous buffer, or a list of them, which follow each other without a gap.
        """
        self._raw.reply(id, data, type_id, status, timeout)

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Responder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
