"""The calls of lumen_engine.bus that wait, for things that never come: `bus_waits.py NAME PATH`."""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from integration.bus_pair import Pair, rows
from lumen_engine import bus


def accept(path: str) -> None:
    bus.listen(path).accept()


def connect(path: str) -> None:
    bus.connect(path, timeout=None)


def send(path: str) -> None:
    pair = Pair(path, capacity=4096)
    while True:
        pair.publisher.send(b"x" * 1024)


def send_batch(path: str) -> None:
    pair = Pair(path, capacity=4096)
    pair.publisher.send_batch(rows(1000))


def reserve(path: str) -> None:
    pair = Pair(path, capacity=4096)
    while True:
        with pair.publisher.reserve(1024):
            pass


def wait_for_subscribers(path: str) -> None:
    bus.listen(path, role="publish").publisher.wait_for_subscribers()


def take(path: str) -> None:
    pair = Pair(path)
    pair.subscriber.take()


def batches(path: str) -> None:
    pair = Pair(path)
    next(pair.subscriber.batches(8))


def batches_of_at_least(path: str) -> None:
    pair = Pair(path)
    pair.publisher.send_batch(rows(4))
    next(pair.subscriber.batches(8, min=8))


def read_into(path: str) -> None:
    pair = Pair(path)
    pair.subscriber.read_into(np.zeros((4, 16), "f4"))


def read_lossy(path: str) -> None:
    _listener = bus.listen(path, role="publish")
    bus.connect(path, role="lossy").read()


def responder(path: str) -> None:
    bus.listen(path, role="both").responder()


def requests(path: str) -> None:
    listener = bus.listen(path, role="both")
    _requester = bus.Requester(path)
    next(listener.responder().requests())


def reply(path: str) -> None:
    listener = bus.listen(path, role="both", capacity=4096)
    requester = bus.Requester(path)
    responder = listener.responder()
    while True:
        requester.send(b"")
        responder.reply(next(responder.requests()).id, b"x" * 1024)


def requester(path: str) -> None:
    bus.Requester(path, timeout=None)


def call(path: str) -> None:
    _listener = bus.listen(path, role="both")
    bus.Requester(path).call(b"x")


def call_without_room(path: str) -> None:
    _listener = bus.listen(path, role="both", capacity=4096)
    requester = bus.Requester(path)
    while requester.send(b"x" * 1024) is not None:
        pass
    requester.call(b"x" * 1024)


def replies(path: str) -> None:
    _listener = bus.listen(path, role="both")
    requester = bus.Requester(path)
    requester.send(b"x")
    next(requester.replies())


def acall(path: str) -> None:
    _listener = bus.listen(path, role="both")
    asyncio.run(bus.Requester(path).acall(b"x"))


WAITS = {
    wait.__name__: wait
    for wait in (
        *(accept, connect, send, send_batch, reserve, wait_for_subscribers),
        *(take, batches, batches_of_at_least, read_into, read_lossy),
        *(responder, requests, reply, requester, call, call_without_room, replies, acall),
    )
}

if __name__ == "__main__":
    print("waits", flush=True)
    WAITS[sys.argv[1]](sys.argv[2])
    print("went on")
