"""Asks a server for answers by each way that it has, and holds them against the right ones.

Errors: an answer is "right", or a Verdict that says how it is not; a server that died is Died.
"""

from __future__ import annotations

import http.client
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import quote

import lumen_engine
import numpy as np
from integration.harness import PATIENCE, lumen_binary
from lumen_engine._control import UnixHttpConnection
from lumen_engine.client import Client, InferError
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

NUMPY = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
ENGINE = "/v2/lumen/engine"
# Besides the backends of the server: the plugin of tests/device, which computes with ONNX Runtime.
DEVICE = "device"
DEVICE_PLUGIN = lumen_binary().parent / "liblumen_test_device.so"

# Two units in the last place: the suite has it for BF16, and 1e-3 is less than that of FP16.
LEAST_RTOL = {"BF16": 2.0**-6, "FP16": 2.0**-9}
SPECIAL = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


class Died(RuntimeError):
    """The server ended by itself."""


class Asked(Protocol):
    """A case, or a random model: the request, and the right answer."""

    name: str
    model: bytes
    inputs: Arrays
    outputs: Arrays
    datatypes: dict[str, str]
    rtol: float
    atol: float
    neighbours: list[Arrays]


@dataclass(frozen=True)
class Verdict:
    kind: str  # right, refused, wrong, died
    why: str = ""


RIGHT = Verdict("right")


def as_numbers(array: NDArray[Any], datatype: str) -> NDArray[Any]:
    if datatype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def difference(got: Arrays, case: Asked) -> str:
    """Empty where `got` is right: by the case's tolerances, exact where there are no fractions."""
    if set(got) != set(case.outputs):
        return f"outputs {sorted(got)} instead of {sorted(case.outputs)}"
    for name, right in case.outputs.items():
        datatype, array = case.datatypes[name], got[name]
        if array.shape != right.shape:
            return f"'{name}' has shape {list(array.shape)} instead of {list(right.shape)}"
        if array.dtype != right.dtype:
            return f"'{name}' is {array.dtype} instead of {right.dtype}"
        if datatype not in ("FP16", "BF16", "FP32", "FP64"):
            is_equal = array == right
        else:
            rtol = max(case.rtol, LEAST_RTOL.get(datatype, 0.0))
            array, right = as_numbers(array, datatype), as_numbers(right, datatype)
            with np.errstate(all="ignore"):
                is_equal = np.isclose(array, right, rtol, case.atol, equal_nan=True)
        if not np.all(is_equal):
            at = int(np.flatnonzero(~np.asarray(is_equal).reshape(-1))[0])
            wrong = int(np.size(is_equal) - np.count_nonzero(is_equal))
            return (
                f"'{name}': {wrong} of {np.size(is_equal)} elements, at {at} "
                f"{array.reshape(-1)[at]!r} instead of {right.reshape(-1)[at]!r}"
            )
    return ""


def judged(got: Arrays | InferError, case: Asked) -> Verdict:
    if isinstance(got, InferError):
        if not got.message:
            return Verdict("wrong", f"status {got.status} without a reason")
        return Verdict("refused", f"{got.status}: {got.message}")
    problem = difference(got, case)
    return Verdict("wrong", problem) if problem else RIGHT


class JsonConnection:
    """Infer requests without binary data. One connection, one request in flight."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self.connection = http.client.HTTPConnection(host, port, timeout=timeout_s)

    @staticmethod
    def plain(array: NDArray[Any]) -> list[Any]:
        if array.dtype == np.object_:
            return [item.decode() for item in array.reshape(-1)]
        return array.reshape(-1).tolist()

    @staticmethod
    def array(output: Any, right: NDArray[Any]) -> NDArray[Any]:
        shape, data = output["shape"], output["data"]
        if output["datatype"] == "BYTES":
            texts = np.empty(len(data), np.object_)
            texts[:] = [text.encode() for text in data]
            return texts.reshape(shape)
        numbers = [SPECIAL.get(one, one) if isinstance(one, str) else one for one in data]
        # Infinities and NaN come as null: then the right answer has them there.
        nulls = [at for at, one in enumerate(numbers) if one is None]
        flat = right.reshape(-1)
        for at in nulls if flat.size == len(numbers) else ():
            numbers[at] = np.nan if np.isfinite(flat[at]) else flat[at]
        return np.array(numbers, NUMPY[output["datatype"]]).reshape(shape)

    def infer(self, case: Asked) -> Arrays | InferError:
        try:
            inputs = [
                {
                    "name": name,
                    "shape": list(array.shape),
                    "datatype": case.datatypes[name],
                    "data": self.plain(array),
                }
                for name, array in case.inputs.items()
            ]
        except UnicodeDecodeError:
            return InferError(0, "JSON can't carry texts that are not UTF-8")
        path = f"/v2/models/{quote(case.name, safe='')}/infer"
        self.connection.request("POST", path, json.dumps({"inputs": inputs}))
        reply = self.connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            return InferError(reply.status, json.loads(content)["error"])
        outputs = json.loads(content)["outputs"]
        return {one["name"]: self.array(one, case.outputs[one["name"]]) for one in outputs}

    def close(self) -> None:
        self.connection.close()


class JudgedServer:
    """`with JudgedServer(cases, "auto") as server: server.judge(case)`: a repository of its own."""

    def __init__(
        self, cases: Iterable[Asked], backend: str, *arguments: str, timeout_s: float = 60
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lumen-judge-"))
        self.timeout_s = timeout_s * PATIENCE
        repository = self.folder / "models"
        repository.mkdir()
        for case in cases:
            version = repository / case.name / "1"
            version.mkdir(parents=True)
            (version / "model.onnx").write_bytes(case.model)
            if config := getattr(case, "config", None):
                (version.parent / "config.json").write_text(json.dumps(config))
        words = ["--backend", backend, "--backend-choices", "off", "--stats", "off"]
        words += ["--backend-trial-ms", "5", "--queue-type", "batched"]
        words += ["--max-queue-delay-us", "300", *arguments]
        if backend == DEVICE:
            setting = {"name": DEVICE, "library": str(DEVICE_PLUGIN)}
            words += ["--execution-providers", json.dumps([setting])]
        try:
            self.server = lumen_engine.Server(
                repository,
                words,
                executable=lumen_binary(),
                bus=self.folder / "bus",
                unix=self.folder / "unix",
                env={"XDG_CACHE_HOME": str(self.folder), "ORT_DISABLE_TELEMETRY": "1"},
                start_timeout_s=600 * PATIENCE,
            )
            self.connect()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def connect(self) -> None:
        self.json = JsonConnection(self.server.host, self.server.port, self.timeout_s)
        self.binary = Client(f"http://{self.server.url}", timeout=self.timeout_s)
        self.bus = Client(f"bus:{self.server.bus_path}", timeout=self.timeout_s)

    def __enter__(self) -> JudgedServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in (self.json, self.binary, self.bus):
            connection.close()
        try:
            if kind is None:
                self.server.stop()
            else:
                self.server.kill()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def refusal(self, case: Asked) -> str:
        """Why the model is not served; empty where it is."""
        try:
            self.binary.metadata(case.name)
        except InferError as error:
            return error.message
        return ""

    @staticmethod
    def _ask(client: Client, name: str, inputs: Mapping[str, Any]) -> Arrays | InferError:
        try:
            return client.infer(name, inputs)
        except InferError as error:
            return error

    def change_engine(self, **engine: Any) -> None:
        """Live: requests are answered meanwhile."""
        connection = UnixHttpConnection(self.server.unix_path, self.timeout_s)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", ENGINE, json.dumps(engine), headers)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        assert reply.status == 200, content

    def ask_all(self, case: Asked, requests: list[Arrays]) -> list[Arrays] | InferError:
        """Over the bus, as many in flight as there is room for."""
        try:
            return self.bus.infer_batch(case.name, requests)
        except InferError as error:
            return error

    def _packed(self, case: Asked) -> Verdict:
        """Among neighbours of other values, sent at once: its own answer, and theirs as alone."""
        alone = [self._ask(self.bus, case.name, one) for one in case.neighbours]
        good = [(i, a) for i, a in zip(case.neighbours, alone) if not isinstance(a, InferError)]
        try:
            first, *others = self.bus.infer_batch(
                case.name, [case.inputs, *(inputs for inputs, _ in good)]
            )
        except InferError as error:
            return judged(error, case)
        verdict = judged(first, case)
        for got, (_, right) in zip(others, good):
            problem = difference(got, _Alone(case, right))
            if verdict.kind == "right" and problem:
                verdict = Verdict("wrong", f"a neighbour beside others: {problem}")
        return verdict

    def judge(self, case: Asked) -> dict[str, Verdict]:
        """By way: http, json, bus, and packed where the case has neighbours."""
        refusal = self.refusal(case)
        if refusal:
            return {"load": Verdict("refused", refusal)}
        found = {}
        try:
            found["http"] = judged(self._ask(self.binary, case.name, case.inputs), case)
            found["json"] = judged(self.json.infer(case), case)
            found["bus"] = judged(self._ask(self.bus, case.name, case.inputs), case)
            if case.neighbours:
                found["packed"] = self._packed(case)
        except (OSError, http.client.HTTPException) as error:
            self.json.close()
            self.server.process.wait(5 * PATIENCE)
            raise Died(f"{case.name}: {error}") from error
        return found


class _Alone:
    """A neighbour with the answer that it got alone as the right one."""

    def __init__(self, case: Asked, outputs: Arrays) -> None:
        self.name, self.model, self.inputs = case.name, case.model, case.inputs
        self.outputs, self.datatypes = outputs, case.datatypes
        self.rtol, self.atol = case.rtol, case.atol
        self.neighbours: list[Arrays] = []
