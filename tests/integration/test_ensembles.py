"""Ensembles: models whose requests run other models, over every transport.

The oracle is NumPy, which does the same steps one after the other; the configurations are random
ones and Triton's own.
"""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from google.protobuf import json_format, text_format
from integration.ensemble_models import (
    KINDS,
    WIDTH,
    Arrays,
    Ensemble,
    inputs_of,
    make_model,
    onnx_tools,
    random_ensemble,
)
from integration.harness import PATIENCE, Server, eventually
from integration.raw_http import get, post, post_json
from integration.triton_messages import triton_messages
from lumen_engine import Client, InferError
from lumen_engine.counters_file import CountersFile
from lumen_engine.slow import as_text
from lumen_engine.trace import trace_of
from onnx import TensorProto, helper
from tritonclient.utils import InferenceServerException

StartServer = Callable[..., Server]
SEED = 20261129
RANDOM_ENSEMBLES = 40


def rows(count: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count * WIDTH, dtype=np.float32).reshape(count, WIDTH)


def write_config(models: Path, name: str, document: Any) -> None:
    (models / name).mkdir(exist_ok=True)
    (models / name / "config.json").write_text(json.dumps(document))


def chain(*steps: str) -> dict[str, Any]:
    """Models with an input x and an output y, one behind the other."""
    return {
        "ensemble": {
            "steps": [
                {"model": model, "inputs": {"x": f"t{i}"}, "outputs": {"y": f"t{i + 1}"}}
                for i, model in enumerate(steps)
            ]
        }
    }


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for kind in KINDS:
        make_model(tmp_path / "models", kind)
    return tmp_path / "models"


def reason_of(server: Server, model: str) -> str:
    """READY, or why it is not."""
    with server.connect() as connection:
        index = connection.exchange(post("/v2/repository/index", b"{}")).json()
    found = next(one for one in index if one["name"] == model)
    return str(found["state"] if found["state"] == "READY" else found["reason"])


def http_of(server: Server) -> str:
    return f"http://{server.url}"


def ask(server: Server, model: str, **inputs: np.ndarray) -> Arrays:
    with Client(http_of(server)) as client:
        return client.infer(model, inputs)


@pytest.fixture(scope="module")
def random_ones() -> list[Ensemble]:
    rng = random.Random(SEED)
    return [random_ensemble(rng) for _ in range(RANDOM_ENSEMBLES)]


@pytest.mark.parametrize("queue_type", ["auto", "mpmc", "batched", "inline", "spsc", "naive"])
def test_random_ensembles_answer_as_their_steps_do_one_after_the_other(
    models: Path, random_ones: list[Ensemble], queue_type: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    for number, ensemble in enumerate(random_ones):
        ensemble.write(models / f"random{number}", rng)
    path = tmp_path / "bus"
    options = ("--queue-type", queue_type, "--thread-count", "2", "--bus", str(path))
    with (
        Server(models, *options) as one,
        Client(http_of(one)) as http,
        Client(f"bus:{path}") as bus,
    ):
        for number, ensemble in enumerate(random_ones):
            for count in (1, rng.randint(2, 9)):
                inputs = {name: rows(count, i * 7) for i, name in enumerate(inputs_of(ensemble))}
                wanted = ensemble.answer(inputs)
                asked = rng.sample(ensemble.outputs, rng.randint(1, len(ensemble.outputs)))
                for client in (http, bus):
                    for outputs in ((), asked):
                        got = client.infer(f"random{number}", inputs, outputs=outputs)
                        assert list(got) == (outputs or ensemble.outputs)
                        for name, array in got.items():
                            np.testing.assert_array_equal(array, wanted[name], str(number))


def test_its_steps_and_the_whole_are_counted_as_requests_of_their_models(
    server: StartServer, models: Path
) -> None:
    write_config(models, "both", chain("plus", "scale"))
    one = server(repository=models)
    assert re.search("both/1  ensemble .*; it runs plus/1, scale/1$", one.output, re.MULTILINE)
    for _ in range(5):
        np.testing.assert_array_equal(ask(one, "both", t0=rows(2))["t2"], (rows(2) + 3) * -0.5)
    with one.connect() as connection:
        stats = {
            entry["name"]: entry
            for entry in connection.exchange(get("/v2/models/stats")).json()["model_stats"]
        }
        metrics = connection.exchange(get("/metrics")).body.decode()
    for name in ("both", "plus", "scale"):
        assert stats[name]["inference_count"] == 10, name
        assert stats[name]["execution_count"] == 5, name
        assert stats[name]["inference_stats"]["success"]["count"] == 5, name
        assert f'nv_inference_request_success{{model="{name}",version="1"}} 5' in metrics
    whole = stats["both"]["inference_stats"]
    parts = [stats[name]["inference_stats"]["compute_infer"]["ns"] for name in ("plus", "scale")]
    assert whole["compute_infer"]["ns"] >= sum(parts), "the whole lasts as long as both"
    assert whole["success"]["ns"] >= whole["compute_infer"]["ns"]


def test_a_trace_shows_the_steps_within_their_request(models: Path, tmp_path: Path) -> None:
    write_config(models, "both", chain("plus", "scale"))
    with Server(models, "--stats", str(tmp_path / "counters")) as one:
        ask(one, "both", t0=rows(2))
        with CountersFile(tmp_path / "counters") as counters:
            eventually(lambda: len(counters.recent()) == 3)
            requests = counters.recent()
            slow = as_text(counters, counters.slow(), [])
    whole = next(request for request in requests if not request.is_step)
    steps = [request for request in requests if request.is_step]
    assert [step.model for step in steps] == ["plus", "scale"]
    assert {request.number for request in requests} == {whole.number}
    assert [step.rows for step in steps] == [2, 2] and whole.model == "both"
    ends = [step.first_byte_ns + step.total_ns for step in steps]
    assert whole.first_byte_ns <= steps[0].first_byte_ns <= ends[0] <= steps[1].first_byte_ns
    assert ends[1] <= whole.first_byte_ns + whole.total_ns
    events = trace_of(requests, 1, "counters")["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "b"]
    assert names[0] == "both 200" and {"step plus 200", "step scale 200"} <= set(names)
    runs = [event for event in events if event["ph"] == "X" and event["name"] == "inference"]
    assert [run["cat"] for run in runs] == ["plus", "scale"], "the models' runs, each once"
    assert sum("step plus" in line for line in slow) == 1


BAD: list[tuple[str, dict[str, Any], str]] = [
    (
        "a circle",
        {
            "steps": [
                {"model": "plus", "inputs": {"x": "b"}, "outputs": {"y": "a"}},
                {"model": "join", "inputs": {"a": "a", "b": "in"}, "outputs": {"c": "b"}},
            ],
            "outputs": ["a"],
        },
        "a circle: each of these steps waits for another of them: step 0 (model 'plus'), "
        "step 1 (model 'join')",
    ),
    (
        "no such model",
        {"steps": [{"model": "pluss"}]},
        "step 0 (model 'pluss'): no model of that name is served; load it, or correct the name",
    ),
    (
        "no such version",
        {"steps": [{"model": "plus", "version": 7}]},
        "step 0 (model 'plus'): no model of that name has version '7' and is served",
    ),
    (
        "a wrong name of an input",
        {"steps": [{"model": "plus", "inputs": {"z": "in"}}]},
        "step 0 (model 'plus') names input 'z', which the model does not have; it has: x",
    ),
    (
        "a tensor that two steps make",
        {"steps": [{"model": "plus"}, {"model": "scale"}]},
        "tensor 'y' is made by step 0 (model 'plus') and by step 1 (model 'scale'); give one of "
        'them another name in "outputs"',
    ),
    (
        "a type that does not fit",
        {"steps": [{"model": "plus"}, {"model": "whole", "inputs": {"n": "y"}}]},
        "step 1 (model 'whole'): input 'n' is INT64[-1,4], and tensor 'y' is FP32[-1,4], as "
        "step 0 (model 'plus') makes it; no tensor is both",
    ),
    (
        "an output that no step makes",
        {"steps": [{"model": "plus"}], "outputs": ["x"]},
        "output 'x' is made by no step; correct the name",
    ),
    (
        "no output",
        {
            "steps": [
                {"model": "fork", "inputs": {"x": "in"}},
                {"model": "join", "inputs": {"a": "low", "b": "high"}, "outputs": {}},
            ]
        },
        'name the ensemble\'s outputs in "outputs"',
    ),
    (
        "an ensemble as a step",
        {"steps": [{"model": "good", "inputs": {"t0": "in"}}]},
        "step 0 (model 'good') is an ensemble itself; put its steps here in its place",
    ),
    (
        "an unknown key",
        {"steps": [{"model": "plus", "input": {"x": "in"}}]},
        'unknown key "input" in "ensemble.steps[0]"; did you mean "inputs"?',
    ),
    ("no steps", {"steps": []}, 'key "ensemble.steps": got [], wanted a list of 1 to 64 steps'),
]


def test_a_configuration_that_does_not_fit_is_refused_with_the_step_and_the_fix(
    server: StartServer, models: Path
) -> None:
    make_whole_numbers(models)
    write_config(models, "good", chain("plus"))
    for number, (_, ensemble, _) in enumerate(BAD):
        write_config(models, f"zbad{number}", {"ensemble": ensemble})
    write_config(models, "zkeys", {**chain("plus"), "instances": 2})
    one = server(repository=models)
    for number, (what, _, wanted) in enumerate(BAD):
        assert wanted in reason_of(one, f"zbad{number}"), what
        with pytest.raises(InferError) as refused:
            ask(one, f"zbad{number}", x=rows(1))
        assert refused.value.status == 503
        assert f"zbad{number}/config.json" in str(refused.value)
    assert 'key "instances": an ensemble runs other models' in reason_of(one, "zkeys")
    np.testing.assert_array_equal(ask(one, "good", t0=rows(1))["t1"], rows(1) + 3)


def make_whole_numbers(models: Path) -> None:
    onnx_tools.save(
        models / "whole" / "1" / "model.onnx",
        "whole",
        [helper.make_node("Neg", ["n"], ["m"])],
        [onnx_tools.value("n", ["rows", WIDTH], TensorProto.INT64)],
        [onnx_tools.value("m", ["rows", WIDTH], TensorProto.INT64)],
        [],
    )


@pytest.mark.parametrize("queue_type", ["auto", "mpmc"])
def test_a_shape_that_only_a_step_refuses_is_the_clients_error(
    server: StartServer, models: Path, queue_type: str
) -> None:
    """`join` gets twice as many rows on one side."""
    write_config(
        models,
        "uneven",
        {
            "ensemble": {
                "steps": [
                    {"model": "twice", "inputs": {"x": "in"}, "outputs": {"y": "more"}},
                    {"model": "join", "inputs": {"a": "more", "b": "in"}},
                ]
            }
        },
    )
    one = server("--queue-type", queue_type, repository=models)
    with Client(http_of(one)) as client:
        for _ in range(3):
            with pytest.raises(InferError) as refused:
                client.infer("uneven", {"in": rows(3)})
            assert refused.value.status == 400, refused.value
            assert "model 'join'" in str(refused.value)
        np.testing.assert_array_equal(client.infer("plus", {"x": rows(1)})["y"], rows(1) + 3)


def test_triton_reads_its_configuration_and_a_server_loads_it_again(
    server: StartServer, models: Path
) -> None:
    """As perf_analyzer reads it: the platform, and the steps with their models."""
    write_config(models, "both", chain("plus", "scale"))
    one = server("--model-control", "explicit", "--tcp-control", "on", repository=models)
    with triton.InferenceServerClient(one.url) as client:
        config = client.get_model_config("both")
        assert config["platform"] == "ensemble"
        steps = config["ensemble_scheduling"]["step"]
        assert [step["model_name"] for step in steps] == ["plus", "scale"]
        assert steps[1]["input_map"] == {"x": "t1"} and steps[1]["output_map"] == {"y": "t2"}
        client.load_model("both", config=json.dumps(config))
        assert client.get_model_config("both") == config
        sent = triton.InferInput("t0", [2, WIDTH], "FP32")
        sent.set_data_from_numpy(rows(2))
        answer = client.infer("both", [sent]).as_numpy("t2")
        np.testing.assert_array_equal(answer, (rows(2) + 3) * -0.5)


def test_a_model_that_is_unloaded_takes_its_ensembles_with_it_until_it_comes_back(
    server: StartServer, models: Path
) -> None:
    write_config(models, "both", chain("plus", "scale"))
    one = server("--model-control", "explicit", "--tcp-control", "on", repository=models)
    with triton.InferenceServerClient(one.url) as client:
        for _ in range(3):
            client.unload_model("scale")
            assert not client.is_model_ready("both")
            assert "model 'scale'): no model of that name is served" in reason_of(one, "both")
            assert client.is_model_ready("plus")
            client.load_model("scale")
            assert client.is_model_ready("both")
            np.testing.assert_array_equal(ask(one, "both", t0=rows(1))["t2"], (rows(1) + 3) * -0.5)
        client.unload_model("both")
        client.unload_model("scale")
        client.load_model("both")
        assert client.is_model_ready("scale"), "an ensemble brings its models along"
        np.testing.assert_array_equal(ask(one, "both", t0=rows(1))["t2"], (rows(1) + 3) * -0.5)


def test_ensembles_that_name_each_other_are_refused_and_the_server_lives(
    server: StartServer, models: Path
) -> None:
    one = server("--model-control", "explicit", "--tcp-control", "on", repository=models)
    write_config(models, "chicken", chain("egg"))
    write_config(models, "egg", chain("chicken"))
    with triton.InferenceServerClient(one.url) as client:
        for name in ("chicken", "egg", "chicken"):
            with pytest.raises(InferenceServerException, match="is unavailable"):
                client.load_model(name)
        assert client.is_model_ready("plus")


@pytest.mark.parametrize("queue_type", ["auto", "mpmc"])
def test_a_request_has_the_same_model_in_all_its_steps_while_that_is_loaded_anew(
    server: StartServer, models: Path, queue_type: str
) -> None:
    """Each of three steps adds 1 or 1,000: never some of both."""
    make_model(models, "plus", "changes", 1)
    write_config(models, "thrice", chain("changes", "changes", "changes"))
    one = server(
        *("--queue-type", queue_type, "--model-control", "explicit", "--tcp-control", "on"),
        repository=models,
    )
    stop = threading.Event()
    seen: set[float] = set()
    faults: list[BaseException] = []

    def work() -> None:
        try:
            with Client(http_of(one)) as client:
                while not stop.is_set():
                    got = client.infer("thrice", {"t0": np.zeros((1, WIDTH), np.float32)})["t3"]
                    assert (got == got[0, 0]).all()
                    seen.add(float(got[0, 0]))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        with triton.InferenceServerClient(one.url, network_timeout=60 * PATIENCE) as client:
            for number in range(20):
                make_model(models, "plus", "changes", 1000 if number % 2 == 0 else 1)
                client.load_model("changes")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not faults, faults
    assert seen == {3.0, 3000.0}


def test_a_request_whose_time_is_over_between_two_steps_gets_504_and_runs_no_other(
    server: StartServer, models: Path
) -> None:
    write_config(models, "both", chain("plus", "scale"))
    one = server(repository=models)
    body = {
        "parameters": {"timeout": 1},
        "inputs": [{"name": "t0", "datatype": "FP32", "shape": [1, 4], "data": [0, 1, 2, 3]}],
    }
    with one.connect() as connection:
        statuses = {
            connection.exchange(post_json("/v2/models/both/infer", body)).status for _ in range(50)
        }
        assert 504 in statuses and statuses <= {200, 504}
        assert connection.exchange(get("/v2/models/both/ready")).status == 200


def test_answers_of_an_ensemble_are_kept_where_it_says_so(
    server: StartServer, models: Path
) -> None:
    write_config(models, "both", {**chain("plus", "scale"), "response_cache": {"enable": True}})
    one = server(repository=models)
    for _ in range(4):
        np.testing.assert_array_equal(ask(one, "both", t0=rows(1))["t2"], (rows(1) + 3) * -0.5)
    with one.connect() as connection:
        stats = connection.exchange(get("/v2/models/plus/stats")).json()["model_stats"][0]
    assert stats["inference_count"] == 1


# From Triton's user guide, "Ensemble Models".
TRITONS_EXAMPLE = """
name: "ensemble_model"
platform: "ensemble"
max_batch_size: 1
input [
  { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }
]
output [
  { name: "CLASSIFICATION" data_type: TYPE_FP32 dims: [ 1000 ] },
  { name: "SEGMENTATION" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
]
ensemble_scheduling {
  step [
    {
      model_name: "image_preprocess_model"
      model_version: -1
      input_map { key: "RAW_IMAGE" value: "IMAGE" }
      output_map { key: "PREPROCESSED_OUTPUT" value: "preprocessed_image" }
    },
    {
      model_name: "classification_model"
      model_version: -1
      input_map { key: "FORMATTED_IMAGE" value: "preprocessed_image" }
      output_map { key: "CLASSIFICATION_OUTPUT" value: "CLASSIFICATION" }
    },
    {
      model_name: "segmentation_model"
      model_version: -1
      input_map { key: "FORMATTED_IMAGE" value: "preprocessed_image" }
      output_map { key: "SEGMENTATION_OUTPUT" value: "SEGMENTATION" }
    }
  ]
}
"""


def make_tritons_models(models: Path) -> None:
    """Stand-ins with the names and tensors of the example: a picture is one number that its name
    stands for."""
    picture = ["rows", 3, 224, 224]
    onnx_tools.save(
        models / "image_preprocess_model" / "1" / "model.onnx",
        "preprocess",
        [
            helper.make_node(
                "TfIdfVectorizer",
                ["RAW_IMAGE"],
                ["is_cat"],
                mode="TF",
                min_gram_length=1,
                max_gram_length=1,
                max_skip_count=0,
                ngram_counts=[0],
                ngram_indexes=[0],
                pool_strings=["cat"],
            ),
            helper.make_node("Reshape", ["is_cat", "column"], ["pixel"]),
            helper.make_node("Expand", ["pixel", "sizes"], ["PREPROCESSED_OUTPUT"]),
        ],
        [onnx_tools.value("RAW_IMAGE", ["rows", 1], TensorProto.STRING)],
        [onnx_tools.value("PREPROCESSED_OUTPUT", picture)],
        [
            onnx_tools.initializer("column", np.array([-1, 1, 1, 1])),
            onnx_tools.initializer("sizes", np.array([1, 3, 224, 224])),
        ],
    )
    onnx_tools.save(
        models / "classification_model" / "1" / "model.onnx",
        "classify",
        [
            helper.make_node(
                "ReduceMean", ["FORMATTED_IMAGE"], ["mean"], axes=[1, 2, 3], keepdims=0
            ),
            helper.make_node("Reshape", ["mean", "column"], ["score"]),
            helper.make_node("Mul", ["score", "classes"], ["CLASSIFICATION_OUTPUT"]),
        ],
        [onnx_tools.value("FORMATTED_IMAGE", picture)],
        [onnx_tools.value("CLASSIFICATION_OUTPUT", ["rows", 1000])],
        [
            onnx_tools.initializer("column", np.array([-1, 1])),
            onnx_tools.initializer("classes", np.arange(1000, dtype=np.float32)),
        ],
    )
    onnx_tools.save(
        models / "segmentation_model" / "1" / "model.onnx",
        "segment",
        [helper.make_node("Neg", ["FORMATTED_IMAGE"], ["SEGMENTATION_OUTPUT"])],
        [onnx_tools.value("FORMATTED_IMAGE", picture)],
        [onnx_tools.value("SEGMENTATION_OUTPUT", picture)],
        [],
    )


def test_the_example_of_tritons_guide_is_served_as_it_stands(
    server: StartServer, tmp_path: Path
) -> None:
    models = tmp_path / "tritons"
    make_tritons_models(models)
    config_type = triton_messages().ModelConfig
    message = text_format.Parse(TRITONS_EXAMPLE, config_type())
    document = json_format.MessageToDict(message, preserving_proto_field_name=True)
    (models / "ensemble_model" / "1").mkdir(parents=True)  # Triton wants the folder
    write_config(models, "ensemble_model", document)
    one = server("--backend", "onnxruntime", repository=models)
    assert reason_of(one, "ensemble_model") == "READY"
    with triton.InferenceServerClient(one.url) as client:
        served = json_format.ParseDict(client.get_model_config("ensemble_model"), config_type())
        for key in ("max_batch_size", "input", "output", "platform", "ensemble_scheduling"):
            assert getattr(served, key) == getattr(message, key), key
        for name, number in (("cat", 1), ("dog", 0)):
            sent = triton.InferInput("IMAGE", [1, 1], "BYTES")
            sent.set_data_from_numpy(np.array([[name]], object))
            answer = client.infer("ensemble_model", [sent])
            classes = answer.as_numpy("CLASSIFICATION")
            np.testing.assert_array_equal(classes, number * np.arange(1000, dtype=np.float32)[None])
            segments = answer.as_numpy("SEGMENTATION")
            assert segments.shape == (1, 3, 224, 224) and (segments == -number).all()
