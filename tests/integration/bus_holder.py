"""A subscriber that holds batches and follows the words of its input: `bus_holder.py HOW PATH`.

HOW: "listen", and a publisher connects, or "connect" to one. Prints "holds", then a line for each
line of its input.
"""

from __future__ import annotations

import os
import signal
import sys

from integration.bus_pair import PATIENCE
from lumen_engine import bus

how, path = sys.argv[1:]
if how == "listen":
    listener = bus.listen(path, capacity=4096)
    connection = listener.accept(PATIENCE)
else:
    connection = bus.connect(path)
batches = connection.subscriber.batches(16, dtype="f4", timeout=PATIENCE)
held = [next(batches)]


def take() -> str:
    held.append(next(batches))
    return str(held[-1][0, 0])


def let_go() -> str:
    held.clear()
    return "nothing"


def fork() -> str:
    """The child goes on, its parent only waits to be killed."""
    while os.fork() != 0:
        signal.pause()
    return "forked"


def read() -> str:
    return str(sum(int(batch.sum()) for batch in held))


COMMANDS = {
    "take": take,
    "let go": let_go,
    "fork": fork,
    "read": read,
    "sys.exit": lambda: sys.exit(0),
    "os._exit": lambda: os._exit(3),
    "raise": lambda: str(1 // 0),
}

print("holds", flush=True)
while line := sys.stdin.readline():
    try:
        print(COMMANDS[line.strip()](), flush=True)
    except bus.BusError as error:
        print(type(error).__name__, flush=True)
