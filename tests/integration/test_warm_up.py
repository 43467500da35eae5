"""Warm-up requests of a model's config.json: run by each instance before it serves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.raw_http import get, post, post_json

StartServer = Callable[..., Server]


def tensor(name: str, datatype: str, shape: list[int], data: Any = "random") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def reshaped_to(*shape: int) -> list[dict[str, Any]]:
    """For the model `reshape_to`, which fails at shapes that do not hold 4 numbers."""
    return [tensor("rows", "FP32", [1, 4]), tensor("shape", "INT64", [len(shape)], list(shape))]


def write_warm_up(
    models: Path, model: str, *requests: list[dict[str, Any]], count: int = 1
) -> None:
    warmup = [{"inputs": inputs, "count": count} for inputs in requests]
    (models / model / "config.json").write_text(json.dumps({"warmup": warmup}))


def state(server: Server, model: str) -> str:
    """READY, or why it is not."""
    with server.connect() as connection:
        index = connection.exchange(post("/v2/repository/index", b"{}")).json()
    found = next(one for one in index if one["name"] == model)
    return str(found["state"] if found["state"] == "READY" else found["reason"])


@pytest.mark.parametrize("queue_type", ["auto", "inline", "batched"])
@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_a_model_that_fails_its_warm_up_is_unavailable_with_the_reason(
    server: StartServer, tmp_path: Path, backend: str, queue_type: str
) -> None:
    """The second request fails by the numbers in it: so both were run, with their data."""
    models = copy_models(tmp_path / "own", [FIXTURES / "reshape_to", MODELS / "mlp"])
    write_warm_up(models, "reshape_to", reshaped_to(2, 2), reshaped_to(5, 5))
    write_warm_up(models, "mlp", [tensor("input", "FP32", [1, 256], "zeros")], count=3)
    one = server("--backend", backend, "--queue-type", queue_type, repository=models)
    found = state(one, "reshape_to")
    assert found.startswith('config.json: key "warmup[1]": '), found
    assert state(one, "mlp") == "READY"
    with one.connect() as connection:
        stats = connection.exchange(get("/v2/models/mlp/stats")).json()["model_stats"][0]
        config = connection.exchange(get("/v2/models/mlp/config")).json()
    assert stats["inference_count"] == 0, "warm-up requests are no client's"
    assert config["model_warmup"][0]["count"] == 3
    assert config["model_warmup"][0]["inputs"]["input"]["zero_data"] is True
    write_warm_up(models, "reshape_to", reshaped_to(2, 2), reshaped_to(4, 1))
    assert state(server("--backend", backend, repository=models), "reshape_to") == "READY"


def test_a_reload_that_fails_its_warm_up_leaves_the_old_one(
    server: StartServer, tmp_path: Path
) -> None:
    models = copy_models(tmp_path / "own", [FIXTURES / "reshape_to"])
    one = server("--tcp-control", "on", repository=models)
    with one.connect() as connection:
        assert state(one, "reshape_to") == "READY"
        write_warm_up(models, "reshape_to", reshaped_to(5, 5))
        reply = connection.exchange(post_json("/v2/repository/models/reshape_to/load", {}))
        assert reply.status != 200
        assert 'key \\"warmup[0]\\"' in reply.body.decode()
        inputs = reshaped_to(2, 2)
        inputs[0]["data"] = [1, 2, 3, 4]
        reply = connection.exchange(post_json("/v2/models/reshape_to/infer", {"inputs": inputs}))
        assert (reply.status, reply.json()["outputs"][0]["shape"]) == (200, [2, 2])


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "got no input 'rows', wanted all 2 inputs"),
        ([*reshaped_to(2, 2), tensor("z", "FP32", [1])], "has no input 'z'"),
        ([tensor("rows", "FP64", [1, 4]), reshaped_to(4, 1)[1]], "got datatype FP64, wanted FP32"),
        ([tensor("rows", "FP32", [4]), reshaped_to(4, 1)[1]], "got shape [4], wanted"),
        ([tensor("rows", "FP32", [1 << 30, 4]), reshaped_to(4, 1)[1]], "more than 128 MiB"),
        ([tensor("rows", "FP32", [1 << 62, 4]), reshaped_to(4, 1)[1]], "fits into 64 bits"),
    ],
)
def test_a_warm_up_that_the_model_does_not_take_is_told(
    server: StartServer, tmp_path: Path, inputs: list[dict[str, Any]], said: str
) -> None:
    models = copy_models(tmp_path / "own", [FIXTURES / "reshape_to"])
    write_warm_up(models, "reshape_to", inputs)
    found = state(server(repository=models), "reshape_to")
    assert 'key "warmup[0]"' in found
    assert said in found


def test_texts_and_free_shapes_warm_up(server: StartServer, tmp_path: Path) -> None:
    identity = FIXTURES.parent / "backend" / "identity_bytes"
    models = copy_models(tmp_path / "own", [identity, FIXTURES / "text_lines"])
    with server(repository=models).connect() as connection:
        name = connection.exchange(get("/v2/models/identity_bytes")).json()["inputs"][0]
    shape = [2 if size < 0 else size for size in name["shape"]]
    count = 1
    for size in shape:
        count *= size
    write_warm_up(
        models,
        "identity_bytes",
        [tensor(name["name"], "BYTES", shape)],
        [tensor(name["name"], "BYTES", shape, ["ab"] * count)],
    )
    write_warm_up(
        models, "text_lines", *([tensor("image", "FP32", [1, 1, 16, w])] for w in (32, 64))
    )
    one = server(repository=models)
    assert (state(one, "identity_bytes"), state(one, "text_lines")) == ("READY", "READY")
