"""A request for any model, made up from its metadata, for bench/queue_types.py.

Threads: none. Errors: KeyError for a datatype that the protocol does not have.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from bench.load.serving import post

# One row; other free axes as the server's own trial runs have them.
FREE_AXIS = 16
DTYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "BF16": np.uint16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def shape_of(given: list[int]) -> list[int]:
    return [size if size >= 0 else 1 if at == 0 else FREE_AXIS for at, size in enumerate(given)]


def bytes_of(datatype: str, shape: list[int]) -> bytes:
    count = int(np.prod(shape, dtype=np.int64))
    if datatype == "BYTES":
        return b"\1\0\0\0a" * count  # a length and one letter each
    dtype = DTYPES[datatype]
    if datatype in ("FP16", "FP32", "FP64"):
        return np.random.default_rng(3).standard_normal(count).astype(dtype).tobytes()
    return np.ones(count, dtype).tobytes()


def request_of(metadata: dict[str, Any]) -> bytes:
    """`metadata`: the answer of GET /v2/models/NAME. All tensors and outputs are binary."""
    inputs, payload = [], b""
    for tensor in metadata["inputs"]:
        shape = shape_of(tensor["shape"])
        data = bytes_of(tensor["datatype"], shape)
        parameters = {"binary_data_size": len(data)}
        inputs.append(
            {
                "name": tensor["name"],
                "shape": shape,
                "datatype": tensor["datatype"],
                "parameters": parameters,
            }
        )
        payload += data
    document = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    text = json.dumps(document, separators=(",", ":")).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"/v2/models/{metadata['name']}/infer", text + payload, length)
