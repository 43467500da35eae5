"""Models of tables over HTTP: the answers of the frameworks that trained them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.http as triton
from integration.harness import Server
from integration.tabular_models import MAKERS, Case, make_repository, write_model
from onnx import TensorProto, helper

ROWS = 1000


@dataclass
class Served:
    cases: dict[str, Case]
    repository: Path
    client: triton.InferenceServerClient

    def infer(self, model: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = []
        for name, array in inputs.items():
            kind = "BYTES" if array.dtype.kind == "O" else "FP32"
            tensors.append(triton.InferInput(name, list(array.shape), kind))
            tensors[-1].set_data_from_numpy(array)
        outputs = self.client.get_model_metadata(model)["outputs"]
        result = self.client.infer(model, tensors)
        return {output["name"]: result.as_numpy(output["name"]) for output in outputs}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    repository = tmp_path_factory.mktemp("tabular")
    cases = make_repository(repository)
    write_strings(repository)
    with Server(repository) as one:
        yield Served(cases, repository, triton.InferenceServerClient(one.url))


def write_strings(repository: Path) -> None:
    """Colours as texts to numbers and back: LabelEncoder twice."""
    forward = {"keys_strings": ["red", "green", "blue"], "values_floats": [0.0, 1.0, 2.0]}
    nodes = [
        helper.make_node("LabelEncoder", ["colour"], ["code"], domain="ai.onnx.ml", **forward),
        helper.make_node("Identity", ["colour"], ["same"]),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("colour", TensorProto.STRING, ["n"])],
        [
            helper.make_tensor_value_info("code", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("same", TensorProto.STRING, ["n"]),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    write_model(repository, "colours", model.SerializeToString(), "onnxruntime")


def rows_of(case: Case, count: int) -> np.ndarray:
    return np.resize(case.table, (count, case.table.shape[1]))


def split(answer: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The labels and the probabilities, under any names of the converter."""
    labels = next(array for name, array in answer.items() if "label" in name)
    return labels, next(array for name, array in answer.items() if "prob" in name)


def expect_the_frameworks_answers(served: Served, name: str, rows: np.ndarray) -> None:
    case = served.cases[name]
    answer = served.infer(name, {"X": rows})
    if case.is_classifier:
        labels, probabilities = split(answer)
        np.testing.assert_array_equal(labels, case.model.predict(rows))
        np.testing.assert_allclose(probabilities, case.model.predict_proba(rows), atol=1e-5)
    else:
        values = next(iter(answer.values())).ravel()
        np.testing.assert_allclose(values, case.model.predict(rows), rtol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("count", [1, ROWS])
def test_answers_are_the_frameworks_own(served: Served, name: str, count: int) -> None:
    expect_the_frameworks_answers(served, name, rows_of(served.cases[name], count))


@pytest.mark.parametrize(
    "name", [name for name in MAKERS if name.startswith(("lightgbm", "xgboost"))]
)
def test_missing_values_are_taken_as_the_framework_takes_them(served: Served, name: str) -> None:
    case = served.cases[name]
    assert case.takes_nan
    rows = rows_of(case, 100).copy()
    rows[::3, 1] = np.nan
    rows[::7, 0] = np.nan
    expect_the_frameworks_answers(served, name, rows)


@pytest.mark.parametrize("name", MAKERS)
def test_answers_are_onnx_runtimes_bit_for_bit(served: Served, name: str) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    model = served.repository / name / "1" / "model.onnx"
    session = onnxruntime.InferenceSession(model, options)
    for count in (1, 7, ROWS):
        rows = rows_of(served.cases[name], count)
        answer = served.infer(name, {"X": rows})
        for output, wanted in zip(session.get_outputs(), session.run(None, {"X": rows})):
            if isinstance(wanted, list):  # ZipMap: a dictionary a row
                wanted = np.array([list(row.values()) for row in wanted], np.float32)
            assert answer[output.name].tobytes() == wanted.tobytes(), (output.name, count)


def test_classes_are_told_as_labels_of_the_probabilities(served: Served) -> None:
    outputs = served.client.get_model_metadata("boosting")["outputs"]
    assert outputs[1]["parameters"] == {"labels": ["0", "1"]}
    assert "parameters" not in outputs[0]
    plain = served.client.get_model_metadata("boosting_plain")["outputs"]
    assert all("parameters" not in output for output in plain)


def test_texts_go_in_and_out(served: Served) -> None:
    colours = np.array(["blue", "red", "green", "blue"], dtype=object)
    answer = served.infer("colours", {"colour": colours})
    np.testing.assert_array_equal(answer["code"], [2, 0, 1, 2])
    assert [text.decode() for text in answer["same"]] == list(colours)
