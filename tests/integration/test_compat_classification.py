"""The extension "classification" as tritonclient 2.73.0 asks for it, with labels of each source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.tabular_models import MAKERS
from tritonclient.utils import InferenceServerException

LABELS = [f"class {i}" for i in range(10)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    backend = FIXTURES.parent / "backend"
    models = copy_models(
        tmp_path_factory.mktemp("models") / "models",
        [MODELS / "mlp", backend / "identity_bytes", backend / "add_one_fixed"],
    )
    (models / "mlp" / "labels.txt").write_text("\n".join(LABELS) + "\n")
    (models / "tabular" / "1").mkdir(parents=True)
    (models / "tabular" / "1" / "model.onnx").write_bytes(MAKERS["logistic"]().onnx)
    with Server(models, "--backend", "auto") as server:
        yield server


@pytest.fixture
def client(served: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(served.url) as one:
        yield one


def ask_mlp(rows: np.ndarray) -> Any:
    return [triton.InferInput("input", list(rows.shape), "FP32").set_data_from_numpy(rows)]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("most", [1, 3, 10, 11, 2**40])
def test_the_best_classes_are_those_of_the_tensor(client: Any, most: int, binary: bool) -> None:
    rows = np.random.default_rng(most % 97).standard_normal((4, 256), np.float32)
    scores = client.infer("mlp", ask_mlp(rows)).as_numpy("output")
    wanted = triton.InferRequestedOutput("output", binary_data=binary, class_count=most)
    result = client.infer("mlp", ask_mlp(rows), outputs=[wanted])
    got = result.as_numpy("output")
    assert result.get_output("output")["datatype"] == "BYTES"
    assert got.shape == (4, min(most, 10))
    for row, texts in zip(scores, got):
        order = np.argsort(-row, kind="stable")[:most]
        expected = [f"{row[i]:.6f}:{i}:class {i}" for i in order]
        assert [t.decode() if isinstance(t, bytes) else t for t in texts] == expected


def test_the_aio_client_gets_the_same(served: Server, client: Any) -> None:
    rows = np.ones((1, 256), np.float32)
    wanted = [triton.InferRequestedOutput("output", class_count=2)]

    async def ask() -> np.ndarray:
        async with triton_aio.InferenceServerClient(served.url) as aio:
            return (await aio.infer("mlp", ask_mlp(rows), outputs=wanted)).as_numpy("output")

    sync = client.infer("mlp", ask_mlp(rows), outputs=wanted).as_numpy("output")
    assert (asyncio.run(ask()) == sync).all()


def test_classes_that_zip_map_names_are_labels(client: Any) -> None:
    metadata = client.get_model_metadata("tabular")
    one = next(o for o in metadata["outputs"] if "parameters" in o)
    labels = one["parameters"]["labels"]
    source = metadata["inputs"][0]
    rows = np.zeros((2, source["shape"][1]), np.float32)
    inputs = [triton.InferInput(source["name"], list(rows.shape), "FP32")]
    inputs[0].set_data_from_numpy(rows)
    wanted = [triton.InferRequestedOutput(one["name"], class_count=1)]
    scores = client.infer("tabular", inputs).as_numpy(one["name"])
    got = client.infer("tabular", inputs, outputs=wanted).as_numpy(one["name"])
    best = scores.argmax(axis=1)
    assert [text.decode().split(":")[1:] for [text] in got] == [[str(i), labels[i]] for i in best]


def test_a_model_without_rows_has_one_row_of_all_elements(client: Any) -> None:
    metadata = client.get_model_metadata("add_one_fixed")
    source, target = metadata["inputs"][0], metadata["outputs"][0]["name"]
    values = np.zeros(source["shape"], np.float32)
    values[1, 7] = 4
    inputs = [triton.InferInput(source["name"], source["shape"], "FP32")]
    inputs[0].set_data_from_numpy(values)
    wanted = [triton.InferRequestedOutput(target, class_count=2)]
    got = client.infer("add_one_fixed", inputs, outputs=wanted).as_numpy(target)
    assert got.tolist() == [f"5.000000:{values.shape[1] + 7}".encode(), b"1.000000:0"]


def test_texts_have_no_classes(client: Any) -> None:
    metadata = client.get_model_metadata("identity_bytes")
    source, target = metadata["inputs"][0], metadata["outputs"][0]["name"]
    texts = np.array([b"a"], np.object_)
    inputs = [triton.InferInput(source["name"], [1], "BYTES").set_data_from_numpy(texts)]
    wanted = [triton.InferRequestedOutput(target, class_count=1)]
    with pytest.raises(InferenceServerException, match="wants numbers") as caught:
        client.infer("identity_bytes", inputs, outputs=wanted)
    assert caught.value.status() == "400"
    assert client.infer("identity_bytes", inputs).as_numpy(target).tolist() == [b"a"]


def test_labels_of_the_configuration_stand_in_the_metadata(tmp_path: Any) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    names = [f"name {i}" for i in range(10)]
    (models / "mlp" / "config.json").write_text(json.dumps({"labels": {"output": names}}))
    with Server(models) as server, triton.InferenceServerClient(server.url) as client:
        output = client.get_model_metadata("mlp")["outputs"][0]
        assert output["parameters"]["labels"] == names
