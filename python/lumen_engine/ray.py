"""Ray Serve in front of Lumen: one server a node, which the replicas of that node ask over the bus.

    from lumen_engine.ray import LumenDeployment

    app = LumenDeployment.options(num_replicas=2).bind("/models")
    handle = serve.run(app)
    answer = handle.infer.remote("digits", {"image": array}).result()    # a dict of arrays

A deployment of yours that prepares inputs and reads outputs takes such a handle as an argument of
its bind(). The first replica of a node starts the server; it ends once the last one has been gone
for LEASE_S. A server that dies is started again, and a request that it had is asked once more: an
inference changes nothing.

Threads: a replica is its event loop's; the server's actor has one more, which sees replicas go.
Errors: InferError for what the server refuses; ConnectionError where no server can be had.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray import serve
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lumen_engine.client import Client
from lumen_engine.server import Server

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["LumenDeployment"]

NAMESPACE = "lumen_engine"
LEASE_S = 10.0
# A request is asked of so many servers, one after the other: that of now, and the next one.
TRIES = 2
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """In the server's process: an actor that is killed leaves none behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Leases:
    """A socket that each replica keeps open: the kernel tells of one that is gone."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(128)

    def wait_until_unused(self, seconds: float) -> None:
        """Returns once nobody has had one for so long."""
        held: list[socket.socket] = []
        end = time.monotonic() + seconds
        while held or time.monotonic() < end:
            wait = None if held else max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._listener, *held], [], [], wait)
            for one in ready:
                if one is self._listener:
                    held.append(self._listener.accept()[0])
                else:  # its end: nothing is ever sent
                    one.close()
                    held.remove(one)
            if ready and not held:
                end = time.monotonic() + seconds


class NodeServer:
    """The actor of a node's server."""

    def __init__(self, name: str, repository: str, arguments: tuple[str, ...]) -> None:
        self._name = name
        self._repository = repository
        self._arguments = arguments
        self._folder = Path(tempfile.mkdtemp(prefix="lumen-ray-"))
        self._server: Server | None = None
        self._leases = Leases(self._folder / "leases")
        threading.Thread(target=self._end_when_unused, daemon=True).start()

    def leases(self) -> str:
        """The path of their socket: a replica takes one before it asks for the address."""
        return str(self._folder / "leases")

    def address(self) -> str:
        """The server's, which is started where none runs."""
        if self._server is None or self._server.process.poll() is not None:
            bus = self._folder / "bus"
            bus.unlink(missing_ok=True)
            self._server = Server(
                self._repository,
                self._arguments,
                http="off",
                bus=bus,
                log_file=self._folder / "log",
                preexec_fn=end_with_parent,
            )
        return f"bus:{self._folder / 'bus'}"

    def pid(self) -> int:
        """Of the server."""
        return self._server.process.pid if self._server is not None else 0

    def _end_when_unused(self) -> None:
        self._leases.wait_until_unused(LEASE_S)
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        ray.kill(ray.get_actor(self._name, namespace=NAMESPACE))


def server_of_this_node(repository: str, arguments: tuple[str, ...]) -> Any:
    """The handle of its actor, which is made by the first that asks."""
    node = ray.get_runtime_context().get_node_id()
    key = hashlib.sha256(repr((repository, arguments)).encode()).hexdigest()[:12]
    name = f"lumen-{key}-{node}"
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(NodeServer)
    return actor.options(
        name=name,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    ).remote(name, repository, arguments)


class Held(NamedTuple):
    """A replica's way to the server of its node."""

    client: Client
    lease: socket.socket


@serve.deployment(max_ongoing_requests=256)
class LumenDeployment:
    """`repository`: of the models, on each node; `arguments`: of `lumen serve`; `timeout`: of
    a reply, in seconds."""

    def __init__(
        self,
        repository: str | os.PathLike[str],
        arguments: Sequence[str] = (),
        timeout: float = 20.0,
    ) -> None:
        self._repository = os.fspath(repository)
        self._arguments = tuple(arguments)
        self._timeout = timeout
        self._connecting = asyncio.Lock()
        self._held: Held | None = None

    async def infer(
        self, model: str, inputs: Mapping[str, ArrayLike], **wishes: Any
    ) -> dict[str, Any]:
        """The outputs by name; `wishes` as Client.infer() takes them."""
        tries = 0
        while True:
            held = await self._connected()
            tries += 1
            try:
                return await held.client.infer_async(model, inputs, **wishes)
            except ConnectionError:
                self._forget(held)
                if tries == TRIES:
                    raise

    async def check_health(self) -> None:
        """Ray's: a replica that raises is replaced."""
        await self._connected()

    async def _connected(self) -> Held:
        async with self._connecting:
            if self._held is None:
                actor = server_of_this_node(self._repository, self._arguments)
                lease = socket.socket(socket.AF_UNIX)
                lease.connect(await actor.leases.remote())
                url = await actor.address.remote()
                self._held = Held(Client(url, timeout=self._timeout), lease)
            return self._held

    def _forget(self, held: Held) -> None:
        """All requests that were in flight come here, the first one alone finds it."""
        if self._held is held:
            self._held = None
            held.client.close()
            held.lease.close()
