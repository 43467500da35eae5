"""Requests for two servers of the Open Inference Protocol, and what they are allowed to differ in.

For the models of integration.triton_server. `ALL` is in the order in which they are sent: some
rest on those before them. `DIFFER` names those that Lumen answers otherwise on purpose.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from integration.triton_server import TYPED

ADD_SUB = "/v2/models/add_sub/infer"
TYPES = "/v2/models/identity_types/infer"
SUMS = "/v2/models/sums/infer"
TEXTS = "/v2/models/identity_bytes/infer"
SHARED = "/v2/systemsharedmemory"
CUDA = "/v2/cudasharedmemory"
ABSENT: Any = object()
VALUES = struct.pack("<6f", 1, 2, 3, 4, 5, 6)


@dataclass
class Ask:
    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


ALL: dict[str, Ask] = {}


def without_absent(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value is not ABSENT}


def left(**changes: Any) -> dict[str, Any]:
    tensor = {"name": "left", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}
    return without_absent(tensor | changes)


RIGHT = {"name": "right", "shape": [2, 3], "datatype": "FP32", "data": [1, 1, 1, 1, 1, 1]}
PLAIN = json.dumps({"inputs": [left(), RIGHT]})


def post(name: str, body: bytes | str | dict[str, Any] = b"", path: str = ADD_SUB) -> None:
    assert name not in ALL, name
    data = json.dumps(body) if isinstance(body, dict) else body
    ALL[name] = Ask("POST", path, data if isinstance(data, bytes) else data.encode())


def get(name: str, path: str) -> None:
    assert name not in ALL, name
    ALL[name] = Ask("GET", path)


def infer(name: str, tensor: dict[str, Any] | None = None, **top: Any) -> None:
    post(name, without_absent({"inputs": [tensor or left(), RIGHT]} | top))


def with_binary(name: str, document: Any, tail: bytes, length: str | None = None) -> None:
    data = json.dumps(document).encode()
    post(name, data + tail)
    ALL[name].headers["Inference-Header-Content-Length"] = length or str(len(data))


def of_type(name: str, datatype: str, data: list[Any]) -> None:
    """One element of `datatype` to identity_types, whose other inputs get usual ones."""
    inputs = []
    for other in TYPED:
        usual = [True] if other == "BOOL" else [1]
        tensor = {"name": f"{other.lower()}_in", "shape": [1], "datatype": other}
        if other == "FP16" and datatype != "FP16":
            tensor["parameters"] = {"binary_data_size": 2}
        else:
            tensor["data"] = data if other == datatype else usual
        inputs.append(tensor)
    document = {"inputs": inputs, "outputs": [{"name": f"{datatype.lower()}_out"}]}
    with_binary(name, document, b"" if datatype == "FP16" else b"\x00\x3c")
    ALL[name].path = TYPES


def bodies() -> None:
    infer("plain")
    infer("unknown key", foo=1)
    for number in "NaN Infinity -Infinity Inf 01 +1 1. .5 1e400 0x1 1e2 -0.0 1E+2".split():
        post(f"element {number}", PLAIN.replace("[1, 2", f"[{number}, 2", 1))
    post("trailing comma", PLAIN.replace("6]", "6,]", 1))
    post("garbage behind", PLAIN + "x")
    post("spaces behind", PLAIN + " \n\t ")
    post("NUL behind", PLAIN.encode() + b"\0")
    post("no body")
    post("no JSON", "hello")
    post("an array", "[]")
    post("a number", "1")
    post("a comment", "/*a*/" + PLAIN)
    post("single quotes", PLAIN.replace('"', "'"))
    post("escaped name", PLAIN.replace('"left"', '"\\u006ceft"'))


def ids_and_parameters() -> None:
    for value in ("", "a", 'a"b', "ü", 1, None, True, {}):
        infer(f"id {value!r}", id=value)
    infer("parameters null", parameters=None)
    infer("parameters list", parameters=[])
    infer("custom parameters", parameters={"a": 1, "b": "x", "c": 1.5, "d": True})
    infer("custom parameter null", parameters={"a": None})
    infer("custom parameter object", parameters={"a": {}})
    infer("parameter of Triton", parameters={"triton_foo": True})
    for key, values in {
        "timeout": (0, 10_000_000, -1, "x", 1.5, None),
        "priority": (0, 1, -1, "x"),
        "sequence_id": (5, "a", -1),
        "sequence_start": (True, "x", 1),
        "binary_data_output": (True, False, "x", 1),
    }.items():
        for value in values:
            infer(f"{key} {value!r}", parameters={key: value})


def inputs() -> None:
    for name, value in {"missing": ABSENT, "empty": [], "null": None, "object": {}}.items():
        post(f"inputs {name}", without_absent({"inputs": value}))
    post("input a string", {"inputs": ["a"]})
    post("one input", {"inputs": [left()]})
    post("input twice", {"inputs": [left(), left()]})
    post("three inputs, one twice", {"inputs": [left(), left(), RIGHT]})
    post("unknown input", {"inputs": [left(), RIGHT, left(name="x")]})
    post("other order", {"inputs": [RIGHT, left()]})
    for key, values in {
        "datatype": ("INT32", "FOO", "fp32", ABSENT, None, 1),
        "shape": ([3, 2], [6], [1, 2, 3], [], 6, ABSENT, None, [-1, 3], ["2", 3], [2.0, 3]),
        "name": (ABSENT, 1, None, "", "Left"),
        "data": (ABSENT, None, [1, 2, 3], [1] * 7, [], "x", {}),
    }.items():
        for value in values:
            shown = "missing" if value is ABSENT else repr(value)
            infer(f"{key} {shown}", left(**{key: value}))
    infer("shape and data of one row", left(shape=[1, 3], data=[1, 2, 3]))
    infer("no elements", left(shape=[0, 3], data=[]))
    infer("shape beyond memory", left(shape=[1 << 62, 4]))
    infer("rows", left(data=[[1, 2, 3], [4, 5, 6]]))
    infer("columns", left(data=[[1, 4], [2, 5], [3, 6]]))
    infer("rows in a list", left(data=[[[1, 2, 3], [4, 5, 6]]]))
    infer("ragged rows", left(data=[[1, 2, 3], [4], [5, 6]]))
    infer("rows and numbers", left(data=[1, 2, 3, [4, 5, 6]]))
    infer("an empty row", left(data=[[1, 2, 3], [4, 5, 6], []]))
    for value in ("1", None, True, {}, 1e30, 1e39, 10**25, 1e-50):
        infer(f"element {value!r} in JSON", left(data=[value, 2, 3, 4, 5, 6]))


def outputs() -> None:
    for name, value in {
        "none": [],
        "null": None,
        "object": {},
        "one": [{"name": "difference"}],
        "other order": [{"name": "difference"}, {"name": "sum"}],
        "twice": [{"name": "sum"}, {"name": "sum"}],
        "unknown": [{"name": "x"}],
        "without name": [{}],
        "strings": ["sum"],
        "unknown key": [{"name": "sum", "foo": 1}],
        "unknown parameter": [{"name": "sum", "parameters": {"foo": 1}}],
        "parameters null": [{"name": "sum", "parameters": None}],
    }.items():
        infer(f"outputs {name}", outputs=value)
    for name, parameters in {
        "binary": {"binary_data": True},
        "binary false": {"binary_data": False},
        "binary text": {"binary_data": "x"},
        "2 classes, binary": {"classification": 2, "binary_data": True},
        **{f"{n!r} classes": {"classification": n} for n in (0, 1, 2, 6, 100, -1, "2", 1.5)},
    }.items():
        infer(f"output {name}", outputs=[{"name": "sum", "parameters": parameters}])
    infer(
        "all binary but one",
        outputs=[{"name": "sum", "parameters": {"binary_data": False}}],
        parameters={"binary_data_output": True},
    )
    infer("named, all binary", outputs=[{"name": "sum"}], parameters={"binary_data_output": True})


def binary() -> None:
    def sized(name: str, size: Any = 24, **more: Any) -> dict[str, Any]:
        tensor = {"name": name, "shape": [2, 3], "datatype": "FP32"}
        return tensor | {"parameters": {"binary_data_size": size}} | more

    both = {"inputs": [sized("left"), sized("right")]}
    two = VALUES + VALUES
    with_binary("binary", both, two)
    with_binary("binary, a byte less", both, two[:-1])
    with_binary("binary, a byte more", both, two + b"x")
    with_binary("binary in the other order", {"inputs": [sized("right"), sized("left")]}, two)
    with_binary("binary and JSON", {"inputs": [sized("left"), RIGHT]}, VALUES)
    with_binary("JSON and binary", {"inputs": [left(), sized("right")]}, VALUES)
    with_binary("only JSON, with a length", {"inputs": [left(), RIGHT]}, b"")
    for size in (20, 0, -1, "24", 24.0, 1 << 63):
        with_binary(
            f"binary_data_size {size!r}", {"inputs": [sized("left", size), sized("right")]}, two
        )
    with_binary("data twice", {"inputs": [sized("left", data=[1] * 6), sized("right")]}, two)
    for length in ("99999999", "-1", "abc", "0", "+10", "1.5"):
        with_binary(f"header length {length}", both, two, length)
    post("binary without a header length", json.dumps(both).encode() + two)


INTEGERS = (1, -1, 300, 70_000, 2**31, 2**32, 2**63, 2**64, -(2**31), -(2**63))


def datatypes() -> None:
    for datatype in TYPED:
        for value in [*INTEGERS, 1.0, 1.5, 0.1, True, "1", None]:
            of_type(f"{datatype} {value!r}", datatype, [value])


def texts() -> None:
    def ask(name: str, data: list[Any], **changes: Any) -> None:
        tensor = {"name": "x", "shape": [len(data)], "datatype": "BYTES", "data": data} | changes
        post(f"texts {name}", {"inputs": [tensor]}, TEXTS)

    ask("plain", ["a", "", "two words", 'a "quote"', "a \\ b", "\n\t\u0001", "Grüße", "\U0001f600"])
    ask("of NUL", ["a\0b"])
    ask("long", ["x" * 10_000])
    ask("none", [])
    for value in (1, 1.5, True, None, ["a"], {}):
        ask(f"with {value!r}", ["a", value], shape=[2])
    post(
        "texts lone surrogate",
        '{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["\\ud800"]}]}',
        TEXTS,
    )
    for name, tail in {
        "": b"\1\0\0\0a\2\0\0\0bc",
        "of no UTF-8": b"\1\0\0\0\xff\2\0\0\0bc",
        "of one": b"\1\0\0\0a",
        "of three": b"\1\0\0\0a\1\0\0\0b\1\0\0\0c",
        "cut off": b"\1\0\0\0a\2\0\0\0b",
        "beyond its end": b"\1\0\0\0a\xff\xff\xff\xffbc",
    }.items():
        tensor = {"name": "x", "shape": [2], "datatype": "BYTES"}
        tensor["parameters"] = {"binary_data_size": len(tail)}
        for form, binary in (("binary", True), ("JSON", False)):
            outputs = [{"name": "y", "parameters": {"binary_data": binary}}]
            name_of = f"binary texts {name} to {form}".replace("  ", " ")
            with_binary(name_of, {"inputs": [tensor], "outputs": outputs}, tail)
            ALL[name_of].path = TEXTS


def documents() -> None:
    model = "/v2/models/add_sub"
    for name, path in {
        "live": "/v2/health/live",
        "ready": "/v2/health/ready",
        "server": "/v2",
        "metadata": model,
        "metadata of version 1": f"{model}/versions/1",
        "metadata of version 2": f"{model}/versions/2",
        "metadata of version x": f"{model}/versions/x",
        "metadata of no model": "/v2/models/none",
        "model ready": f"{model}/ready",
        "no model ready": "/v2/models/none/ready",
        "version 9 ready": f"{model}/versions/9/ready",
        "config of no model": "/v2/models/none/config",
        "statistics of no model": "/v2/models/none/stats",
        "statistics of version 9": f"{model}/versions/9/stats",
        "infer by GET": ADD_SUB,
        "unknown path": "/v2/foo",
        "version 1 of the protocol": "/v1/models",
        "index by GET": "/v2/repository/index",
        "trace settings": "/v2/trace/setting",
        "trace settings of a model": f"{model}/trace/setting",
        "trace settings of no model": "/v2/models/none/trace/setting",
        "log settings": "/v2/logging",
    }.items():
        get(name, path)
    post("metadata by POST", path=model)
    for version in ("1", "2", "x"):
        post(f"infer by version {version}", PLAIN, f"{model}/versions/{version}/infer")
    post("infer by no model", PLAIN, "/v2/models/none/infer")
    post("infer with a query", PLAIN, f"{ADD_SUB}?a=b")
    ALL["infer by PUT"] = Ask("PUT", ADD_SUB, PLAIN.encode())
    ALL["infer by DELETE"] = Ask("DELETE", ADD_SUB)


def ensemble() -> None:
    def pair(name: str, *outputs: str, **changes: Any) -> None:
        body = {"inputs": [left(name="a", **changes), RIGHT | {"name": "b"}]}
        if outputs:
            body["outputs"] = [{"name": output} for output in outputs]
        post(f"ensemble: {name}", body, SUMS)

    pair("all outputs")
    pair("outputs in another order", "d", "all")
    pair("the output of the first step alone", "d")
    pair("the last output alone", "all")
    pair("an output between steps", "s")
    pair("an output of a step's own name", "sum")
    pair("a wrong shape", shape=[3, 2])
    pair("a wrong type", datatype="FP64")
    pair("too few numbers", data=[1, 2])
    post("ensemble: an input of a step's own name", PLAIN, SUMS)
    post("ensemble: an input is missing", {"inputs": [left(name="a")]}, SUMS)
    for what in ("", "/ready", "/versions/1", "/versions/2", "/versions/1/ready"):
        get(f"ensemble{what}", f"/v2/models/sums{what}")


def control() -> None:
    for name, body in {
        "no body": "",
        "{}": "{}",
        "ready": '{"ready": true}',
        "not ready": '{"ready": false}',
        "ready text": '{"ready": "x"}',
        "no JSON": "x",
        "unknown": '{"a": 1}',
    }.items():
        post(f"index {name}", body, "/v2/repository/index")
    for name, body in {
        "no body": "",
        "{}": "{}",
        "no JSON": "x",
        "no parameters": '{"parameters": {}}',
        "config no JSON": '{"parameters": {"config": "x"}}',
        "config number": '{"parameters": {"config": 1}}',
        "file without config": '{"parameters": {"file:1/model.onnx": "AAAA"}}',
    }.items():
        post(f"load {name}", body, "/v2/repository/models/add_sub/load")
        post(f"load of no model {name}", body, "/v2/repository/models/none/load")
    post("unload of no model", path="/v2/repository/models/none/unload")
    post("trace settings no JSON", "x", "/v2/trace/setting")
    post("trace level off", '{"trace_level": ["OFF"]}', "/v2/trace/setting")
    for name, body in {
        "info": '{"log_info": true}',
        "text": '{"log_info": "x"}',
        "verbose": '{"log_verbose_level": 0}',
        "format": '{"log_format": "ISO8601"}',
        "no JSON": "x",
    }.items():
        post(f"log settings {name}", body, "/v2/logging")


def shared_memory(key: str) -> None:
    """`key`: a region of 4,096 bytes that begins with VALUES."""
    get("regions", f"{SHARED}/status")
    get("no region", f"{SHARED}/region/none/status")
    post("unregister no region", path=f"{SHARED}/region/none/unregister")
    place = {"key": key, "offset": 0, "byte_size": 4096}
    for name, document in {
        "no body": b"",
        "without key": {"offset": 0, "byte_size": 64},
        "of no key": place | {"key": "/no_such_key"},
        "without size": {"key": key, "offset": 0},
        "of -1 bytes": place | {"byte_size": -1},
        "of too many bytes": place | {"byte_size": 100_000},
        "with text": place | {"offset": "0", "byte_size": "64"},
        "": place,
        "twice": place,
    }.items():
        post(f"register {name}".strip(), document, f"{SHARED}/region/r/register")
    get("the region", f"{SHARED}/region/r/status")
    here = {"shared_memory_region": "r", "shared_memory_byte_size": 24}
    for name, parameters in {
        "": {},
        "at an offset": {"shared_memory_offset": 8},
        "of no region": {"shared_memory_region": "none"},
        "of 20 bytes": {"shared_memory_byte_size": 20},
        "of 32 bytes": {"shared_memory_byte_size": 32},
        "beyond its end": {"shared_memory_offset": 4090},
        "before its start": {"shared_memory_offset": -1},
        "of size text": {"shared_memory_byte_size": "24"},
        "without size": {"shared_memory_byte_size": ABSENT},
        "and binary": {"binary_data_size": 24},
    }.items():
        tensor = left(data=ABSENT, parameters=without_absent(here | parameters))
        infer(f"shared input {name}".strip(), tensor)
    infer("shared input and data", left(parameters=here))
    there = here | {"shared_memory_offset": 1024}
    for name, parameters in {
        "": {},
        "of 48 bytes": {"shared_memory_byte_size": 48},
        "of 8 bytes": {"shared_memory_byte_size": 8},
        "beyond its end": {"shared_memory_offset": 4090},
        "of no region": {"shared_memory_region": "none"},
        "and classes": {"classification": 1},
        "and binary": {"binary_data": True},
    }.items():
        output = {"name": "sum", "parameters": there | parameters}
        infer(f"shared output {name}".strip(), outputs=[output])
    post("unregister", path=f"{SHARED}/region/r/unregister")
    post("unregister all", path=f"{SHARED}/unregister")
    get("cuda regions", f"{CUDA}/status")
    get("no cuda region", f"{CUDA}/region/none/status")
    post("unregister cuda", path=f"{CUDA}/unregister")
    post("unregister no cuda region", path=f"{CUDA}/region/none/unregister")
    handle = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 64}
    post("register cuda", handle, f"{CUDA}/region/r/register")


def build(key: str) -> dict[str, Ask]:
    ALL.clear()
    for part in (bodies, ids_and_parameters, inputs, outputs, binary, datatypes, texts, ensemble):
        part()
    documents()
    control()
    shared_memory(key)
    return ALL


NESTED = "data that is nested otherwise than its shape may be a transposed tensor"
RANGE = "a number that does not fit would be another number, with status 200"
NULL = "null is taken where a member may be left out, as by the protocol's own clients"
FINITE = "NaN and Infinity are no JSON: null in replies, and null is NaN in requests"
STEPS = "in the order asked for, and without the sequence parameters that each step adds in Triton"
NOT_FOUND = "404 for a model that is not there, as the protocol's error table has it"
DIFFER: dict[str, str] = {
    "NUL behind": "bytes behind the document are refused",
    "element Inf": "only Infinity is written so",
    "element NaN": FINITE,
    "element Infinity": FINITE,
    "element -Infinity": FINITE,
    "element None in JSON": FINITE,
    "FP32 None": FINITE,
    "FP64 None": FINITE,
    "element 1e+39 in JSON": RANGE,
    "id None": NULL,
    "parameters null": NULL,
    "timeout None": NULL,
    "outputs null": NULL,
    "custom parameter null": "parameters of others are not looked at",
    "custom parameter object": "parameters of others are not looked at",
    "parameter of Triton": "perf_analyzer sends such parameters",
    "columns": NESTED,
    "rows in a list": NESTED,
    "ragged rows": NESTED,
    "rows and numbers": NESTED,
    "texts with ['a']": NESTED,
    "binary texts of no UTF-8 to JSON": "JSON is UTF-8: other bytes become U+FFFD there",
    "an empty row": NESTED,
    "outputs other order": "outputs are in the order in which they are asked for",
    "outputs twice": "an output that is named twice is a mistake",
    "named, all binary": "binary_data_output counts for outputs that do not say otherwise",
    "no model ready": NOT_FOUND,
    "version 9 ready": NOT_FOUND,
    "statistics of no model": NOT_FOUND,
    "statistics of version 9": NOT_FOUND,
    "trace settings of no model": NOT_FOUND,
    "load of no model no body": NOT_FOUND,
    "load of no model {}": NOT_FOUND,
    "load of no model no parameters": NOT_FOUND,
    "unload of no model": "MLServer says 404, too; Triton takes it without a word",
    "shared output and binary": "the region counts",
    "ensemble: all outputs": STEPS,
    "ensemble: outputs in another order": STEPS,
    "ensemble: the last output alone": STEPS,
    "ensemble: the output of the first step alone": "Triton finds a deadlock of its own",
    "register cuda": "501: there is no CUDA memory to register",
}


def is_cut_by_triton(datatype: str, value: int) -> bool:
    """Triton reads 64 bits and keeps the lowest."""
    if "INT" not in datatype:
        return False

    def fits(bits: int) -> bool:
        least = 0 if datatype.startswith("U") else -(1 << (bits - 1))
        return least <= value < least + (1 << bits)

    return fits(64) and not fits(int(datatype.split("INT")[1]))


DIFFER |= {f"{t} {v!r}": RANGE for t in TYPED for v in INTEGERS if is_cut_by_triton(t, v)}
