"""The question: what do spans for OpenTelemetry cost a server, in CPU time a request?

  load, closed loop, 16 clients (core 1) --HTTP--> servers (core 0), mpmc, the MLP
  servers --HTTP--> a collector (core 1) that answers 200 and keeps nothing

Slices of 100 ms in turns, one server loaded at a time while the others sleep: without a collector
(twice: the second one's row must hold a ratio of 1), with one and no traced request, and with a
trace for one request in 100 and for each. The order of a block is drawn (seeded), then goes
backwards: drift hits all alike. CPU time is that of all threads of the server, the exporting thread
too, from the end of its slice before to the end of this one.

The servers have one core, so the exporting thread takes its time from the workers. Records that it
has no time for are dropped and counted; the rows of spans say how many were exported of all.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean
from urllib.request import urlopen

from bench.load import serving
from bench.load import watching_parts as parts
from bench.runner import Bench, Goal, Run, make_row
from bench.runner.places import BenchError

SEED = 31
SLICE_MS = 100
CLIENTS = 16
WARM_UP_MS = 500
PLAIN = "no collector"
COST = "CPU time of a request"
EXPORTED = "spans exported"

# Contender: its flags, beside the endpoint's.
TRACED: dict[str, list[str]] = {
    "no traced request": [],
    "one request in 100": ["--otlp-one-in", "100"],
    "each request": ["--otlp-one-in", "1"],
}
CONTENDERS = (PLAIN, "no collector again", *TRACED)


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """It says nothing of a request."""


@contextmanager
def collector() -> Iterator[str]:
    """Its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def start_servers(stack: ExitStack, folder: Path) -> dict[str, parts.Watched]:
    """One after the other on the same core; each has given the model's answer."""
    endpoint = ["--otlp-endpoint", stack.enter_context(collector())]
    servers = {}
    for name in CONTENDERS:
        words = ["--backend", "openvino", "--model-repository", str(serving.ROOT / "models")]
        words += ["--queue-type", "mpmc", *(endpoint + TRACED[name] if name in TRACED else [])]
        (target,) = serving.start_lumen_with(stack, folder, name, words, serving.WORKLOADS[1:])
        serving.wait_for_answer(target)
        servers[name] = parts.Watched(target)
    return servers


def exported_share(target: serving.Target) -> float | None:
    """Of the records so far, in per cent; None: no request was traced."""
    with urlopen(f"http://127.0.0.1:{target.port}/metrics") as reply:
        page = reply.read().decode()
    counts = [
        sum(map(float, re.findall(rf"^lumen_otlp_records_{kind}_total\S* (\S+)$", page, re.M)))
        for kind in ("exported", "dropped")
    ]
    return 100 * counts[0] / sum(counts) if any(counts) else None


def measure_round(run: Run, blocks: int, rng: random.Random) -> dict[str, dict[str, float]]:
    """CPU time of a request in microseconds, and the share of records that were exported."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        servers = start_servers(stack, Path(name))
        targets = [server.target for server in servers.values()]
        load = stack.enter_context(parts.SliceLoad(targets, CLIENTS))
        for index, server in enumerate(servers.values()):
            load.run(index, WARM_UP_MS)
            server.cpu_ns()
        costs: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
        for _ in range(blocks):
            order = list(CONTENDERS)
            rng.shuffle(order)
            for contender in [*order, *reversed(order)]:
                requests = load.run(CONTENDERS.index(contender), SLICE_MS)
                if requests == 0:
                    raise BenchError(f"{contender}: no request was answered")
                costs[contender].append(servers[contender].cpu_ns() / requests / 1e3)
        shares = {one: exported_share(servers[one].target) for one in TRACED}
    return {
        COST: {one: fmean(values) for one, values in costs.items()},
        EXPORTED: {one: share for one, share in shares.items() if share is not None},
    }


def measure(run: Run) -> None:
    rng = random.Random(SEED)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {serving.LOAD_CORE})
    blocks = run.pick(15, 5)
    rounds = [measure_round(run, blocks, rng) for _ in run.turns([])]
    os.sched_setaffinity(0, allowed)
    for contender in CONTENDERS[1:]:
        found = {one: [done[COST][one] for done in rounds] for one in (contender, PLAIN)}
        run.add(make_row(contender, COST, "us", found))
    for contender in TRACED:
        if shares := [done[EXPORTED][contender] for done in rounds if contender in done[EXPORTED]]:
            run.add(make_row(contender, EXPORTED, "%", {contender: shares}, more_is_better=None))
    run.more |= {"seed": SEED}


BENCH = Bench(
    title="The cost of spans",
    measure=measure,
    minutes=3.0,
    quick_minutes=0.5,
    rounds=(10, 2),  # each starts all anew
    sources=("include/**", "src/**", "apps/**", "bench/load/*"),
    goals=(
        Goal(
            "^no traced request$",
            "ratio_at_least",
            0.98,
            "a collector costs nothing before a request is traced",
            metric=COST,
        ),
        Goal(
            "^one request in 100$",
            "at_least",
            100.0,
            "none of one in 100 is dropped",
            metric=EXPORTED,
        ),
    ),
    is_kept=False,
)
