"""The calls about the repository and the server's settings, by tritonclient 2.73.0."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from integration.harness import FIXTURES, MODELS, Server, copy_models, eventually
from tritonclient.utils import InferenceServerException


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return copy_models(tmp_path / "models", [MODELS / "identity", MODELS / "mlp"])


@pytest.fixture
def start(models: Path) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def begin(*arguments: str) -> tuple[Server, triton.InferenceServerClient]:
        server = Server(models, "--tcp-control", "on", *arguments)
        client = triton.InferenceServerClient(server.url)
        opened.extend([client.close, server.stop])
        return server, client

    yield begin
    for close in opened:
        close()


def states(client: Any) -> dict[tuple[str, str], str]:
    return {
        (one["name"], one["version"]): one["state"] for one in client.get_model_repository_index()
    }


def infer(client: Any, version: str = "") -> np.ndarray:
    rows = np.ones((1, 256), np.float32)
    inputs = [triton.InferInput("input", [1, 256], "FP32").set_data_from_numpy(rows)]
    return client.infer("mlp", inputs, model_version=version).as_numpy("output")


def test_the_index_names_every_version_with_its_state(start: Any, models: Path) -> None:
    broken = models / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"none")
    _, client = start()
    shutil.copytree(models / "mlp" / "1", models / "late" / "3")
    index = {one["name"]: one for one in client.get_model_repository_index()}
    assert {name: one["state"] for name, one in index.items()} == {
        "broken": "UNAVAILABLE",
        "identity": "READY",
        "late": "UNAVAILABLE",
        "mlp": "READY",
    }
    assert index["mlp"] == {"name": "mlp", "version": "1", "state": "READY", "reason": ""}
    assert "broken/1/model.onnx" in index["broken"]["reason"]
    assert str(models) not in index["broken"]["reason"], "where it lies is no client's business"
    assert index["late"]["reason"] == "not loaded"


def test_models_are_loaded_and_unloaded(start: Any, models: Path) -> None:
    server, client = start()
    before = infer(client)
    client.unload_model("mlp", unload_dependents=True)
    assert not client.is_model_ready("mlp")
    with pytest.raises(InferenceServerException, match="not in the repository") as caught:
        infer(client)
    assert caught.value.status() == "404"
    client.load_model("mlp")
    assert np.array_equal(infer(client), before)
    shutil.copytree(models / "mlp" / "1", models / "late" / "3")
    client.load_model("late")
    assert states(client)["late", "3"] == "READY"
    for call in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException, match="'nothing'"):
            call("nothing")
    server.wait_for_log("unload of mlp")
    server.wait_for_log("load of nothing", "not in the repository")


def test_the_aio_client_does_the_same(start: Any) -> None:
    server, _ = start()

    async def ask() -> None:
        async with triton_aio.InferenceServerClient(server.url) as client:
            await client.unload_model("mlp")
            assert not await client.is_model_ready("mlp")
            await client.load_model("mlp")
            assert await client.is_model_ready("mlp")
            assert [m["name"] for m in await client.get_model_repository_index()] == [
                "identity",
                "mlp",
            ]
            assert (await client.get_log_settings())["log_info"] is True
            assert (await client.update_log_settings({"log_info": False}))["log_info"] is False
            assert (await client.get_trace_settings("mlp"))["trace_level"] == ["OFF"]
            await client.update_trace_settings(settings={"trace_level": ["OFF"]})

    asyncio.run(ask())


def test_a_model_of_another_form_takes_the_place_of_the_old(start: Any, models: Path) -> None:
    _, client = start()
    assert client.get_model_metadata("mlp")["inputs"][0]["name"] == "input"
    shutil.rmtree(models / "mlp" / "1")
    shutil.copytree(FIXTURES / "add_sub" / "1", models / "mlp" / "1")
    client.load_model("mlp")
    assert len(client.get_model_metadata("mlp")["inputs"]) == 2
    assert len(client.get_model_config("mlp")["input"]) == 2
    with pytest.raises(InferenceServerException, match="no input 'input'|'input'"):
        infer(client)


def test_the_configuration_is_read_anew(start: Any, models: Path) -> None:
    _, client = start()
    config = models / "mlp" / "config.json"
    config.write_text(json.dumps({"response_cache": {"enable": True}, "versions": "latest"}))
    shutil.copytree(models / "mlp" / "1", models / "mlp" / "2")
    client.load_model("mlp")
    assert client.get_model_config("mlp")["response_cache"] == {"enable": True}
    assert client.get_model_config("mlp")["version_policy"] == {"latest": {"num_versions": 1}}
    assert {key: state for key, state in states(client).items() if key[0] == "mlp"} == {
        ("mlp", "2"): "READY"
    }
    config.write_text('{"versoins": "all"}')
    with pytest.raises(InferenceServerException, match='unknown key "versoins".*"versions"'):
        client.load_model("mlp")
    assert infer(client).shape == (1, 10), "the old one serves"
    config.write_text('{"versions": [1]}')
    client.load_model("mlp")
    assert states(client)["mlp", "1"] == "READY"
    with pytest.raises(InferenceServerException, match="version '2'"):
        infer(client, "2")


def test_files_of_the_request_are_refused(start: Any) -> None:
    _, client = start()
    with pytest.raises(InferenceServerException, match="as they lie in the") as caught:
        client.load_model("mlp", config="{}", files={"file:1/model.onnx": b"\0" * 100})
    assert caught.value.status() == "501"
    assert infer(client).shape == (1, 10)


def test_a_configuration_of_the_call_counts_until_the_next_one(start: Any, models: Path) -> None:
    _, client = start()
    (models / "mlp" / "config.json").write_text('{"versions": [7]}')
    client.load_model("mlp", config='{"versions": "latest", "response_cache": {"enable": true}}')
    assert client.get_model_config("mlp")["response_cache"] == {"enable": True}
    assert client.get_model_config("mlp")["version_policy"] == {"latest": {"num_versions": 1}}
    for wrong, words in (
        ('{"max_batch": 8}', 'configuration of the load call: unknown key "max_batch"'),
        ("{", "configuration of the load call: line 1 is not JSON"),
    ):
        with pytest.raises(InferenceServerException, match=words):
            client.load_model("mlp", config=wrong)
        assert infer(client).shape == (1, 10), "the old one serves"
    (models / "mlp" / "config.json").unlink()
    client.load_model("mlp")
    assert client.get_model_config("mlp")["response_cache"] == {"enable": False}


def test_a_folder_that_is_being_copied_waits_until_it_is_still(start: Any, models: Path) -> None:
    server, client = start("--model-control", "poll", "--poll-interval-ms", "200")
    data = (models / "mlp" / "1" / "model.onnx").read_bytes()
    target = models / "copied" / "1" / "model.onnx"
    target.parent.mkdir(parents=True)
    with target.open("wb", buffering=0) as file:
        for at in range(0, len(data), len(data) // 20 + 1):
            file.write(data[at : at + len(data) // 20 + 1])
            client.get_model_repository_index()  # takes its time, as a copy over a network does
    eventually(lambda: client.is_model_ready("copied"))
    server.wait_for_log("model copied has changed in the repository: loaded")
    assert not [line for line in server.log if "copied" in line and "warn" in line]
    shutil.rmtree(models / "copied")
    eventually(lambda: not client.is_model_ready("copied"))


def test_log_settings_are_those_of_the_server(start: Any) -> None:
    server, client = start()
    settings = client.get_log_settings()
    assert settings == {
        "log_file": "",
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_format": "ISO8601",
    }
    off = {"log_info": False, "log_warning": False}
    assert client.update_log_settings(off) == {**settings, **off}
    client.unload_model("mlp")
    client.update_log_settings({"log_info": True, "log_warning": True})
    client.load_model("mlp")
    server.wait_for_log("load of mlp")
    assert not [line for line in server.log if "unload of mlp" in line]
    for wrong, words in (
        ({"log_file": "/tmp/x"}, 'log_file: got "/tmp/x"'),
        ({"log_verbose_level": 1}, "log_verbose_level: got 1"),
        ({"log_format": "default"}, 'log_format: got "default"'),
        ({"log_info": 1}, "log_info: got 1"),
        ({"log_infos": True}, 'unknown key "log_infos"'),
        ({"log_info": False, "log_error": "no"}, "log_error: got"),
    ):
        with pytest.raises(InferenceServerException, match=words):
            client.update_log_settings(wrong)
    assert client.get_log_settings() == settings, "all of a change, or nothing"


def test_trace_settings_say_that_nothing_is_traced(start: Any) -> None:
    _, client = start()
    off = client.get_trace_settings()
    assert off["trace_level"] == ["OFF"]
    assert client.update_trace_settings("mlp", {"trace_level": None, "trace_rate": 1000}) == off
    assert client.update_trace_settings(settings={"trace_level": "OFF"}) == off
    with pytest.raises(InferenceServerException, match="trace_level") as caught:
        client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})
    assert caught.value.status() == "501"
    with pytest.raises(InferenceServerException, match='setting "trace_evil"'):
        client.update_trace_settings(settings={"trace_evil": 1})
    with pytest.raises(InferenceServerException, match="'nothing'"):
        client.get_trace_settings("nothing")
    assert "trace" not in client.get_server_metadata()["extensions"]


def test_batches_are_counted_by_their_size(start: Any) -> None:
    _, client = start()
    for rows in (1, 3, 3, 8):
        array = np.ones((rows, 256), np.float32)
        inputs = [triton.InferInput("input", [rows, 256], "FP32").set_data_from_numpy(array)]
        client.infer("mlp", inputs)
    stats = client.get_inference_statistics("mlp")["model_stats"][0]
    sizes = {one["batch_size"]: one for one in stats["batch_stats"]}
    assert {size: one["compute_infer"]["count"] for size, one in sizes.items()} == {
        1: 1,
        3: 2,
        8: 1,
    }
    assert stats["execution_count"] == 4
    for part in ("compute_input", "compute_infer", "compute_output"):
        # The sums of the requests' own times, which are those of their runs here.
        assert (
            sum(one[part]["ns"] for one in sizes.values()) == stats["inference_stats"][part]["ns"]
        )
