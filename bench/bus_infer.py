#!/usr/bin/env python3
"""The question: what does the server add to a model when requests come over shared memory?

  lumen bench (CPU 1) --bus, or HTTP over a unix socket--> lumen serve with `inline` (CPU 0)

The client writes each input anew and reads each output, both inside the measured time. Rows: MLP
with 1, 4 and 16 clients, the bus against the unix socket, both ends polling while there is work; 1
client with 64 requests in flight; 1 client, both ends asleep in between; SqueezeNet f32. Limits:
the bare model in a loop; for SqueezeNet the same with an input that the other core writes before
each call; for sleepers a pipe's round trip. Near or far is probed around each measurement; where
cores are far, the MLP's limit has three probed round trips on top.

  bench/bus_infer.py [--quick] [--json] [--rounds N]     stdout is one JSON object, tables on stderr
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path += [str(BENCH / "queue"), str(BENCH.parent / "python")]
from interleave import (  # noqa: E402
    KINDS,
    ROOT,
    Contender,
    Row,
    measure,
    probe_ns,
    program,
    result,
    show,
)
from lumen_engine import Server  # noqa: E402

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


def pipe_figures(document: Any) -> dict[str, float]:
    return {"p50": document["p50_ns"] / 1e3, "p99": document["p99_ns"] / 1e3}


def limit_of(bare: Contender, metric: str, kind: str, more: float = 0) -> float | None:
    return round(median(bare.values(metric, kind)) + more, 3) if bare.counts(kind) else None


class Bench:
    def __init__(self, options: argparse.Namespace, servers: dict[str, Server]) -> None:
        self.options = options
        self.servers = servers
        self.rounds = options.rounds or (3 if options.quick else 7)
        self.seconds = 0.3 if options.quick else 1.0
        self.report: list[dict[str, Any]] = []

    def load(self, via: str, model: str, *words: str, spin: str = "auto") -> Contender:
        server = self.servers[spin]
        url = f"bus:{server.bus_path}" if via == "bus" else f"unix:{server.unix_path}"
        command = ["taskset", "-c", str(CLIENT_CPU), str(program("lumen")), "bench", url]
        command += ["--model", model, "--json", "--duration", str(self.seconds), "--warm-up", "0.2"]
        return Contender(via, [*command, *words], load_figures)

    def bare(self, model: str, *words: str) -> Contender:
        command = ["taskset", "-c", f"{SERVER_CPU},{CLIENT_CPU}" if words else str(SERVER_CPU)]
        command += [str(program("bench_bare_openvino")), str(ROOT / f"models/{model}/1/model.onnx")]
        command += [str(self.seconds), *SHAPES[model].split(), *words]
        return Contender("bare model", command, bare_figures)

    def keep(self, rows: list[Row], kind: str, contenders: list[Contender]) -> None:
        for row in rows:
            line = result("bus_infer", row, kind, contenders[0], contenders[1:])
            if line is not None:
                self.report.append(line)

    def show(self, rows: list[Row], contenders: list[Contender]) -> None:
        for row in rows if not self.options.json else ():
            show(
                row, [c for c in contenders if row.metric in next(iter(self.samples(c)), {})], "bus"
            )

    @staticmethod
    def samples(contender: Contender) -> list[dict[str, float]]:
        return [sample for kind in KINDS for sample in contender.samples[kind]]

    def clients(self) -> None:
        for count in CLIENTS:
            name = f"mlp, {count} client{'s' if count > 1 else ''}"
            words = ("--clients", str(count), "--poll")
            contenders = [self.load(via, "mlp", *words) for via in ("bus", "unix socket")]
            bare = self.bare("mlp")
            measure([*contenders, bare], self.rounds)
            trip_us = 2 * probe_ns() / 1e3
            for kind in KINDS:
                more = TRIPS_WHERE_FAR * trip_us if kind == "far" else 0
                latency = limit_of(bare, "p50", kind, more) if count == 1 else None
                rows = [
                    Row(name, "p50", "us", False, latency),
                    Row(name, "p99", "us", False),
                    Row(name, "a_second", "/s", True, limit_of(bare, "a_second", kind)),
                ]
                self.keep(rows, kind, contenders)
            self.show([replace(row, limit=None) for row in rows], [*contenders, bare])

    def in_flight(self) -> None:
        words = ("--clients", "1", "--in-flight", str(IN_FLIGHT), "--poll")
        ours = self.load("bus", "mlp", *words)
        measure([ours], self.rounds)
        row = Row(f"mlp, 1 client, {IN_FLIGHT} in flight", "a_second", "/s", True)
        for kind in KINDS:
            self.keep([replace(row, limit=WANTED_A_SECOND[kind])], kind, [ours])
        self.show([row], [ours])

    def asleep(self) -> None:
        words = ("--clients", "1")
        contenders = [self.load(via, "mlp", *words, spin="off") for via in ("bus", "unix socket")]
        command = [str(program("bench_bus")), "--via", "pipe", "--row", "trip"]
        pipe = Contender("pipe", [*command, "--count", str(PIPE_TRIPS)], pipe_figures)
        measure([*contenders, pipe], self.rounds)
        row = Row("mlp, 1 client, asleep in between", "p50", "us", False)
        for kind in KINDS:
            limit = limit_of(pipe, "p50", kind)
            self.keep([replace(row, limit=limit)], kind, contenders)
        self.show([row], [*contenders, pipe])

    def squeezenet(self) -> None:
        words = ("--clients", "1", "--poll")
        contenders = [self.load(via, "squeezenet", *words) for via in ("bus", "unix socket")]
        bare = self.bare("squeezenet", "--writer", str(CLIENT_CPU))
        # The model's own time varies by more than the sought difference.
        measure([*contenders, bare], 2 * self.rounds)
        row = Row("squeezenet, 1 client", "p50", "us", False)
        for kind in KINDS:
            limit = limit_of(bare, "p50", kind)
            self.keep([replace(row, limit=limit)], kind, contenders)
        self.show([row], [*contenders, bare])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="0.3 s each, 3 rounds")
    parser.add_argument("--json", action="store_true", help="no tables on stderr")
    parser.add_argument("--rounds", type=int, default=0)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {}
        for spin in ("auto", "off"):
            words = ["--queue-type", "inline", "--spin", spin]
            server = Server(
                ROOT / "models",
                words,
                executable=program("lumen"),
                http="off",
                unix=folder / f"{spin}.sock",
                bus=folder / f"{spin}.bus",
                preexec_fn=pin_to_server_cpu,
            )
            servers[spin] = stack.enter_context(server)
        bench = Bench(options, servers)
        bench.clients()
        bench.in_flight()
        bench.asleep()
        bench.squeezenet()
    print(json.dumps({"rows": bench.report}, indent=1))
    return 0


def pin_to_server_cpu() -> None:
    os.sched_setaffinity(0, {SERVER_CPU})


if __name__ == "__main__":
    sys.exit(main())
