"""A wrong request gets its status and a JSON error that names the culprit; the server lives."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from integration.harness import FIXTURES, MODELS, Server, copy_models
from integration.raw_http import Connection, Reply, chunked, get, head, post, post_json

MLP = "/v2/models/mlp/infer"
ADD_SUB = "/v2/models/add_sub/infer"
IDENTITY = "/v2/models/identity/infer"


def tensor(name: str, shape: list[Any], datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, **more}


def binary_request(
    path: str, document: Any, payload: bytes, announced: int | str | None = None
) -> bytes:
    """A JSON head with bytes behind it; `announced` overrides Inference-Header-Content-Length."""
    text = json.dumps(document).encode()
    length = len(text) if announced is None else announced
    return post(path, text + payload, f"Inference-Header-Content-Length: {length}")


def mlp_json(**change: Any) -> bytes:
    return post_json(MLP, {"inputs": [tensor("input", [1, 256], data=[0.5] * 256) | change]})


def mlp_binary(size: int, payload: int, shape: tuple[Any, ...] = (1, 256)) -> bytes:
    given = tensor("input", list(shape), parameters={"binary_data_size": size})
    return binary_request(MLP, {"inputs": [given]}, bytes(payload))


def identity_text(text: str) -> bytes:
    return post(IDENTITY, text.encode())


LEFT = tensor("left", [2, 3], data=[1] * 6)
RIGHT = tensor("right", [2, 3], data=[1] * 6)
IDENTITY_START = '{"inputs":[{"name":"input","datatype":"FP32","shape":[1,2],"data":'

# name: (request, status, words of the error)
BAD_REQUESTS: dict[str, tuple[bytes, int, list[str]]] = {
    "unknown path": (get("/v3/nothing"), 404, ["/v3/nothing"]),
    "unknown model, metadata": (get("/v2/models/nobody"), 404, ["nobody"]),
    "unknown model, infer": (post_json("/v2/models/nobody/infer", {}), 404, ["nobody"]),
    "unknown version": (get("/v2/models/mlp/versions/7"), 404, ["mlp", "7"]),
    "version is no number": (get("/v2/models/mlp/versions/x"), 404, ["x"]),
    "path beyond the model": (get("/v2/models/mlp/infer/more"), 404, ["/v2/models/mlp/infer/more"]),
    "model named by a traversal": (get("/v2/models/../mlp"), 404, []),
    "model named by an encoded traversal": (get("/v2/models/%2e%2e"), 404, []),
    "GET on infer": (get(MLP), 405, ["POST"]),
    "POST on metadata": (post("/v2/models/mlp", b"{}"), 405, ["GET"]),
    "DELETE on a model": (head("DELETE", "/v2/models/mlp"), 405, ["GET"]),
    "infer without a body": (head("POST", MLP), 400, ["body"]),
    "infer with an empty body": (post(MLP, b""), 400, []),
    "unknown input": (mlp_json(name="inputt"), 400, ["inputt", "input"]),
    "input missing": (post_json(ADD_SUB, {"inputs": [LEFT]}), 400, ["right"]),
    "no input at all": (post_json(MLP, {"inputs": []}), 400, ["input"]),
    "no inputs member": (post_json(MLP, {"id": "1"}), 400, ["inputs"]),
    "input given twice": (post_json(ADD_SUB, {"inputs": [LEFT, LEFT]}), 400, ["left"]),
    "one input too many": (
        post_json(ADD_SUB, {"inputs": [LEFT, RIGHT, LEFT | {"name": "up"}]}),
        400,
        ["up"],
    ),
    "unknown output": (
        post_json(ADD_SUB, {"inputs": [LEFT, RIGHT], "outputs": [{"name": "product"}]}),
        400,
        ["product", "sum"],
    ),
    "output asked for twice": (
        post_json(
            ADD_SUB, {"inputs": [LEFT, RIGHT], "outputs": [{"name": "sum"}, {"name": "sum"}]}
        ),
        400,
        ["sum"],
    ),
    "wrong last axis": (mlp_json(shape=[1, 255], data=[0.5] * 255), 400, ["input", "255", "256"]),
    "wrong rank": (mlp_json(shape=[256]), 400, ["input", "256"]),
    "static shape differs": (
        post_json(ADD_SUB, {"inputs": [tensor("left", [3, 2], data=[1] * 6), RIGHT]}),
        400,
        ["left"],
    ),
    "negative axis": (mlp_json(shape=[-1, 256]), 400, ["input", "-1"]),
    "axis of zero": (mlp_json(shape=[0, 256], data=[]), 400, ["input", "[0,256]"]),
    "axis is no integer": (mlp_json(shape=[1.5, 256]), 400, ["input 'input'", "shape", "1.5"]),
    "axis is a string": (mlp_json(shape=["1", 256]), 400, ["input 'input'", "shape", '"1"']),
    "shape is a string": (mlp_json(shape="[1,256]"), 400, ["input 'input'", "shape", "[1,256]"]),
    "shape whose product overflows": (mlp_json(shape=[2**62, 2**62]), 400, ["input"]),
    "shape of 4 GiB and no data": (mlp_json(shape=[10**9, 256], data=[]), 400, ["input"]),
    "wrong datatype": (mlp_json(datatype="INT64", data=[1] * 256), 400, ["input", "INT64", "FP32"]),
    "unknown datatype": (mlp_json(datatype="FLOAT"), 400, ["input", "FLOAT"]),
    "no datatype": (
        post_json(MLP, {"inputs": [{"name": "input", "shape": [1, 256]}]}),
        400,
        ["input"],
    ),
    "too few numbers": (mlp_json(data=[0.5] * 255), 400, ["input", "255", "256"]),
    "too many numbers": (mlp_json(data=[0.5] * 257), 400, ["input", "256"]),
    "a string among numbers": (mlp_json(data=["x"] + [0.5] * 255), 400, ["input"]),
    "neither data nor binary_data_size": (
        post_json(MLP, {"inputs": [tensor("input", [1, 256])]}),
        400,
        ["input"],
    ),
    "binary smaller than the shape": (mlp_binary(1020, 1020), 400, ["input", "1020", "1024"]),
    "binary larger than the shape": (mlp_binary(1028, 1028), 400, ["input", "1028", "1024"]),
    "fewer bytes than binary_data_size": (mlp_binary(1024, 1000), 400, ["1024", "1000"]),
    "more bytes than binary_data_size": (mlp_binary(1024, 1030), 400, ["1024", "1030"]),
    "negative binary_data_size": (mlp_binary(-1, 0), 400, ["binary_data_size"]),
    "binary_data_size is a string": (
        post_json(
            MLP, {"inputs": [tensor("input", [1, 256], parameters={"binary_data_size": "1024"})]}
        ),
        400,
        ["binary_data_size"],
    ),
    "JSON length beyond the body": (
        post(MLP, b"{}", "Inference-Header-Content-Length: 3"),
        400,
        ["Inference-Header-Content-Length", "3"],
    ),
    "raw body of half a row": (
        post(MLP, bytes(512), "Inference-Header-Content-Length: 0"),
        400,
        ["input", "512"],
    ),
    "raw body for two inputs": (
        post(ADD_SUB, bytes(48), "Inference-Header-Content-Length: 0"),
        400,
        ["add_sub"],
    ),
    "shared memory over TCP": (
        post_json(
            MLP,
            {
                "inputs": [
                    tensor(
                        "input",
                        [1, 256],
                        parameters={"shared_memory_region": "r", "shared_memory_byte_size": 1024},
                    )
                ]
            },
        ),
        403,
        ["shared memory", "--tcp-shm"],
    ),
    "truncated JSON": (identity_text(IDENTITY_START + "[1"), 400, []),
    "JSON with a tail": (identity_text(IDENTITY_START + "[1,2]}]} x"), 400, []),
    "JSON is an array": (identity_text("[]"), 400, []),
    "not JSON": (identity_text("hello"), 400, []),
    "not UTF-8": (post(IDENTITY, b'{"id":"\xff\xfe","inputs":[]}'), 400, []),
    "a duplicate key": (identity_text('{"inputs":[],"inputs":[]}'), 400, ["inputs"]),
    "NaN that is misspelled": (identity_text(IDENTITY_START + "[nan,1]}]}"), 400, ["NaN"]),
    "1e400": (identity_text(IDENTITY_START + "[1e400,1]}]}"), 400, []),
    "depth 100,000": (identity_text("[" * 100_000), 400, []),
    "nested data of the wrong form": (
        identity_text(IDENTITY_START + "[[1],[2]]}]}"),
        400,
        ["input"],
    ),
    "a lone surrogate": (identity_text('{"id":"\\ud800","inputs":[]}'), 400, []),
    "ten thousand inputs": (
        post_json(MLP, {"inputs": [tensor(f"i{i}", [1], data=[1]) for i in range(10_000)]}),
        400,
        [],
    ),
    "a body in Brotli": (
        post(MLP, b"\x1f\x8b", "Content-Encoding: br"),
        415,
        ["Content-Encoding 'br'", "gzip, deflate"],
    ),
    "two codings": (
        post(MLP, b"\x1f\x8b", "Content-Encoding: gzip, gzip"),
        415,
        ["Content-Encoding 'gzip, gzip'"],
    ),
    "a compressed body that is cut": (
        post(MLP, b"\x1f\x8b", "Content-Encoding: gzip"),
        400,
        ["ends within its compressed data"],
    ),
    "a compressed body that is none": (
        post(MLP, b'{"inputs":[]}', "Content-Encoding: gzip"),
        400,
        ["not what Content-Encoding gzip says"],
    ),
}


def assert_serves(server: Server, connection: Connection | None = None) -> None:
    """A good request, on the same connection if it lives and on a fresh one."""
    request = post_json(IDENTITY, {"inputs": [tensor("input", [1, 2], data=[1.5, -2])]})
    with Connection(server.address) as fresh:
        for one in (connection, fresh):
            if one is None:
                continue
            reply = one.exchange(request)
            assert reply.status == 200, reply
            assert reply.json()["outputs"][0]["data"] == [1.5, -2]


def assert_error(reply: Reply, status: int, names: list[str]) -> None:
    assert reply.status == status, reply
    for name in names:
        assert name in reply.error
    assert reply.error


@pytest.mark.parametrize("name", list(BAD_REQUESTS))
def test_a_bad_request_names_the_culprit_and_the_server_lives_on(
    shared_server: Server, name: str
) -> None:
    request, status, names = BAD_REQUESTS[name]
    with Connection(shared_server.address) as connection:
        reply = connection.exchange(request)
        assert_error(reply, status, names)
        keeps = reply.headers.get("connection", "").lower() != "close"
        assert_serves(shared_server, connection if keeps else None)


@pytest.mark.parametrize(
    "name", ["unknown input", "truncated JSON", "unknown model, infer", "GET on infer"]
)
def test_an_error_of_content_keeps_the_connection(shared_server: Server, name: str) -> None:
    with Connection(shared_server.address) as connection:
        reply = connection.exchange(BAD_REQUESTS[name][0])
        assert reply.headers.get("connection", "").lower() != "close"
        assert_serves(shared_server, connection)


def test_a_wrong_method_says_which_are_allowed(shared_server: Server) -> None:
    with Connection(shared_server.address) as connection:
        assert connection.exchange(get(MLP)).headers["allow"] == "POST"
        assert "GET" in connection.exchange(post("/v2", b"{}")).headers["allow"]


def test_an_error_repeats_at_most_a_part_of_a_very_long_name(shared_server: Server) -> None:
    with Connection(shared_server.address) as connection:
        reply = connection.exchange(mlp_json(name="n" * 20_000))
        assert_error(reply, 400, ["name", "20000"])
        assert len(reply.body) < 2100


def test_an_error_escapes_repeated_text(shared_server: Server) -> None:
    hostile = 'a"b\\\x01\n\u2028</script>'
    with Connection(shared_server.address) as connection:
        reply = connection.exchange(mlp_json(name=hostile))
        assert_error(reply, 400, ['a"b\\'])
        assert b"\n" not in reply.body and b"\x01" not in reply.body


# --- sizes ----------------------------------------------------------------------------------------


def test_a_body_above_the_limit_is_refused_before_it_is_sent(shared_server: Server) -> None:
    size = 64 * 1024 * 1024 + 1
    with Connection(shared_server.address) as connection:
        reply = connection.exchange(head("POST", MLP, f"Content-Length: {size}"))
        assert_error(reply, 413, [str(size), str(size - 1)])
        assert reply.headers["connection"].lower() == "close"
    assert_serves(shared_server)


def test_a_body_above_the_limit_gets_no_100_continue(shared_server: Server) -> None:
    lines = ["Content-Length: 99999999999", "Expect: 100-continue"]
    with Connection(shared_server.address) as connection:
        assert connection.exchange(head("POST", MLP, *lines)).status == 413
    assert_serves(shared_server)


def test_a_chunked_body_is_refused_where_it_crosses_the_limit(
    server: Callable[..., Server],
) -> None:
    one = server("--max-body-bytes", "4096")
    with Connection(one.address) as connection:
        assert connection.exchange(chunked(IDENTITY, [b"{" + b" " * 4000])).status == 400
    with Connection(one.address) as connection:
        start = (
            head("POST", IDENTITY, "Transfer-Encoding: chunked")
            + b"fa0\r\n"
            + b" " * 4000
            + b"\r\n"
        )
        reply = connection.exchange(start + b"61\r\n")
        assert reply.status == 413 and reply.error
        assert reply.headers["connection"].lower() == "close"
    assert_serves(one)


def test_a_body_of_exactly_the_limit_is_read(server: Callable[..., Server]) -> None:
    one = server("--max-body-bytes", "4096")
    document = json.dumps({"inputs": [tensor("input", [1, 1], data=[4])]}).encode()
    with Connection(one.address) as connection:
        assert connection.exchange(post(IDENTITY, document.ljust(4096))).status == 200
        assert connection.exchange(post(IDENTITY, document.ljust(4097))).status == 413


# --- models ---------------------------------------------------------------------------------------


@pytest.fixture
def broken_repository(tmp_path: Path) -> Path:
    """Good models beside files that are no models."""
    folder = copy_models(
        tmp_path / "broken", [MODELS / "identity", MODELS / "mlp", FIXTURES / "add_sub"]
    )
    whole = (MODELS / "mlp" / "1" / "model.onnx").read_bytes()
    for name, content in {
        "cut": whole[: len(whole) // 2],
        "noise": b"\x00\xff" * 500,
        "empty": b"",
    }.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.onnx").write_bytes(content)
    shutil.copytree(folder / "mlp", folder / "misconfigured")
    (folder / "misconfigured" / "config.json").write_text('{"precison": "f32"}')
    (folder / "linked" / "1").mkdir(parents=True)
    (folder / "linked" / "1" / "model.onnx").symlink_to(MODELS / "mlp" / "1" / "model.onnx")
    (folder / "notes.txt").write_text("not a model")
    (folder / "scripts").mkdir()
    return folder


# Words of the reason beside the model's name.
BROKEN = {
    "cut": "loading",
    "noise": "loading",
    "empty": "empty",
    "misconfigured": "precison",
    "linked": "--follow-links",
}


def test_broken_models_say_why_and_the_good_ones_serve(
    server: Callable[..., Server], broken_repository: Path
) -> None:
    one = server(repository=broken_repository)
    with Connection(one.address) as connection:
        for name, culprit in BROKEN.items():
            for request in (
                post(f"/v2/models/{name}/infer", b"{}"),
                get(f"/v2/models/{name}/ready"),
            ):
                reply = connection.exchange(request)
                assert_error(reply, 503, [name, culprit])
        for name in ("scripts", "notes.txt"):
            assert connection.exchange(get(f"/v2/models/{name}")).status == 404
        for name in ("identity", "mlp", "add_sub"):
            assert connection.exchange(get(f"/v2/models/{name}/ready")).status == 200
        assert connection.exchange(get("/v2/health/ready")).status == 200
        assert_serves(one, connection)


def test_the_reason_of_a_broken_model_does_not_leak_into_others(
    server: Callable[..., Server], broken_repository: Path
) -> None:
    one = server(repository=broken_repository)
    given = tensor("input", [1, 256], parameters={"binary_data_size": 1024})
    payload = struct.pack("<256f", *range(256))
    with Connection(one.address) as connection:
        before = connection.exchange(binary_request(MLP, {"inputs": [given]}, payload))
        assert connection.exchange(post("/v2/models/cut/infer", b"{}")).status == 503
        after = connection.exchange(binary_request(MLP, {"inputs": [given]}, payload))
    assert before.status == after.status == 200
    assert before.body == after.body
