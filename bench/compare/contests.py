"""The measurements of ./dev compare of a build, a slice at a time, as costs: less is better.

`Serving`: two servers with the MLP on CPU 0, one of each build, loaded in turn from CPU 1 by one
and the same `lumen bench`; time a request and CPU time a request. `Program`: a Google Benchmark
program, or one that prints a JSON object.

Threads: the caller's; a server has its own. Errors: BenchError with the program's output.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from lumen_engine import Server, ServerError

from bench.compare.builds import Build
from bench.runner.places import ROOT, BenchError, cpu_ns, run_json

SERVER_CORE, LOAD_CORE = 0, 1
CLIENTS = 16
# Long enough that the 16 connects of a slice (about 2 ms of CPU) are below 1 % of it.
SLICE_S = 0.5
WARM_UP_REQUESTS = 2000  # 20 ms: caches, memory and branch predictors are as in a slice then
PROGRAM_TIMEOUT_S = 600

Costs = dict[str, float]  # by metric, of one slice


class Contest(Protocol):
    """Metric by metric: its unit, and the form in which a cost is shown."""

    def block(self, who: Sequence[int]) -> list[Costs]:
        """One slice after the other; 0 is the base's, 1 the head's."""

    def shown(self, metric: str, cost: float) -> str: ...


def pin_to_server_core() -> None:
    os.sched_setaffinity(0, {SERVER_CORE})


class Serving:
    """Each block has servers of its own: where a process's pages happen to lie moves its speed by a
    percent or two, and that is no property of a build."""

    RATE, CPU = "requests/s", "CPU µs a request"

    def __init__(self, builds: Sequence[Build], queue_type: str, slice_s: float = SLICE_S) -> None:
        self.builds = builds
        self.queue_type = queue_type
        self.slice_s = slice_s
        self.load = builds[1].program("lumen")  # one client for both

    def block(self, who: Sequence[int]) -> list[Costs]:
        # A repository of the MLP alone, so that a start takes no seconds.
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            shutil.copytree(ROOT / "models" / "mlp", Path(name) / "mlp")
            words = ["--queue-type", self.queue_type]
            servers: dict[int, Server] = {}
            for at in dict.fromkeys(who):
                binary = self.builds[at].program("lumen")
                try:
                    server = Server(
                        name, words, executable=binary, cwd=name, preexec_fn=pin_to_server_core
                    )
                    servers[at] = stack.enter_context(server)
                except ServerError as error:
                    raise BenchError(f"{self.builds[at].name}: {error}") from error
                self.ask(server, "--requests", WARM_UP_REQUESTS)
            return [self.slice(servers[at]) for at in who]

    def slice(self, server: Server) -> Costs:
        before = cpu_ns(server.pid) / 1e9
        row = self.ask(server, "--duration", self.slice_s)
        used = cpu_ns(server.pid) / 1e9 - before
        return {self.RATE: 1 / row["per_second"], self.CPU: used / row["requests"]}

    def ask(self, server: Server, *much: object) -> dict[str, Any]:
        words = [self.load, "bench", f"http://{server.url}", "--model", "mlp", "--poll", "--json"]
        words += ["--clients", CLIENTS, "--warm-up", "0", *much]
        document = run_json([str(word) for word in words], LOAD_CORE)
        (row,) = document["rows"]
        if row["errors"]["count"]:
            raise BenchError(f"requests failed: {row['errors']['first']}")
        return dict(row)

    def shown(self, metric: str, cost: float) -> str:
        return f"{1 / cost:,.0f}" if metric == self.RATE else f"{cost * 1e6:.2f}"


class Program:
    """A slice is one run. Of a Google Benchmark program each benchmark is a metric: CPU time, or
    wall time where its name says /real_time. Of another the keys that are named: `less` are costs,
    `more` are rates."""

    def __init__(
        self,
        builds: Sequence[Build],
        name: str,
        arguments: Sequence[str],
        less: Sequence[str] = (),
        more: Sequence[str] = (),
    ) -> None:
        self.builds = builds
        self.paths = [build.program(name) for build in builds]
        self.arguments = list(arguments)
        self.less, self.more = list(less), list(more)
        # The names of the library's flags are in every program that has them.
        self.is_google = b"benchmark_filter" in self.paths[1].read_bytes()
        if not self.is_google and not (less or more):
            raise BenchError(
                f"{name} is no Google Benchmark program: say which keys of its JSON "
                "count, by --less KEY (a time) or --more KEY (a rate)"
            )

    def block(self, who: Sequence[int]) -> list[Costs]:
        return [self.slice(at) for at in who]

    def slice(self, at: int) -> Costs:
        words = [str(self.paths[at]), *self.arguments]
        if self.is_google:
            return self.google(
                run_json([*words, "--benchmark_format=json"], timeout_s=PROGRAM_TIMEOUT_S)
            )
        document = run_json(words, timeout_s=PROGRAM_TIMEOUT_S)
        costs = {}
        for key in (*self.less, *self.more):
            value = document.get(key) if isinstance(document, dict) else None
            if not isinstance(value, int | float) or value <= 0:
                raise BenchError(
                    f"{self.builds[at].name}: {self.paths[at].name} prints {key} = "
                    f"{value!r}; wanted a number above 0"
                )
            costs[key] = float(value) if key in self.less else 1 / value
        return costs

    @staticmethod
    def google(document: Any) -> Costs:
        """Nanoseconds; the library's figures over repetitions are left out."""
        sizes = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
        costs: Costs = {}
        for one in document.get("benchmarks", []):
            if one.get("run_type", "iteration") != "iteration":
                continue
            key = "real_time" if one["name"].endswith("/real_time") else "cpu_time"
            costs[one["name"]] = one[key] * sizes[one["time_unit"]]
        if not costs:
            raise BenchError("the program has run no benchmark; is there a filter?")
        return costs

    def shown(self, metric: str, cost: float) -> str:
        return f"{1 / cost if metric in self.more else cost:,.4g}"
