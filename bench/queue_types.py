#!/usr/bin/env python3
"""The question: does `auto` serve each model as well as the queue type that is best for it?

  load, closed loop (core 1) --HTTP keep-alive--> six Lumen servers (core 0), one a queue type

Each model of models/ and of the tests' repositories, alone: one row a request, binary both ways.
First each of the five types has two short slices with 16 clients, and the one with the most
requests a second is the rival. Then `auto` and that type are measured in turns (A B B A) with 16
clients and with one, until the 95 % interval of each ratio is narrower than 4 %, or for
MOST_BLOCKS. A ratio above 1 means that `auto` is ahead. All servers hold all models and stay for
the whole run, the idle ones stopped by a signal; they share the choice of backends, so that a model
has the same one everywhere. A model that refuses the made-up request is left out, and said so.

  bench/queue_types.py [--quick] [--json] [--models A,B] [--blocks N]
                                          stdout is one JSON object, the table goes to stderr
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

BENCH = Path(__file__).resolve().parent
# Last, not first: a bench may be called like one of Python's own modules (queue).
sys.path += [str(BENCH), str(BENCH / "load"), str(BENCH / "rivals"), str(BENCH / "queue_types")]
import any_model  # noqa: E402
import paired  # noqa: E402
import serving  # noqa: E402
from serving import ROOT  # noqa: E402

AUTO = "auto"
TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
FIXTURES = ROOT / "tests" / "fixtures"
REPOSITORIES = (ROOT / "models", *sorted(one for one in FIXTURES.iterdir() if one.is_dir()))
MANY = 16
SLICE_S = 0.2  # and a quarter more to warm up
SLICES_TO_CHOOSE = 2
START_TIMEOUT_S = 120
WIDTH = 0.04  # of the interval, from end to end
MOST_BLOCKS = 40
QUICK_MODELS = ("mlp", "convnet", "squeezenet")
# Each comparison: clients, the load's figure, its unit, whether more is better.
METRICS = {
    "throughput": (MANY, "per_second", "requests/s", True),
    "p50 latency": (MANY, "p50_us", "µs", False),
    "p50 latency, 1 client": (1, "p50_us", "µs", False),
}


@dataclass
class Server:
    """One of the six, and the model that it is asked for now."""

    queue_type: str
    port: int
    target: serving.Target

    def get(self, path: str) -> str | None:
        """The text; None where it is refused."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            text = reply.read().decode()
        finally:
            connection.close()
        return text if reply.status == 200 else None

    def is_ready(self) -> bool:
        try:
            return self.get("/v2/health/ready") is not None
        except OSError:
            return False

    def send(self, request: bytes) -> None:
        """Errors: RuntimeError with the server's answer instead of a result."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(request)
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            text = reply.read()
            if reply.status != 200:
                raise RuntimeError(f"{reply.status} {text[:200].decode(errors='replace')}")

    def measure(self, clients: int, request_file: Path) -> dict[str, float]:
        self.target.request_file = request_file
        return serving.measure(self.target, clients, SLICE_S)


@dataclass
class Compared:
    model: str
    best: str
    pairs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # best, auto

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Of auto's figure over the best type's, turned so that above 1 is ahead."""
        found = {}
        for metric, (_, _, _, is_more_better) in METRICS.items():
            middle, low, high = paired.ratio_interval(self.pairs[metric])
            turned = (middle, low, high) if is_more_better else (1 / middle, 1 / high, 1 / low)
            found[metric] = turned
        return found

    def is_sure(self) -> bool:
        if len(next(iter(self.pairs.values()), ())) < paired.LEAST_PAIRS:
            return False
        return all(high - low < WIDTH for _, low, high in self.intervals().values())


def make_repository(folder: Path) -> list[str]:
    """All models in one repository; the names, each once."""
    names: list[str] = []
    for repository in REPOSITORIES:
        for model in sorted(repository.iterdir()):
            has_file = any(model.glob("*/model.onnx")) or any(model.glob("*/model.xml"))
            if has_file and not (folder / model.name).exists():
                shutil.copytree(model, folder / model.name)
                names.append(model.name)
    return names


def start(stack: ExitStack, folder: Path, queue_type: str) -> Server:
    port = serving.free_port()
    log = folder / f"{queue_type}.log"
    words = [str(serving.BINARY), "serve", "--http", f"127.0.0.1:{port}", "--unix", "off"]
    words += ["--model-repository", str(folder / "models"), "--queue-type", queue_type]
    words += ["--thread-count", "1", "--backend-choices", str(folder / "choices.json")]
    process = stack.enter_context(serving.running(words, log))
    work = serving.Workload("any", "", "", (1,))
    target = serving.Target(queue_type, work, port, b"", folder / "request", process, log)
    server = Server(queue_type, port, target)
    end = time.monotonic() + START_TIMEOUT_S
    while not server.is_ready():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{queue_type} does not start; its log:\n{log.read_text()}")
        time.sleep(0.1)
    process.send_signal(SIGSTOP)
    return server


def best_type(servers: dict[str, Server], request_file: Path) -> str:
    seen: dict[str, list[float]] = {name: [] for name in TYPES}
    for number in range(SLICES_TO_CHOOSE):
        for name in TYPES if number % 2 == 0 else reversed(TYPES):
            run = servers[name].measure(MANY, request_file)
            seen[name].append(run["per_second"])
    return max(seen, key=lambda name: sum(seen[name]))


def compare(
    servers: dict[str, Server], model: str, best: str, request_file: Path, most_blocks: int
) -> Compared:
    compared = Compared(model, best, {metric: [] for metric in METRICS})
    contenders = (servers[best], servers[AUTO])
    for block in range(most_blocks):
        samples: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for who in paired.order(block):
            for clients in (MANY, 1):
                run = contenders[who].measure(clients, request_file)
                for metric, (of_clients, key, _, _) in METRICS.items():
                    if of_clients == clients:
                        samples[metric].append(run[key])
        for metric, values in samples.items():
            compared.pairs[metric].append(paired.pair_of(block, values))
        if compared.is_sure():
            break
    return compared


def lane_of(server: Server, model: str) -> str:
    """How auto's requests went: the queue type of most of them."""
    server.target.process.send_signal(SIGCONT)
    counts: dict[str, float] = {}
    try:
        text = server.get("/metrics")
    finally:
        server.target.process.send_signal(SIGSTOP)
    for line in (text or "").splitlines():
        if line.startswith("lumen_inference_by_queue_type_total{") and f'model="{model}"' in line:
            queue_type = line.split('queue_type="')[1].split('"')[0]
            counts[queue_type] = counts.get(queue_type, 0) + float(line.rsplit(" ", 1)[1])
    return max(counts, key=lambda name: counts[name]) if counts else "?"


def rows_of(compared: Compared, lane: str) -> list[dict[str, Any]]:
    rows = []
    for metric, (middle, low, high) in compared.intervals().items():
        theirs, ours = ([pair[who] for pair in compared.pairs[metric]] for who in range(2))
        rows.append(
            {
                "bench": "queue_types",
                "row": f"{compared.model}, auto ({lane})",
                "metric": metric,
                "unit": METRICS[metric][2],
                "ours": round(sorted(ours)[len(ours) // 2], 4),
                "rival": round(sorted(theirs)[len(theirs) // 2], 4),
                "rival_name": compared.best,
                "ratio": round(middle, 4),
                "spread": round(high - low, 4),  # the interval's width, not the samples'
                "limit": None,
                "interval": [round(low, 4), round(high, 4)],
                "rounds": {AUTO: ours, compared.best: theirs},
            }
        )
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    def line(*cells: object) -> None:
        print("{:<36}{:<24}{:>12}{:>12} {:<9}{:>7}{:>16}".format(*cells), file=sys.stderr)

    line("model", "metric", "auto", "best", "", "ratio", "95 % interval")
    for r in rows:
        low, high = r["interval"]
        ends = f"{low:.3f} to {high:.3f}"
        numbers = (f"{r['ours']:,.1f}", f"{r['rival']:,.1f}", r["rival_name"], f"{r['ratio']:.3f}")
        line(r["row"], r["metric"], *numbers, ends)


def prepare(server: Server, model: str, request_file: Path) -> str | None:
    """Writes the request; why the model can't be asked, if so."""
    server.target.process.send_signal(SIGCONT)
    try:
        metadata = server.get(f"/v2/models/{model}")
        if metadata is None:
            return "it is not ready"
        request = any_model.request_of(json.loads(metadata))
        request_file.write_bytes(request)
        server.send(request)
        return None
    except RuntimeError as error:
        return str(error)
    finally:
        server.target.process.send_signal(SIGSTOP)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="auto against the best single queue type.")
    parser.add_argument("--quick", action="store_true", help="three models, few blocks")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--models", help="default: all; quick: " + " ".join(QUICK_MODELS))
    parser.add_argument("--blocks", type=int, help=f"at most; default {MOST_BLOCKS}, quick 4")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if len(os.sched_getaffinity(0)) < 2:
        print("bench: two cores are needed", file=sys.stderr)
        return 1
    make = [sys.executable, str(ROOT / "models" / "squeezenet" / "make.py"), "--if-missing"]
    subprocess.run(make, check=True, stdout=sys.stderr)
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "models").mkdir()
        models = make_repository(folder / "models")
        if arguments.models or arguments.quick:
            wanted = arguments.models.split(",") if arguments.models else list(QUICK_MODELS)
            unknown = sorted(set(wanted) - set(models))
            if unknown:
                print(f"bench: no model {unknown[0]!r}; wanted some of: {' '.join(models)}")
                return 2
            for model in set(models) - set(wanted):
                shutil.rmtree(folder / "models" / model)
            models = wanted
        blocks = arguments.blocks or (paired.LEAST_PAIRS if arguments.quick else MOST_BLOCKS)
        servers = {one: start(stack, folder, one) for one in (*TYPES, AUTO)}
        for model in models:
            request_file = folder / f"{model}.request"
            why = prepare(servers[AUTO], model, request_file)
            if why is not None:
                left_out[model] = why
                print(f"bench: {model} is left out: {why}", file=sys.stderr)
                continue
            best = best_type(servers, request_file)
            compared = compare(servers, model, best, request_file, blocks)
            found = rows_of(compared, lane_of(servers[AUTO], model))
            rows += found
            if not arguments.json:
                show(found)
    document = {"rows": rows, "left_out": left_out, "seconds": SLICE_S}
    print(json.dumps(document, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
