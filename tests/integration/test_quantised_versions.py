"""A version that `lumen quantize` wrote: a backend serves it only if its answers to the recorded
rows are near those of the f32 model."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from integration.harness import Server
from integration.test_operator_choice import document
from lumen_engine.client import Client
from lumen_engine.quantize import distance, gate, network, samples, written
from lumen_engine.quantize.candidates import Candidate, Quantiser
from lumen_engine.quantize.runners import OnnxRuntime, OpenVino, common_shapes
from onnx import TensorProto, helper, numpy_helper

ROWS = 40
AUTO = ("--backend", "auto", "--backend-choices", "off")


def perceptron(widths: list[int], answers: int = TensorProto.FLOAT) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    nodes, weights, before = [], [], "x"
    for i, (rows, columns) in enumerate(zip(widths, widths[1:])):
        for name, shape in ((f"w{i}", (rows, columns)), (f"b{i}", (columns,))):
            values = rng.normal(0, (2 / rows) ** 0.5, shape).astype(np.float32)
            weights.append(numpy_helper.from_array(values, name))
        last = i == len(widths) - 2
        nodes.append(
            helper.make_node("Gemm", [before, f"w{i}", f"b{i}"], ["y" if last else f"g{i}"])
        )
        if not last:
            nodes.append(helper.make_node("Relu", [f"g{i}"], [f"r{i}"]))
        before = f"r{i}"
    if answers != TensorProto.FLOAT:
        nodes[-1].output[0] = "float"
        nodes.append(helper.make_node("Cast", ["float"], ["y"], to=answers))
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", widths[0]])],
        [helper.make_tensor_value_info("y", answers, ["rows", widths[-1]])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


class Quantised:
    """A repository with m/1 in f32 and m/2 in INT8, faster here or not."""

    def __init__(self, folder: Path, widths: list[int], answers: int = TensorProto.FLOAT) -> None:
        self.repository = folder / "models"
        self.model = self.repository / "m"
        (self.model / "1").mkdir(parents=True)
        made = perceptron(widths, answers)
        source = self.model / "1" / "model.onnx"
        onnx.save(made, source)
        self.rows = np.random.default_rng(4).normal(0, 1, (ROWS, widths[0])).astype(np.float32)
        data = samples.Samples([{"x": self.rows[i : i + 1]} for i in range(ROWS)])
        calibrating, judged = samples.split(data)
        quantiser = Quantiser(network.prepare(made, judged.calls), calibrating.calls, folder)
        candidate = Candidate("int8", quantiser.quantise(quantiser.nodes))
        wanted = OnnxRuntime(made).run_all(judged.calls)
        own = OnnxRuntime(candidate.model).run_all(judged.calls)
        limit = gate.Gate("sqnr", 10, judged, wanted)
        entry = gate.Entry(candidate, "onnxruntime", 1.0, limit.judge(own))
        least = distance.sqnr_db(wanted, own) - written.MARGIN_DB
        self.version = written.write_version(
            self.model,
            source,
            gate.Choice(entry, "twice as fast"),
            [entry],
            limit,
            (len(calibrating), len(judged)),
            (judged.calls, wanted),
            least,
        )
        self.least_db = least
        shapes = common_shapes(judged.calls)
        openvino = OpenVino(candidate.model, "f32", shapes)
        self.openvino_db = distance.sqnr_db(wanted, [openvino.run(call) for call in judged.calls])

    def document(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self.version / "quantization.json").read_text())
        return made


def refusals(repository: Path, models: Iterable[str] = ("m",)) -> dict[str, str]:
    """Why version 2 of each is not served; the float version is."""
    with Server(repository, *AUTO) as server:
        for model in models:
            assert "error" not in document(server, f"{model}/versions/1")
        return {model: str(document(server, f"{model}/versions/2")["error"]) for model in models}


def parameters(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = document(server, "m/versions/2")["parameters"]
    return found


def test_its_precision_is_in_the_documents_and_a_backend_with_wrong_answers_is_left_out(
    tmp_path: Path,
) -> None:
    # OpenVINO 2026.4 answers single rows of some perceptrons far off; here or not, by the CPU.
    quantised = Quantised(tmp_path, [4, 16, 3])
    with Server(quantised.repository, *AUTO) as server:
        found = parameters(server)
        with urllib.request.urlopen(f"http://{server.url}/metrics") as reply:
            metrics = reply.read().decode()
        for version, precision in (("1", "f32"), ("2", "int8")):
            assert re.search(
                rf'backend_info{{model="m",version="{version}",.*precision="{precision}"}} 1',
                metrics,
            )
        assert found["precision"] == "int8"
        assert found["precision_why"] == "twice as fast"
        assert "operators_not_known" not in found
        if quantised.openvino_db < quantised.least_db:
            assert found["backend"] == "onnxruntime"
            problems = {one["name"]: one.get("problem", "") for one in found["backends_tried"]}
            assert "signal to error" in problems["openvino"]
        client = Client(f"http://{server.url}")
        answers = np.array(
            [
                client.infer("m", {"x": quantised.rows[i : i + 1]}, version="2")["y"][0]
                for i in range(ROWS)
            ]
        )
    wanted = OnnxRuntime(onnx.load(quantised.model / "1" / "model.onnx")).run_all(
        [{"x": quantised.rows[i : i + 1]} for i in range(ROWS)]
    )
    got = [{"y": answers[i : i + 1]} for i in range(ROWS)]
    assert distance.sqnr_db(wanted, got) > quantised.least_db - 3


def test_openvino_may_serve_it_although_its_operators_are_not_known(tmp_path: Path) -> None:
    quantised = Quantised(tmp_path, [64, 128, 10])
    with Server(quantised.repository, *AUTO) as server:
        found = parameters(server)
    problem = {one["name"]: one.get("problem", "") for one in found["backends_tried"]}["openvino"]
    # Its answers are judged, and not its operators.
    assert "not known" not in problem
    if quantised.openvino_db > quantised.least_db + 1:
        assert problem == ""


def test_answers_of_16_bits_are_judged_too(tmp_path: Path) -> None:
    # They were taken for texts, and no backend served the version.
    quantised = Quantised(tmp_path, [64, 128, 10], TensorProto.FLOAT16)
    (quantised.model / "config.json").write_text('{"backend": "onnxruntime"}')
    with Server(quantised.repository, *AUTO) as server:
        assert parameters(server)["precision"] == "int8"


def test_answers_that_are_not_those_of_the_recorded_rows_make_it_unavailable(
    tmp_path: Path,
) -> None:
    quantised = Quantised(tmp_path, [4, 16, 3])
    rows = quantised.version / "quantization.rows"
    stored = bytearray(rows.read_bytes())
    for call in quantised.document()["check"]["calls"]:
        for one in call["outputs"]:
            begin, size = one["offset"], one["bytes"]
            numbers = np.frombuffer(bytes(stored[begin : begin + size]), np.float32)
            stored[begin : begin + size] = (numbers[::-1] + 1).tobytes()
    rows.write_bytes(stored)
    named = ("auto", "onnxruntime", "openvino")
    for backend in named:
        shutil.copytree(quantised.model, quantised.repository / backend)
        config = quantised.repository / backend / "config.json"
        config.write_text(json.dumps({"backend": backend}))
    for reason in refusals(quantised.repository, named).values():
        assert "signal to error" in reason and "with 1 row a call, wanted" in reason


def of_first_input(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["check"]["calls"][0]["inputs"][0].update(values)


OTHER_FORMS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda document: document.update(version=2), "version 2; wanted 1"),
    (lambda document: document.update(precision="fp4"), "precision 'fp4'; wanted int8"),
    (lambda document: document.pop("check"), "key 'check' not found"),
    (lambda document: document["check"].update(calls=[]), "0 entries; wanted 1 to 64"),
    (of_first_input(offset=1 << 40), "bytes at 1099511627776 of a file of"),
    (of_first_input(bytes=17), "'x' has 17 bytes"),
    (of_first_input(shape=[1, -4]), "an axis of -4"),
    (of_first_input(shape=[1 << 40, 1 << 40]), "an axis of"),
    (of_first_input(shape=[1] * 40), "'x' has 40 axes"),
    (of_first_input(datatype="BYTES"), "datatype 'BYTES'"),
    (of_first_input(name="z"), "no input 'x' is recorded"),
    # A shape that the model does not take went to the backend.
    (of_first_input(shape=[2, 2]), "no input 'x' is recorded with its datatype and shape"),
    (of_first_input(shape=[4]), "no input 'x' is recorded with its datatype and shape"),
    (
        lambda document: document["check"]["calls"][0]["outputs"][0].update(name="z"),
        "signal to error -inf dB",
    ),
]


def test_a_file_of_another_form_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    quantised = Quantised(tmp_path, [4, 16, 3])
    (quantised.model / "config.json").write_text('{"backend": "onnxruntime"}')
    models = [f"m{i}" for i in range(len(OTHER_FORMS))]
    for model, (change, _) in zip(models, OTHER_FORMS):
        changed = quantised.document()
        change(changed)
        shutil.copytree(quantised.model, quantised.repository / model)
        file = quantised.repository / model / "2" / "quantization.json"
        file.write_text(json.dumps(changed))
    reasons = refusals(quantised.repository, models)
    for model, (_, told) in zip(models, OTHER_FORMS):
        assert told in reasons[model]


def test_files_that_are_damaged_or_lead_out_of_the_repository_are_refused(tmp_path: Path) -> None:
    quantised = Quantised(tmp_path, [4, 16, 3])
    text = quantised.version / "quantization.json"
    whole = text.read_text()
    text.write_text(whole[: len(whole) // 2])
    assert "run lumen quantize again" in refusals(quantised.repository)["m"]
    text.unlink()
    (tmp_path / "outside.json").write_text(whole)
    text.symlink_to(tmp_path / "outside.json")
    assert "leads out of the model repository" in refusals(quantised.repository)["m"]
    text.unlink()
    text.write_text(whole)
    rows = quantised.version / "quantization.rows"
    rows.rename(tmp_path / "rows")
    assert "quantization.rows beside it can't be read" in refusals(quantised.repository)["m"]
    os.link(tmp_path / "rows", rows)
    with Server(quantised.repository, *AUTO) as server:
        assert parameters(server)["precision"] == "int8"
