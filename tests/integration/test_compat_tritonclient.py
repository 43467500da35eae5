"""The unmodified tritonclient 2.73.0, HTTP sync and aio, against every model, bit for bit; once
more through a proxy that speaks HTTP/2 to the server.

The expectation of each call stands in docs/formats/oip.md. The reference is OpenVINO's own Python
API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from integration.harness import FIXTURES, MODELS, Server
from integration.http2_proxy import Proxy
from integration.reference import Reference
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

Arrays = dict[str, np.ndarray]


def random_array(dtype: np.dtype, shape: tuple[int, ...], seed: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        # OpenVINO computes 64-bit integers with 32 bits, and Lumen refuses numbers that do not fit.
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        if dtype.itemsize == 8:
            low, high = max(low, np.iinfo(np.int32).min), np.iinfo(np.int32).max
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


TYPED = {
    "bool": np.bool_,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "fp16": np.float16,
    "fp32": np.float32,
    "fp64": np.float64,
}
F32 = np.dtype(np.float32)
TYPED_INPUTS = {
    f"{n}_in": random_array(np.dtype(t), (5,), i) for i, (n, t) in enumerate(TYPED.items())
}

# Batch 1 and 3 take the static and the dynamic compile.
CASES: dict[str, tuple[str, Arrays]] = {
    "digits": ("digits", {"image": np.abs(random_array(F32, (1, 1, 8, 8))) * 4}),
    "digits batch": ("digits", {"image": np.abs(random_array(F32, (3, 1, 8, 8))) * 4}),
    "mlp": ("mlp", {"input": random_array(F32, (1, 256))}),
    "mlp batch": ("mlp", {"input": random_array(F32, (3, 256))}),
    "identity": ("identity", {"input": random_array(F32, (7, 11))}),
    "identity large": ("identity", {"input": random_array(F32, (512, 1024))}),
    "squeezenet": ("squeezenet", {"data": random_array(F32, (1, 3, 224, 224))}),
    "squeezenet batch": ("squeezenet", {"data": random_array(F32, (2, 3, 224, 224))}),
    "add_sub": (
        "add_sub",
        {"left": random_array(F32, (2, 3)), "right": random_array(F32, (2, 3), 6)},
    ),
    "row_sums": ("row_sums", {"rows": random_array(np.dtype(np.int32), (3, 4)) // 8}),
    "identity_types": ("identity_types", TYPED_INPUTS),
}
# JSON text of 600 KB of floats takes the Python client seconds; it is meant for binary.
JSON_CASES = [name for name in CASES if "squeezenet" not in name and name != "identity large"]
TRANSPORTS = {"binary both ways": (True, True), "JSON in": (False, True), "JSON out": (True, False)}
TRANSPORTS["JSON both ways"] = (False, False)


def make_inputs(module: Any, arrays: Arrays, binary: bool) -> list[Any]:
    inputs = []
    for name, array in arrays.items():
        tensor = module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        # FP16 exists only as binary in the protocol.
        tensor.set_data_from_numpy(array, binary_data=binary or array.dtype == np.float16)
        inputs.append(tensor)
    return inputs


def make_outputs(module: Any, expected: Arrays, binary: bool) -> list[Any]:
    return [
        module.InferRequestedOutput(name, binary_data=binary or array.dtype == np.float16)
        for name, array in expected.items()
    ]


def assert_same_bits(result: Any, expected: Arrays) -> None:
    for name, array in expected.items():
        got = result.as_numpy(name)
        assert got is not None, f"no output {name!r} in {result.get_response()}"
        assert got.shape == array.shape
        assert got.dtype == array.dtype
        assert got.tobytes() == np.ascontiguousarray(array).tobytes(), name


@pytest.fixture(scope="module", params=["HTTP/1.1", "a proxy that speaks HTTP/2"])
def url(request: pytest.FixtureRequest, shared_server: Server) -> Iterator[str]:
    if request.param == "HTTP/1.1":
        yield shared_server.url
    else:
        with Proxy(shared_server) as proxy:
            yield proxy.url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(url) as client:
        yield client


@pytest.fixture(scope="module")
def reference(repository: Any) -> Reference:
    return Reference(repository)


def grid() -> list[Any]:
    json_pairs = product(JSON_CASES, [t for t in TRANSPORTS if t != "binary both ways"])
    pairs = [(case, "binary both ways") for case in CASES] + list(json_pairs)
    return [pytest.param(case, transport, id=f"{case}, {transport}") for case, transport in pairs]


def test_the_client_is_the_version_that_is_promised() -> None:
    assert version("tritonclient") == "2.73.0"


@pytest.mark.parametrize(("case", "transport"), grid())
def test_sync_answers_equal_openvinos_bit_for_bit(
    client: triton.InferenceServerClient, reference: Reference, case: str, transport: str
) -> None:
    model, arrays = CASES[case]
    binary_in, binary_out = TRANSPORTS[transport]
    expected = reference.infer(model, arrays)
    result = client.infer(
        model,
        make_inputs(triton, arrays, binary_in),
        outputs=make_outputs(triton, expected, binary_out),
    )
    assert_same_bits(result, expected)


@pytest.mark.parametrize(("case", "transport"), grid())
def test_aio_answers_equal_openvinos_bit_for_bit(
    url: str, reference: Reference, case: str, transport: str
) -> None:
    model, arrays = CASES[case]
    binary_in, binary_out = TRANSPORTS[transport]
    expected = reference.infer(model, arrays)

    async def ask() -> Any:
        async with triton_aio.InferenceServerClient(url) as aio:
            return await aio.infer(
                model,
                make_inputs(triton_aio, arrays, binary_in),
                outputs=make_outputs(triton_aio, expected, binary_out),
            )

    assert_same_bits(asyncio.run(ask()), expected)


def test_many_aio_requests_at_once_each_get_their_own_answer(url: str) -> None:
    arrays = [np.full((1, 16), i, np.float32) for i in range(64)]

    async def ask() -> list[Any]:
        async with triton_aio.InferenceServerClient(url, conn_limit=16) as aio:
            calls = [
                aio.infer("identity", make_inputs(triton_aio, {"input": a}, True)) for a in arrays
            ]
            return await asyncio.gather(*calls)

    for result, array in zip(asyncio.run(ask()), arrays, strict=True):
        assert_same_bits(result, {"output": array})


def test_binary_and_json_mix_in_one_request_and_one_reply(
    client: triton.InferenceServerClient, reference: Reference
) -> None:
    _, arrays = CASES["add_sub"]
    expected = reference.infer("add_sub", arrays)
    for left_binary, sum_binary in product((True, False), repeat=2):
        inputs = make_inputs(triton, {"left": arrays["left"]}, left_binary)
        inputs += make_inputs(triton, {"right": arrays["right"]}, not left_binary)
        outputs = make_outputs(triton, {"sum": expected["sum"]}, sum_binary)
        outputs += make_outputs(triton, {"difference": expected["difference"]}, not sum_binary)
        assert_same_bits(client.infer("add_sub", inputs, outputs=outputs), expected)


def test_inputs_may_come_in_any_order_and_outputs_follow_the_order_asked(
    client: triton.InferenceServerClient, reference: Reference
) -> None:
    _, arrays = CASES["add_sub"]
    expected = reference.infer("add_sub", arrays)
    backwards = dict(reversed(expected.items()))
    result = client.infer(
        "add_sub",
        make_inputs(triton, dict(reversed(arrays.items())), True),
        outputs=make_outputs(triton, backwards, True),
    )
    assert [o["name"] for o in result.get_response()["outputs"]] == list(backwards)
    assert_same_bits(result, expected)


def test_one_output_asked_for_is_the_only_one_that_comes(
    client: triton.InferenceServerClient,
) -> None:
    _, arrays = CASES["add_sub"]
    inputs = make_inputs(triton, arrays, True)
    result = client.infer("add_sub", inputs, outputs=[triton.InferRequestedOutput("difference")])
    assert [o["name"] for o in result.get_response()["outputs"]] == ["difference"]
    assert_same_bits(result, {"difference": arrays["left"] - arrays["right"]})


def test_the_default_call_without_outputs_gets_all_of_them_as_binary(
    client: triton.InferenceServerClient,
) -> None:
    _, arrays = CASES["add_sub"]
    result = client.infer("add_sub", make_inputs(triton, arrays, True), request_id="42")
    response = result.get_response()
    assert response["id"] == "42"
    assert (response["model_name"], response["model_version"]) == ("add_sub", "1")
    assert {o["name"]: o["parameters"]["binary_data_size"] for o in response["outputs"]} == {
        "sum": 24,
        "difference": 24,
    }


def test_the_version_may_be_named(client: triton.InferenceServerClient) -> None:
    arrays = {"input": np.ones((2, 2), np.float32)}
    result = client.infer("identity", make_inputs(triton, arrays, True), model_version="1")
    assert_same_bits(result, {"output": arrays["input"]})
    assert client.is_model_ready("identity", "1")
    assert not client.is_model_ready("identity", "2")


def test_parameters_of_perf_analyzer_and_of_sequences_are_accepted(
    client: triton.InferenceServerClient,
) -> None:
    arrays = {"input": np.ones((1, 3), np.float32)}
    result = client.infer(
        "identity",
        make_inputs(triton, arrays, True),
        priority=1,
        timeout=10_000_000,
        sequence_id=0,
        parameters={"my_own": "value"},
    )
    assert_same_bits(result, {"output": arrays["input"]})


def test_live_and_ready_sync(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert not client.is_model_ready("no_such_model")


def test_live_ready_and_metadata_aio(url: str) -> None:
    async def ask() -> tuple[Any, ...]:
        async with triton_aio.InferenceServerClient(url) as aio:
            return (
                await aio.is_server_live(),
                await aio.is_server_ready(),
                await aio.is_model_ready("mlp"),
                await aio.get_server_metadata(),
                await aio.get_model_metadata("mlp"),
                await aio.get_inference_statistics("mlp"),
            )

    live, ready, model_ready, server, model, statistics = asyncio.run(ask())
    assert live and ready and model_ready
    assert server["name"] == "lumen"
    assert model["name"] == "mlp"
    assert statistics["model_stats"][0]["name"] == "mlp"


def test_server_metadata_lists_only_present_extensions(
    client: triton.InferenceServerClient,
) -> None:
    metadata = client.get_server_metadata()
    assert metadata["name"] == "lumen"
    assert metadata["version"]
    assert "binary_tensor_data" in metadata["extensions"]
    assert "statistics" in metadata["extensions"]


@pytest.mark.parametrize("model", sorted({model for model, _ in CASES.values()}))
def test_model_metadata_equals_the_model_file(
    client: triton.InferenceServerClient, reference: Reference, model: str
) -> None:
    metadata = client.get_model_metadata(model)
    graph = reference.read(model)
    assert metadata["name"] == model
    assert metadata["versions"] == ["1"]
    assert metadata["platform"]
    for ours, theirs in ((metadata["inputs"], graph.inputs), (metadata["outputs"], graph.outputs)):
        assert {t["name"]: (t["datatype"], t["shape"]) for t in ours} == {
            port.any_name: (
                np_to_triton_dtype(np.dtype(port.element_type.to_dtype()))
                if port.element_type.get_type_name() != "boolean"
                else "BOOL",
                [-1 if d.is_dynamic else d.get_length() for d in port.partial_shape],
            )
            for port in theirs
        }


def test_statistics_count_the_requests(client: triton.InferenceServerClient) -> None:
    def statistics() -> dict[str, Any]:
        return client.get_inference_statistics("row_sums")["model_stats"][0]

    before = statistics()
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    for _ in range(5):
        client.infer("row_sums", make_inputs(triton, {"rows": array}, True))
    after = statistics()
    assert after["inference_count"] - before["inference_count"] == 15
    assert after["execution_count"] - before["execution_count"] == 5
    assert after["last_inference"] > 0
    stages = after["inference_stats"]
    for stage in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert stages[stage]["count"] - before["inference_stats"][stage]["count"] == 5, stage
    assert stages["compute_infer"]["ns"] > before["inference_stats"]["compute_infer"]["ns"]
    # perf_analyzer reads these unconditionally, and complains unless they are zero without a cache.
    for stage in ("cache_hit", "cache_miss"):
        assert stages[stage] == {"count": 0, "ns": 0}


def test_statistics_of_all_models_name_each_once(client: triton.InferenceServerClient) -> None:
    names = [m["name"] for m in client.get_inference_statistics()["model_stats"]]
    wanted = [
        p.name for folder in (MODELS, FIXTURES) for p in folder.iterdir() if (p / "1").is_dir()
    ]
    wanted.remove("tabular")  # not ready: OpenVINO, which these tests run with, can't serve it
    assert sorted(names) == sorted(wanted)


def test_an_error_reaches_the_client_as_its_own_exception(
    client: triton.InferenceServerClient,
) -> None:
    inputs = make_inputs(triton, {"input": np.ones((1, 255), np.float32)}, True)
    with pytest.raises(InferenceServerException, match=r"input.*255.*256") as caught:
        client.infer("mlp", inputs)
    assert caught.value.status() == "400"
    with pytest.raises(InferenceServerException, match="no_such_model") as caught:
        client.infer("no_such_model", inputs)
    assert caught.value.status() == "404"
