"""Servers of several models: one Lumen for all, a Lumen a model, rivals a model; and phases, which
say which clients ask for which model, how often.

All may use both cores, and so may the load generator. All but the one that is measured are stopped.
Threads: the caller's. Errors: BenchError with the server's log, as those of serving.py.
"""

from __future__ import annotations

import re
import shutil
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.load import serving
from bench.load.serving import ROOT, WORKLOADS, Target, Workload
from bench.runner.places import BenchError, program, run_json

MODELS = ("mlp", "convnet", "squeezenet")  # lightest first
CORES = f"{serving.SERVER_CORE},{serving.LOAD_CORE}"
PROCESSES = "processes"
RIVALS = ("fastapi", "mosec")
DRAIN_TIMEOUT_S = 60
WORKERS = ("--thread-count", "1", "--backend", "openvino")
# The worker has the core that the load has not, and the express worker of `auto` may use both;
# with a process a model the kernel decides.
PINNED = ("--pin-threads", CORES)
QUEUE_TYPES_OF_PROCESSES = {"mlp": "inline"}  # all others: mpmc
COMPUTE = re.compile(r'^lumen_inference_cpu_nanoseconds_total\{model="([^"]+)",.*\} (\S+)$', re.M)

Run = dict[str, Any]  # the output of bench_mixed_load, and `busy` by model


@dataclass(frozen=True)
class Load:
    """The clients of one model, in a closed loop unless there is a rate."""

    model: str
    clients: int
    rate: float = 0.0
    part: float = 0.0  # an open loop: of this server's own throughput alone


@dataclass(frozen=True)
class Phase:
    name: str
    loads: tuple[Load, ...]
    counts_cpu: bool = False
    least_seconds: float = 0.0  # a flood takes a while to rise: 256 requests of 3 ms

    def window(self, seconds: float) -> tuple[float, float]:
        """How long it is measured, and how long it warms up before."""
        return max(seconds, self.least_seconds), max(0.1, seconds / 4, self.least_seconds)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(load.model for load in self.loads)


@dataclass(frozen=True)
class Configuration:
    """One Lumen server for all models."""

    name: str
    flags: tuple[str, ...]
    on_workers: tuple[str, ...]  # the models that compete for the worker; others run elsewhere


@dataclass
class Contender:
    name: str
    targets: dict[str, Target]
    is_lumen: bool
    on_workers: tuple[str, ...] = MODELS
    results: dict[str, list[Run]] = field(default_factory=dict)  # by phase

    def throughput(self, phase: str, model: str) -> float:
        return float(self.results[phase][-1][model]["per_second"])


def workloads(folder: Path) -> dict[str, Workload]:
    """The three models in a repository of their own, so that a start loads no others."""
    for model in MODELS:
        shutil.copytree(ROOT / "models" / model / "1", folder / model / "1")
    known = {work.model: work for work in WORKLOADS}
    known["convnet"] = Workload("convnet", "image", "logits", (1, 1, 28, 28))
    return {model: known[model] for model in MODELS}


def start_lumen(
    stack: ExitStack, folder: Path, one: Configuration, works: Sequence[Workload]
) -> Contender:
    flags = ["--model-repository", str(folder / "models"), *WORKERS, *PINNED, *one.flags]
    targets = serving.start_lumen_with(stack, folder, one.name, flags, works, CORES)
    return Contender(one.name, {t.workload.model: t for t in targets}, True, one.on_workers)


def start_process(stack: ExitStack, folder: Path, work: Workload) -> Target:
    """A Lumen for one model."""
    repository = folder / f"only-{work.model}"
    shutil.copytree(folder / "models" / work.model, repository / work.model)
    queue_type = QUEUE_TYPES_OF_PROCESSES.get(work.model, "mpmc")
    flags = ["--model-repository", str(repository), *WORKERS, "--pin-threads", "off"]
    flags += ["--queue-type", queue_type]
    (target,) = serving.start_lumen_with(stack, folder, f"only {work.model}", flags, [work], CORES)
    return target


def start_all(
    stack: ExitStack, folder: Path, configurations: Sequence[Configuration], names: Sequence[str]
) -> list[Contender]:
    """Those in `names`; each has answered and is stopped."""
    works = workloads(folder / "models")
    found: list[Contender] = []
    for one in configurations:
        if one.name in names:
            found.append(start_lumen(stack, folder, one, list(works.values())))
    if PROCESSES in names:
        each = {model: start_process(stack, folder, work) for model, work in works.items()}
        found.append(Contender(PROCESSES, each, True))
    for rival in RIVALS:
        if rival in names:
            each = {
                model: serving.start_rival(stack, folder, rival, work, CORES)
                for model, work in works.items()
            }
            found.append(Contender(rival, each, False))
    for contender in found:
        for target in contender.targets.values():
            serving.wait_for_answer(target)
        serving.stop(list(contender.targets.values()))
    return found


# --- measuring ------------------------------------------------------------------------------------


def group_cpu_seconds(leader: int) -> float:
    """Of all threads that live of the processes in that session."""
    total = 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # After the name in parentheses: state, parent, group, session.
            if int(stat.read_text().rpartition(")")[2].split()[3]) != leader:
                continue
            for task in (stat.parent / "task").iterdir():
                total += int((task / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue  # ended meanwhile
    return total


def compute_seconds(text: str) -> dict[str, float]:
    """By model: CPU time of its runs, wherever they ran, from a text of /metrics."""
    found: dict[str, float] = {}
    for model, nanoseconds in COMPUTE.findall(text):
        found[model] = found.get(model, 0.0) + float(nanoseconds) / 1e9
    return found


def busy_seconds(contender: Contender) -> dict[str, float]:
    """By model, since the server started. A rival's are those of its whole processes."""
    busy: dict[str, float] = {}
    for model, target in contender.targets.items():
        if contender.is_lumen:
            url = f"http://127.0.0.1:{target.port}/metrics"
            with urllib.request.urlopen(url, timeout=DRAIN_TIMEOUT_S) as reply:
                busy[model] = compute_seconds(reply.read().decode()).get(model, 0.0)
        else:
            busy[model] = group_cpu_seconds(target.process.pid)
    return busy


def drain(contender: Contender) -> None:
    """Until no request is left that a load had in the queue when it ended."""
    for target in contender.targets.values():
        end = time.monotonic() + DRAIN_TIMEOUT_S
        while True:
            try:
                serving.answer(target.port, target.request)
                break
            except (OSError, BenchError):  # full
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)


def rate_of(load: Load, capacities: Mapping[str, float]) -> float:
    return load.part * capacities[load.model] if load.part else load.rate


def measure(
    contender: Contender, phase: Phase, seconds: float, capacities: Mapping[str, float]
) -> Run:
    """`capacities`: requests/s of each model alone, for open loops."""
    words = [program("bench_mixed_load"), *map(str, phase.window(seconds))]
    for load in phase.loads:
        target = contender.targets[load.model]
        rate = rate_of(load, capacities)
        fields = (load.model, target.port, load.clients, f"{rate:.3f}", target.request_file)
        words.append(",".join(str(one) for one in fields))
    with serving.awake(*contender.targets.values()):
        before = busy_seconds(contender) if phase.counts_cpu else {}
        run: Run = dict(run_json(words, serving.LOAD_CORE))
        after = busy_seconds(contender) if phase.counts_cpu else {}
        run["busy"] = {model: after[model] - before[model] for model in after}
        drain(contender)
    contender.results.setdefault(phase.name, []).append(run)
    return run
