"""One bad request spoils no model for others: over HTTP, in each stage, for each queue type."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.load import QUEUE_TYPES
from integration.raw_http import Connection, Reply

StartServer = Callable[..., Server]

KINDS = {np.dtype(np.float32): "FP32", np.dtype(np.int32): "INT32", np.dtype(np.int64): "INT64"}


@pytest.fixture
def failing_repository(tmp_path: Path) -> Path:
    names = ("relu_sum", "relu_concat", "pick", "reshape_to")
    return copy_models(
        tmp_path / "failing", [*(FIXTURES / name for name in names), MODELS / "identity"]
    )


def infer(connection: Connection, model: str, binary: bool = True, **arrays: np.ndarray) -> Reply:
    tensors, payload = [], b""
    for name, array in arrays.items():
        data = array.tobytes()
        tensors.append(
            {
                "name": name,
                "datatype": KINDS[array.dtype],
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(data)},
            }
        )
        payload += data
    document = {"inputs": tensors, "parameters": {"binary_data_output": binary}}
    head = json.dumps(document).encode()
    connection.send(
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\n"
        f"Inference-Header-Content-Length: {len(head)}\r\n"
        f"Content-Length: {len(head) + len(payload)}\r\n\r\n".encode()
        + head
        + payload
    )
    return connection.reply()


def rows(count: int) -> np.ndarray:
    return np.arange(4 * count, dtype=np.float32).reshape(count, 4) / 7


def index(count: int, value: int) -> np.ndarray:
    return np.full((count, 4), value, dtype=np.int32)


@pytest.mark.parametrize("queue", QUEUE_TYPES)
def test_a_request_that_fails_does_not_fail_the_next(
    server: StartServer, failing_repository: Path, queue: str
) -> None:
    one = server(
        *("--queue-type", queue, "--max-body-bytes", str(8 << 20)), repository=failing_repository
    )
    with Connection(one.address) as connection:

        def good() -> list[Reply]:
            # The same shapes each time: another shape hid the fault.
            return [
                infer(connection, "relu_sum", left=rows(2), right=rows(2)),
                infer(connection, "relu_concat", left=rows(2), right=rows(2)),
                infer(connection, "pick", rows=rows(2), index=index(2, 1)),
                infer(connection, "reshape_to", rows=rows(2), shape=np.array([4, 2])),
                infer(connection, "identity", input=rows(2)),
            ]

        before = good()
        assert [reply.status for reply in before] == [200] * 5, [reply.body for reply in before]
        # Its numbers as text need more than the request's memory has.
        long = -np.full((512, 4000), 1.2345678e-30, dtype=np.float32)
        failures = [
            (400, lambda: infer(connection, "relu_sum", left=rows(2), right=rows(3))),
            (400, lambda: infer(connection, "relu_concat", left=rows(2), right=rows(3))),
            (500, lambda: infer(connection, "pick", rows=rows(3), index=index(3, 9))),
            (400, lambda: infer(connection, "reshape_to", rows=rows(2), shape=np.array([3, 3]))),
            (413, lambda: infer(connection, "identity", binary=False, input=long)),
        ]
        for wanted, fail in failures:
            reply = fail()
            assert reply.status == wanted, reply.body
            after = good()
            assert [reply.status for reply in after] == [200] * 5, [r.body for r in after]
            assert [reply.body for reply in after] == [reply.body for reply in before]


def test_inputs_whose_shapes_contradict_each_other_are_both_named(
    server: StartServer, failing_repository: Path
) -> None:
    one = server(repository=failing_repository)
    with Connection(one.address) as connection:
        tied = infer(connection, "relu_concat", left=rows(2), right=rows(3))
        assert tied.status == 400
        assert "'left' and 'right'" in tied.error and "[2,4] and [3,4]" in tied.error
        refused = infer(connection, "relu_sum", left=rows(2), right=rows(3))
        assert refused.status == 400
        assert "'left' [2,4], 'right' [3,4]" in refused.error
