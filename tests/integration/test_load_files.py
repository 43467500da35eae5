"""Load calls that bring the files of their model along, by tritonclient and by hand."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from integration.harness import (
    MODELS,
    Server,
    UnixConnection,
    copy_models,
    eventually,
    make_squeezenet,
)
from integration.raw_http import post_json
from tritonclient.utils import InferenceServerException

MLP = (MODELS / "mlp" / "1" / "model.onnx").read_bytes()


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def served(tmp_path: Path, scratch: Path) -> Iterator[Server]:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    flags = ["--tcp-control", "on", "--load-files", "on", "--max-body-bytes", str(32 << 20)]
    with Server(models, *flags, env={"TMPDIR": str(scratch)}) as server:
        yield server
    assert not list(scratch.iterdir()), "a stop leaves none of them"


@pytest.fixture
def client(served: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(served.url) as client:
        yield client


def infer(client: Any, model: str, version: str = "") -> np.ndarray:
    x = np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 256)
    tensor = triton.InferInput("input", [1, 256], "FP32").set_data_from_numpy(x)
    return client.infer(model, [tensor], version).as_numpy("output")


def change_threads(path: Path, count: int) -> None:
    """Each change makes instances of all models anew."""
    with UnixConnection(path) as connection:
        reply = connection.exchange(post_json("/v2/lumen/engine", {"thread_count": count}))
        assert (reply.status, reply.json()["engine"]["thread_count"]) == (200, count), reply


def folders(scratch: Path) -> list[Path]:
    return sorted(scratch.glob("lumen-model-*"))


def test_a_model_that_is_nowhere_on_disk_is_served(
    served: Server, client: Any, scratch: Path
) -> None:
    client.load_model(
        "made", config="{}", files={"file:1/model.onnx": MLP, "file:7/model.onnx": MLP}
    )
    (folder,) = folders(scratch)
    assert folder.stat().st_mode & 0o777 == 0o700
    wanted = infer(client, "mlp")
    for version in ("1", "7", ""):
        np.testing.assert_array_equal(infer(client, "made", version), wanted)
    ready = {(one["name"], one["version"]) for one in client.get_model_repository_index()}
    assert ready == {("made", "1"), ("made", "7"), ("mlp", "1")}
    client.unload_model("made")
    assert folders(scratch) == []
    with pytest.raises(InferenceServerException, match="not in the repository"):
        client.load_model("made")


def test_files_count_until_the_next_load_without_them(client: Any, scratch: Path) -> None:
    before = infer(client, "mlp")
    client.load_model("mlp", config="{}", files={"file:3/model.onnx": MLP})
    np.testing.assert_array_equal(infer(client, "mlp", "3"), before)
    with pytest.raises(InferenceServerException, match="version '1' is not"):
        infer(client, "mlp", "1")
    client.load_model("mlp", config='{"backend": "onnxruntime"}', files={"file:4/model.onnx": MLP})
    np.testing.assert_allclose(infer(client, "mlp", "4"), before, rtol=1e-5, atol=1e-6)
    assert len(folders(scratch)) == 1, "those of the call before are gone"
    client.load_model("mlp")
    np.testing.assert_array_equal(infer(client, "mlp", "1"), before)
    assert folders(scratch) == []


def test_a_broken_file_leaves_the_model_as_it_was(client: Any, scratch: Path) -> None:
    client.load_model("made", config="{}", files={"file:1/model.onnx": MLP})
    before, kept = infer(client, "made"), folders(scratch)
    for files, words in (
        ({"file:1/model.onnx": MLP[:1000]}, "made/1/model.onnx"),
        ({"file:1/other.onnx": MLP}, "model"),
    ):
        with pytest.raises(InferenceServerException, match=words) as refused:
            client.load_model("made", config="{}", files=files)
        assert str(scratch) not in str(refused.value), "where it lies is no client's business"
        np.testing.assert_array_equal(infer(client, "made"), before)
        assert folders(scratch) == kept


def test_files_stay_while_one_version_of_a_failed_call_is_served(
    tmp_path: Path, scratch: Path
) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    flags = ["--tcp-control", "on", "--load-files", "on", "--queue-type", "mpmc"]
    path = tmp_path / "lumen.sock"
    with Server(models, *flags, unix=str(path), env={"TMPDIR": str(scratch)}) as server:
        with triton.InferenceServerClient(server.url) as client:
            files = {"file:1/model.onnx": MLP, "file:2/model.onnx": MLP[:1000]}
            for _ in range(3):
                with pytest.raises(InferenceServerException, match="made/2/model.onnx"):
                    client.load_model("made", config='{"backend": "onnxruntime"}', files=files)
            before = infer(client, "made", "1")
            assert len(folders(scratch)) == 1, "no version of the calls before is served"
            for count in (1, 2):
                change_threads(path, count)
                np.testing.assert_array_equal(infer(client, "made", "1"), before)
            client.load_model("made", config="{}", files={"file:1/model.onnx": MLP})
            assert len(folders(scratch)) == 1


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_the_engine_makes_instances_of_it_later(
    tmp_path: Path, scratch: Path, backend: str
) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    flags = ["--tcp-control", "on", "--load-files", "on", "--queue-type", "mpmc"]
    path = tmp_path / "lumen.sock"
    with Server(models, *flags, unix=str(path), env={"TMPDIR": str(scratch)}) as server:
        with triton.InferenceServerClient(server.url) as client:
            config = json.dumps({"backend": backend})
            client.load_model("made", config=config, files={"file:1/model.onnx": MLP})
            before = infer(client, "made")
            for count in (1, 2):
                change_threads(path, count)
                np.testing.assert_array_equal(infer(client, "made"), before)


def test_a_file_of_megabytes_comes_by_the_aio_client(served: Server) -> None:
    make_squeezenet()
    file = (MODELS / "squeezenet" / "1" / "model.onnx").read_bytes()
    assert len(file) > 4 << 20

    async def load() -> None:
        async with triton_aio.InferenceServerClient(served.url) as client:
            await client.load_model("large", config="{}", files={"file:1/model.onnx": file})
            assert await client.is_model_ready("large", "1")

    asyncio.run(load())


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("model", "parameters", "words"),
    [
        ("made", {"file:1/model.onnx": text(MLP)}, "files come with a configuration"),
        ("made", {"file:../model.onnx": ""}, "wanted a version and a file's name"),
        ("made", {"file:1/../model.onnx": ""}, "wanted a version and a file's name"),
        ("made", {"file:1/.hidden": ""}, "wanted a version and a file's name"),
        ("made", {"file:/etc/model.onnx": ""}, "wanted a version and a file's name"),
        ("made", {"file:1": ""}, "wanted a version and a file's name"),
        ("made", {"file:": ""}, "wanted a version and a file's name"),
        ("made", {"file:1/" + "a" * 300: ""}, "wanted a version and a file's name"),
        ("made", {"file:1/model.onnx": "no base64"}, "wanted the file in base64"),
        ("made", {"file:1/model.onnx": 5}, "got 5, wanted the file in base64"),
        ("..%2fmade", {"file:1/model.onnx": text(MLP)}, "for the folder"),
        ("%2e%2e", {"file:1/model.onnx": text(MLP)}, "for the folder"),
        (".made", {"file:1/model.onnx": text(MLP)}, "for the folder"),
    ],
)
def test_files_with_wrong_names_are_refused(
    served: Server, scratch: Path, model: str, parameters: dict[str, Any], words: str
) -> None:
    if len(parameters) == 1 and "come with" not in words:
        parameters = parameters | {"config": "{}"}
    with served.connect() as connection:
        call = post_json(f"/v2/repository/models/{model}/load", {"parameters": parameters})
        reply = connection.exchange(call)
        assert reply.status == 400, reply
        assert words in reply.error
    assert folders(scratch) == []
    assert not list(scratch.parent.glob("**/etc"))


def test_a_folder_that_can_not_be_made_is_a_refusal(tmp_path: Path, scratch: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    flags = ["--tcp-control", "on", "--load-files", "on"]
    with Server(models, *flags, env={"TMPDIR": str(scratch)}) as server:
        shutil.rmtree(scratch)
        with triton.InferenceServerClient(server.url) as client:
            with pytest.raises(InferenceServerException, match="TMPDIR"):
                client.load_model("made", config="{}", files={"file:1/model.onnx": MLP})
            assert infer(client, "mlp").shape == (1, 10)


def test_a_poll_that_sees_new_files_takes_them_instead(tmp_path: Path, scratch: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    flags = ["--tcp-control", "on", "--load-files", "on", "--model-control", "poll"]
    flags += ["--poll-interval-ms", "100"]
    with Server(models, *flags, env={"TMPDIR": str(scratch)}) as server:
        with triton.InferenceServerClient(server.url) as client:
            client.load_model("mlp", config="{}", files={"file:5/model.onnx": MLP})
            client.load_model("other", config="{}", files={"file:1/model.onnx": MLP})
            (models / "mlp" / "2").mkdir()
            (models / "mlp" / "2" / "model.onnx").write_bytes(MLP)
            eventually(lambda: bool(client.is_model_ready("mlp", "2")))
            states = {
                (m["name"], m["version"]): m["state"] for m in client.get_model_repository_index()
            }
            assert states == {("mlp", "1"): "READY", ("mlp", "2"): "READY", ("other", "1"): "READY"}
            eventually(lambda: len(folders(scratch)) == 1)
    assert folders(scratch) == []
