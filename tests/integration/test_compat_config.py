"""A model's configuration as tritonclient 2.73.0 gets it, read by Triton's own message.

The message is that of the client's wheel (model_config.proto): a name, a type or a value that it
does not have is an error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from google.protobuf import json_format
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.raw_http import get
from integration.triton_messages import triton_messages
from tritonclient.utils import InferenceServerException

# Models of which rows of several requests may share a run.
WITH_ROWS = ["mlp", "squeezenet", "digits"]
CACHED = {"response_cache": {"enable": True}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    fixtures = [FIXTURES / name for name in ("identity_types", "row_sums")]
    backend = [
        FIXTURES.parent / "backend" / name for name in ("identity_bytes", "add_one_fixed", "pairs")
    ]
    models = copy_models(
        tmp_path_factory.mktemp("models") / "models",
        [*[MODELS / name for name in WITH_ROWS], *fixtures, *backend],
    )
    (models / "digits" / "config.json").write_text(json.dumps(CACHED))
    broken = models / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"none")
    with Server(models, "--tcp-control", "on") as server:
        yield server


def names_of_ready(server: Server) -> list[str]:
    with triton.InferenceServerClient(server.url) as client:
        return [one["name"] for one in client.get_inference_statistics()["model_stats"]]


def test_every_config_is_one_of_tritons_and_agrees_with_the_metadata(served: Server) -> None:
    message = triton_messages().ModelConfig
    names = names_of_ready(served)
    assert len(names) == 8
    with triton.InferenceServerClient(served.url) as client:
        for name in names:
            read = json_format.ParseDict(client.get_model_config(name, "1"), message())
            metadata = client.get_model_metadata(name)
            assert (read.name, read.platform) == (name, metadata["platform"])
            assert read.backend == metadata["parameters"]["backend"]
            # perf_analyzer drops the first dimension of the metadata where this is not 0.
            skipped = 1 if read.max_batch_size > 0 else 0
            for ours, theirs in ((read.input, "inputs"), (read.output, "outputs")):
                assert len(ours) == len(metadata[theirs])
                for one, tensor in zip(ours, metadata[theirs]):
                    assert one.name == tensor["name"]
                    assert [-1] * skipped == tensor["shape"][:skipped]
                    assert list(one.dims) == tensor["shape"][skipped:]
                    kind = "STRING" if tensor["datatype"] == "BYTES" else tensor["datatype"]
                    assert one.data_type == triton_messages().DataType.Value(f"TYPE_{kind}")
            assert read.response_cache.enable == (name == "digits")
            assert not read.model_transaction_policy.decoupled
            assert read.parameters["precision"].string_value == "f32"


def test_a_model_has_rows_in_its_config_where_they_may_share_a_run(served: Server) -> None:
    with triton.InferenceServerClient(served.url) as client:
        configs = {name: client.get_model_config(name) for name in names_of_ready(served)}
        for name, config in configs.items():
            metadata = client.get_model_metadata(name)
            packs = config["max_batch_size"] > 0
            assert packs == ("dynamic_batching" in config)
            if "not_packed" in metadata["parameters"]:
                assert not packs, name
        assert all(configs[name]["max_batch_size"] > 0 for name in WITH_ROWS)
        assert configs["add_one_fixed"]["max_batch_size"] == 0
        assert configs["add_one_fixed"]["input"][0]["dims"] == [2, 16384]
        assert "model_configuration" in client.get_server_metadata()["extensions"]


def test_a_model_is_loaded_with_the_config_that_was_read_of_it(served: Server) -> None:
    message = triton_messages().ModelConfig
    with triton.InferenceServerClient(served.url) as client:
        for name in names_of_ready(served):
            before = client.get_model_config(name)
            # As gRPC's clients write it: 64-bit integers are strings there.
            other = json_format.MessageToJson(
                json_format.ParseDict(before, message()), preserving_proto_field_name=True
            )
            for text in (json.dumps(before), other):
                client.load_model(name, config=text)
                assert client.get_model_config(name) == before


def test_a_config_of_another_model_is_refused_with_both_sides(served: Server) -> None:
    with triton.InferenceServerClient(served.url) as client:
        before = client.get_model_config("mlp")
        for changes, words in (
            ({"name": "digits"}, "is of model 'digits', and this is model 'mlp'"),
            ({"input": before["output"]}, "says input 'output' is FP32[10]"),
            (
                {"max_batch_size": 0},
                "says input 'input' is FP32[256]; the model has FP32[-1,256]",
            ),
            ({"instance_group": [{"kind": "KIND_GPU"}]}, 'wanted "KIND_CPU" or "KIND_AUTO"'),
        ):
            with pytest.raises(InferenceServerException) as refused:
                client.load_model("mlp", config=json.dumps(before | changes))
            assert words in str(refused.value)
            assert client.get_model_config("mlp") == before, "the old one serves"
        client.load_model("mlp", config=json.dumps(before | {"max_batch_size": 8}))
        assert client.get_model_config("mlp")["max_batch_size"] == 8
        client.load_model("mlp", config=json.dumps(before))


def test_the_aio_client_gets_the_same(served: Server) -> None:
    async def ask() -> Any:
        async with triton_aio.InferenceServerClient(served.url) as client:
            return await client.get_model_config("mlp")

    with triton.InferenceServerClient(served.url) as client:
        assert asyncio.run(ask()) == client.get_model_config("mlp")


def test_a_model_that_is_not_there_or_not_ready_has_none(served: Server) -> None:
    with triton.InferenceServerClient(served.url) as client:
        for name, version, words in (
            ("nothing", "", "is not in the repository"),
            ("mlp", "7", "version '7' is not in the repository"),
            ("broken", "", "is unavailable"),
        ):
            with pytest.raises(InferenceServerException, match=words):
                client.get_model_config(name, version)
    with served.connect() as connection:
        assert connection.exchange(get("/v2/models/broken/config")).status == 503
        assert connection.exchange(get("/v2/models/config")).status == 404  # a model of that name
        reply = connection.exchange(b"POST /v2/models/mlp/config HTTP/1.1\r\nHost: x\r\n\r\n")
        assert reply.status == 405
