"""The load: `lumen bench` with a number of requests, and the figures of its JSON.

Threads: the main one. Errors: PerfError where it fails or answers were errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lumen_engine.perf.options import PhasePlan
from lumen_engine.perf.programs import Interrupts, PerfError, said
from lumen_engine.server import Server, find_executable

# 16 clients of a model that takes a second, 50 times: far more than that is a server that hangs.
LOAD_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class LoadFigures:
    requests: int
    seconds: float
    per_second: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    errors: int
    errors_by_status: dict[str, int] = field(default_factory=dict)
    stages_ms: dict[str, float] = field(default_factory=dict)  # means, by the server
    client_bound: bool = False


def read_row(row: Mapping[str, Any]) -> LoadFigures:
    """A row of `lumen bench --json`."""
    latency, errors = row["latency_us"] or {}, row["errors"]
    stages = (row.get("server") or {}).get("stages_us") or {}

    def milliseconds(name: str) -> float:
        return float(latency.get(name, 0.0)) / 1e3

    return LoadFigures(
        requests=int(row["requests"]),
        seconds=float(row["seconds"]),
        per_second=float(row["per_second"]),
        p50_ms=milliseconds("p50"),
        p90_ms=milliseconds("p90"),
        p99_ms=milliseconds("p99"),
        p999_ms=milliseconds("p999"),
        max_ms=milliseconds("max"),
        errors=int(errors["count"]),
        errors_by_status={str(k): int(v) for k, v in (errors.get("by_status") or {}).items()},
        stages_ms={name: float(us) / 1e3 for name, us in stages.items()},
        client_bound=bool(row.get("client_bound")),
    )


def run_load(
    server: Server,
    model: str,
    clients: int,
    requests: int,
    interrupts: Interrupts,
    more: Sequence[str] = (),
) -> LoadFigures:
    """`more` are further words for `lumen bench`."""
    words = [str(find_executable()), "bench", f"http://{server.url}", "--model", model, "--json"]
    words += ["--clients", str(clients), "--requests", str(requests), "--warm-up", "0"]
    words += more
    try:
        text = said(words, interrupts, LOAD_TIMEOUT_S)
        (row,) = json.loads(text)["rows"]
        return read_row(row)
    except PerfError as error:
        log = "" if server.is_alive() else f"; the server has ended:\n{server.output}"
        raise PerfError(f"{error}{log}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PerfError(f"lumen bench: got {text[:200]!r}, wanted its JSON ({error!r})") from error


def warm_up(server: Server, model: str, plan: PhasePlan, each: int, interrupts: Interrupts) -> None:
    """So that no page fault and no first connection of a phase is counted with it."""
    if each:
        run_load(server, model, plan.clients, plan.clients * each, interrupts)
