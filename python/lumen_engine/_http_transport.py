"""Inference over HTTP, TCP or a unix socket: one request in flight. For `client.py`."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from lumen_engine._control import UnixHttpConnection
from lumen_engine._tensors import (
    DATATYPES,
    MODEL_METADATA,
    MODEL_READY,
    NUMBERS,
    SERVER_METADATA,
    SERVER_READY,
    STATISTICS,
    Arrays,
    InferError,
    Request,
    array_of,
)


class HttpTransport:
    PATHS = {
        SERVER_METADATA: "",
        SERVER_READY: "/health/ready",
        MODEL_METADATA: "",
        MODEL_READY: "/ready",
        STATISTICS: "/stats",
    }

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        base_path: str = "",
        api_key: str | None = None,
    ) -> None:
        self._connection = connection
        self._key = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._base = base_path + "/v2"
        self._lock = threading.Lock()

    def _path_of(self, model: str, version: str) -> str:
        path = f"{self._base}/models/{quote(model, safe='')}"
        return f"{path}/versions/{quote(version, safe='')}" if version else path

    def _exchange(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[http.client.HTTPResponse, bytes]:
        with self._lock:
            try:
                self._connection.request(method, path, body, {**headers, **self._key})
                reply = self._connection.getresponse()
                content = reply.read()
            except (OSError, http.client.HTTPException):
                self._connection.close()  # the next request connects anew
                raise
        if reply.status != 200:
            try:
                message = json.loads(content)["error"]
            except (ValueError, KeyError, TypeError):
                message = content.decode(errors="replace")
            raise InferError(reply.status, message)
        return reply, content

    def _infer(self, request: Request) -> Arrays:
        parameters: dict[str, Any] = {"binary_data_output": True}
        wishes = request.wishes
        if wishes.timeout_us is not None:
            parameters["timeout"] = wishes.timeout_us
        if wishes.no_cache:
            parameters["no_cache"] = True
        if wishes.ttl_ms is not None:
            parameters["ttl_ms"] = wishes.ttl_ms
        if wishes.priority:
            parameters["priority"] = wishes.priority
        if wishes.sequence.id:
            parameters["sequence_id"] = wishes.sequence.id
            parameters["sequence_start"] = wishes.sequence.start
            parameters["sequence_end"] = wishes.sequence.end
        head: dict[str, Any] = {
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": DATATYPES[tensor.number][0],
                    "shape": tensor.shape,
                    "parameters": {"binary_data_size": len(tensor.data)},
                }
                for tensor in request.inputs
            ],
            "parameters": parameters,
        }
        if request.outputs:
            wanted = {"binary_data": True}
            head["outputs"] = [{"name": name, "parameters": wanted} for name in request.outputs]
        text = json.dumps(head).encode()
        body = b"".join([text, *(bytes(tensor.data) for tensor in request.inputs)])
        reply, content = self._exchange(
            "POST",
            self._path_of(request.model, request.version) + "/infer",
            body,
            {"Inference-Header-Content-Length": str(len(text))},
        )
        at = int(reply.headers.get("Inference-Header-Content-Length", len(content)))
        arrays: Arrays = {}
        binary = memoryview(content)
        for output in json.loads(content[:at])["outputs"]:
            size = output["parameters"]["binary_data_size"]
            number = NUMBERS[output["datatype"]]
            arrays[output["name"]] = array_of(number, output["shape"], binary[at : at + size])
            at += size
        return arrays

    def infer_all(self, requests: Sequence[Request]) -> list[Arrays | InferError]:
        answers: list[Arrays | InferError] = []
        for request in requests:
            try:
                answers.append(self._infer(request))
            except InferError as error:
                answers.append(error)
        return answers

    async def infer_async(self, request: Request) -> Arrays:
        return await asyncio.to_thread(self._infer, request)

    def document(self, what: int, model: str, version: str) -> Any:
        is_of_server = what in (SERVER_METADATA, SERVER_READY)
        path = self._base if is_of_server else self._path_of(model, version)
        if what == STATISTICS and not model:
            path = self._base + "/models"
        return json.loads(self._exchange("GET", path + self.PATHS[what])[1])

    def close(self) -> None:
        self._connection.close()


def connect(
    url: str,
    timeout: float | None,
    api_key: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> HttpTransport:
    parts = urlsplit(url)
    if tls is not None and parts.scheme != "https":
        raise ValueError(f"URL {url!r}: wanted https://HOST:PORT, since `tls` is given")
    if url.startswith("unix:"):
        by_unix = UnixHttpConnection(url.removeprefix("unix:"), timeout)
        return HttpTransport(by_unix, api_key=api_key)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"URL {url!r}: wanted bus:/PATH, unix:/PATH, http://HOST:PORT or https://HOST:PORT"
        )
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout, context=tls
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    return HttpTransport(connection, parts.path.rstrip("/"), api_key)
