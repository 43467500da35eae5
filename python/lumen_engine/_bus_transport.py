"""Inference over the bus: tensors in shared memory, several requests in flight. For `client.py`."""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lumen_engine import _bus
from lumen_engine._tensors import (
    BYTES,
    DATATYPES,
    INFER,
    NUMBERS,
    Arrays,
    InferError,
    InSequence,
    Request,
    array_of,
)

ALIGNMENT = 64


class Area:
    """Which request has which part of a shared memory: first fit."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = [(0, size)]  # (offset, size), ascending, never two that touch

    def take(self, size: int) -> int | None:
        size = aligned(max(size, 1))
        for at, (offset, room) in enumerate(self._free):
            if room < size:
                continue
            self._free[at : at + 1] = [(offset + size, room - size)] if room > size else []
            return offset
        return None

    def give_back(self, offset: int, size: int) -> None:
        parts = sorted([*self._free, (offset, aligned(max(size, 1)))])
        self._free = []
        for begin, room in parts:
            if self._free and sum(self._free[-1]) == begin:
                before, before_room = self._free.pop()
                begin, room = before, before_room + room
            self._free.append((begin, room))


def aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class InFlight(NamedTuple):
    request: Request
    offset: int
    size: int
    room: int  # of it, for outputs


def number_of(sequence: InSequence) -> int:
    if isinstance(sequence.id, int):
        return sequence.id
    if sequence.id:
        raise ValueError(f"sequence_id: got {sequence.id!r}; over the bus it is a number")
    return 0


class BusTransport:
    # For an output whose size only the run knows; more is tried where that is refused.
    FIRST_GUESS = 64 * 1024

    def __init__(self, path: str, timeout: float | None) -> None:
        self._raw = _bus.InferBase(path, timeout)
        self._timeout = timeout
        self._memory = self._raw.area
        self._area = Area(len(self._memory))
        self._in_flight: dict[int, InFlight] = {}
        self._waiting: dict[int, asyncio.Future[Arrays]] = {}
        self._watched: list[int] = []

    def _room_for(self, request: Request) -> int:
        rows = next((tensor.shape[0] for tensor in request.inputs if tensor.shape), 1)
        room = 0
        for output in request.known_outputs:
            if request.outputs and output["name"] not in request.outputs:
                continue
            shape = [
                rows if at == 0 and size < 0 else size for at, size in enumerate(output["shape"])
            ]
            number = NUMBERS[output["datatype"]]
            is_known = min(shape, default=0) >= 0 and number != BYTES
            size = (
                DATATYPES[number][1].itemsize * math.prod(shape) if is_known else self.FIRST_GUESS
            )
            room += aligned(size)
        return max(room, ALIGNMENT)

    def _begin(self, request: Request, room: int | None = None) -> int | None:
        """Its id; None while there is no room for it beside those in flight."""
        room = self._room_for(request) if room is None else room
        size = sum(aligned(len(tensor.data)) for tensor in request.inputs) + room
        offset = self._area.take(size)
        if offset is None:
            if not self._in_flight:
                raise ValueError(
                    f"a request of {size} bytes with the room for its outputs, and an area of"
                    f" {self._area.size}: start the server with a larger --bus-area-bytes"
                )
            return None
        wishes = request.wishes
        at = offset
        tensors = []
        for tensor in request.inputs:
            count = len(tensor.data)
            self._memory[at : at + count] = np.frombuffer(tensor.data, np.uint8)
            tensors.append((tensor.name, tensor.number, tensor.shape, at, count))
            at += aligned(count)
        id = self._raw.send(
            INFER,
            request.model,
            request.version,
            tensors,
            list(request.outputs),
            at,
            room,
            wishes.timeout_us,
            wishes.no_cache,
            wishes.ttl_ms,
            wishes.priority,
            number_of(wishes.sequence),
            wishes.sequence.start,
            wishes.sequence.end,
        )
        if id is None:
            self._area.give_back(offset, size)
            return None
        self._in_flight[id] = InFlight(request, offset, size, room)
        return id

    def _end(self, id: int, status: int, outputs: list[Any], text: str) -> Arrays | InferError:
        flown = self._in_flight.pop(id)
        try:
            if status != 200:
                return InferError(status, text)
            return {
                name: array_of(number, shape, self._memory[offset : offset + size])
                for name, number, shape, offset, size in outputs
            }
        finally:
            self._area.give_back(flown.offset, flown.size)

    def _larger_room(self, flown: InFlight, answer: Arrays | InferError) -> int | None:
        """For outputs that did not fit, whose size nobody knew before."""
        is_too_small = isinstance(answer, InferError) and "named room for" in answer.message
        room = min(4 * flown.room, self._area.size // 2)
        return room if is_too_small and room > flown.room else None

    def infer_all(self, requests: Sequence[Request]) -> list[Arrays | InferError]:
        answers: list[Arrays | InferError | None] = [None] * len(requests)
        left: deque[tuple[int, int | None]] = deque((at, None) for at in range(len(requests)))
        number_of: dict[int, int] = {}
        while left or number_of:
            while left:
                id = self._begin(requests[left[0][0]], left[0][1])
                if id is None:
                    break
                number_of[id] = left.popleft()[0]
            if not self._raw.wait(self._timeout):
                raise TimeoutError(f"no reply within {self._timeout} s")
            while (reply := self._raw.try_take()) is not None:
                id, status, _, outputs, text = reply
                if id not in number_of:
                    self._settle(reply)
                    continue
                flown = self._in_flight[id]
                answer = self._end(id, status, outputs, text)
                room = self._larger_room(flown, answer)
                if room is not None:
                    left.append((number_of.pop(id), room))
                else:
                    answers[number_of.pop(id)] = answer
        return [answer for answer in answers if answer is not None]

    def _settle(self, reply: tuple[int, int, str, list[Any], str]) -> None:
        """A reply that an event loop waits for, or nobody any more."""
        id, status, _, outputs, text = reply
        if id not in self._in_flight:
            return
        answer = self._end(id, status, outputs, text)
        future = self._waiting.pop(id, None)
        if future is None or future.done():
            return
        if isinstance(answer, InferError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def document(self, what: int, model: str, version: str) -> Any:
        asked = self._raw.send(what, model, version, [], [], 0, 0)
        while self._raw.wait(self._timeout):
            while (reply := self._raw.try_take()) is not None:
                id, status, _, _, text = reply
                if id != asked:
                    self._settle(reply)
                elif status != 200:
                    raise InferError(status, text)
                else:
                    return json.loads(text)
        raise TimeoutError(f"no reply within {self._timeout} s")

    async def infer_async(self, request: Request) -> Arrays:
        loop = asyncio.get_running_loop()
        room: int | None = None
        while True:
            while (id := self._begin(request, room)) is None:
                self._raw.flush()
                self._watch(loop)
                self._take_all()
                if self._waiting:
                    await asyncio.wait(self._waiting.values(), return_when=asyncio.FIRST_COMPLETED)
            flown = self._in_flight[id]
            future: asyncio.Future[Arrays] = loop.create_future()
            self._waiting[id] = future
            self._raw.flush()
            self._watch(loop)
            self._take_all()
            try:
                async with asyncio.timeout(self._timeout):
                    return await future
            except InferError as error:
                room = self._larger_room(flown, error)
                if room is None:
                    raise
            except BaseException:
                # Its places come back with its reply.
                self._waiting.pop(id, None)
                if self._raw.is_alive:
                    self._raw.cancel(id)
                raise
            finally:
                if not self._waiting:
                    self._unwatch(loop)

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
        self._take_all()
        if self._raw.is_alive:
            return
        self._unwatch(loop)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(_bus.PeerDied("bus: the other side is gone"))

    def _take_all(self) -> None:
        """The replies that are there; announces a sleep that a reply will end."""
        while True:
            while (reply := self._raw.try_take()) is not None:
                self._settle(reply)
            if not self._raw.announce():
                return

    def close(self) -> None:
        self._raw.close()
