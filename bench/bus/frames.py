"""One measurement of bench/bus.py: a producer in C++ (CPU 0) sends f32[256] frames, this process
(CPU 1) multiplies 256 of them at a time by a matrix 256 x 64 in NumPy.

  frames.py --via bound|view|read_into|tachyon|iceoryx2 [--count N] [--check] -- PRODUCER...

It prints {"frames_s": ..}: from the first batch to the last. With --check every value is compared
bit for bit instead, which takes longer than the rest, and {"frames": .., "wrong": ..} is printed.
PRODUCER gets --row frames --path PATH --count N. Errors: a wrong or lost frame is exit status 1.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent.parent
VALUES, OUTPUTS, BATCH, SENTINEL = 256, 64, 256, 0
BYTES = 4 * VALUES
# Between producer and consumer: more than a core's own caches hold, so that a ring bridges pauses.
CAPACITY = 1 << 22

Batches = Iterator[NDArray[np.float32]]
RAMP = np.arange(VALUES) * 0.001


def expected(first: int, count: int) -> NDArray[np.float32]:
    return (np.arange(first, first + count, dtype="f8")[:, None] + RAMP).astype("f4")


def start(producer: list[str], path: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*producer, "--row", "frames", "--path", path, "--count", str(count)])


def bound(count: int, _producer: list[str], _path: str) -> Batches:
    """NumPy alone, with frames that are there already."""
    ring = expected(0, CAPACITY // BYTES).reshape(-1, BATCH, VALUES)
    for first in range(0, count, BATCH):
        yield ring[first // BATCH % len(ring)][: count - first]


def view(count: int, producer: list[str], path: str) -> Batches:
    from lumen_engine import bus

    with bus.listen(path, capacity=CAPACITY) as listener:
        with start(producer, path, count), listener.accept() as connection:
            subscriber = connection.subscriber
            for batch in subscriber.batches(BATCH, dtype="float32", min=BATCH, timeout=10.0):
                if subscriber.type_id == SENTINEL:
                    return
                yield batch
                del batch  # its slots go back now, not with the next batch


def read_into(count: int, producer: list[str], path: str) -> Batches:
    from lumen_engine import bus

    mine = np.empty((BATCH, VALUES), dtype="f4")
    with bus.listen(path, capacity=CAPACITY) as listener:
        with start(producer, path, count), listener.accept() as connection:
            subscriber = connection.subscriber
            while (taken := subscriber.read_into(mine, min=BATCH, timeout=10.0)) > 0:
                if subscriber.type_id == SENTINEL:
                    return
                yield mine[:taken]


def tachyon(count: int, producer: list[str], path: str) -> Batches:
    """Its batches are of single messages, which are copied side by side."""
    from tachyon import Bus

    mine = np.empty((BATCH, VALUES), dtype="f4")
    rows = [row.data.cast("B") for row in mine]
    with start(producer, path, count), Bus.listen(path, CAPACITY) as bus:
        bus.set_polling_mode(1)
        filled = 0
        while True:
            with bus.drain_batch(BATCH - filled) as batch:
                for message in batch:
                    if message.type_id == SENTINEL:
                        if filled:
                            yield mine[:filled]
                        return
                    with memoryview(message) as data:
                        rows[filled][:] = data
                    filled += 1
            if filled == BATCH:
                yield mine
                filled = 0


def iceoryx2_service(path: str) -> Any:
    import iceoryx2 as iox

    iox.set_log_level(iox.LogLevel.Error)
    node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
    builder = node.service_builder(iox.ServiceName.new(f"bench{path}"))
    frames = builder.publish_subscribe(iox.Slice[ctypes.c_float])
    return frames.enable_safe_overflow(False).subscriber_max_buffer_size(BATCH).open_or_create()


def produce_iceoryx2(path: str, count: int) -> None:
    """Of iceoryx2 there is no C++ producer in a package: this one is Python, as its consumer is."""
    import iceoryx2 as iox

    os.sched_setaffinity(0, {0})
    factory = iceoryx2_service(path).publisher_builder()
    factory = factory.backpressure_strategy(iox.BackpressureStrategy.RetryUntilDelivered)
    publisher = factory.initial_max_slice_len(VALUES).create()

    def send(address: int) -> None:
        receivers = 0
        while receivers == 0:  # its strategy gives up at times (seen), and says so by a 0
            sample = publisher.loan_slice_uninit(VALUES)
            ctypes.memmove(sample.payload_ptr, address, BYTES)
            receivers = sample.assume_init().send()

    for first in range(0, count, BATCH):
        frames = expected(first, min(BATCH, count - first))
        for row in range(len(frames)):
            send(frames.ctypes.data + row * BYTES)
    nothing = np.full(VALUES, -1, dtype="f4")
    send(nothing.ctypes.data)
    while os.path.exists(path):  # the consumer has not read all of it
        time.sleep(0.01)


def iceoryx2(count: int, _producer: list[str], path: str) -> Batches:
    subscriber = iceoryx2_service(path).subscriber_builder().create()
    Path(path).touch()
    context = multiprocessing.get_context("spawn")
    producer = context.Process(target=produce_iceoryx2, args=(path, count))
    producer.start()
    mine = np.empty((BATCH, VALUES), dtype="f4")
    filled = 0
    while True:
        sample = subscriber.receive()
        if sample is None:
            continue
        ctypes.memmove(mine.ctypes.data + filled * BYTES, sample.payload_ptr, BYTES)
        sample.delete()
        if mine[filled, 0] < 0:
            break
        filled += 1
        if filled == BATCH:
            yield mine
            filled = 0
    if filled:
        yield mine[:filled]
    Path(path).unlink()
    producer.join()


CONSUMERS: dict[str, Callable[[int, list[str], str], Batches]] = {
    "bound": bound,
    "view": view,
    "read_into": read_into,
    "tachyon": tachyon,
    "iceoryx2": iceoryx2,
}


def check(batches: Batches) -> tuple[int, int]:
    """How many frames came, and how many of them differed from the sent ones."""
    frames, wrong = 0, 0
    for batch in batches:
        right = expected(frames, len(batch)).view("u4") == batch.view("u4")
        frames, wrong = frames + len(batch), wrong + int((~right.all(axis=1)).sum())
    return frames, wrong


def measure(batches: Batches) -> tuple[int, float]:
    """Frames after the first batch, and the seconds that they took."""
    weights = np.random.default_rng(0).standard_normal((VALUES, OUTPUTS), dtype="f4")
    product = np.empty((BATCH, OUTPUTS), dtype="f4")
    frames, started = 0, 0.0
    for batch in batches:
        np.matmul(batch, weights, out=product[: len(batch)])
        if started:
            frames += len(batch)
        else:
            started = time.perf_counter()
        del batch
    return frames, time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--via", choices=CONSUMERS, required=True)
    parser.add_argument("--count", type=int, default=500_000)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("producer", nargs="*")
    options = parser.parse_args()
    os.sched_setaffinity(0, {1})
    sys.path += [str(ROOT / "python"), str(ROOT / ".build" / "bus_python")]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/bus"
        batches = CONSUMERS[options.via](options.count, options.producer, path)
        if options.check:
            frames, wrong = check(batches)
            print(json.dumps({"frames": frames, "wrong": wrong}))
            return 0 if (frames, wrong) == (options.count, 0) else 1
        frames, seconds = measure(batches)
    if options.count - frames not in range(1, BATCH + 1):
        print(
            f"{options.count} frames were sent, {frames} came after the first batch",
            file=sys.stderr,
        )
        return 1
    print(json.dumps({"frames_s": frames / seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
