"""Ray Serve with lumen_engine.ray, run by the environment of the judge ray: MODELS.

Replicas on one node, a deployment that prepares and reads, a server that is killed, the end. Prints
a line for each part; an exit status of 0 says that all were right.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np
import ray
from lumen_engine import InferError
from lumen_engine.ray import NAMESPACE, LumenDeployment
from ray import serve
from ray.util import list_named_actors

MODELS = sys.argv[1]
PATIENCE_S = 120


@serve.deployment
class Doubled:
    """A deployment of a user: it prepares inputs before, and reads outputs after."""

    def __init__(self, lumen: Any) -> None:
        self._lumen = lumen

    async def __call__(self, row: list[float]) -> float:
        inputs = {"input": np.array([row], np.float32) * 2}
        answer = await self._lumen.infer.remote("identity", inputs)
        return float(answer["output"].sum())


def server_pids() -> list[int]:
    """Of the actors that Ray knows; each has one server."""
    actors = list_named_actors(all_namespaces=True)
    ours = [one["name"] for one in actors if one["namespace"] == NAMESPACE]
    handles = [ray.get_actor(name, namespace=NAMESPACE) for name in ours]
    return ray.get([handle.pid.remote() for handle in handles])


def check_answers(handle: Any, count: int) -> None:
    """Each its own, many at once."""
    rows = [np.full((1, 8), i, np.float32) for i in range(count)]
    replies = [handle.infer.remote("identity", {"input": row}) for row in rows]
    for row, reply in zip(rows, replies):
        assert (reply.result(timeout_s=PATIENCE_S)["output"] == row).all()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    serve.start(proxy_location="Disabled")  # its port may be in use, and nothing comes by it
    lumen = LumenDeployment.options(num_replicas=3, ray_actor_options={"num_cpus": 1}).bind(
        MODELS, ("--backend", "openvino")
    )
    handle = serve.run(Doubled.bind(lumen), route_prefix=None)
    assert handle.remote([1, 2, 3]).result(timeout_s=PATIENCE_S) == 12
    inner = serve.get_deployment_handle("LumenDeployment", "default")
    check_answers(inner, 300)
    (pid,) = server_pids()
    print("three replicas, one server")

    try:
        inner.infer.remote("nothing", {"input": [1.0]}).result(timeout_s=PATIENCE_S)
        raise SystemExit("a model that is not there has answered")
    except InferError as error:
        assert error.status == 404 and "nothing" in error.message, error
    print("a refusal")

    os.kill(pid, signal.SIGKILL)
    check_answers(inner, 300)
    (next_pid,) = server_pids()
    assert next_pid != pid and is_alive(next_pid)
    print("a server that was killed")

    serve.delete("default")
    end = time.monotonic() + PATIENCE_S
    while is_alive(next_pid) or server_of_any():
        assert time.monotonic() < end, "the server outlives its replicas"
        time.sleep(0.1)  # sleep: its end is told to nobody
    print("the end")
    ray.shutdown()


def server_of_any() -> bool:
    return any(one["namespace"] == NAMESPACE for one in list_named_actors(all_namespaces=True))


if __name__ == "__main__":
    main()
