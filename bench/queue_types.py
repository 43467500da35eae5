"""The question: does `auto` serve each model as well as the queue type that is best for it?

  load, closed loop (core 1) --HTTP keep-alive--> six Lumen servers (core 0), one a queue type

Each model of models/ and of the tests' repositories, alone: one row a request, binary both ways.
First each of the five types has two short slices with 16 clients, and the one with the most
requests a second is the rival. Then `auto` and that type are measured in turns (A B B A) with 16
clients and with one, until the 95 % interval of each ratio is narrower than 4 %, or for --rounds
blocks. A ratio above 1 means that `auto` is ahead. All servers hold all models and stay for
the whole run, the idle ones stopped by a signal; they share the choice of backends, so that a model
has the same one everywhere. A model that refuses the made-up request is left out, and said so.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from bench.load import any_model, serving
from bench.runner import ROOT, Bench, BenchError, Goal, Option, Row, Run, make_row, paired
from bench.runner.places import left_out, make_squeezenet, program
from bench.runner.rows import Document
from bench.runner.tables import number, table

AUTO = "auto"
TYPES = ("mpmc", "spsc", "naive", "batched", "inline")
FIXTURES = ROOT / "tests" / "fixtures"
REPOSITORIES = (ROOT / "models", *sorted(one for one in FIXTURES.iterdir() if one.is_dir()))
MANY = 16
SLICES_TO_CHOOSE = 2
START_TIMEOUT_S = 120
WIDTH = 0.04  # of the interval, from end to end
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
        """Errors: BenchError with the server's answer instead of a result."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(request)
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            text = reply.read()
            if reply.status != 200:
                raise BenchError(f"{reply.status} {text[:200].decode(errors='replace')}")

    def measure(self, clients: int, request_file: Path, seconds: float) -> dict[str, float]:
        self.target.request_file = request_file
        return serving.measure(self.target, clients, seconds)


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
    words = [program("lumen"), "serve", "--http", f"127.0.0.1:{port}", "--unix", "off"]
    words += ["--model-repository", str(folder / "models"), "--queue-type", queue_type]
    words += ["--thread-count", "1", "--backend-choices", str(folder / "choices.json")]
    process = stack.enter_context(serving.running(words, log))
    work = serving.Workload("any", "", "", (1,))
    target = serving.Target(queue_type, work, port, b"", folder / "request", process, log)
    server = Server(queue_type, port, target)
    end = time.monotonic() + START_TIMEOUT_S
    while not server.is_ready():
        if process.poll() is not None or time.monotonic() > end:
            raise BenchError(f"{queue_type} does not start; its log:\n{log.read_text()}")
        time.sleep(0.1)
    process.send_signal(SIGSTOP)
    return server


def best_type(servers: dict[str, Server], request_file: Path, seconds: float) -> str:
    seen: dict[str, list[float]] = {name: [] for name in TYPES}
    for turn in range(SLICES_TO_CHOOSE):
        for name in TYPES if turn % 2 == 0 else reversed(TYPES):
            run = servers[name].measure(MANY, request_file, seconds)
            seen[name].append(run["per_second"])
    return max(seen, key=lambda name: sum(seen[name]))


def compare(
    run: Run, servers: dict[str, Server], model: str, best: str, request_file: Path
) -> Compared:
    compared = Compared(model, best, {metric: [] for metric in METRICS})
    contenders = (servers[best], servers[AUTO])
    for block in range(run.rounds):
        samples: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for who in paired.order(block):
            for clients in (MANY, 1):
                found = contenders[who].measure(clients, request_file, run.seconds)
                for metric, (of_clients, key, _, _) in METRICS.items():
                    if of_clients == clients:
                        samples[metric].append(found[key])
        for metric, values in samples.items():
            compared.pairs[metric].append(paired.pair_of(block, values))
        if compared.is_sure():
            break
    return compared


def queue_type_of(server: Server, model: str) -> str:
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


def rows_of(compared: Compared, queue_type: str) -> list[Row]:
    rows = []
    for metric, (middle, low, high) in compared.intervals().items():
        theirs, ours = ([pair[who] for pair in compared.pairs[metric]] for who in range(2))
        row = make_row(
            f"{compared.model}, auto ({queue_type})",
            metric,
            METRICS[metric][2],
            {AUTO: ours, compared.best: theirs},
            more_is_better=METRICS[metric][3],
            ratio=round(middle, 4),
            spread=round(high - low, 4),  # the interval's width, not the samples'
            interval=[round(low, 4), round(high, 4)],
        )
        rows.append(row)
    return rows


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
    except BenchError as error:
        return str(error)
    finally:
        server.target.process.send_signal(SIGSTOP)


def chosen(run: Run, folder: Path) -> list[str]:
    """The models that are wanted; others are taken out of the repository."""
    models = make_repository(folder)
    if not run.options.models and not run.is_quick:
        return models
    wanted = run.options.models.split(",") if run.options.models else list(QUICK_MODELS)
    unknown = sorted(set(wanted) - set(models))
    if unknown:
        raise BenchError(f"no model {unknown[0]!r}; wanted some of: {' '.join(models)}")
    for model in set(models) - set(wanted):
        shutil.rmtree(folder / model)
    return wanted


def measure(run: Run) -> None:
    make_squeezenet()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "models").mkdir()
        models = chosen(run, folder / "models")
        servers = {one: start(stack, folder, one) for one in (*TYPES, AUTO)}
        for model in models:
            request_file = folder / f"{model}.request"
            why = prepare(servers[AUTO], model, request_file)
            if why is not None:
                left_out(model, why)
                continue
            best = best_type(servers, request_file, run.seconds)
            compared = compare(run, servers, model, best, request_file)
            run.add(*rows_of(compared, queue_type_of(servers[AUTO], model)))


def draw(document: Document) -> str:
    """One line a model: the ratios with the ends of their intervals."""
    heads = ["", "best type", "its requests/s"]
    metrics = list(dict.fromkeys(row["metric"] for row in document["rows"]))
    lines: dict[str, list[str]] = {}
    for row in document["rows"]:
        cells = lines.setdefault(row["row"], [row["row"], row["rival_name"], number(row["rival"])])
        low, high = row["interval"]
        cells.append(f"{row['ratio']:.3f} ({low:.3f} to {high:.3f})")
    return table([*heads, *metrics], list(lines.values()), 2)


BENCH = Bench(
    title="auto against each queue type",
    measure=measure,
    minutes=15.0,
    quick_minutes=0.3,
    rounds=(40, paired.LEAST_PAIRS),
    seconds=(0.2, 0.2),  # and a quarter more to warm up
    options=(Option("--models", "", f"all; quick: {','.join(QUICK_MODELS)}"),),
    quick_words=("--models", "mlp"),
    sources=(
        *("include/**", "src/**", "apps/**"),
        "bench/runner/paired.py",
        "bench/load/{serving,any_model}.py",
        "bench/load/http_load.cc",
    ),
    has_a_row_for_each_goal=True,
    goals=(
        Goal(
            ".", "ratio_at_least", 0.98, "98 % of the best single type's, the rival's",
            metric="throughput",
        ),
        Goal(
            ".", "ratio_at_least", 0.98, "no more than the best single type's, the rival's, by 2 %",
            metric="p50 latency",
        ),
    ),
    tables={"": draw},
)  # fmt: skip
