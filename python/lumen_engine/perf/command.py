"""The command `lumen perf`: settings, server, phases, simulation, flame graph, report.

Its steps are told on stderr; stdout gets the table or the JSON. Threads: the main one. Errors: a
line on stderr and status 1; a signal ends all that was started, and the status is 128 + its number.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from lumen_engine.perf import callgrind, flame, process_figures, table
from lumen_engine.perf.counter_access import unblocked
from lumen_engine.perf.load import run_load, warm_up
from lumen_engine.perf.measured_server import backend_of, one_model, serving
from lumen_engine.perf.options import Options, PhasePlan, default_repository, parse_options
from lumen_engine.perf.perf_program import Recording, Support, attached, probe
from lumen_engine.perf.programs import Interrupted, Interrupts, PerfError
from lumen_engine.perf.result import Phase, Result, document
from lumen_engine.server import Server, ServerError

NO_COUNTERS = (
    "perf says that hardware counters are not supported here, as on most virtual machines: cycles, "
    "IPC and cache misses are not measured; --callgrind simulates instructions and misses"
)


def tell(text: str) -> None:
    print(f"lumen perf: {text}", file=sys.stderr, flush=True)


def machine_facts() -> dict[str, str]:
    text = Path("/proc/cpuinfo").read_text()
    names = [line.split(":", 1)[1] for line in text.splitlines() if line.startswith("model name")]
    return {
        "cpu": (names[0] if names else "unknown CPU").strip(),
        "cpus": f"{len(os.sched_getaffinity(0))} CPUs",
        "kernel": f"Linux {platform.release()}",
    }


def find_support(interrupts: Interrupts, notes: list[str]) -> Support | None:
    """None: no perf at all; the kernel's own figures of the process are left."""
    try:
        support = probe(interrupts)
    except PerfError as error:
        notes.append(f"{error}; only what /proc says of the server is counted")
        return None
    notes += support.notes
    if not support.has_counters:
        notes.append(NO_COUNTERS)
    return support


def run_phase(
    server: Server,
    options: Options,
    plan: PhasePlan,
    support: Support | None,
    notes: list[str],
    ints: Interrupts,
) -> Phase:
    tell(f"{plan.name} on {options.model}")
    warm_up(server, options.model, plan, options.warm_up, ints)
    counting = nullcontext(Recording()) if support is None else attached(server.pid, support, ints)
    with counting as recording:
        before = process_figures.read(server.pid)
        load = run_load(server, options.model, plan.clients, plan.requests, ints)
        process = process_figures.read(server.pid).since(before)
    if recording.problem:
        notes.append(f"{plan.name}: not counted: {recording.problem}")
        tell(notes[-1])
    return Phase(plan, load, process, recording.counts)


def said_of_itself(server: Server, model: str) -> list[str]:
    """Of its banner: version, engine, CPUs, the model."""
    told = ("lumen ", "engine ", "cpus ", f"  {model}/")
    return [line.strip() for line in server.banner if line.startswith(told)]


def measure(
    options: Options, repository: Path, support: Support | None, result: Result, ints: Interrupts
) -> str | None:
    """Fills the phases; the backend that served the model."""
    with serving(repository, options.server_arguments, ints) as server:
        result.server = said_of_itself(server, options.model)
        for plan in options.phases:
            phase = run_phase(server, options, plan, support, result.notes, ints)
            result.phases.append(phase)
        return backend_of(server, options.model)


def simulate(
    options: Options, repository: Path, backend: str | None, result: Result, ints: Interrupts
) -> None:
    """That valgrind is missing or dies costs its figures, and not those that are there already."""
    tell("callgrind: builds for x86-64-v3 the first time, then some minutes")
    with tempfile.TemporaryDirectory(prefix="lumen-perf-") as folder:
        try:
            callgrind.check_tools()
            executable = callgrind.build_server(ints)
            result.simulated = callgrind.count_requests(
                executable, repository, options.model, backend, ints, Path(folder)
            )
            result.simulated_how = (
                f"callgrind, x86-64-v3 build, 1 client, {backend or 'the default backend'} without "
                f"AVX-512, caches {callgrind.describe_caches()}"
            )
        except PerfError as error:
            result.notes.append(f"nothing simulated: {error}")


def draw_flame(
    options: Options, repository: Path, support: Support | None, result: Result, ints: Interrupts
) -> None:
    """A server and a run of its own, so that the recording costs no figure above."""
    assert options.flame is not None
    if support is None:
        raise PerfError("--flame needs perf")
    programs = flame.inferno(ints)
    plan = options.phases[-1]
    tell(f"flame graph: {plan.name} once more, recorded")
    pid = 0
    with flame.data_file() as data:
        try:
            with serving(repository, options.server_arguments, ints, env=flame.JIT_NAMES) as server:
                pid = server.pid
                warm_up(server, options.model, plan, options.warm_up, ints)
                with flame.recorded(pid, support.has_counters, data, ints):
                    run_load(server, options.model, plan.clients, plan.requests, ints)
                stacks = flame.script(data, ints)
        finally:
            flame.forget_names(pid)  # the server has ended: it writes no more
        clock = "cycles" if support.has_counters else "software clock"
        title = f"lumen, {options.model}, {plan.name} ({clock})"
        options.flame.write_text(flame.draw(stacks, title, programs))
    result.flame = str(options.flame)


def run_all(options: Options, ints: Interrupts) -> Result:
    result = Result(options.model, [], machine_facts())
    with unblocked(ints) as access:
        support = find_support(ints, result.notes)
        result.has_counters = support is not None and support.has_counters
        result.perf_version = "" if support is None else support.version
        for note in [*(access.notes or []), *result.notes]:
            tell(note)
        with one_model(options.repository or default_repository(), options.model) as repository:
            backend = measure(options, repository, support, result, ints)
            if options.callgrind:
                # Minutes, which nobody has to wait for figures that are there.
                tell("the figures without the simulation")
                print(table.make_table(result), file=sys.stderr, flush=True)
                simulate(options, repository, backend, result, ints)
            if options.flame is not None:
                try:
                    draw_flame(options, repository, support, result, ints)
                except (PerfError, OSError) as error:  # not the figures that are there already
                    result.notes.append(f"no flame graph: {error}")
    result.notes += access.notes or []
    return result


def run(argv: Sequence[str] | None) -> int:
    options = parse_options(argv)
    try:
        with Interrupts() as interrupts:
            result = run_all(options, interrupts)
    except (PerfError, ServerError, OSError) as error:
        print(f"lumen perf: {error}", file=sys.stderr)
        return 1
    except Interrupted as signal_taken:
        tell(f"{signal_taken}: what was started has ended, what was changed is as it was")
        return 128 + signal_taken.number
    if options.json:
        print(json.dumps(document(result), indent=1, ensure_ascii=False))
    else:
        print(table.make_table(result), end="")
    return 0 if options.flame is None or result.flame else 1
