"""The question: what does gRPC cost, beside a server that runs no model and beside HTTP/1.1?

  h2load (core 1) --gRPC, or HTTP/1.1--> server (core 0), default settings, the MLP

Unary calls at 16 connections against nginx's empty answer of gRPC's shape to the same bytes; one
client against the same server's HTTP/1.1, binary tensors both ways, the same tool. That client
sleeps between its requests, and how long its CPU takes to wake up depends on how long it slept; so
once more by `lumen bench --poll`, which does not sleep. Then 64 requests
in flight on one connection, as a stream of inference and as unary calls: the server's CPU time for
a request, since the client, Python, costs more than the server.
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.load import h2load, serving
from bench.load.serving import Target
from bench.runner import Bench, BenchError, Goal, Run, make_row
from bench.runner.places import left_out, lumen_bench
from bench.runner.run import rotated

FLOOR = "nginx, empty answer"
GRPC, HTTP = "lumen, gRPC", "lumen, HTTP/1.1"
STREAM, UNARY = "lumen, stream", "lumen, unary"
CONNECTIONS = 16
IN_FLIGHT = 64
SERVICE = "/inference.GRPCInferenceService/"


def field(number: int, value: bytes) -> bytes:
    """Of bytes, in protobuf's wire format."""
    size, length = b"", len(value)
    while length >= 128:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + value


def grpc_message(work: serving.Workload) -> bytes:
    shape = b"".join(bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in work.shape)
    tensor = field(1, work.input.encode()) + field(2, b"FP32") + field(3, shape)
    message = field(1, work.model.encode()) + field(5, tensor) + field(7, work.array().tobytes())
    return b"\0" + struct.pack(">I", len(message)) + message


# --- frames by hand, for requests in flight -------------------------------------------------------


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(method: str) -> bytes:
    fields = {":method": "POST", ":scheme": "http", ":path": SERVICE + method, ":authority": "b"}
    fields |= {"content-type": "application/grpc", "te": "trailers"}
    block = b""
    for name, value in fields.items():
        block += b"\0" + bytes([len(name)]) + name.encode()
        block += bytes([len(value)]) + value.encode()
    return block


def count_data(connection: socket.socket, rest: bytes, wanted: int) -> bytes:
    """Reads `wanted` frames of data; the bytes behind them."""
    while wanted > 0:
        at = 0
        while len(rest) - at >= 9:
            length = int.from_bytes(rest[at : at + 3], "big")
            if len(rest) - at < 9 + length:
                break
            wanted -= rest[at + 3] == 0
            at += 9 + length
        rest = rest[at:]
        if wanted > 0:
            more = connection.recv(1 << 18)
            if not more:
                raise BenchError("the server has closed the connection")
            rest += more
    return rest


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_flight(target: Target, kind: str, seconds: float) -> float:
    """The server's CPU time for a request, in microseconds."""
    message = grpc_message(target.workload)
    window = struct.pack(">HI", 4, 1 << 30)
    with socket.create_connection(("127.0.0.1", target.port), timeout=30) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, window))
        connection.sendall(frame(8, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65_535)))
        head = header_block("ModelStreamInfer" if kind == STREAM else "ModelInfer")
        if kind == STREAM:
            connection.sendall(frame(1, 4, 1, head))
        rest, number, done = b"", 1, 0
        begin, cpu = time.monotonic(), cpu_seconds(target.process.pid)
        while time.monotonic() - begin < seconds:
            if kind == STREAM:
                batch = frame(0, 0, 1, message) * IN_FLIGHT
            else:
                numbers = range(number, number + 2 * IN_FLIGHT, 2)
                batch = b"".join(frame(1, 4, n, head) + frame(0, 1, n, message) for n in numbers)
                number += 2 * IN_FLIGHT
            connection.sendall(batch)
            rest = count_data(connection, rest, IN_FLIGHT)
            done += IN_FLIGHT
        return (cpu_seconds(target.process.pid) - cpu) / done * 1e6


# --- the runs -------------------------------------------------------------------------------------


def start(stack: ExitStack, folder: Path) -> tuple[Target, Target]:
    work = serving.WORKLOADS[1]
    flags = ["--model-repository", str(work.repository)]
    (ours,) = serving.start_lumen_with(stack, folder, "grpc", flags, [work])
    port, log = serving.free_port(), folder / "nginx.log"
    command = h2load.nginx_command(folder / "nginx", port)
    process = stack.enter_context(serving.running(command, log))
    floor = serving.make_target(FLOOR, work, port, serving.lumen_request(work), process, log)
    serving.wait_for_answer(ours)
    serving.stop([ours, floor])
    return ours, floor


def measure(run: Run) -> None:
    if not h2load.wrk.find("nginx") or not h2load.wrk.find("h2load"):
        left_out("grpc", "apt-get install nginx-light nghttp2-client")
        return
    many: dict[str, list[float]] = {GRPC: [], FLOOR: []}
    one: dict[str, list[float]] = {GRPC: [], HTTP: []}
    awake: dict[str, list[float]] = {GRPC: [], HTTP: []}
    cpu: dict[str, list[float]] = {STREAM: [], UNARY: []}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        ours, floor = start(stack, folder)
        message = folder / "grpc.body"
        message.write_bytes(grpc_message(ours.workload))
        head, _, body = ours.request.partition(b"\r\n\r\n")
        plain = folder / "http.body"
        plain.write_bytes(body)
        lines = [line.decode() for line in head.split(b"\r\n") if line.startswith(b"Inference-H")]

        def ask(target: Target, connections: int) -> dict[str, float]:
            url = f"http://127.0.0.1:{target.port}{SERVICE}ModelInfer"
            words = (url, message, h2load.GRPC, connections, 1, run.seconds, serving.LOAD_CORE)
            return h2load.run(*words, has_times=connections == 1)

        def ask_http(target: Target) -> dict[str, float]:
            url = f"http://127.0.0.1:{target.port}/v2/models/{target.workload.model}/infer"
            words = (url, plain, tuple(lines), 1, 1, run.seconds, serving.LOAD_CORE, "--h1")
            return h2load.run(*words, has_times=True)

        for number, _ in enumerate(run.turns([])):
            for kind, target in rotated([(GRPC, ours), (FLOOR, floor)], number):
                with serving.awake(target):
                    many[kind].append(ask(target, CONNECTIONS)["per_second"])
            with serving.awake(ours):
                for kind in rotated([GRPC, HTTP], number):
                    found = ask(ours, 1) if kind == GRPC else ask_http(ours)
                    one[kind].append(found["p50_us"])
                for kind in run.pick(rotated([GRPC, HTTP], number), []):
                    url = f"{'grpc' if kind == GRPC else 'http'}://127.0.0.1:{ours.port}"
                    words = ("--clients", "1", "--duration", str(run.seconds), "--poll")
                    row = lumen_bench(url, ours.workload.model, *words, cpu=serving.LOAD_CORE)
                    awake[kind].append(row["latency_us"]["p50"])
                for kind in rotated([STREAM, UNARY], number):
                    cpu[kind].append(in_flight(ours, kind, run.seconds))
    run.add(
        make_row(
            f"mlp, unary, {CONNECTIONS} connections",
            "throughput",
            "requests/s",
            many,
            more_is_better=True,
        ),
        make_row("mlp, unary, 1 connection", "p50 latency", "us", one),
        make_row(f"mlp, stream, {IN_FLIGHT} in flight", "CPU of a request", "us", cpu),
    )
    if not run.is_quick:
        name = "mlp, unary, 1 connection, the client polls"
        run.add(make_row(name, "p50 latency", "us", awake))


BENCH = Bench(
    title="gRPC",
    measure=measure,
    minutes=1.0,
    quick_minutes=0.3,
    seconds=(1.0, 1.0),
    sources=("include/**", "src/**", "apps/**", "bench/load/*"),
    packages=("nginx", "nghttp2-client"),
    goals=(
        Goal(
            "16 connections",
            "ratio_at_least",
            0.8,
            "0.8 of nginx's empty answer",
            metric="throughput",
        ),
        Goal("16 connections", "at_least", 100_000, "100,000 requests/s", metric="throughput"),
        Goal("1 connection", "over_rival_at_most", 10, "within 10 µs of HTTP/1.1"),
        Goal("^mlp, stream", "ratio_at_least", 1.0, "less than unary calls"),
    ),
)
