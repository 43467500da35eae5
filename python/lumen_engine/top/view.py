"""The content of `lumen top`, from two looks at a server: rates, percentiles, shares of time.

Pure. The names of the fields are the keys of `--json`; docs/formats/top-json.md has them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lumen_engine.counters_file import Doing, Histogram, ModelCounts, Role, Snapshot, Writer
from lumen_engine.top.process import Process, Throttling

# Before the request, and the whole of it: no parts of where its time goes.
NO_PARTS = ("connect", "total")
# A thread that is busy for so long, and counts nothing meanwhile, serves nobody. No stage of an I/O
# thread takes a tenth of it; a model's run may, and is told all the same.
STUCK_NS = 2_000_000_000


@dataclass(frozen=True)
class Look:
    """A snapshot of the counters, and the kernel's figures of the process at that time."""

    counts: Snapshot
    process: Process | None


@dataclass(frozen=True)
class ModelView:
    name: str
    version: str
    generation: int
    precision: str
    sequences: int  # live ones
    requests_per_s: float
    p50_ns: int | None  # None: no request ended
    p99_ns: int | None
    p999_ns: int | None
    queued: int
    rows_per_inference: float | None
    cache_hit_ratio: float | None  # None: none was looked up
    cache_per_s: dict[str, float]  # hit, miss, shared, not_kept
    failures_per_s: float
    failures_by_reason_per_s: dict[str, float]
    failures: int  # since the server started
    failures_by_reason: dict[str, int]
    stage_ns: dict[str, float]  # mean of a request
    requests: int  # since the server started

    @property
    def title(self) -> str:
        """With a precision that is not the usual one, and its live sequences."""
        parts = [f"{self.name}:{self.version}"]
        if self.precision not in ("", "f32"):
            parts.append(self.precision)
        if self.sequences:
            parts.append(f"{self.sequences} sequence" + ("s" if self.sequences > 1 else ""))
        return " ".join(parts)


@dataclass(frozen=True)
class ThreadView:
    role: str  # "io" or "worker"
    number: int
    tid: int
    busy: float  # shares of the time, 0 to 1
    spin: float
    park: float
    stuck_s: float | None  # how long it has been at one piece of work, if that is long


@dataclass(frozen=True)
class ServerView:
    requests_per_s: float
    connections_open: int
    received_bytes_per_s: float
    sent_bytes_per_s: float
    responses_per_s: dict[str, float]  # by class
    arena_bytes_per_s: float
    heap_calls_per_s: float
    memory_reserved_bytes: int
    memory_bound_bytes: int
    memory_waiting: int
    cpu: float | None  # CPUs' worth of time; None: its process can't be seen from here
    rss_bytes: int | None
    throttled: float | None  # share of the time that the cgroup's quota held threads back
    throttled_periods: int | None
    cancelled_per_s: float
    bus_connections_open: int
    bus_requests_per_s: float
    http2_connections_open: int
    http2_requests_per_s: float
    grpc_requests_per_s: float


@dataclass(frozen=True)
class View:
    seconds: float
    server: ServerView
    models: list[ModelView]
    threads: list[ThreadView]
    warnings: list[str] = field(default_factory=list)


def view_of(before: Look, after: Look) -> View:
    seconds = (after.counts.monotonic_ns - before.counts.monotonic_ns) / 1e9
    seconds = max(seconds, 1e-9)
    earlier = {model.key: model for model in before.counts.models}
    models = [model_view(earlier.get(m.key), m, seconds) for m in after.counts.models]
    threads = thread_views(before.counts, after.counts)
    told = warnings(after, threads)
    return View(seconds, server_view(before, after, seconds), models, threads, told)


def requests_of(model: ModelCounts) -> int:
    """Answered since it is there, failures too."""
    return model.counters.get("success", 0) + model.counters.get("failure", 0)


def model_view(before: ModelCounts | None, after: ModelCounts, seconds: float) -> ModelView:
    """Without `before` the model is new: all that it has counted came meanwhile."""
    old = before.counters if before else {}
    came = {name: max(0, n - old.get(name, 0)) for name, n in after.counters.items()}
    total = _since(before, "total", after.stages["total"]) if "total" in after.stages else None
    ended = total.count if total else 0
    lookups = came.get("cache_hit", 0) + came.get("cache_miss", 0)
    runs = came.get("execution", 0)
    reasons = [name for name in came if name.startswith("failed_")]
    cache = [name for name in came if name.startswith("cache_") and not name.endswith("_ns")]
    tails = [total.percentile(p) if total and ended else None for p in (50, 99, 99.9)]
    # The sums alone: histograms of each stage are most of the cost of a look.
    spent = before.stages if before else {}
    parts = {
        name: max(0, now.sum - (spent[name].sum if name in spent else 0))
        for name, now in after.stages.items()
        if name not in NO_PARTS
    }
    return ModelView(
        name=after.name,
        version=after.version,
        generation=after.generation,
        precision=after.precision,
        sequences=after.sequences,
        requests_per_s=max(0, requests_of(after) - (requests_of(before) if before else 0))
        / seconds,
        p50_ns=tails[0],
        p99_ns=tails[1],
        p999_ns=tails[2],
        queued=after.counters.get("queued", 0),
        rows_per_inference=came.get("inference", 0) / runs if runs else None,
        cache_hit_ratio=came.get("cache_hit", 0) / lookups if lookups else None,
        cache_per_s={name.removeprefix("cache_"): came[name] / seconds for name in cache},
        failures_per_s=came.get("failure", 0) / seconds,
        failures_by_reason_per_s={
            name.removeprefix("failed_"): came[name] / seconds for name in reasons
        },
        failures=after.counters.get("failure", 0),
        failures_by_reason={name.removeprefix("failed_"): after.counters[name] for name in reasons},
        stage_ns={name: ns / ended if ended else 0.0 for name, ns in parts.items()},
        requests=requests_of(after),
    )


def _since(before: ModelCounts | None, stage: str, now: Histogram) -> Histogram:
    return now - before.stages[stage] if before and stage in before.stages else now


def server_view(before: Look, after: Look, seconds: float) -> ServerView:
    old, new = before.counts.server, after.counts.server

    def rate(name: str) -> float:
        return max(0, new.get(name, 0) - old.get(name, 0)) / seconds

    classes = [name for name in new if name.startswith("responses_")]
    cpu = rss = throttled = periods = None
    if after.process is not None:
        rss = after.process.rss_bytes
        if before.process is not None:
            cpu = (after.process.cpu_ns - before.process.cpu_ns) / 1e9 / seconds
            throttled, periods = _throttled(
                before.process.throttling, after.process.throttling, seconds
            )
    return ServerView(
        requests_per_s=rate("requests"),
        connections_open=new.get("connections_open", 0),
        received_bytes_per_s=rate("received_bytes"),
        sent_bytes_per_s=rate("sent_bytes"),
        responses_per_s={name.removeprefix("responses_"): rate(name) for name in classes},
        arena_bytes_per_s=rate("request_arena_bytes"),
        heap_calls_per_s=rate("request_heap_calls"),
        memory_reserved_bytes=new.get("memory_reserved_bytes", 0),
        memory_bound_bytes=new.get("memory_bound_bytes", 0),
        memory_waiting=new.get("memory_waiting", 0),
        cpu=cpu,
        rss_bytes=rss,
        throttled=throttled,
        throttled_periods=periods,
        cancelled_per_s=rate("cancelled"),
        bus_connections_open=new.get("bus_connections_open", 0),
        bus_requests_per_s=rate("bus_requests"),
        http2_connections_open=new.get("http2_connections_open", 0),
        http2_requests_per_s=rate("http2_requests"),
        grpc_requests_per_s=rate("grpc_requests"),
    )


def _throttled(
    before: Throttling | None, after: Throttling | None, seconds: float
) -> tuple[float | None, int | None]:
    if before is None or after is None:
        return None, None
    us = after.throttled_us - before.throttled_us
    return us / 1e6 / seconds, after.throttled_periods - before.throttled_periods


def thread_views(before: Snapshot, after: Snapshot) -> list[ThreadView]:
    """I/O threads, then workers. A block of slots goes on from the counts of its last thread."""
    earlier = {writer.index: writer for writer in before.writers}
    views = []
    for now in after.writers:
        if not now.is_taken or now.role not in (Role.IO_THREAD, Role.WORKER):
            continue
        old = earlier.get(now.index)
        spent = _spent(old, now)
        whole = sum(spent) or 1
        busy, spin, park = (share / whole for share in spent)
        role = "io" if now.role == Role.IO_THREAD else "worker"
        stuck = _stuck_s(old, now, after)
        views.append(ThreadView(role, now.number, now.tid, busy, spin, park, stuck))
    return sorted(views, key=lambda each: (each.role, each.number))


def _spent(old: Writer | None, now: Writer) -> list[int]:
    """A spell that ends between our reading of its begin and of its sum may count twice for a
    moment: never below zero."""
    if old is None:
        return [now.busy_ns, now.spin_ns, now.park_ns]
    pairs = ((now.busy_ns, old.busy_ns), (now.spin_ns, old.spin_ns), (now.park_ns, old.park_ns))
    return [max(0, new - before) for new, before in pairs]


def _stuck_s(old: Writer | None, now: Writer, counts: Snapshot) -> float | None:
    """A busy spell may go over many requests: only one in which nothing is counted is told."""
    if not counts.is_alive or now.doing != Doing.BUSY or now.since_ns == 0:
        return None
    if old is None or old.progress != now.progress:
        return None
    busy_ns = counts.monotonic_ns - now.since_ns
    return busy_ns / 1e9 if busy_ns > STUCK_NS else None


def warnings(look: Look, threads: list[ThreadView]) -> list[str]:
    """Signs that the server does not work as it should."""
    told = []
    if not look.counts.is_alive:
        told.append("the server has ended; these are its last counts")
    elif look.process is not None and look.process.state in ("T", "t"):
        told.append("the server is stopped (SIGSTOP, or a debugger); SIGCONT lets it go on")
    for thread in threads:
        if thread.stuck_s is not None:
            title = "I/O thread" if thread.role == "io" else "worker"
            told.append(
                f"{title} {thread.number} (tid {thread.tid}) has been at one piece of work for"
                f" {thread.stuck_s:.0f} s: it hangs, or a model runs long"
            )
    return told
