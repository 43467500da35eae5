#!/usr/bin/env python3
"""The question: what does Lumen add to the model, and what do others? HTTP on one core.

  load generator (core 1) --HTTP keep-alive--> server (core 0): one worker, one model thread
  "split, 2 cores":  load generator and I/O thread (core 1) --> worker (core 0); the load sleeps

SqueezeNet 1.1 and a small MLP, one row a request, raw binary both ways, at 1 and at 16 clients, by
Lumen's queue types mpmc, batched and inline, against FastAPI, Mosec and hyper over ONNX Runtime and
FastAPI over OpenVINO, interleaved round by round in this one run. The limit is the bare OpenVINO
loop. Then `inline` with the MLP by wrk, binary and as JSON, against nginx's empty answer to the
same bytes, the floor of HTTP. Rivals' settings: docs/benchmarking.md.

  bench/server.py [--quick] [--json]      stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench" / "load"), str(ROOT / "bench" / "rivals")]
import wrk  # noqa: E402
from build_hyper import build_hyper, onnxruntime_library  # noqa: E402

BUILD = Path(os.environ.get("LUMEN_BUILD", ROOT / ".build" / "native"))
BINARY = Path(os.environ.get("LUMEN_BINARY", BUILD / "lumen"))
RIVALS = ROOT / "bench" / "rivals"
SERVER_CORE, LOAD_CORE = 0, 1
CLIENTS = (1, 16)
QUEUE_TYPES = ("mpmc", "batched", "inline")
RIVALS_BY_DEFAULT = "fastapi,fastapi-openvino,mosec,hyper"
FLOOR = "nginx, empty answer"
WRK_CONNECTIONS = 16
START_TIMEOUT_S = 60
CLIENT_IS_BUSY = 0.9  # of its core: from here on the figure may be the client's


@dataclass(frozen=True)
class Workload:
    model: str
    input: str
    output: str
    shape: tuple[int, ...]

    @property
    def file(self) -> Path:
        return ROOT / "models" / self.model / "1" / "model.onnx"

    def array(self) -> np.ndarray:
        return np.random.default_rng(3).standard_normal(self.shape).astype(np.float32)


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
    is_floor: bool = False  # answers without a model: nobody's rival
    clients: tuple[int, ...] = CLIENTS
    results: dict[int, list[dict[str, float]]] = field(default_factory=dict)


# --- requests -------------------------------------------------------------------------------------


def post(path: str, body: bytes, *lines: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}", *lines]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def lumen_request(work: Workload) -> bytes:
    """Exactly what tritonclient sends: JSON with the tensor behind it, binary output."""
    payload = work.array().tobytes()
    tensor = {"name": work.input, "shape": list(work.shape), "datatype": "FP32"}
    document = {
        "inputs": [tensor | {"parameters": {"binary_data_size": len(payload)}}],
        "parameters": {"binary_data_output": True},
    }
    text = json.dumps(document, separators=(",", ":")).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"/v2/models/{work.model}/infer", text + payload, length)


def json_body(work: Workload) -> bytes:
    """The tensor as numbers, each with the digits that give its float32 back; so is the reply."""
    numbers = ",".join(str(value) for value in work.array().ravel())
    head = f'"name":"{work.input}","shape":{list(work.shape)},"datatype":"FP32"'
    return f'{{"inputs":[{{{head},"data":[{numbers}]}}]}}'.encode()


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
            raise RuntimeError(f"port {port}: {reply.status} {body[:300]!r}")
        skip = int(reply.headers.get("Inference-Header-Content-Length", 0))
        return np.frombuffer(body[skip:], np.float32)


def expected(work: Workload) -> np.ndarray:
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(work.file, "CPU", options)
    return compiled(work.array())[0].ravel()


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
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            if time.monotonic() > end or target.process.poll() is not None:
                raise RuntimeError(
                    f"{target.name}: {error}; its log:\n{target.log.read_text()}"
                ) from error
            time.sleep(0.1)
    if target.is_floor:
        assert got.size == 0, f"{target.name} has answered {got.size} values"
        return
    # Two runtimes order their sums differently; what must not happen is a different model.
    np.testing.assert_allclose(got, expected(target.workload), rtol=1e-3, atol=1e-4)


def start_lumen(
    stack: ExitStack, folder: Path, queue_type: str, cores: str = str(SERVER_CORE)
) -> list[Target]:
    port = free_port()
    name = f"lumen {queue_type}"
    log = folder / f"lumen-{queue_type}-{cores}.log"
    words = [str(BINARY), "serve", "--http", f"127.0.0.1:{port}", "--unix", "off"]
    words += ["--backend", "openvino"]  # its rivals run the same models by the same runtime
    words += ["--model-repository", str(ROOT / "models"), "--queue-type", queue_type]
    process = stack.enter_context(running(words, log, cores=cores))
    return [make_target(name, w, port, lumen_request(w), process, log) for w in WORKLOADS]


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


def start_floor(stack: ExitStack, folder: Path, work: Workload) -> Target:
    """nginx, which is sent what Lumen is sent."""
    port = free_port()
    log = folder / f"nginx-{work.model}.log"
    process = stack.enter_context(running(wrk.nginx_command(folder / "nginx", port), log))
    target = make_target(FLOOR, work, port, lumen_request(work), process, log)
    target.is_floor = True
    return target


def start_hyper(stack: ExitStack, folder: Path, program: Path, work: Workload) -> Target:
    port = free_port()
    words = [str(program), str(port), str(work.file), str(onnxruntime_library())]
    log = folder / f"hyper-{work.model}.log"
    process = stack.enter_context(running([*words, *[str(d) for d in work.shape]], log))
    return make_target("hyper", work, port, rival_request(work), process, log)


def start_rival(stack: ExitStack, folder: Path, name: str, work: Workload) -> Target:
    port = free_port()
    env = {"BENCH_MODEL": str(work.file), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(RIVALS)}
    if name.startswith("mosec"):
        env["BENCH_BATCH"] = "16" if "batch" in name else "1"
        words = [sys.executable, str(RIVALS / "mosec_app.py"), "--address", "127.0.0.1"]
        words += ["--port", str(port), "--log-level", "warning", "--timeout", "60000"]
        words += ["--path", str(folder / f"{name}-{work.model}".replace(" ", "-"))]
    else:
        env["BENCH_RUNTIME"] = "openvino" if name.endswith("openvino") else "onnxruntime"
        words = [sys.executable, str(RIVALS / "fastapi_app.py"), str(port)]
    log = folder / f"{name}-{work.model}.log"
    process = stack.enter_context(running(words, log, env))
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


def call(core: int, words: list[str]) -> dict[str, float]:
    done = subprocess.run(["taskset", "-c", str(core), *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(words[0]).name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(target: Target, clients: int, seconds: float) -> dict[str, float]:
    words = [str(BUILD / "bench_http_load"), "127.0.0.1", str(target.port)]
    words += [str(target.request_file), str(clients), f"{seconds}", f"{seconds / 4}"]
    words += ["sleep"] if target.split else []
    signal_group(target.process, signal.SIGCONT)
    try:
        return call(LOAD_CORE, words)
    except RuntimeError as error:
        raise RuntimeError(f"{target.name}, {target.workload.model}: {error}") from error
    finally:
        signal_group(target.process, signal.SIGSTOP)


@dataclass
class WrkBody:
    """A request body that wrk sends to Lumen and to nginx in turn."""

    name: str
    file: Path
    json_bytes: int | None  # of the head before the tensor; None: all is JSON
    ours: Target
    floor: Target
    runs: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: {"ours": [], "floor": []}
    )


def make_wrk_bodies(folder: Path, ours: Target, floor: Target) -> list[WrkBody]:
    head, _, body = ours.request.partition(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"Inference-Header"))
    kinds = {"binary": (body, int(length.split()[-1])), "JSON": (json_body(ours.workload), None)}
    made = []
    for name, (content, json_bytes) in kinds.items():
        file = folder / f"{name}.body"
        file.write_bytes(content)
        what = f"{name}, {len(content):,} bytes"
        made.append(WrkBody(what, file, json_bytes, ours, floor))
    path = f"/v2/models/{ours.workload.model}/infer"
    check_json_answer(ours, post(path, json_body(ours.workload)))
    return made


def check_json_answer(ours: Target, request: bytes) -> None:
    with socket.create_connection(("127.0.0.1", ours.port), timeout=START_TIMEOUT_S) as connection:
        connection.sendall(request)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        data = json.loads(reply.read())["outputs"][0]["data"]
    np.testing.assert_allclose(data, expected(ours.workload), rtol=1e-3, atol=1e-4)


def measure_by_wrk(body: WrkBody, number: int, seconds: float) -> None:
    """Side by side, who is first changes from round to round: their ratio is of one moment."""
    order = [("ours", body.ours), ("floor", body.floor)]
    for key, target in order[number % 2 :] + order[: number % 2]:
        url = f"http://127.0.0.1:{target.port}/v2/models/{body.ours.workload.model}/infer"
        signal_group(target.process, signal.SIGCONT)
        try:
            run = wrk.run_wrk(url, body.file, body.json_bytes, WRK_CONNECTIONS, seconds, LOAD_CORE)
        finally:
            signal_group(target.process, signal.SIGSTOP)
        body.runs[key].append(run)


def measure_limit(work: Workload, seconds: float) -> dict[str, float]:
    words = [str(BUILD / "bench_bare_openvino"), str(work.file), f"{seconds}"]
    return call(SERVER_CORE, [*words, *[str(d) for d in work.shape]])


def run_rounds(
    targets: list[Target], bodies: list[WrkBody], rounds: int, seconds: float
) -> dict[str, list[dict[str, float]]]:
    """Every round measures everything once, so that a slow minute of the machine hits all alike."""
    limits: dict[str, list[dict[str, float]]] = {w.model: [] for w in WORKLOADS}
    for number in range(rounds):
        for work in {target.workload: None for target in targets}:
            limits[work.model].append(measure_limit(work, seconds))
            mine = [t for t in targets if t.workload == work]
            # Who comes first changes from round to round.
            for target in mine[number % len(mine) :] + mine[: number % len(mine)]:
                for clients in target.clients:
                    target.results.setdefault(clients, []).append(measure(target, clients, seconds))
        for body in bodies:
            measure_by_wrk(body, number, seconds)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return limits


# --- reporting ------------------------------------------------------------------------------------


def spread(values: list[float]) -> float:
    return (max(values) - min(values)) / median(values)


def is_ours(target: Target) -> bool:
    return target.name.startswith("lumen")


def make_row(
    ours: Target, rivals: list[Target], limits: list[dict[str, float]], clients: int, metric: str
) -> dict[str, Any]:
    key, unit, bigger = {
        "throughput": ("per_second", "requests/s", True),
        "p50 latency": ("p50_us", "µs", False),
    }[metric]
    mine = [r[key] for r in ours.results[clients]]
    # The rivals have no more than 16 clients' worth to gain; 4 are between.
    at = clients if clients in CLIENTS else CLIENTS[-1]
    values = {t.name: [r[key] for r in t.results[at]] for t in rivals}
    best = (max if bigger else min)(values, key=lambda name: median(values[name]))
    rival = median(values[best])
    limit = median([r[key] for r in limits])
    return {
        "bench": "server",
        "row": f"{ours.workload.model}, {clients} client{'s' if clients > 1 else ''}, "
        f"{ours.name.removeprefix('lumen ')}",
        "metric": metric,
        "unit": unit,
        "ours": round(median(mine), 2),
        "rival": round(rival, 2),
        "rival_name": best,
        "ratio": round(median(mine) / rival if bigger else rival / median(mine), 3),
        "spread": round(max(spread(mine), spread(values[best])), 3),
        "limit": round(limit, 2),
        "rounds": {ours.name: mine, **values, "limit": [r[key] for r in limits]},
    }


def make_wrk_row(body: WrkBody) -> dict[str, Any]:
    """The ratio is the median of the rounds' ratios, and the spread is theirs: the two runs of a
    round stand beside each other, those of different rounds may be minutes apart."""
    ours, floor = ([r["per_second"] for r in body.runs[key]] for key in ("ours", "floor"))
    ratios = [mine / bare for mine, bare in zip(ours, floor)]
    queue = body.ours.name.removeprefix("lumen ")
    return {
        "bench": "server",
        "row": f"{body.ours.workload.model}, {WRK_CONNECTIONS} connections, {queue}, "
        f"wrk, {body.name}",
        "metric": "throughput",
        "unit": "requests/s",
        "ours": round(median(ours), 2),
        "rival": round(median(floor), 2),
        "rival_name": FLOOR,
        "ratio": round(median(ratios), 3),
        "spread": round(spread(ratios), 3),
        "limit": round(median(floor), 2),
        "rounds": {body.ours.name: ours, FLOOR: floor},
    }


def describe(target: Target) -> dict[str, Any]:
    """All that was measured of one server, the client's share of its own core with it."""
    keys = ("per_second", "p50_us", "client_share")
    return {
        "server": target.name,
        "model": target.workload.model,
        "cores": 2 if target.split else 1,
        "clients": {
            clients: {key: round(median([run[key] for run in runs]), 3) for key in keys}
            | {"rounds_per_second": [round(run["per_second"], 1) for run in runs]}
            for clients, runs in target.results.items()
        },
    }


def describe_wrk(body: WrkBody) -> dict[str, Any]:
    keys = ("per_second", "p50_us", "client_share")
    return {
        "body": body.name,
        "connections": WRK_CONNECTIONS,
        **{
            name: {key: round(median([run[key] for run in runs]), 3) for key in keys}
            | {"rounds_per_second": [round(run["per_second"], 1) for run in runs]}
            for name, runs in body.runs.items()
        },
    }


def make_rows(
    targets: list[Target], limits: dict[str, list[dict[str, float]]]
) -> list[dict[str, Any]]:
    rows = []
    for ours in filter(is_ours, targets):
        model = ours.workload.model
        mine = [t for t in targets if t.workload == ours.workload]
        rivals = [t for t in mine if not is_ours(t) and not t.is_floor]
        for clients in ours.clients:
            rows.append(make_row(ours, rivals, limits[model], clients, "throughput"))
        rows.append(make_row(ours, rivals, limits[model], 1, "p50 latency"))
    return sorted(rows, key=lambda row: row["row"])


def show(rows: list[dict[str, Any]], targets: list[Target], bodies: list[WrkBody]) -> None:
    def line(*cells: object) -> None:
        print("{:<58}{:<13}{:>12}{:>13}  {:<20}{:>7}{:>8}{:>12}".format(*cells), file=sys.stderr)

    print(file=sys.stderr)
    line("row", "metric", "ours", "rival", "rival_name", "ratio", "spread", "limit")
    for r in rows:
        ours, rival, limit = (f"{r[k]:,.0f}" for k in ("ours", "rival", "limit"))
        ratio, width = f"{r['ratio']:.2f}", f"{r['spread']:.1%}"
        line(r["row"], r["metric"], ours, rival, r["rival_name"], ratio, width, limit)
    show_servers(targets, bodies)


def show_servers(targets: list[Target], bodies: list[WrkBody]) -> None:
    def line(*cells: object) -> None:
        print("{:<22}{:<12}{:>6}{:>13}{:>14}{:>18}{:>20}".format(*cells), file=sys.stderr)

    print("\neach server (median); the client's share is of its own core", file=sys.stderr)
    heads = ("1 client/s", "16 clients/s", "p50 µs, 1 client", "client's share, 16")
    line("", "model", "cores", *heads)
    for found in map(describe, targets):
        one, many = found["clients"][1], found["clients"][16]
        rates = [f"{run['per_second']:,.0f}" for run in (one, many)]
        share = share_of(many)
        line(
            found["server"], found["model"], found["cores"], *rates, f"{one['p50_us']:,.1f}", share
        )
    for body in bodies:
        for name, run in ((name, describe_wrk(body)[name]) for name in ("ours", "floor")):
            server = body.ours.name if name == "ours" else FLOOR
            rate, share = f"{run['per_second']:,.0f}", share_of(run)
            line(server, f"wrk {body.name.split(',')[0]}", 1, "", rate, "", share)


def share_of(run: dict[str, float]) -> str:
    busy = " (its limit?)" if run["client_share"] >= CLIENT_IS_BUSY else ""
    return f"{run['client_share']:.0%}{busy}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Lumen's HTTP path against FastAPI and Mosec.")
    parser.add_argument("--quick", action="store_true", help="3 short rounds, under a minute")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--rounds", type=int, help="default 7, quick 3")
    parser.add_argument("--seconds", type=float, help="a measurement; default 3, quick 0.3")
    parser.add_argument("--rivals", default=RIVALS_BY_DEFAULT, help="comma-separated")
    parser.add_argument("--wrk", action="store_true", help="only the rows by wrk")
    return parser.parse_args()


def start_all(stack: ExitStack, folder: Path, arguments: argparse.Namespace) -> list[Target]:
    """Every server, each of which has given the model's answer once."""
    targets = [] if arguments.wrk else [start_split_lumen(stack, folder)]
    for queue_type in ("inline",) if arguments.wrk else QUEUE_TYPES:
        targets += start_lumen(stack, folder, queue_type)
    for rival in () if arguments.wrk else arguments.rivals.split(","):
        if rival != "hyper":
            targets += [start_rival(stack, folder, rival, work) for work in WORKLOADS]
        elif program := build_hyper(BUILD.parent):
            targets += [start_hyper(stack, folder, program, work) for work in WORKLOADS]
    if wrk.find("nginx"):
        targets.append(start_floor(stack, folder, WORKLOADS[1]))
    else:
        print("bench: nginx left out: not found (apt-get install nginx)", file=sys.stderr)
    for target in targets:
        wait_for_answer(target)
    return targets


def wrk_bodies_of(folder: Path, targets: list[Target]) -> list[WrkBody]:
    floor = next((t for t in targets if t.is_floor), None)
    if floor is None or not wrk.find("wrk"):
        print("bench: no rows by wrk: they need wrk and nginx", file=sys.stderr)
        return []
    ours = [t for t in targets if t.name == "lumen inline" and t.workload == floor.workload]
    return make_wrk_bodies(folder, ours[0], floor)


def main() -> int:
    arguments = parse_arguments()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two cores are needed, one for the server, one for the load", file=sys.stderr)
        return 1
    rounds = arguments.rounds or (3 if arguments.quick else 7)
    seconds = arguments.seconds or (0.3 if arguments.quick else 3.0)
    make = [sys.executable, str(ROOT / "models" / "squeezenet" / "make.py"), "--if-missing"]
    subprocess.run(make, check=True, stdout=sys.stderr)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        targets = start_all(stack, folder, arguments)
        bodies = wrk_bodies_of(folder, targets)
        for target in targets:
            signal_group(target.process, signal.SIGSTOP)
        targets = [] if arguments.wrk else targets
        limits = run_rounds(targets, bodies, rounds, seconds)
    rows = make_rows(targets, limits) + [make_wrk_row(body) for body in bodies]
    if not arguments.json:
        show(rows, targets, bodies)
    servers = [describe(target) for target in targets]
    document = {"rows": rows, "servers": servers, "wrk": [describe_wrk(body) for body in bodies]}
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
