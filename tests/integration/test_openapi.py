"""The OpenAPI document against the server, by schemathesis: a judge that nobody here wrote.

It makes up requests from the document, right ones and wrong ones, and checks each reply against it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.raw_http import Connection, get, post, post_json

StartServer = Callable[..., Server]
EXAMPLES = 20 * int(os.environ.get("LUMEN_STRESS_SCALE", "1"))
# That a request which fits the document is served: it can't say which tensors a model takes.
LEFT_OUT = "positive_data_acceptance"


def judged(server: Server, folder: Path, *arguments: str) -> str:
    """What schemathesis has found; empty: nothing."""
    program = Path(sys.executable).parent / "schemathesis"
    url = f"http://{server.url}"
    done = subprocess.run(
        [
            *(str(program), "run", f"{url}/openapi.json", "--url", url, "--seed", "1"),
            *("--max-examples", str(EXAMPLES), "--exclude-checks", LEFT_OUT, "--warnings", "off"),
            # Answered 501, as by a server without a GPU.
            *("--exclude-operation-id", "registerCudaRegion", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
    )
    assert "Operations:       37 selected / 38 total" in done.stdout, done.stdout + done.stderr
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_schemathesis_finds_no_difference(server: StartServer, tmp_path: Path) -> None:
    models = copy_models(tmp_path / "own", [MODELS / "mlp", FIXTURES / "row_sums"])
    one = server("--tcp-control", "on", "--tcp-shm", "on", repository=models)
    assert judged(one, tmp_path) == ""
    with one.connect() as connection:
        # It unloads models, too.
        assert connection.exchange(post("/v2/repository/models/mlp/load", b"")).status == 200
        inputs = [{"name": "input", "datatype": "FP32", "shape": [1, 256], "data": [0.5] * 256}]
        reply = connection.exchange(post_json("/v2/models/mlp/infer", {"inputs": inputs}))
        assert reply.status == 200


def test_wrong_control_calls_are_the_clients_fault(server: StartServer) -> None:
    """Found by schemathesis: these were 503, or 200."""
    one = server("--tcp-control", "on", "--tcp-shm", "on")
    load, unload = ("/v2/repository/models/mlp/" + word for word in ("load", "unload"))

    def refused(connection: Connection, path: str, body: Any) -> str:
        reply = connection.exchange(post_json(path, body))
        assert reply.status == 400, (path, body, reply.body)
        return str(reply.json()["error"])

    with one.connect() as connection:
        for config in ("{", "[]", '{"none": 1}', '{"precision": 1}'):
            error = refused(connection, load, {"parameters": {"config": config}})
            assert error.startswith("the configuration of the load call: ")
        assert "wanted true or false" in refused(
            connection, unload, {"parameters": {"unload_dependents": 1}}
        )
        assert "wanted an object" in refused(connection, unload, {"parameters": []})
        refused(connection, "/v2/systemsharedmemory/unregister", [None])
        assert connection.exchange(get("/v2/models/mlp/ready")).status == 200
