"""The load of bench/ray_serve.py, in the environment of the judge ray: REPOSITORY MODEL PACKAGES.

Reads lines "CONTENDER SECONDS" from stdin and answers each with its calls a second, until the end.
PACKAGES is a folder with ONNX Runtime, which that environment lacks. A contender is a deployment of
one replica; CLIENTS threads call it, each one after the other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import ray
from lumen_engine.ray import LumenDeployment
from ray import serve

CLIENTS = 16
PATIENCE_S = 60
ROW = np.ones((1, 256), np.float32)


# As many at once as LumenDeployment takes: with Ray's default, 5, callers wait in its router.
@serve.deployment(max_ongoing_requests=256)
class Inside:
    """ONNX Runtime in the replica's process."""

    def __init__(self, model: str, folders: list[str]) -> None:
        sys.path += folders
        from ort_model import OrtModel

        self._model = OrtModel(model)

    async def infer(self, model: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"output": self._model.run(inputs["input"])}


def calls_a_second(call: Callable[[], object], seconds: float) -> float:
    end = time.monotonic() + seconds

    def client(_: int) -> int:
        count = 0
        while time.monotonic() < end:
            call()
            count += 1
        return count

    begin = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        total = sum(pool.map(client, range(CLIENTS)))
    return total / (time.monotonic() - begin)


def caller(handle: Any) -> Callable[[], object]:
    return lambda: handle.infer.remote("mlp", {"input": ROW}).result(timeout_s=PATIENCE_S)


def main() -> None:
    repository, model, packages = sys.argv[1:]
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    serve.start(proxy_location="Disabled")  # its port may be in use, and nothing comes by it
    inside = Inside.bind(model, [str(Path(__file__).parent), packages])
    ours = LumenDeployment.bind(repository, ("--backend", "onnxruntime"))
    calls = {
        "lumen": caller(serve.run(ours, name="lumen", route_prefix=None)),
        "onnxruntime inside": caller(serve.run(inside, name="x", route_prefix=None)),
    }
    answers = [call()["output"] for call in calls.values()]  # type: ignore[index]
    assert np.allclose(*answers, rtol=1e-4, atol=1e-5)
    print("ready", flush=True)
    for line in sys.stdin:
        name, seconds = line.rstrip("\n").rsplit(" ", 1)
        print(calls_a_second(calls[name], float(seconds)), flush=True)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
