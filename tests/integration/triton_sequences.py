"""Models of sequences for Triton's own server and for Lumen, by one configuration.

Both answer with the controls that they were given and with the sum of the sequence's inputs. In
Triton a program keeps the sums, as its Python backend must; in Lumen the server does, as a state of
a graph, and of one model the same program.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf import json_format, text_format
from integration.ensemble_models import onnx_tools
from integration.triton_messages import triton_messages
from onnx import TensorProto, helper

BODY = (
    "sums = self.__dict__.setdefault('sums', {})",
    "key = inputs['CORRID'].item()",
    "so_far = 0 if inputs['START'].item() else sums[key]",
    "total = inputs['x'] + so_far",
    "sums[key] = total.item()",
    "if inputs['END'].item(): del sums[key]",
    "return {'sum': total, 'start': inputs['START'], 'end': inputs['END'], "
    "'ready': inputs['READY'], 'id': inputs['CORRID']}",
)
CONFIG = """
max_batch_size: %(rows)d
input [ { name: "x" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [
  { name: "sum" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "start" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "end" data_type: TYPE_FP32 dims: [ 1 ] },
  { name: "ready" data_type: TYPE_BOOL dims: [ 1 ] },
  { name: "id" data_type: TYPE_%(id)s dims: [ 1 ] }
]
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  oldest { max_candidate_sequences: 64 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_%(id)s } ] }
  ]
  %(state)s
}
"""
STATE = """state [ {
  input_name: "so_far" output_name: "so_far_out" data_type: TYPE_INT32 dims: [ 1 ]
  initial_state { name: "zero" data_type: TYPE_INT32 dims: [ 1 ] zero_data: true }
} ]"""
# By the model's name: the rows of a run, and the type of its ids.
PROGRAM = "sequence_program"
MODELS = {"sequence_numbers": (4, "UINT64"), "sequence_steps": (0, "INT64"), PROGRAM: (4, "UINT64")}


def write_for_triton(models: Path, program: str) -> None:
    """`program`: of a model of Triton's Python backend, with a place for the body."""
    for name, (rows, datatype) in MODELS.items():
        (models / name / "1").mkdir(parents=True)
        text = program.format(body="\n        ".join(BODY))
        (models / name / "1" / "model.py").write_text(text)
        config = CONFIG % {"rows": rows, "id": datatype, "state": ""}
        (models / name / "config.pbtxt").write_text('backend: "python"' + config)


def write_for_lumen(models: Path) -> None:
    for name, (rows, datatype) in MODELS.items():
        state = "" if name == PROGRAM else STATE
        text = CONFIG % {"rows": rows, "id": datatype, "state": state}
        message = text_format.Parse(text, triton_messages().ModelConfig())
        if name == PROGRAM:
            (models / name / "1").mkdir(parents=True)
            program = "\n    ".join(["sums = {}\n\n\ndef run(inputs):", *BODY[1:]])
            (models / name / "1" / "model.py").write_text(program)
        else:
            write_sums(models / name / "1" / "model.onnx", bool(rows), datatype)
        (models / name / "config.json").write_text(
            json_format.MessageToJson(message, preserving_proto_field_name=True)
        )


def write_sums(file: Path, has_rows: bool, datatype: str) -> None:
    shape: list[int | str] = ["rows", 1] if has_rows else [1]
    int32 = TensorProto.INT32
    types = {
        "START": int32,
        "END": TensorProto.FLOAT,
        "READY": TensorProto.BOOL,
        "CORRID": getattr(TensorProto, datatype),
    }
    outputs = {"start": "START", "end": "END", "ready": "READY", "id": "CORRID"}
    node = helper.make_node
    onnx_tools.save(
        file,
        "sums",
        [
            # As in the program: a start forgets the sum.
            node("Cast", ["START"], ["starts"], to=TensorProto.BOOL),
            node("Not", ["starts"], ["goes_on"]),
            node("Cast", ["goes_on"], ["factor"], to=int32),
            node("Mul", ["so_far", "factor"], ["kept"]),
            node("Add", ["kept", "x"], ["sum"]),
            node("Identity", ["sum"], ["so_far_out"]),
            *(node("Identity", [of], [name]) for name, of in outputs.items()),
        ],
        [
            onnx_tools.value("x", shape, int32),
            onnx_tools.value("so_far", shape, int32),
            *(onnx_tools.value(name, shape, dtype) for name, dtype in types.items()),
        ],
        [
            onnx_tools.value("sum", shape, int32),
            *(onnx_tools.value(name, shape, types[of]) for name, of in outputs.items()),
            onnx_tools.value("so_far_out", shape, int32),
        ],
        [],
    )
