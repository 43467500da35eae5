"""`lumen quantize`: the forms of data, the models that ONNX Runtime's quantiser fails on, the gate.

Times decide whether a version is written: a test that wants one has a model far faster in INT8.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from lumen_engine.quantize import candidates, command, distance, gate, network, samples, written
from lumen_engine.quantize.candidates import Candidate, Quantiser
from lumen_engine.quantize.errors import QuantizeError, told_by
from lumen_engine.quantize.gate import Entry, Judgement, Verdict
from lumen_engine.quantize.runners import OnnxRuntime, OpenVino
from lumen_engine.quantize.samples import Port
from onnx import TensorProto, helper, numpy_helper

FLOAT = np.dtype(np.float32)
ROWS = 20
X = Port("x", FLOAT, ("rows", 4))


def perceptron(
    opset: int = 17, *, constants: bool = False, flat_bias: bool = True, names: str = ""
) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    arrays = {
        "w1": rng.normal(0, 0.3, (4, 16)),
        "b1": rng.normal(0, 0.3, (16,) if flat_bias else (1, 16)),
        "w2": rng.normal(0, 0.3, (16, 3)),
        "b2": rng.normal(0, 0.3, (3,) if flat_bias else (1, 3)),
    }
    weights = [
        numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name=names),
        helper.make_node("Relu", ["h"], ["r"], name=names),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], name=names),
    ]
    if constants:
        held = [helper.make_node("Constant", [], [one.name], value=one) for one in weights]
        nodes, weights = [*held, *nodes], []
    graph = helper.make_graph(
        nodes,
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 7
    return model


def rows_of_x(count: int = ROWS) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).normal(0, 1, (count, 4)).astype(np.float32)


def calls_of(array: np.ndarray[Any, Any]) -> list[samples.Call]:
    return [{"x": array[i : i + 1]} for i in range(len(array))]


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path / "data.npz", **arrays)
    return path / "data.npz"


def refusal(path: Path, ports: Sequence[Port] = (X,)) -> str:
    with pytest.raises(QuantizeError) as caught:
        samples.load(path, ports)
    return str(caught.value)


def test_rows_come_from_an_npz_a_folder_and_perf_analyzers_json_alike(tmp_path: Path) -> None:
    wanted = rows_of_x()
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "x.npy", wanted)
    as_content = [{"x": {"content": row.tolist(), "shape": [4]}} for row in wanted[:-1]]
    as_bytes = {"x": {"b64": base64.b64encode(wanted[-1].tobytes()).decode()}}
    document = tmp_path / "rows.json"
    document.write_text(json.dumps({"data": [*as_content, as_bytes]}))
    for path in (npz(tmp_path, x=wanted), folder, document):
        loaded = samples.load(path, [X])
        got = np.concatenate([call["x"] for call in loaded.calls])
        np.testing.assert_array_equal(got, wanted, err_msg=str(path))


def test_rows_of_different_shapes_are_arrays_with_numbers(tmp_path: Path) -> None:
    port = Port("x", FLOAT, ("rows", "length"))
    arrays = {f"x/{i}": np.full(i + 1, i, np.float32) for i in range(12)}
    calls = samples.load(npz(tmp_path, **arrays), [port]).calls
    assert [call["x"].shape for call in calls] == [(1, i + 1) for i in range(12)]
    assert calls[11]["x"][0, 0] == 11  # in the order of numbers, and not of texts


def test_labels_go_to_the_metric_and_are_split_with_their_rows(tmp_path: Path) -> None:
    data = rows_of_x()
    loaded = samples.load(npz(tmp_path, x=data, labels=data[:, 0]), [X])
    for part, count in zip(samples.split(loaded), (16, 4)):
        assert len(part) == count
        np.testing.assert_array_equal(part.more["labels"], [call["x"][0, 0] for call in part.calls])


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"z": rows_of_x()}, "has no array 'x'; it has z, the model wants x float32[*,4]"),
        ({"x": rows_of_x(9)}, "has 9 rows; wanted 10 or more"),
        ({"x": rows_of_x()[:, :3]}, "has a row of shape [1, 3]; wanted x float32[*,4]"),
        ({"x": np.full((20, 4), np.nan, np.float32)}, "holds NaN or infinity"),
        ({"x": np.zeros((20, 4), np.complex64)}, "is complex64; wanted x float32[*,4]"),
        ({"x": rows_of_x(), "labels": np.zeros(3)}, "wanted one entry for each of the 20 rows"),
    ],
)
def test_data_that_does_not_fit_says_what_was_got_and_wanted(
    tmp_path: Path, arrays: dict[str, Any], told: str
) -> None:
    assert told in refusal(npz(tmp_path, **arrays))


def test_a_file_that_is_no_data_is_refused_with_the_forms_that_are(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    assert "No such file" in refusal(path)
    path.write_bytes(b"not an archive")
    assert "wanted an .npz with an array for each input" in refusal(path)
    (tmp_path / "rows.json").write_text('{"rows": []}')
    assert "wanted perf_analyzer's form" in refusal(tmp_path / "rows.json")
    whole = Port("x", np.dtype(np.int32), ("rows", 1))
    assert "holds a number that int32 does not" in refusal(
        npz(tmp_path, x=np.full((20, 1), 2**40)), [whole]
    )


@pytest.mark.parametrize(
    "trap",
    [
        {"opset": 11},
        {"opset": 12},
        {"constants": True},
        {"flat_bias": False},
        {"names": "the same"},
        {"opset": 9, "constants": True, "flat_bias": False, "names": "all at once"},
    ],
    ids=str,
)
def test_models_that_the_quantiser_fails_on_are_mended_first(
    tmp_path: Path, trap: dict[str, Any]
) -> None:
    onnx.save(perceptron(**trap), tmp_path / "model.onnx")
    model = network.read(tmp_path / "model.onnx")
    calls = calls_of(rows_of_x())
    prepared = network.prepare(model, calls[:4])
    quantiser = Quantiser(prepared, calls, tmp_path)
    assert len(quantiser.nodes) == 2
    data = quantiser.quantise(quantiser.nodes)
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    wanted = OnnxRuntime(model).run_all(calls)
    assert distance.sqnr_db(wanted, OnnxRuntime(data).run_all(calls)) > 20
    OpenVino(data, "f32", {"x": (1, 4)}).run(calls[0])  # the gate judges its answers


def test_a_bias_that_becomes_a_gemms_by_optimising_is_flat_too(tmp_path: Path) -> None:
    # magika's last layer: ONNX Runtime makes a Gemm of MatMul and Add, and fails on its bias.
    rng = np.random.default_rng(3)
    arrays = {"w": rng.normal(0, 0.3, (4, 16)), "b": rng.normal(0, 1e6, (1, 16))}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("Add", ["m", "b"], ["y"]),
        ],
        "added",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 16])],
        [numpy_helper.from_array(one.astype(np.float32), name) for name, one in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    calls = calls_of(rows_of_x())
    quantiser = Quantiser(network.prepare(model, calls[:4]), calls, tmp_path)
    wanted = OnnxRuntime(model).run_all(calls)
    got = OnnxRuntime(quantiser.quantise(quantiser.nodes)).run_all(calls)
    assert distance.sqnr_db(wanted, got) > 30


def test_an_axis_of_minus_one_is_free() -> None:
    # PP-OCR's files have it; the protocol's word for a free axis is a name or nothing.
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 3, "width"])
    (port,) = network.ports([value])
    assert port.has_rows and port.fits((7, 3, 9)) and str(port) == "x float32[*,3,*]"


def test_a_librarys_message_begins_with_the_part_that_tells_something() -> None:
    message = (
        "Exception from src/inference/src/cpp/core.cpp:105:\nCheck 'false' failed at x.cpp:1:\n"
        "FrontEnd API failed with OpConversionFailure:\n-- Conv-15 with a message:\nno rank\n"
    )
    assert told_by(RuntimeError(message)) == "-- Conv-15 with a message: no rank"
    assert told_by(RuntimeError()) == "RuntimeError"
    assert len(told_by(RuntimeError("x" * 1000))) == 300


def test_activations_are_unsigned_and_weights_signed_and_by_channel(tmp_path: Path) -> None:
    calls = calls_of(rows_of_x())
    prepared = network.prepare(perceptron(), calls[:4])
    quantiser = Quantiser(prepared, calls, tmp_path)
    graph = onnx.load_from_string(quantiser.quantise(quantiser.nodes)).graph
    types = {one.name: one.data_type for one in graph.initializer}
    scales = {one.name: list(one.dims) for one in graph.initializer}
    zero_points = [node.input[2] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert {types[name] for name in zero_points} == {TensorProto.UINT8}
    assert sum(kind == TensorProto.INT8 for kind in types.values()) >= 2
    assert [16] in scales.values() and [3] in scales.values()  # a scale for each column


def test_images_of_free_sizes_calibrate_and_are_answered_by_both_backends(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.5, (4, 1, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(rng.normal(0, 0.1, 4).astype(np.float32), "b"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    free = ["rows", 1, "height", "width"]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, free)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 4, 1, 1])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    calls: list[samples.Call] = [
        {"x": rng.normal(0, 1, (1, 1, 5 + i % 7, 5 + i % 4)).astype(np.float32)} for i in range(24)
    ]
    quantiser = Quantiser(network.prepare(model, calls[:4]), calls, tmp_path)
    data = quantiser.quantise(quantiser.nodes)
    wanted = OnnxRuntime(model).run_all(calls)
    in_openvino = OpenVino(data, "f32", None)
    openvino_answers = [in_openvino.run(call) for call in calls]
    for got in (OnnxRuntime(data).run_all(calls), openvino_answers):
        assert [one["y"].shape for one in got] == [(1, 4, 1, 1)] * len(calls)
        assert distance.sqnr_db(wanted, got) > 30


def test_weights_alone_in_8_bits_keep_answers_and_take_a_quarter() -> None:
    calls = calls_of(rows_of_x())
    model = perceptron()
    packed = candidates.weights_only(network.prepare(model, calls[:4]))
    assert packed is not None
    got = OnnxRuntime(packed.model).run_all(calls)
    assert distance.sqnr_db(OnnxRuntime(model).run_all(calls), got) > 35
    arrays = {one.name: one for one in onnx.load_from_string(packed.model).graph.initializer}
    assert arrays["w1_int8_1"].data_type == TensorProto.INT8
    assert "w1" not in arrays


def test_every_row_that_calibrates_widens_the_ranges(tmp_path: Path) -> None:
    # A range that misses a row saturates; ONNX Runtime's option that bounds its memory forgot some.
    for place in (0, 7, 8, 19):
        rows = rows_of_x() * 0.01
        rows[place] = 100
        folder = tmp_path / str(place)
        folder.mkdir()
        calls = calls_of(rows)
        quantiser = Quantiser(network.prepare(perceptron(), calls[:4]), calls, folder)
        data = quantiser.quantise(quantiser.nodes)
        one = [calls[place]]
        wanted, got = OnnxRuntime(perceptron()).run_all(one), OnnxRuntime(data).run_all(one)
        assert distance.sqnr_db(wanted, got) > 20, place


def answer(*numbers: float) -> list[distance.Answer]:
    return [{"y": np.array([numbers], np.float32)}]


def test_signal_to_error_is_that_of_the_definition() -> None:
    assert distance.sqnr_db(answer(3, 4), answer(3, 4)) == distance.SAME_DB
    assert distance.sqnr_db(answer(3, 4), answer(3, 4.5)) == pytest.approx(20)
    assert distance.sqnr_db(answer(3, 4), answer(3, np.nan)) == -distance.SAME_DB
    assert distance.sqnr_db(answer(3, 4), answer(3)) == -distance.SAME_DB
    assert distance.top1(answer(3, 4), answer(1, 2)) == 1
    assert distance.top1(answer(3, 4), answer(2, 1)) == 0
    assert distance.top1(answer(3), answer(4)) is None


def entry(name: str, us: float, verdict: Verdict = Verdict.PASSES, backend: str = "b") -> Entry:
    return Entry(Candidate(name, b""), backend, us, Judgement(25.0, 0.5, None, verdict))


@pytest.mark.parametrize(
    ("entries", "chosen", "why"),
    [
        ([entry("f32", 10), entry("int8", 5)], "int8", "2.00 times as fast"),
        ([entry("f32", 10), entry("bf16", 5), entry("int8", 4.8)], "bf16", "does not pay"),
        ([entry("f32", 10), entry("int8", 20)], "f32", "does not pay"),
        ([entry("f32", 10), entry("bf16", 6), entry("int8", 3, Verdict.REFUSED)], "bf16",
         "costs too much: 3.0 us, but 25.0 dB, 50.0 % of the classes"),
        ([entry("f32", 10), entry("int8", 3, Verdict.WARNS), entry("int8, 1 in float", 5)],
         "int8", "3.33 times"),
        ([entry("f32", 10), entry("int8", 5, Verdict.WARNS)], "int8", "2.00 times"),
        # PP-OCR's recognition: bf16 warns, and is worth it; INT8 is too far off.
        ([entry("f32", 10), entry("weights", 9.5), entry("bf16", 7, Verdict.WARNS),
          entry("int8", 8, Verdict.REFUSED)], "bf16", "does not pay here: 8.0 us"),
        # PP-OCR's direction net: no gain in bf16.
        ([entry("f32", 10), entry("bf16", 9.9), entry("int8", 13)], "f32", "does not pay"),
        # A form that passes is not given up for one that warns and is hardly faster.
        ([entry("f32", 10), entry("int8, 1 in float", 5), entry("int8", 4.8, Verdict.WARNS)],
         "int8, 1 in float", "2.00 times"),
    ],
)  # fmt: skip
def test_the_fastest_that_passes_is_chosen_if_it_is_worth_a_file(
    entries: list[Entry], chosen: str, why: str
) -> None:
    choice = gate.choose(entries)
    assert choice.entry.candidate.name == chosen
    assert why in choice.why


def judged(metric: str, least: float | None = None) -> gate.Gate:
    data = samples.Samples(calls_of(rows_of_x(4)), {"labels": np.array([1, 0, 1, 0])})
    wanted = [{"y": np.array([[0.0, 1 + i]], np.float32)} for i in range(4)]
    return gate.Gate(metric, least, data, wanted)


def test_the_users_own_metric_counts_above_all(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def metric(inputs, outputs, more): return float(outputs['y'][:, 1].sum())\n")
    own = judged(str(file), 2)
    fine = [{"y": np.array([[9.0, 0.5 + i]], np.float32)} for i in range(4)]  # 8 of 10, 0 dB
    assert own.judge(fine).verdict is Verdict.PASSES
    assert own.judge([{"y": one["y"] - 1} for one in fine]).verdict is Verdict.REFUSED
    for body, told in (
        ("def metric(i, o, m): return 1 / 0\n", "metric() failed: ZeroDivisionError"),
        ("x = 1\n", "defines no metric(inputs, outputs, more)"),
        ("def\n", "SyntaxError"),
    ):
        file.write_text(body)
        with pytest.raises(QuantizeError, match=".*") as caught:
            judged(str(file))
        assert told in str(caught.value)
    with pytest.raises(QuantizeError, match="wanted sqnr, top1 or a Python file"):
        judged("sqrn")


def repository(tmp_path: Path, model: onnx.ModelProto) -> Path:
    folder = tmp_path / "models" / "m"
    (folder / "1").mkdir(parents=True)
    onnx.save(model, folder / "1" / "model.onnx")
    return folder


def wide(size: int = 1024) -> onnx.ModelProto:
    """12 MB of weights: reading them takes most of the time, so INT8 is faster on any CPU."""
    rng = np.random.default_rng(9)
    nodes, weights, before = [], [], "x"
    for layer in range(3):
        values = rng.normal(0, (2 / size) ** 0.5, (size, size)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [before, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"]))
        before = f"r{layer}"
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", size])],
        [helper.make_tensor_value_info(before, TensorProto.FLOAT, ["rows", size])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def test_a_version_is_written_whole_with_rows_and_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository(tmp_path, wide())
    rows = np.random.default_rng(2).normal(0, 1, (40, 1024)).astype(np.float32)
    data = npz(tmp_path, x=rows)
    assert command.run([str(folder), "--data", str(data), "--gate", "25"]) == 0
    shown = capsys.readouterr().out
    assert "* " in shown and f"written: {folder}/2" in shown
    assert sorted(one.name for one in folder.iterdir()) == ["1", "2"]
    document = json.loads((folder / "2" / "quantization.json").read_text())
    assert document["rows"] == {"calibrated": 32, "judged": 8}
    assert document["precision"].startswith("int8")
    stored = (folder / "2" / "quantization.rows").read_bytes()
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx")
    assert len(document["check"]["calls"]) == 8
    for call in document["check"]["calls"]:
        arrays = [
            np.frombuffer(stored, np.float32, 1024, one["offset"]).reshape(one["shape"])
            for one in (call["inputs"][0], call["outputs"][0])
        ]
        np.testing.assert_allclose(session.run(None, {"x": arrays[0]})[0], arrays[1], rtol=1e-4)
    # A second run begins from the float version again.
    assert command.run([str(folder), "--data", str(data), "--gate", "25", "--dry-run"]) == 0
    assert sorted(one.name for one in folder.iterdir()) == ["1", "2"]


def test_a_backend_that_fails_on_a_row_has_a_line_with_its_reason_and_the_other_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # ONNX Runtime's errors are no RuntimeError: a traceback ended the command.
    class Fails(Exception):
        pass

    def run(self: OpenVino, call: samples.Call) -> distance.Answer:
        raise Fails("no kernel for it")

    monkeypatch.setattr(OpenVino, "run", run)
    folder = repository(tmp_path, perceptron())
    data = npz(tmp_path, x=rows_of_x())
    assert command.run([str(folder), "--data", str(data)]) == command.NOT_WORTH_IT
    assert "f32 in openvino: no kernel for it" in capsys.readouterr().out


def test_a_sample_that_the_model_refuses_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "any"
    folder = repository(tmp_path, model)
    data = npz(tmp_path, x=np.ones((20, 5), np.float32))
    assert command.run([str(folder), "--data", str(data)]) == 1
    assert "lumen quantize: ONNX Runtime fails on a sample" in capsys.readouterr().err


def test_a_small_model_is_left_as_it_is_with_its_own_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = repository(tmp_path, perceptron())
    data = npz(tmp_path, x=rows_of_x())
    status = command.run([str(folder), "--data", str(data), "--metric", "top1", "--json"])
    assert status == command.NOT_WORTH_IT
    document = json.loads(capsys.readouterr().out)
    assert document["written"] is None
    assert document["choice"]["candidate"] in ("f32", "bf16")
    assert [one.name for one in folder.iterdir()] == ["1"]


def test_a_model_without_weights_or_of_another_form_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = perceptron()
    del model.graph.node[2], model.graph.node[0]
    model.graph.node[0].input[0] = "x"
    model.graph.node[0].output[0] = "y"
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 4
    folder = repository(tmp_path, model)
    data = npz(tmp_path, x=rows_of_x())
    assert command.run([str(folder), "--data", str(data)]) == 1
    assert "nothing to quantise: no Conv, ConvTranspose, Gemm, MatMul" in capsys.readouterr().err
    (folder / "1" / "model.onnx").write_bytes(b"damaged")
    assert command.run([str(folder), "--data", str(data)]) == 1
    assert "reading" in capsys.readouterr().err
    (folder / "1" / "model.onnx").rename(folder / "1" / "model.xml")
    assert command.run([str(folder), "--data", str(data)]) == 1
    assert "quantise it with NNCF" in capsys.readouterr().err
    assert command.run([str(tmp_path / "nothing"), "--data", str(data)]) == 1
    assert "wanted a folder REPOSITORY/NAME" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / f".quantize-{os.getpid()}").write_text("in the way")
    source = tmp_path / "model.onnx"
    source.write_bytes(b"x")
    chosen = gate.Choice(entry("int8", 1), "why")
    with pytest.raises(QuantizeError, match="File exists"):
        written.write_version(folder, source, chosen, [], judged("sqnr"), (8, 2), ([], []), 30)


def test_a_cpu_has_vnni_by_its_flags() -> None:
    assert candidates.has_vnni("flags : fpu avx2 avx512f avx512_vnni\n")
    assert candidates.has_vnni("flags : fpu avx2 avx_vnni\n")
    assert not candidates.has_vnni("flags : fpu avx2 avx512f avx_vnni_int8x\n")
