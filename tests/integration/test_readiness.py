"""`--ready-when all`, over HTTP, gRPC and the bus, as models come and go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from integration.harness import MODELS, Server, copy_models
from integration.raw_http import get, post_json
from integration.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    WATCH,
    Connection,
    frame,
    header_block,
    message,
)
from lumen_engine import Client

SERVING, NOT_SERVING = (message(b"\x08" + bytes([state])) for state in (1, 2))
LOAD, UNLOAD = (f"/v2/repository/models/mlp/{word}" for word in ("load", "unload"))


def repository(folder: Path) -> Path:
    models = copy_models(folder / "models", [MODELS / "identity", MODELS / "mlp"])
    (models / "mlp" / "1" / "model.onnx").write_bytes(b"none")
    return models


def mend(models: Path) -> None:
    shutil.copy(MODELS / "mlp" / "1" / "model.onnx", models / "mlp" / "1" / "model.onnx")


@pytest.mark.parametrize("way", ["load", "unload", "poll"])
def test_a_server_with_a_broken_model_is_ready_once_it_is_mended_or_gone(
    tmp_path: Path, way: str
) -> None:
    models, bus = repository(tmp_path), tmp_path / "bus"
    flags = ["--ready-when", "all", "--tcp-control", "on", "--bus", str(bus)]
    flags += ["--model-control", "poll", "--poll-interval-ms", "50"] if way == "poll" else []
    with (
        Server(models, *flags) as server,
        server.connect() as http,
        Connection(server.address) as grpc,
        Client(f"bus:{bus}") as client,
    ):
        reply = http.exchange(get("/v2/health/ready"))
        assert reply.status == 503 and b"mlp" in reply.body
        assert http.exchange(get("/v2/health/live")).status == 200
        assert http.exchange(get("/v2/models/identity/ready")).status == 200
        grpc.send(frame(HEADERS, END_HEADERS, 1, header_block(WATCH)))
        grpc.send(frame(DATA, END_STREAM, 1, message(b"")))
        assert grpc.end_of_data(1)[-1].payload == NOT_SERVING
        assert not client.is_ready()
        if way == "unload":
            assert http.exchange(post_json(UNLOAD, {})).status == 200
        else:
            mend(models)
        if way == "load":
            assert http.exchange(post_json(LOAD, {})).status == 200
        # Without another request: the change itself wakes the thread.
        assert grpc.end_of_data(1)[-1].payload == SERVING
        assert http.exchange(get("/v2/health/ready")).status == 200
        assert client.is_ready()


def test_a_model_that_breaks_while_it_serves_leaves_the_server_ready(tmp_path: Path) -> None:
    """The older state of it serves on."""
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    with (
        Server(models, "--ready-when", "all", "--tcp-control", "on") as server,
        server.connect() as http,
    ):
        (models / "mlp" / "1" / "model.onnx").write_bytes(b"none")
        assert http.exchange(post_json(LOAD, {})).status != 200
        assert http.exchange(get("/v2/models/mlp/ready")).status == 200
        assert http.exchange(get("/v2/health/ready")).status == 200


def test_by_default_a_broken_model_is_no_reason_to_take_the_others_away(tmp_path: Path) -> None:
    with Server(repository(tmp_path)) as server, server.connect() as http:
        assert http.exchange(get("/v2/health/ready")).status == 200
        assert http.exchange(get("/v2/models/mlp/ready")).status == 503


def test_a_server_that_leaves_says_so_over_the_bus_too(tmp_path: Path) -> None:
    """It said ready for its whole drain delay."""
    bus = tmp_path / "bus"
    models = copy_models(tmp_path / "models", [MODELS / "identity"])
    with (
        Server(models, "--bus", str(bus), "--drain-delay-ms", "2000") as server,
        Client(f"bus:{bus}") as client,
    ):
        assert client.is_ready()
        server.interrupt()
        server.wait_for_log("not ready any more")
        assert not client.is_ready()
        assert server.wait() == 0
