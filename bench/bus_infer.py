"""The question: what does the server add to a model when requests come over shared memory?

  lumen bench (CPU 1) --bus, or HTTP over a unix socket--> lumen serve with `inline` (CPU 0)

The client writes each input anew and reads each output, both inside the measured time. Rows: MLP
with 1, 4 and 16 clients, the bus against the unix socket, both ends polling while there is work; 1
client with 64 requests in flight; 1 client, both ends asleep in between; SqueezeNet f32. Limits:
the bare model in a loop; for SqueezeNet the same with an input that the other core writes before
each call; for sleepers a pipe's round trip. Near or far is probed around each measurement; where
cores are far, the MLP's limit has three probed round trips on top.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lumen_engine import Server

from bench.runner import ROOT, Bench, Goal, Run
from bench.runner.places import program
from bench.runner.turns import Contender, Kind, measure, probe_ns, rows_by_kind

SERVER_CPU, CLIENT_CPU = 0, 1
CLIENTS = (1, 4, 16)
IN_FLIGHT = 64
# Inferences a second that no socket reaches, from one core: 64 requests of one client in flight.
WANTED_A_SECOND = {"near": 1.2e6, "far": 0.6e6}
TRIPS_WHERE_FAR = 3
SHAPES = {"mlp": "1 256", "squeezenet": "1 3 224 224"}
PIPE_TRIPS = 10_000


def load_figures(document: Any) -> dict[str, float]:
    (row,) = document["rows"]
    if row["errors"]["count"] > 0 or row["requests"] == 0:
        raise ValueError(f"lumen bench: {row['errors']}")
    latency = row["latency_us"]
    return {"a_second": row["per_second"], "p50": latency["p50"], "p99": latency["p99"]}


def bare_figures(document: Any) -> dict[str, float]:
    return {
        "a_second": document["per_second"],
        "p50": document["p50_us"],
        "p99": document["p99_us"],
    }


def median_of(contender: Contender, metric: str, more_if_far: float = 0) -> Callable[[Kind], Any]:
    def limit(kind: Kind) -> float | None:
        found = contender.middle(metric, kind)
        return None if found is None else found + (more_if_far if kind == "far" else 0)

    return limit


class Loads:
    def __init__(self, run: Run, servers: dict[str, Server]) -> None:
        self.run = run
        self.servers = servers  # by the value of --spin

    def load(self, via: str, model: str, *words: str, spin: str = "auto") -> Contender:
        server = self.servers[spin]
        url = f"bus:{server.bus_path}" if via == "bus" else f"unix:{server.unix_path}"
        command = ["taskset", "-c", str(CLIENT_CPU), program("lumen"), "bench", url, "--json"]
        command += ["--model", model, "--duration", str(self.run.seconds), "--warm-up", "0.2"]
        return Contender(via, [*command, *words], load_figures)

    def both(self, model: str, *words: str, spin: str = "auto") -> list[Contender]:
        return [self.load(via, model, *words, spin=spin) for via in ("bus", "unix socket")]

    def bare(self, model: str, *words: str) -> Contender:
        command = ["taskset", "-c", f"{SERVER_CPU},{CLIENT_CPU}" if words else str(SERVER_CPU)]
        command += [program("bench_bare_openvino"), str(ROOT / f"models/{model}/1/model.onnx")]
        command += [str(self.run.seconds), *SHAPES[model].split(), *words]
        return Contender("bare model", command, bare_figures)

    def clients(self) -> None:
        for count in CLIENTS:
            name = f"mlp, {count} client{'s' if count > 1 else ''}"
            ours, socket = self.both("mlp", "--clients", str(count), "--poll")
            bare = self.bare("mlp")
            measure([ours, socket, bare], self.run.rounds)
            more = TRIPS_WHERE_FAR * 2 * probe_ns() / 1e3
            limit = median_of(bare, "p50", more) if count == 1 else None
            self.run.add(
                *rows_by_kind(name, "p50", "us", ours, [socket], limit=limit),
                *rows_by_kind(name, "p99", "us", ours, [socket]),
                *rows_by_kind(
                    name,
                    "a_second",
                    "/s",
                    ours,
                    [socket],
                    more_is_better=True,
                    limit=median_of(bare, "a_second"),
                ),
            )

    def in_flight(self) -> None:
        words = ("--clients", "1", "--in-flight", str(IN_FLIGHT), "--poll")
        ours = self.load("bus", "mlp", *words)
        measure([ours], self.run.rounds)
        name = f"mlp, 1 client, {IN_FLIGHT} in flight"
        rows = rows_by_kind(
            name,
            "a_second",
            "/s",
            ours,
            [],
            more_is_better=True,
            limit=lambda kind: WANTED_A_SECOND[str(kind)],
        )
        self.run.add(*(row | {"is_bound": True} for row in rows))

    def asleep(self) -> None:
        ours, socket = self.both("mlp", "--clients", "1", spin="off")
        command = [program("bench_bus"), "--via", "pipe", "--row", "trip"]
        pipe = Contender(
            "pipe",
            [*command, "--count", str(PIPE_TRIPS)],
            lambda found: {"p50": found["p50_ns"] / 1e3},
        )
        measure([ours, socket, pipe], self.run.rounds)
        name, limit = "mlp, 1 client, asleep in between", median_of(pipe, "p50")
        self.run.add(*rows_by_kind(name, "p50", "us", ours, [socket], limit=limit))

    def squeezenet(self) -> None:
        ours, socket = self.both("squeezenet", "--clients", "1", "--poll")
        bare = self.bare("squeezenet", "--writer", str(CLIENT_CPU))
        # The model's own time varies by more than the sought difference.
        measure([ours, socket, bare], 2 * self.run.rounds)
        limit = median_of(bare, "p50")
        self.run.add(
            *rows_by_kind("squeezenet, 1 client", "p50", "us", ours, [socket], limit=limit)
        )


def measure_all(run: Run) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {}
        for spin in ("auto", "off"):
            server = Server(
                ROOT / "models",
                ["--queue-type", "inline", "--spin", spin],
                executable=program("lumen"),
                http="off",
                unix=folder / f"{spin}.sock",
                bus=folder / f"{spin}.bus",
                preexec_fn=lambda: os.sched_setaffinity(0, {SERVER_CPU}),
            )
            servers[spin] = stack.enter_context(server)
        loads = Loads(run, servers)
        loads.clients()
        loads.in_flight()
        loads.asleep()
        loads.squeezenet()


BENCH = Bench(
    title="Inference over the bus",
    measure=measure_all,
    minutes=3.0,
    quick_minutes=1.0,
    rounds=(7, 3),
    sources=(
        "include/**", "src/**", "apps/**", "bench/load/*", "bench/bus/*", "bench/queue/harness.h",
    ),
    goals=(
        Goal(
            "^mlp, 1 client$",
            "over_limit_at_most",
            1,
            "within 1 µs of the bare model; where cores are far, of that and three round trips",
            metric="p50"
        ),
        Goal(
            "in flight$",
            "of_limit_at_least",
            1,
            "1.2 million a second where cores are near, 0.6 where they are far"
        ),
        Goal(
            "asleep", "of_limit_at_most", 1.25, "1.25 times a pipe's round trip"
        ),
        Goal(
            "^squeezenet",
            "over_limit_at_most",
            20,
            "within 20 µs of the bare model whose input the other core has just written"
        ),
        Goal(
            "clients?$",
            "ratio_at_least",
            1,
            "ahead of the unix socket",
            metric="a_second"
        ),
    ),
)  # fmt: skip
