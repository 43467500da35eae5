"""One inference request by hand, and no other: under valgrind each one takes half a minute.

Random values, seeded: zeros would let a kernel skip work. Threads: the main one. Errors: PerfError
with the server's answer.
"""

from __future__ import annotations

import http.client
import json
import random
from array import array
from typing import Any

from lumen_engine.perf.programs import PerfError

# Bytes of an element. BYTES has no fixed size: such a model can't be simulated here.
ELEMENT_BYTES = {
    **dict.fromkeys(("BOOL", "INT8", "UINT8"), 1),
    **dict.fromkeys(("INT16", "UINT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("INT32", "UINT32", "FP32"), 4),
    **dict.fromkeys(("INT64", "UINT64", "FP64"), 8),
}
ANSWER_TIMEOUT_S = 900.0


def make_tensor(datatype: str, shape: list[int]) -> bytes:
    count = 1
    for size in shape:
        count *= size
    if datatype in ("FP32", "FP64"):
        source = random.Random(1)
        code = "f" if datatype == "FP32" else "d"
        return array(code, [source.uniform(-1, 1) for _ in range(count)]).tobytes()
    if datatype not in ELEMENT_BYTES:
        raise PerfError(f"an input of type {datatype} can't be made up: use another --model")
    return bytes(count * ELEMENT_BYTES[datatype])


class Request:
    """The same bytes each time, over one connection."""

    def __init__(self, host: str, port: int, model: str) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
        self._path = f"/v2/models/{model}"
        inputs: list[dict[str, Any]] = json.loads(self._ask("GET", self._path))["inputs"]
        tensors, data = [], b""
        for one in inputs:
            shape = [max(1, int(size)) for size in one["shape"]]
            tensor = make_tensor(one["datatype"], shape)
            data += tensor
            tensors.append(
                {
                    "name": one["name"],
                    "datatype": one["datatype"],
                    "shape": shape,
                    "parameters": {"binary_data_size": len(tensor)},
                }
            )
        document = {"inputs": tensors, "parameters": {"binary_data_output": True}}
        text = json.dumps(document).encode()
        self._body = text + data
        self._headers = {"Inference-Header-Content-Length": str(len(text))}

    def send(self) -> None:
        self._ask("POST", f"{self._path}/infer", self._body, self._headers)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        try:
            self._connection.request(method, path, body, headers or {})
            reply = self._connection.getresponse()
            answer = reply.read()
        except OSError as error:
            raise PerfError(f"{method} {path}: {error}: has the server ended?") from error
        if reply.status != 200:
            raise PerfError(f"{method} {path}: got {reply.status} {answer[:200]!r}, wanted 200")
        return answer
