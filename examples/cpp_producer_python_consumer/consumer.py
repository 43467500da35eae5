"""Reads the frames of the C++ producer beside it where they lie, and multiplies them by a matrix.

    python consumer.py [PATH] [--check]

It owns the socket; either side may start first. With --check every value is compared, which takes
longer than the rest. torch multiplies if it is installed, else NumPy.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from lumen_engine import bus

try:
    import torch
except ImportError:
    torch = None

VALUES, OUTPUTS, BATCH, SENTINEL = 256, 64, 256, 0

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("path", nargs="?", default="/tmp/lumen-example.bus")
parser.add_argument("--check", action="store_true")
arguments = parser.parse_args()

weights = np.random.default_rng(0).standard_normal((VALUES, OUTPUTS), dtype="f4")
ramp = np.arange(VALUES) * 0.001
frames, batches, wrong, started = 0, 0, 0, 0.0

with bus.listen(arguments.path, capacity=1 << 22) as listener, listener.accept() as connection:
    subscriber = connection.subscriber
    for batch in subscriber.batches(BATCH, dtype="float32", min=BATCH, timeout=1.0):
        if subscriber.type_id == SENTINEL:
            break
        started = started or time.perf_counter()
        if torch is not None:
            # torch knows no read-only memory and would warn; nothing here writes to it.
            product = torch.from_dlpack(batch) @ torch.from_numpy(weights)
        else:
            product = batch @ weights
        if arguments.check:
            numbers = np.arange(frames, frames + len(batch), dtype="f8")
            wrong += int((batch != (numbers[:, None] + ramp).astype("f4")).any(axis=1).sum())
        frames, batches = frames + len(batch), batches + 1
    seconds = time.perf_counter() - started

rate = frames / seconds
print(f"consumer: {frames} frames in {batches} batches, {rate:.0f} frames/s,", end=" ")
print(f"{rate * VALUES * 4 / 1e9:.2f} GB/s" + (f", {wrong} wrong" if arguments.check else ""))
raise SystemExit(1 if wrong or not frames else 0)
