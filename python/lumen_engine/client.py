"""A client of an inference server, over the bus, a unix socket or TCP, behind one face.

    with Client("bus:/run/user/1000/lumen.bus") as client:     # or "unix:/path", "http://host:8000",
                                                               # "https://host:8443"
        logits = client.infer("mlp", {"input": row})["logits"]
        many = client.infer_batch("mlp", [{"input": row} for row in rows])   # several in flight
        answer = await client.infer_async("mlp", {"input": row})

Inputs and outputs are dicts of NumPy arrays by name; BYTES tensors are arrays of `bytes` objects.
A refusal of the server raises InferError, with HTTP's status for it.

Over the bus arrays are copied into memory that the server reads in place, and outputs out of memory
that it has written; nothing else is copied, and nothing goes through the kernel while both sides
are awake. Over HTTP a client has one connection and one request in flight.

Threads: a client may be used by several, one at a time goes on; `infer_async` belongs to one event
loop, and is not mixed with the other calls while it waits. Timeouts are seconds.
"""

from __future__ import annotations

import math
import ssl
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from lumen_engine import _http_transport
from lumen_engine._tensors import (
    MODEL_METADATA,
    MODEL_READY,
    NUMBERS,
    SERVER_METADATA,
    SERVER_READY,
    STATISTICS,
    Arrays,
    InferError,
    InSequence,
    Request,
    Wishes,
    tensor_of,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Client", "InferError"]


class Transport(Protocol):
    """The differences between the bus and HTTP."""

    def infer_all(self, requests: Sequence[Request]) -> list[Arrays | InferError]: ...
    async def infer_async(self, request: Request) -> Arrays: ...
    def document(self, what: int, model: str, version: str) -> Any: ...
    def close(self) -> None: ...


def timeout_us_of(deadline: float | None) -> int | None:
    """0 means never; less than a microsecond is not that."""
    return None if deadline is None else math.ceil(deadline * 1e6)


def transport_of(
    url: str, timeout: float | None, api_key: str | None, tls: ssl.SSLContext | None
) -> Transport:
    if not url.startswith("bus:") or tls is not None:
        return _http_transport.connect(url, timeout, api_key, tls)
    # A client over HTTP needs no extension.
    from lumen_engine._bus_transport import BusTransport  # noqa: PLC0415

    return BusTransport(url.removeprefix("bus:"), timeout)


class Client:
    """`url`: bus:/PATH, unix:/PATH, http://HOST:PORT or https://HOST:PORT; `timeout`: of a reply,
    None: for ever.

    `api_key`: for a server over TCP with --api-key-file; the bus and unix sockets need none.
    `tls`: of https, for an authority or a certificate of one's own; None: the authorities that the
    system knows, as ssl.create_default_context() has them.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float | None = 20.0,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        self._transport = transport_of(url, timeout, api_key, tls)
        self._lock = threading.Lock()
        self._metadata: dict[tuple[str, str], Any] = {}

    def infer(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        deadline: float | None = None,
        no_cache: bool = False,
        ttl_ms: int | None = None,
        priority: int = 0,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
    ) -> Arrays:
        """The outputs by name: those of `outputs`, or all. `deadline`: seconds after which the
        server need not begin with it any more; 0: never; None: the server's default.
        `no_cache`: neither answered from the response cache nor kept there; `ttl_ms`, 1 or more:
        takes from it, and leaves there, no answer that is older. `priority`: 1 is run before 2, 2
        before 3; 0: the model's own. `sequence_id`: of a model that keeps states, the sequence
        that the request belongs to, a number of 1 or more or, not over the bus, a text;
        `sequence_start` on its first request, `sequence_end` on its last."""
        sequence = InSequence(sequence_id, sequence_start, sequence_end)
        wishes = Wishes(timeout_us_of(deadline), no_cache, ttl_ms, priority, sequence)
        with self._lock:
            request = self._request(model, inputs, outputs, version, wishes)
            (answer,) = self._transport.infer_all([request])
        if isinstance(answer, InferError):
            raise answer
        return answer

    def infer_batch(
        self,
        model: str,
        inputs: Sequence[Mapping[str, ArrayLike]],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        deadline: float | None = None,
        no_cache: bool = False,
        ttl_ms: int | None = None,
        priority: int = 0,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
    ) -> list[Arrays]:
        """An answer for each, in their order. Over the bus as many are in flight as its memory has
        room for. One that is refused raises, once all are answered. With `sequence_id` they are
        run in their order; `sequence_start` counts for the first, `sequence_end` for the last."""
        wishes = Wishes(timeout_us_of(deadline), no_cache, ttl_ms, priority)
        last = len(inputs) - 1
        places = [
            InSequence(sequence_id, sequence_start and i == 0, sequence_end and i == last)
            for i in range(len(inputs))
        ]
        with self._lock:
            answers = self._transport.infer_all(
                [
                    self._request(model, one, outputs, version, wishes._replace(sequence=place))
                    for one, place in zip(inputs, places, strict=True)
                ]
            )
        for answer in answers:
            if isinstance(answer, InferError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, InferError)]

    async def infer_async(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        deadline: float | None = None,
        no_cache: bool = False,
        ttl_ms: int | None = None,
        priority: int = 0,
        sequence_id: int | str = 0,
        sequence_start: bool = False,
        sequence_end: bool = False,
    ) -> Arrays:
        """As infer(), any number at once on one event loop; over HTTP one after the other."""
        sequence = InSequence(sequence_id, sequence_start, sequence_end)
        wishes = Wishes(timeout_us_of(deadline), no_cache, ttl_ms, priority, sequence)
        request = self._request(model, inputs, outputs, version, wishes)
        return await self._transport.infer_async(request)

    def metadata(self, model: str = "", version: str = "") -> Any:
        """Of a model; without one, of the server."""
        return self._document(MODEL_METADATA if model else SERVER_METADATA, model, version)

    def is_ready(self, model: str = "", version: str = "") -> bool:
        try:
            return bool(
                self._document(MODEL_READY if model else SERVER_READY, model, version)["ready"]
            )
        except InferError:
            return False

    def statistics(self, model: str = "", version: str = "") -> Any:
        return self._document(STATISTICS, model, version)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _document(self, what: int, model: str, version: str) -> Any:
        with self._lock:
            return self._transport.document(what, model, version)

    def _request(
        self,
        model: str,
        inputs: Mapping[str, ArrayLike],
        outputs: Sequence[str],
        version: str,
        wishes: Wishes,
    ) -> Request:
        # Asked once: sizes and types alone are taken from it.
        key = (model, version)
        if key not in self._metadata:
            self._metadata[key] = self._transport.document(MODEL_METADATA, model, version)
        metadata = self._metadata[key]
        known = {one["name"]: NUMBERS[one["datatype"]] for one in metadata["inputs"]}
        tensors = [tensor_of(name, given, known.get(name)) for name, given in inputs.items()]
        return Request(model, version, tensors, outputs, metadata["outputs"], wishes)
