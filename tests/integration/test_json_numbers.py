"""NaN, infinity, null and byte order marks in JSON, as clients send and read them."""

from __future__ import annotations

import json
import math
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, Server
from onnx import helper

sys.path.insert(0, str(MODELS))
import onnx_tools


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("numbers")
    onnx_tools.save(
        repository / "same" / "1" / "model.onnx",
        "same",
        [helper.make_node("Identity", ["x"], ["y"])],
        [onnx_tools.value("x", ["n"])],
        [onnx_tools.value("y", ["n"])],
        [],
    )
    with Server(repository) as one:
        yield one


def ask(served: Server, body: bytes) -> Any:
    request = urllib.request.Request(f"http://{served.url}/v2/models/same/infer", data=body)
    with urllib.request.urlopen(request) as reply:
        return reply.read().decode()


def request(data: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "inputs": [{"name": "x", "shape": [len(data)], "datatype": "FP32", "data": data}],
        **more,
    }


SPECIAL = [1.0, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ({}, "[1,null,null,null]"),
        ({"non_finite": "bare"}, "[1,NaN,Infinity,-Infinity]"),
        ({"non_finite": "string"}, '[1,"NaN","Infinity","-Infinity"]'),
    ],
)
def test_json_of_python_is_read_and_answered_in_the_wanted_form(
    served: Server, parameters: dict[str, str], wanted: str
) -> None:
    body = json.dumps(request(SPECIAL, parameters=parameters)).encode()
    assert b"NaN" in body  # so Python writes it
    assert f'"data":{wanted}' in ask(served, body)


def test_a_missing_value_is_nan(served: Server) -> None:
    answer = ask(served, json.dumps(request([1.0, None, 3.0])).encode())
    assert json.loads(answer)["outputs"][0]["data"] == [1, None, 3]


@pytest.mark.parametrize("form", [None, "bare"])
def test_tritons_client_reads_nan_as_json(served: Server, form: str | None) -> None:
    x = triton.InferInput("x", [2], "FP32")
    x.set_data_from_numpy(np.array([1, np.nan], np.float32), binary_data=False)
    y = triton.InferRequestedOutput("y", binary_data=False)
    client = triton.InferenceServerClient(served.url)
    parameters = {"non_finite": form} if form else None
    answer = client.infer("same", [x], outputs=[y], parameters=parameters).as_numpy("y")
    assert np.isnan(answer.astype(np.float32)[1])
    assert answer[0] == 1


def test_null_of_an_optional_member_is_as_if_it_were_absent(served: Server) -> None:
    body = request([1.0], id=None, parameters=None, outputs=None)
    body["inputs"][0]["parameters"] = None
    assert '"data":[1]' in ask(served, json.dumps(body).encode())


def test_a_byte_order_mark_is_skipped_and_utf_16_is_named(served: Server) -> None:
    text = json.dumps(request([1.0]))
    assert '"data":[1]' in ask(served, text.encode("utf-8-sig"))
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32-le"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(served, text.encode(encoding))
        assert refused.value.code == 400
        assert "UTF-16" in refused.value.read().decode()
