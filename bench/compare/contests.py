"""The measurements of ./dev compare of a build, a slice at a time, as costs: less is better.

`Serving`: two servers on CPU 0, one of each build, loaded in turn from CPU 1 by one and the same
`lumen bench`; time a request and CPU time a request (see LOADS). `Program`: a Google Benchmark
program, or one that prints a JSON object.

Threads: the caller's; a server has its own. Errors: BenchError with the program's output.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lumen_engine import Server, ServerError

from bench.compare.builds import Build
from bench.runner.places import ROOT, BenchError, cpu_ns, run_json

SERVER_CORE, LOAD_CORE = 0, 1
# Long enough that the 16 connects of a slice (about 2 ms of CPU) are below 1 % of it.
SLICE_S = 0.5
WARM_UP_S = 0.05  # caches, memory and branch predictors are as in a slice then
PROGRAM_TIMEOUT_S = 600

Costs = dict[str, float]  # by metric, of one slice


class Contest(Protocol):
    """Metric by metric: its unit, and the form in which a cost is shown."""

    def block(self, who: Sequence[int]) -> list[Costs]:
        """One slice after the other; 0 is the base's, 1 the head's."""

    def shown(self, metric: str, cost: float) -> str: ...


def pin_to_server_core() -> None:
    os.sched_setaffinity(0, {SERVER_CORE})


@dataclass(frozen=True)
class Load:
    """The models that the servers have, and the words of `lumen bench`."""

    models: tuple[str, ...]
    words: tuple[str, ...]
    by_bus: bool = False


LOADS = {
    "http": Load(("mlp",), ("--model", "mlp", "--clients", "16", "--poll")),
    # Of bench/bus_infer.py: the rate with many requests on their way.
    "bus": Load(
        ("mlp",), ("--model", "mlp", "--clients", "1", "--in-flight", "64", "--poll"), by_bus=True
    ),
    # A light model beside a heavy one, each with metrics of its own.
    "mixed": Load(
        ("mlp", "squeezenet"),
        ("--mix", "mlp,squeezenet", "--clients", "mlp:8,squeezenet:1", "--poll"),
    ),
}


class Serving:
    """Each block has servers of its own: where a process's pages happen to lie moves its speed by a
    percent or two, and that is no property of a build."""

    RATE, CPU = "requests/s", "CPU µs a request"

    def __init__(
        self,
        builds: Sequence[Build],
        queue_type: str,
        slice_s: float = SLICE_S,
        load: str = "http",
        backend: str = "openvino",
    ) -> None:
        self.builds = builds
        self.queue_type = queue_type
        self.slice_s = slice_s
        self.load = LOADS[load]
        self.backend = backend
        self.client = builds[1].program("lumen")  # one for both

    def block(self, who: Sequence[int]) -> list[Costs]:
        # A repository of these models alone, so that a start takes no seconds.
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            for model in self.load.models:
                shutil.copytree(ROOT / "models" / model, Path(name) / "models" / model)
            words = ["--queue-type", self.queue_type, "--backend", self.backend]
            servers: dict[int, Server] = {}
            for at in dict.fromkeys(who):
                binary = self.builds[at].program("lumen")
                try:
                    server = Server(
                        Path(name) / "models",
                        words,
                        executable=binary,
                        bus=Path(name) / f"{at}.bus" if self.load.by_bus else "off",
                        cwd=name,
                        preexec_fn=pin_to_server_core,
                    )
                    servers[at] = stack.enter_context(server)
                except ServerError as error:
                    raise BenchError(f"{self.builds[at].name}: {error}") from error
                # Of several models each has to have an answer, on a busy machine, too.
                self.ask(server, WARM_UP_S if len(self.load.models) == 1 else self.slice_s)
            return [self.slice(servers[at]) for at in who]

    def slice(self, server: Server) -> Costs:
        before = cpu_ns(server.pid) / 1e9
        row = self.ask(server, self.slice_s)
        used = cpu_ns(server.pid) / 1e9 - before
        of_models = row.get("models", {})
        if not of_models:
            return {self.RATE: 1 / row["per_second"], self.CPU: used / row["requests"]}
        # The CPU time of one is not known where models share the server.
        return {f"{model} {self.RATE}": 1 / one["per_second"] for model, one in of_models.items()}

    def ask(self, server: Server, seconds: float) -> dict[str, Any]:
        url = f"bus:{server.bus_path}" if self.load.by_bus else f"http://{server.url}"
        words = [self.client, "bench", url, *self.load.words, "--json"]
        words += ["--warm-up", "0", "--duration", seconds]
        document = run_json([str(word) for word in words], LOAD_CORE)
        (row,) = document["rows"]
        if row["errors"]["count"]:
            raise BenchError(f"requests failed: {row['errors']['first']}")
        return dict(row)

    def shown(self, metric: str, cost: float) -> str:
        return f"{1 / cost:,.0f}" if metric.endswith(self.RATE) else f"{cost * 1e6:.2f}"


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
        # The library's flags are in a program that holds it, its file's name in one that loads it.
        found = self.paths[1].read_bytes()
        self.is_google = b"benchmark_filter" in found or b"libbenchmark.so" in found
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
