"""`lumen top` as text without colour or cursor, and as JSON. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lumen_engine._command_line import table
from lumen_engine.counters_file import CountersFile
from lumen_engine.top import units
from lumen_engine.top.view import ModelView, ServerView, ThreadView, View

MODEL_HEAD = ["model", "req/s", "p50", "p99", "p99.9", "queued", "rows", "hits", "failed/s"]
THREAD_HEAD = ["thread", "busy", "spin", "park"]


def as_json(counters: CountersFile, view: View, uptime_s: float, is_alive: bool) -> dict[str, Any]:
    layout = counters.layout
    return {
        "pid": layout.pid,
        "path": str(counters.path),
        "lumen_version": layout.lumen_version,
        "is_alive": is_alive,
        "uptime_s": uptime_s,
        **asdict(view),
    }


def as_text(counters: CountersFile, view: View, uptime_s: float, is_alive: bool) -> list[str]:
    layout = counters.layout
    state = f"up {units.age(uptime_s)}" if is_alive else "dead"
    lines = [f"lumen {layout.pid}  {layout.lumen_version}  {state}  {counters.path}"]
    lines += [f"! {warning}" for warning in view.warnings]
    lines += server_lines(view.server)
    lines += ["", *table([MODEL_HEAD, *(model_cells(model) for model in view.models)], {0})]
    lines += failure_lines(view.models)
    lines += ["", *stage_lines(view.models)]
    if view.threads:
        lines += ["", *table([THREAD_HEAD, *(thread_cells(t) for t in view.threads)], {0})]
    return lines


def server_lines(server: ServerView) -> list[str]:
    cpu = "-" if server.cpu is None else f"{server.cpu * 100:.0f} %"
    throttled = "-"
    if server.throttled is not None:
        throttled = f"{server.throttled * 100:.0f} % ({server.throttled_periods} periods)"
    lines = [
        f"cpu {cpu}  rss {units.size(server.rss_bytes)}  throttled {throttled}"
        f"  connections {server.connections_open}  req/s {units.count(server.requests_per_s)}",
        f"in {units.size(server.received_bytes_per_s)}/s"
        f"  out {units.size(server.sent_bytes_per_s)}/s"
        f"  arenas {units.size(server.arena_bytes_per_s)}/s"
        f"  reserved {units.size(server.memory_reserved_bytes)}"
        f" of {units.size(server.memory_bound_bytes)}",
    ]
    more = "  ".join(f"{name} {value}" for name, value in further(server))
    return [*lines, more] if more else lines


def further(server: ServerView) -> list[tuple[str, str]]:
    """Counters that most servers have none of."""
    told = []
    if server.bus_connections_open or server.bus_requests_per_s:
        told.append(("bus clients", str(server.bus_connections_open)))
        told.append(("bus req/s", units.count(server.bus_requests_per_s)))
    if server.http2_connections_open:
        told.append(("HTTP/2 connections", str(server.http2_connections_open)))
    if server.grpc_requests_per_s:
        told.append(("gRPC req/s", units.count(server.grpc_requests_per_s)))
    if server.http2_requests_per_s:
        told.append(("REST by HTTP/2 req/s", units.count(server.http2_requests_per_s)))
    if server.heap_calls_per_s:
        told.append(("malloc", f"{units.count(server.heap_calls_per_s)}/s"))
    if server.cancelled_per_s:
        told.append(("cancelled", f"{units.count(server.cancelled_per_s)}/s"))
    if server.memory_waiting:
        told.append(("wait for memory", str(server.memory_waiting)))
    return told


def model_cells(model: ModelView) -> list[str]:
    rows = model.rows_per_inference
    return [
        model.title,
        units.count(model.requests_per_s),
        units.duration(model.p50_ns),
        units.duration(model.p99_ns),
        units.duration(model.p999_ns),
        str(model.queued),
        units.NONE if rows is None else units.digits(rows),
        units.percent(model.cache_hit_ratio),
        units.count(model.failures_per_s),
    ]


def failure_lines(models: list[ModelView]) -> list[str]:
    """A line for each model that has failed, with the reasons: now, and in all."""
    lines = []
    for model in models:
        reasons = failures_of(model)
        if reasons:
            lines.append(f"failed {model.title}: " + ", ".join(reasons))
    return lines


def failures_of(model: ModelView) -> list[str]:
    told = []
    for reason, total in model.failures_by_reason.items():
        if total:
            rate = model.failures_by_reason_per_s.get(reason, 0.0)
            told.append(f"{reason} {units.count(rate)}/s ({total:,} in all)")
    rest = model.failures - sum(model.failures_by_reason.values())
    if rest > 0 and not told:
        told.append(f"{units.count(model.failures_per_s)}/s ({rest:,} in all)")
    return told


def stage_lines(models: list[ModelView]) -> list[str]:
    """Mean time of a request in each stage."""
    lines = []
    for model in models:
        whole = sum(model.stage_ns.values())
        if whole:
            parts = [
                f"{name} {units.duration(ns)} ({units.percent(ns / whole)})"
                for name, ns in model.stage_ns.items()
            ]
            lines.append(f"{model.title} spends: " + ", ".join(parts))
    return lines or ["no request ended meanwhile"]


def thread_cells(thread: ThreadView) -> list[str]:
    name = f"{'I/O' if thread.role == 'io' else 'worker'} {thread.number}"
    return [name, *(units.percent(share) for share in (thread.busy, thread.spin, thread.park))]
