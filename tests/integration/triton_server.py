"""Triton's own server from PyPI, with models of its Python backend that mirror our fixtures.

Errors: AssertionError with Triton's log where it does not become ready.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType

from integration import triton_sequences
from integration.harness import PATIENCE, ROOT, eventually

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

# name: (data type in Triton's words, dims)
Tensors = dict[str, tuple[str, list[int]]]

TYPED = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
TYPED += ("FP16", "FP32", "FP64")

PROGRAM = """\
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        replies = []
        for request in requests:
            inputs = {{t.name(): t.as_numpy() for t in request.inputs()}}
            outputs = self.run(inputs)
            wanted = request.requested_output_names()
            tensors = [pb.Tensor(name, array) for name, array in outputs.items() if name in wanted]
            replies.append(pb.InferenceResponse(tensors))
        return replies

    def run(self, inputs):
        {body}
"""

MODELS: dict[str, tuple[Tensors, Tensors, str]] = {
    "add_sub": (
        {"left": ("FP32", [2, 3]), "right": ("FP32", [2, 3])},
        {"sum": ("FP32", [2, 3]), "difference": ("FP32", [2, 3])},
        "a, b = inputs['left'], inputs['right']; return {'sum': a + b, 'difference': a - b}",
    ),
    "identity_types": (
        {f"{t.lower()}_in": (t, [-1]) for t in TYPED},
        {f"{t.lower()}_out": (t, [-1]) for t in TYPED},
        "return {name[:-2] + 'out': array for name, array in inputs.items()}",
    ),
    "identity_bytes": (
        {"x": ("STRING", [-1])},
        {"y": ("STRING", [-1])},
        "return {'y': inputs['x']}",
    ),
}


# `add_sub`, and once more of its two answers.
ENSEMBLE = """
name: "sums"
platform: "ensemble"
input [
  { name: "a" data_type: TYPE_FP32 dims: [ 2, 3 ] },
  { name: "b" data_type: TYPE_FP32 dims: [ 2, 3 ] }
]
output [
  { name: "all" data_type: TYPE_FP32 dims: [ 2, 3 ] },
  { name: "d" data_type: TYPE_FP32 dims: [ 2, 3 ] }
]
ensemble_scheduling {
  step [
    {
      model_name: "add_sub"
      model_version: -1
      input_map { key: "left" value: "a" }
      input_map { key: "right" value: "b" }
      output_map { key: "sum" value: "s" }
      output_map { key: "difference" value: "d" }
    },
    {
      model_name: "add_sub"
      model_version: -1
      input_map { key: "left" value: "s" }
      input_map { key: "right" value: "d" }
      output_map { key: "sum" value: "all" }
    }
  ]
}
"""


def write_repository(folder: Path) -> Path:
    (folder / "sums" / "1").mkdir(parents=True)
    (folder / "sums" / "config.pbtxt").write_text(ENSEMBLE)
    triton_sequences.write_for_triton(folder, PROGRAM)
    for name, (inputs, outputs, body) in MODELS.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(PROGRAM.format(body=body))
        lines = ['backend: "python"', "max_batch_size: 0"]
        for side, tensors in (("input", inputs), ("output", outputs)):
            for tensor, (datatype, dims) in tensors.items():
                form = f'name: "{tensor}" data_type: TYPE_{datatype} dims: {dims}'
                lines.append(f"{side} {{ {form} }}")
        (folder / name / "config.pbtxt").write_text("\n".join(lines))
    return folder


def free_ports(count: int) -> list[int]:
    """Triton takes no port 0. Another program may take one of these before Triton does."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class TritonServer:
    """`with TritonServer(tmp_path) as triton:` — loopback only, explicit model control."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "triton.log"
        http, grpc, metrics = free_ports(3)
        self.address = ("127.0.0.1", http)
        self.grpc = f"127.0.0.1:{grpc}"
        place = judge_programs.triton()
        words = [str(place / "bin" / "tritonserver"), "--model-repository"]
        words += [str(write_repository(folder / "models"))]
        words += ["--backend-directory", str(place / "backends")]
        words += [
            "--model-control-mode",
            "explicit",
            *[f"--load-model={n}" for n in (*MODELS, "sums", *triton_sequences.MODELS)],
        ]
        for name, port in (("http", http), ("grpc", grpc), ("metrics", metrics)):
            words += [f"--{name}-address", "127.0.0.1", f"--{name}-port", str(port)]
        self._words = words

    def __enter__(self) -> TritonServer:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self._words, env=judge_programs.triton_environment(), stdout=log, stderr=log
            )
        try:
            eventually(
                lambda: self._ready() or self.process.poll() is not None, self.log.read_text, 60
            )
            assert self.process.poll() is None, self.log.read_text()
        except AssertionError:
            self.process.kill()
            self.process.wait()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(30 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ready(self) -> bool:
        url = f"http://{self.address[0]}:{self.address[1]}/v2/health/ready"
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False
