"""Servers that answer over HTTP on one core, and their figures from a load generator on the other:
shared by the benches of the whole server.

Threads: the caller's. Errors: BenchError with the server's log; a wrong answer is an
AssertionError.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.rivals.build import build_cargo, onnxruntime_library
from bench.rivals.framework_model import FrameworkModel
from bench.runner import Row, make_row
from bench.runner.places import BINARY, BUILD, ROOT, BenchError, program, run_json

RIVALS = ROOT / "bench" / "rivals"
SERVER_CORE, LOAD_CORE = 0, 1
CLIENTS = (1, 16)
START_TIMEOUT_S = 60


@dataclass(frozen=True)
class Workload:
    model: str
    input: str
    output: str
    shape: tuple[int, ...]
    repository: Path = ROOT / "models"
    is_only_output: bool = True
    framework: Path | None = None  # the classifier that was converted, pickled; None: a network
    row: tuple[float, ...] = ()  # the input; empty: random numbers

    @property
    def file(self) -> Path:
        return self.repository / self.model / "1" / "model.onnx"

    def array(self) -> np.ndarray:
        if self.row:
            return np.array(self.row, np.float32).reshape(self.shape)
        return np.random.default_rng(3).standard_normal(self.shape).astype(np.float32)

    def expected(self) -> np.ndarray:
        if self.framework is not None:
            return FrameworkModel(str(self.framework)).run(self.array()).ravel()
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # it would report
        import openvino

        options = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(self.file, "CPU", options)
        return compiled(self.array())[0].ravel()


WORKLOADS = (
    Workload("squeezenet", "data", "logits", (1, 3, 224, 224)),
    Workload("mlp", "input", "output", (1, 256)),
)


@dataclass
class Target:
    """One server with one workload: where it listens and the bytes to send it."""

    name: str
    workload: Workload
    port: int
    request: bytes
    request_file: Path
    process: subprocess.Popen[bytes]  # leads a process group, stopped while others are measured
    log: Path
    split: bool = False  # its I/O thread shares the load generator's core, so it has two
    is_floor: bool = False  # answers without a model
    clients: tuple[int, ...] = CLIENTS
    results: dict[int, list[dict[str, float]]] = field(default_factory=dict)


# --- requests -------------------------------------------------------------------------------------


def post(path: str, body: bytes, *lines: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *lines]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def lumen_request(work: Workload) -> bytes:
    """Exactly the bytes of tritonclient: JSON with the tensor behind it, binary output."""
    payload = work.array().tobytes()
    tensor = {"name": work.input, "shape": list(work.shape), "datatype": "FP32"}
    document = {
        "inputs": [tensor | {"parameters": {"binary_data_size": len(payload)}}],
        "parameters": {"binary_data_output": True},
    }
    if not work.is_only_output:
        document["outputs"] = [{"name": work.output, "parameters": {"binary_data": True}}]
    text = json.dumps(document, separators=(",", ":")).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"/v2/models/{work.model}/infer", text + payload, length)


def rival_request(work: Workload) -> bytes:
    return post("/infer", work.array().tobytes(), "Content-Type: application/octet-stream")


def answer(port: int, request: bytes) -> np.ndarray:
    """Sends the prepared bytes once; the float32 values at the end of the reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=START_TIMEOUT_S) as connection:
        connection.sendall(request)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        body = reply.read()
        if reply.status != 200:
            raise BenchError(f"port {port}: {reply.status} {body[:300]!r}")
        skip = int(reply.headers.get("Inference-Header-Content-Length", 0))
        return np.frombuffer(body[skip:], np.float32)


# --- servers --------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def signal_group(process: subprocess.Popen[bytes], *numbers: int) -> None:
    for number in numbers:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


@contextmanager
def running(
    command: list[str], log: Path, env: dict[str, str] | None = None, cores: str = str(SERVER_CORE)
) -> Iterator[subprocess.Popen[bytes]]:
    """A server on its core, in a process group of its own, which is ended with all it started."""
    words = ["taskset", "-c", cores, *command]
    with log.open("w") as out:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        signal_group(process, signal.SIGCONT, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            signal_group(process, signal.SIGKILL)
            process.wait()


def wait_for_answer(target: Target) -> None:
    """Waits until the server answers, and checks that the answer is the model's."""
    end = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            got = answer(target.port, target.request)
            break
        except (OSError, http.client.HTTPException, BenchError) as error:
            if time.monotonic() > end or target.process.poll() is not None:
                raise BenchError(
                    f"{target.name}: {error}; its log:\n{target.log.read_text()}"
                ) from error
            time.sleep(0.1)
    if target.is_floor:
        assert got.size == 0, f"{target.name} has answered {got.size} values"
        return
    # Two runtimes order their sums differently; a different model must not pass.
    np.testing.assert_allclose(got, target.workload.expected(), rtol=1e-3, atol=1e-4)


def start_lumen(
    stack: ExitStack, folder: Path, queue_type: str, cores: str = str(SERVER_CORE)
) -> list[Target]:
    """All of WORKLOADS, by the runtime of the bare loop that is their limit."""
    words = ["--backend", "openvino", "--model-repository", str(ROOT / "models")]
    flags = [*words, "--queue-type", queue_type]
    return start_lumen_with(stack, folder, queue_type, flags, WORKLOADS, cores)


def start_lumen_with(
    stack: ExitStack,
    folder: Path,
    name: str,
    flags: list[str],
    workloads: Sequence[Workload],
    cores: str = str(SERVER_CORE),
) -> list[Target]:
    port = free_port()
    log = folder / f"lumen-{name}-{cores}.log".replace(" ", "-")
    words = [str(BINARY), "serve", "--http", f"127.0.0.1:{port}", "--unix", "off", *flags]
    process = stack.enter_context(running(words, log, cores=cores))
    return [
        make_target(f"lumen {name}", w, port, lumen_request(w), process, log) for w in workloads
    ]


def start_split_lumen(stack: ExitStack, folder: Path) -> Target:
    """The worker on the server's core, all else on the load generator's."""
    target = start_lumen(stack, folder, "mpmc", f"{SERVER_CORE},{LOAD_CORE}")[0]
    target.name, target.split, target.clients = "lumen split, 2 cores", True, (1, 4, 16)
    target.request_file = target.request_file.rename(folder / "split.request")
    wait_for_answer(target)
    for thread in Path(f"/proc/{target.process.pid}/task").iterdir():
        is_worker = (thread / "comm").read_text().startswith("lumen-w")
        os.sched_setaffinity(int(thread.name), {SERVER_CORE if is_worker else LOAD_CORE})
    return target


def start_rivals(
    stack: ExitStack, folder: Path, names: str, workloads: Sequence[Workload]
) -> list[Target]:
    """`names`: comma-separated. Hyper is left out where it can't be built."""
    targets = []
    for rival in filter(None, names.split(",")):
        if rival != "hyper":
            targets += [start_rival(stack, folder, rival, work) for work in workloads]
        elif found := build_cargo("hyper_ort", BUILD.parent):
            targets += [start_hyper(stack, folder, found, work) for work in workloads]
    return targets


def start_hyper(stack: ExitStack, folder: Path, hyper: Path, work: Workload) -> Target:
    port = free_port()
    words = [str(hyper), str(port), str(work.file), str(onnxruntime_library())]
    log = folder / f"hyper-{work.model}.log"
    process = stack.enter_context(running([*words, *map(str, work.shape)], log))
    return make_target("hyper", work, port, rival_request(work), process, log)


def start_rival(
    stack: ExitStack, folder: Path, name: str, work: Workload, cores: str = str(SERVER_CORE)
) -> Target:
    port = free_port()
    env = {"BENCH_MODEL": str(work.file), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(RIVALS)}
    env["BENCH_OUTPUT"] = work.output
    if name.startswith("mosec"):
        env["BENCH_BATCH"] = "16" if "batch" in name else "1"
        words = [sys.executable, str(RIVALS / "mosec_app.py"), "--address", "127.0.0.1"]
        words += ["--port", str(port), "--log-level", "warning", "--timeout", "60000"]
        words += ["--path", str(folder / f"{name}-{work.model}".replace(" ", "-"))]
    else:
        env["BENCH_RUNTIME"] = name.removeprefix("fastapi").removeprefix("-") or "onnxruntime"
        if work.framework is not None and name == "fastapi-framework":
            env["BENCH_MODEL"] = str(work.framework)
        words = [sys.executable, str(RIVALS / "fastapi_app.py"), str(port)]
    log = folder / f"{name}-{work.model}.log"
    process = stack.enter_context(running(words, log, env, cores))
    return make_target(name, work, port, rival_request(work), process, log)


def make_target(
    name: str,
    work: Workload,
    port: int,
    request: bytes,
    process: subprocess.Popen[bytes],
    log: Path,
) -> Target:
    file = log.with_name(f"{log.stem}-{work.model}.request")
    file.write_bytes(request)
    return Target(name, work, port, request, file, process, log)


# --- measuring ------------------------------------------------------------------------------------


def measure(target: Target, clients: int, seconds: float) -> dict[str, float]:
    words = [program("bench_http_load"), "127.0.0.1", str(target.port)]
    words += [str(target.request_file), str(clients), f"{seconds}", f"{seconds / 4}"]
    words += ["sleep"] if target.split else []
    with awake(target):
        found: dict[str, float] = run_json(words, LOAD_CORE)
    target.results.setdefault(clients, []).append(found)
    return found


def stop(targets: Sequence[Target]) -> None:
    for target in targets:
        signal_group(target.process, signal.SIGSTOP)


@contextmanager
def awake(*targets: Target) -> Iterator[None]:
    """They run within the block, and are stopped after it."""
    processes = {target.process.pid: target.process for target in targets}.values()
    for process in processes:
        signal_group(process, signal.SIGCONT)
    try:
        yield
    except BenchError as error:
        raise BenchError(f"{targets[0].name}, {targets[0].workload.model}: {error}") from error
    finally:
        for process in processes:
            signal_group(process, signal.SIGSTOP)


def measure_limit(
    work: Workload, seconds: float, *, sent_bytes: int | None = None
) -> dict[str, float]:
    """The bare model. With `sent_bytes` it gets so many over TCP before each run, and sends its
    output; the figures are of the time without the run."""
    words = [program("bench_bare_openvino"), str(work.file), f"{seconds}", *map(str, work.shape)]
    if sent_bytes is not None:  # by a thread that moves to its own core
        words += ["--sender", str(LOAD_CORE), str(sent_bytes)]
    found: dict[str, float] = run_json(words, SERVER_CORE)
    return found


def is_ours(target: Target) -> bool:
    return target.name.startswith("lumen")


def short_name(target: Target) -> str:
    return target.name.removeprefix("lumen ")


def column(target: Target, clients: int, key: str) -> list[float]:
    return [run[key] for run in target.results[clients]]


def plural(clients: int) -> str:
    return f"{clients} client{'s' if clients > 1 else ''}"


# Metric: the key that bench_http_load prints, its unit, and whether more is better.
METRICS = {
    "throughput": ("per_second", "requests/s", True),
    "p50 latency": ("p50_us", "µs", False),
    "p90 latency": ("p90_us", "µs", False),
    "p99 latency": ("p99_us", "µs", False),
    "p99.9 latency": ("p999_us", "µs", False),
}


def http_row(
    ours: Target,
    rivals: Sequence[Target],
    clients: int,
    metric: str,
    limits: Sequence[dict[str, float]] = (),
) -> Row:
    """`limits`: of the bare model, a measurement a round."""
    key, unit, is_more = METRICS[metric]
    rounds = {ours.name: column(ours, clients, key)}
    for rival in rivals:
        # The rivals have no more than 16 clients' worth to gain; 4 are between.
        at = clients if clients in rival.results else CLIENTS[-1]
        rounds[rival.name] = column(rival, at, key)
    if limits:
        rounds["limit"] = [run[key] for run in limits]
    name = f"{ours.workload.model}, {plural(clients)}, {short_name(ours)}"
    limit = "limit" if limits else None
    return make_row(name, metric, unit, rounds, more_is_better=is_more, limit=limit)
