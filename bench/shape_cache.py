"""The question: what do a model's `shape_cache` entries cost in memory and save in time, and how
much do requests that fail cost later ones?

A server with `inline` and one model of three convolutions over pictures of any width. First widths
that never return, then 100 that return at random. Memory: resident, after the load less before. CPU
time of the server's threads (schedstat) by the request. Then the time of a good request after a
good one, after one whose shapes are refused, and after one whose run throws.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import struct
import tempfile
import time
from pathlib import Path

from lumen_engine import Server

from bench.runner import ROOT, Bench, BenchError, Run, make_row
from bench.runner.places import cpu_ns, program, say

FIXTURES = ROOT / "tests" / "fixtures" / "models"
CAPACITIES = (0, 16, 64, 256, 1024, 5000)
RETURNING = 100  # widths
LARGEST = 16 + 4000
REQUESTS, QUICK_REQUESTS = 2000, 200
REQUESTS_AFTER_A_FAILURE = 20


def make_server(folder: Path, model: str, config: dict[str, int] | None = None) -> Server:
    target = folder / f"{model}-{len(list(folder.iterdir()))}"
    shutil.copytree(FIXTURES / model, target / model)
    if config is not None:
        (target / model / "config.json").write_text(json.dumps(config))
    # OpenVINO refuses shapes that ONNX Runtime takes.
    words = ["--queue-type", "inline", "--unix", "off", "--backend", "openvino"]
    return Server(target, words, executable=program("lumen"))


def request(model: str, tensors: list[tuple[str, str, list[int], bytes]]) -> bytes:
    inputs = [
        {
            "name": name,
            "datatype": kind,
            "shape": shape,
            "parameters": {"binary_data_size": len(data)},
        }
        for name, kind, shape, data in tensors
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = head + b"".join(data for *_, data in tensors)
    text = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: bench\r\n"
    text += f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(body)}\r\n\r\n"
    return text.encode() + body


def ask(client: socket.socket, data: bytes) -> int:
    """The status; the reply is read to its end."""
    client.sendall(data)
    reply = b""
    while b"\r\n\r\n" not in reply:
        reply += client.recv(1 << 20)
    head, _, body = reply.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0])
    missing = length - len(body)
    while missing > 0:
        missing -= len(client.recv(1 << 20))
    return int(head.split()[1])


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def picture(width: int) -> bytes:
    data = struct.pack("<f", 0.5) * (16 * width)
    return request("text_lines", [("image", "FP32", [1, 1, 16, width], data)])


def send_widths(folder: Path, capacity: int, widths: list[int]) -> tuple[list[float], float]:
    """Memory above that before the load, after each quarter; CPU ms a request."""
    with (
        make_server(folder, "text_lines", {"shape_cache": capacity}) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as client,
    ):
        before, begin = resident_mb(server.pid), cpu_ns(server.pid) / 1e6
        marks = []
        for done, width in enumerate(widths, start=1):
            if ask(client, picture(width)) != 200:
                raise BenchError("a width was refused")
            if done % (len(widths) // 4) == 0:
                marks.append(resident_mb(server.pid) - before)
        return marks, (cpu_ns(server.pid) / 1e6 - begin) / len(widths)


def after_failures(folder: Path, count: int) -> dict[str, list[float]]:
    """The times of a good request, in us, by the request before it."""
    rows = struct.pack("<f", 0.5) * 12
    pick = [
        request("pick", [("rows", "FP32", [n, 4], rows[: 16 * n]), ("index", "INT32", [m, 4], i)])
        for n, m, i in (
            (3, 3, struct.pack("<i", 1) * 12),
            (3, 2, struct.pack("<i", 1) * 8),
            (3, 3, struct.pack("<i", 9) * 12),
        )
    ]
    times = {}
    with (
        make_server(folder, "pick") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as client,
    ):
        for what, status, before in zip(
            ("a good one", "refused shapes", "a run that throws"), (200, 400, 500), pick
        ):
            taken = []
            for _ in range(count):
                if ask(client, before) != status:
                    raise BenchError(f"{what}: not answered {status}")
                begin = time.perf_counter()
                if ask(client, pick[0]) != 200:
                    raise BenchError(f"failed after {what}")
                taken.append((time.perf_counter() - begin) * 1e6)
            times[what] = taken
    return times


def measure(run: Run) -> None:
    count = run.pick(REQUESTS, QUICK_REQUESTS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new = random.Random(1).sample(range(16, LARGEST), count)
        pool = random.Random(2).sample(range(16, LARGEST), RETURNING)
        returning = random.Random(3).choices(pool, k=count)
        for capacity in CAPACITIES:
            for kind, widths in (("never return", new), (f"{RETURNING} return", returning)):
                marks, ms = send_widths(folder, capacity, widths)
                text = f"{capacity} entries, {count} requests, widths {kind}"
                say(f"{text}: {[round(mark) for mark in marks]} MB, {ms:.2f} ms")
                run.add(make_row(text, "memory", "MB", {"lumen": [marks[-1]]}, spread=None))
                run.add(make_row(text, "CPU time a request", "ms", {"lumen": [ms]}, spread=None))
        for before, times in after_failures(folder, REQUESTS_AFTER_A_FAILURE).items():
            name_of = f"a good request after {before}"
            run.add(make_row(name_of, "median time", "us", {"lumen": times}))


BENCH = Bench(
    title="Memory and time by shapes",
    measure=measure,
    minutes=3.0,
    quick_minutes=1.0,
    sources=("include/**", "src/**", "apps/**"),
    is_kept=False,
)
