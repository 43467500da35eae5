"""The same calls of gRPC to two servers of the Open Inference Protocol, Triton's and Lumen's.

    grpc_differences.py ORACLE OURS

Runs in the environment of tools/requirements-grpc.txt, against the models of
integration.triton_server. Prints a JSON object: the number of calls, and both answers to each that
differs. A refusal is a refusal; its status and words may be others.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message
from grpc_calls import CONTENTS, TYPES
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

SIZES = {name: np.dtype(dtype).itemsize for name, dtype in TYPES.items()}
SIX = struct.pack("<6f", 1, 2, 3, 4, 5, 6)
ONES = struct.pack("<6f", 1, 1, 1, 1, 1, 1)
Call = tuple[str, Message]


def tensor(name: str, shape: list[int], datatype: str = "FP32", **contents: Any) -> Message:
    one = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    for field, values in contents.items():
        getattr(one.contents, field).extend(values)
    return one


def add_sub(raw: list[bytes] | None = None, **changes: Any) -> Message:
    """Of both inputs as raw bytes, but for the changes."""
    fields: dict[str, Any] = {
        "model_name": "add_sub",
        "inputs": [tensor("left", [2, 3]), tensor("right", [2, 3])],
        "raw_input_contents": [SIX, ONES] if raw is None else raw,
    }
    return pb.ModelInferRequest(**{**fields, **changes})


def wanted(name: str, **parameters: Any) -> Message:
    output = pb.ModelInferRequest.InferRequestedOutputTensor(name=name)
    for key, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", str: "string_param"}[type(value)]
        setattr(output.parameters[key], kind, value)
    return output


def plain_calls() -> Iterator[tuple[str, Call]]:
    def infer(**changes: Any) -> Call:
        return "ModelInfer", add_sub(**changes)

    left, right = tensor("left", [2, 3]), tensor("right", [2, 3])
    typed = tensor("left", [2, 3], fp32_contents=[1, 2, 3, 4, 5, 6])
    typed_right = tensor("right", [2, 3], fp32_contents=[1] * 6)
    yield "raw", infer()
    yield "other order", infer(inputs=[right, left], raw=[ONES, SIX])
    yield "typed", infer(inputs=[typed, typed_right], raw=[])
    yield "typed and raw", infer(inputs=[typed, right], raw=[ONES])
    yield "typed and raw of both", infer(inputs=[typed, right], raw=[SIX, ONES])
    yield "an id", infer(id="an id")
    yield "version 1", infer(model_version="1")
    for version in ("2", "x"):
        yield f"version {version}", infer(model_version=version)
    yield "no model", infer(model_name="none")
    yield "no name", infer(model_name="")
    yield "one input", infer(inputs=[left], raw=[SIX])
    yield "an input twice", infer(inputs=[left, left])
    yield "three inputs", infer(inputs=[left, right, tensor("x", [2, 3])], raw=[SIX, ONES, ONES])
    yield "no inputs", infer(inputs=[], raw=[])
    for name, shape in {
        "3x2": [3, 2],
        "6": [6],
        "none": [],
        "-1": [-1, 3],
        "huge": [1 << 62, 4],
    }.items():
        yield f"shape {name}", infer(inputs=[tensor("left", shape), right])
    for datatype in ("INT32", "FOO", "fp32", ""):
        yield f"datatype {datatype!r}", infer(inputs=[tensor("left", [2, 3], datatype), right])
    for size in (0, 20, 23, 25, 28):
        yield f"{size} raw bytes", infer(raw=[(SIX + ONES)[:size], ONES])
    yield "raw contents for one input", infer(raw=[SIX])
    yield "raw contents for three inputs", infer(raw=[SIX, ONES, ONES])
    few = tensor("left", [2, 3], fp32_contents=[1, 2])
    yield "too few typed", infer(inputs=[few, typed_right], raw=[])
    other = tensor("left", [2, 3], int_contents=[1] * 6)
    yield "typed of another type", infer(inputs=[other, typed_right], raw=[])
    yield "one output", infer(outputs=[wanted("difference")])
    yield "outputs in the other order", infer(outputs=[wanted("difference"), wanted("sum")])
    yield "an unknown output", infer(outputs=[wanted("x")])
    yield "an output twice", infer(outputs=[wanted("sum"), wanted("sum")])
    for classes in (0, 1, 2, 6, 100, -1):
        yield f"{classes} classes", infer(outputs=[wanted("sum", classification=classes)])
    for key, value in {"timeout": 10_000_000, "priority": 1, "sequence_id": 5, "custom": 1}.items():
        call = add_sub()
        call.parameters[key].int64_param = value
        yield f"parameter {key}", ("ModelInfer", call)


def typed_calls() -> Iterator[tuple[str, Call]]:
    numbers = random.Random(4)
    for round in range(30):
        count = numbers.randrange(0, 40)
        call = pb.ModelInferRequest(model_name="identity_types", id=str(round))
        names = list(SIZES)
        numbers.shuffle(names)
        for datatype in names:
            data = numbers.randbytes(count * SIZES[datatype])
            if datatype == "BOOL":
                data = bytes(one & 1 for one in data)
            call.inputs.append(tensor(f"{datatype.lower()}_in", [count], datatype))
            call.raw_input_contents.append(data)
        yield f"random bits {round}", ("ModelInfer", call)
    limits = {"INT8": 127, "INT16": 32767, "UINT8": 255, "UINT16": 65535}
    for datatype, field in CONTENTS.items():
        for value in (1, limits.get(datatype, 3), limits.get(datatype, 2) + 1):
            call = pb.ModelInferRequest(model_name="identity_types")
            for other in SIZES:
                if other == datatype:
                    values = [bool(value)] if datatype == "BOOL" else [value]
                    one = tensor(f"{other.lower()}_in", [1], other, **{field: values})
                elif other == "FP16":
                    continue  # it has no typed contents
                else:
                    contents = {CONTENTS[other]: [True] if other == "BOOL" else [1]}
                    one = tensor(f"{other.lower()}_in", [1], other, **contents)
                call.inputs.append(one)
            call.inputs.append(tensor("fp16_in", [1], "FP16"))
            yield f"typed {datatype} {value}, FP16 without contents", ("ModelInfer", call)


def text_calls() -> Iterator[tuple[str, Call]]:
    for name, values in {
        "plain": [b"a", b"", "Grüße".encode()],
        "no UTF-8": [b"\xff\x00a"],
        "none": [],
        "long": [b"x" * 100_000],
    }.items():
        one = tensor("x", [len(values)], "BYTES", bytes_contents=values)
        call = pb.ModelInferRequest(model_name="identity_bytes", inputs=[one])
        yield f"texts {name}", ("ModelInfer", call)
        raw = b"".join(struct.pack("<I", len(v)) + v for v in values)
        call = pb.ModelInferRequest(
            model_name="identity_bytes",
            inputs=[tensor("x", [len(values)], "BYTES")],
            raw_input_contents=[raw],
        )
        yield f"raw texts {name}", ("ModelInfer", call)
        if raw:
            cut = pb.ModelInferRequest()
            cut.CopyFrom(call)
            cut.raw_input_contents[0] = raw[:-1]
            yield f"raw texts {name}, cut", ("ModelInfer", cut)


def document_calls() -> Iterator[tuple[str, Call]]:
    yield "live", ("ServerLive", pb.ServerLiveRequest())
    yield "ready", ("ServerReady", pb.ServerReadyRequest())
    for name, version in (("add_sub", ""), ("add_sub", "1"), ("add_sub", "9"), ("none", "")):
        about = f"{name} {version}".strip()
        yield f"ready {about}", ("ModelReady", pb.ModelReadyRequest(name=name, version=version))
        call = pb.ModelMetadataRequest(name=name, version=version)
        yield f"metadata {about}", ("ModelMetadata", call)
        call = pb.ModelConfigRequest(name=name, version=version)
        yield f"config {about}", ("ModelConfig", call)
        call = pb.ModelStatisticsRequest(name=name, version=version)
        yield f"statistics {about}", ("ModelStatistics", call)
    yield "regions", ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest())
    yield "a region", ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name="x"))
    call = pb.SystemSharedMemoryUnregisterRequest(name="x")
    yield "unregister", ("SystemSharedMemoryUnregister", call)
    call = pb.SystemSharedMemoryRegisterRequest(name="x", key="/lmtest-none", byte_size=64)
    yield "register none", ("SystemSharedMemoryRegister", call)
    yield "load none", ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="none"))


def calls() -> Iterator[tuple[str, Call]]:
    for part in (plain_calls, typed_calls, text_calls, document_calls):
        yield from part()


def told(channel: grpc.Channel, call: Call) -> Any:
    """The answer as a value; the words of each server are left out."""
    method, message = call
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    try:
        reply = getattr(stub, method)(message, timeout=60)
    except grpc.RpcError as error:
        return {"refused": True, "status": error.code().name, "text": error.details()[:150]}
    if method == "ModelInfer":
        # The order is each server's own: clients find outputs by their names.
        contents = [one.hex()[:400] for one in reply.raw_output_contents]
        outputs = zip(reply.outputs, contents, strict=True)
        tensors = sorted([o.name, o.datatype, list(o.shape), data] for o, data in outputs)
        return [reply.model_name, reply.model_version, reply.id, tensors]
    if method == "ModelMetadata":
        sides = (reply.inputs, reply.outputs)
        tensors = [sorted([t.name, t.datatype, *t.shape] for t in side) for side in sides]
        return [reply.name, list(reply.versions), tensors]
    if method == "ModelConfig":
        sides = (reply.config.input, reply.config.output)
        tensors = [sorted([t.name, t.data_type, *t.dims] for t in side) for side in sides]
        return [reply.config.name, reply.config.max_batch_size, tensors]
    if method == "ModelStatistics":
        return [[one.name, one.version] for one in reply.model_stats]
    return str(reply)


def main() -> None:
    channels = [grpc.insecure_channel(address) for address in sys.argv[1:3]]
    differ = {}
    count = 0
    for name, call in calls():
        count += 1
        oracle, ours = (told(channel, call) for channel in channels)
        refused = [isinstance(one, dict) for one in (oracle, ours)]
        if refused != [True, True] and oracle != ours:
            differ[name] = {"oracle": oracle, "ours": ours}
        elif refused[0] and ours["status"] in ("UNKNOWN", "DATA_LOSS"):
            differ[name] = {"oracle": oracle, "ours": ours}
    print(json.dumps({"calls": count, "differ": differ}))


if __name__ == "__main__":
    main()
