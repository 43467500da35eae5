"""Scalars, empty tensors, texts and outputs of any rank over HTTP, served by ONNX Runtime."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, Server
from integration.raw_http import post_json
from onnx import TensorProto, helper

sys.path.insert(0, str(MODELS))
import onnx_tools

DATATYPES = {"O": "BYTES", "f": "FP32", "i": "INT64"}
MOST_AXES = 8


def write_models(repository: Path) -> None:
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    add = helper.make_node("Add", ["x", "one"], ["y"])
    same = helper.make_node("Identity", ["x"], ["y"])
    reshape = helper.make_node("Reshape", ["x", "shape"], ["y"])
    value, text = onnx_tools.value, TensorProto.STRING

    def save(name: str, node: onnx.NodeProto, inputs: list, output: onnx.ValueInfoProto) -> None:
        # Not onnx_tools.save(): ONNX's checker refuses a value without a shape.
        graph = helper.make_graph([node], name, inputs, [output], [one])
        opsets = [helper.make_opsetid("", onnx_tools.OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=onnx_tools.IR_VERSION)
        file = repository / name / "1" / "model.onnx"
        file.parent.mkdir(parents=True)
        file.write_bytes(model.SerializeToString())

    def any_rank(name: str, datatype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, datatype, None)

    save("scalar", add, [value("x", [])], value("y", []))
    save("scalar_text", same, [value("x", [], text)], value("y", [], text))
    save("texts", same, [value("x", ["n", "m"], text)], value("y", ["n", "m"], text))
    nonzero = helper.make_node("NonZero", ["x"], ["y"])
    save("nonzero", nonzero, [value("x", ["n"])], value("y", [1, "found"], TensorProto.INT64))
    shape = value("shape", ["axes"], TensorProto.INT64)
    save("reshape", reshape, [value("x", ["n"]), shape], any_rank("y"))
    save("reshape_texts", reshape, [value("x", ["n"], text), shape], any_rank("y", text))
    save("input_of_any_rank", add, [any_rank("x")], any_rank("y"))


@dataclass
class Served:
    server: Server
    client: triton.InferenceServerClient

    def infer(self, model: str, **inputs: np.ndarray) -> np.ndarray:
        tensors = []
        for name, array in inputs.items():
            datatype = DATATYPES[array.dtype.kind]
            tensors.append(triton.InferInput(name, list(array.shape), datatype))
            tensors[-1].set_data_from_numpy(array)
        return self.client.infer(model, tensors).as_numpy("y")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    repository = tmp_path_factory.mktemp("tensors")
    write_models(repository)
    with Server(repository, "--backend", "onnxruntime") as one:
        yield Served(one, triton.InferenceServerClient(one.url))


def texts(*values: object) -> np.ndarray:
    return np.array(values, dtype=object)


def floats(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


def test_a_scalar_goes_in_and_out(served: Served) -> None:
    answer = served.infer("scalar", x=np.array(3, np.float32))
    assert answer.shape == () and answer == 4
    answer = served.infer("scalar_text", x=np.array("word", dtype=object))
    assert answer.shape == () and answer.item() == b"word"


def test_texts_of_all_lengths_go_in_and_out(served: Served) -> None:
    sent = texts(["", "ü", "a" * 100_000], ["\0", "\n", '"'])
    answer = served.infer("texts", x=sent)
    assert [text.decode() for text in answer.ravel()] == list(sent.ravel())
    assert answer.shape == sent.shape


def test_texts_go_in_and_out_as_json(served: Served) -> None:
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1, 2], "data": ["", "ü\n"]}
    with served.server.connect() as connection:
        reply = connection.exchange(post_json("/v2/models/texts/infer", {"inputs": [tensor]}))
    assert reply.json()["outputs"] == [{**tensor, "name": "y"}]


def test_an_output_may_be_empty(served: Served) -> None:
    assert served.infer("nonzero", x=np.zeros(5, np.float32)).shape == (1, 0)
    assert served.infer("nonzero", x=floats(5)).tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("model", ["nonzero", "texts"])
def test_an_empty_input_has_an_empty_answer(served: Served, model: str) -> None:
    empty = np.zeros(0, np.float32) if model == "nonzero" else texts().reshape(0, 3)
    assert served.infer(model, x=empty).size == 0


@pytest.mark.parametrize("shape", [[24], [2, 12], [1, 2, 3, 4], [2, 3, 1, 1, 1, 1, 1, 4], [4, 6]])
def test_an_output_without_a_rank_comes_with_the_shape_that_it_has(
    served: Served, shape: list[int]
) -> None:
    answer = served.infer("reshape", x=floats(24), shape=np.array(shape))
    assert answer.shape == tuple(shape)
    np.testing.assert_array_equal(answer.ravel(), floats(24))
    words = texts(*(f"word {i}" for i in range(24)))
    answer = served.infer("reshape_texts", x=words, shape=np.array(shape))
    assert [text.decode() for text in answer.ravel()] == list(words)
    assert answer.shape == tuple(shape)


def test_an_output_of_too_many_axes_is_refused_and_the_next_is_not(served: Served) -> None:
    with pytest.raises(triton.InferenceServerException, match="rank 9; wanted at most 8"):
        served.infer("reshape", x=floats(2), shape=np.array([2] + [1] * MOST_AXES))
    assert served.infer("reshape", x=floats(2), shape=np.array([1, 2])).shape == (1, 2)


def test_a_refused_reshape_says_why_in_the_librarys_words_and_no_source_file(
    served: Served,
) -> None:
    with pytest.raises(triton.InferenceServerException) as refused:
        served.infer("reshape", x=floats(3), shape=np.array([2, 2]))
    message = str(refused.value)
    assert "cannot be reshaped to the requested shape" in message
    assert ".h:" not in message and "onnxruntime_src" not in message


def test_an_input_without_a_rank_is_refused_with_the_mend(served: Served) -> None:
    with pytest.raises(triton.InferenceServerException, match="input 'x' has no shape") as refused:
        served.infer("input_of_any_rank", x=floats(1))
    assert "update_model_dims" in str(refused.value)
