"""Mosec with one worker process, raw float32 bytes in and out.

BENCH_BATCH above 1 turns on its dynamic batching: up to that many requests in one call, waiting
1 ms for more, the least that it takes.
"""

from __future__ import annotations

import os

import numpy as np
from mosec import Server, Worker
from ort_model import from_environment

BATCH = int(os.environ.get("BENCH_BATCH", "1"))


class Single(Worker):
    def __init__(self) -> None:
        self.model = from_environment()

    def deserialize(self, data: bytes) -> np.ndarray:
        return self.model.rows(data)

    def serialize(self, data: np.ndarray) -> bytes:
        return data.tobytes()

    def forward(self, data: np.ndarray) -> np.ndarray:
        return self.model.run(data)


class Batched(Single):
    def forward(self, data: list[np.ndarray]) -> list[np.ndarray]:
        return list(self.model.run(np.concatenate(data)))


if __name__ == "__main__":
    server = Server()
    if BATCH > 1:
        server.append_worker(Batched, num=1, max_batch_size=BATCH, max_wait_time=1, route="/infer")
    else:
        server.append_worker(Single, num=1, route="/infer")
    server.run()
