"""The question: where does a request's time go between the socket and the model?

  load generator (core 1, 16 clients) --HTTP--> lumen (core 0), sampled by perf (cpu-clock)

Each sample of the server's core is booked to the part of the system it fell into: the outermost
kernel entry for kernel samples, the module for Lumen's own code. A part's time a request is its
share of the samples times the core's time a request. The server is the preset `native`, unchanged,
once with a worker behind a queue (`mpmc`) and once without (`inline`).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from bench.load import serving
from bench.load.serving import Target
from bench.runner import Bench, BenchError, Row, Run, make_row

CLIENTS = 16
QUEUE_TYPES = ("mpmc", "inline")
SAMPLES_A_SECOND = 4999  # a prime, so that it does not beat with the kernel's ticks

# (part, text that one of its frames contains), first match from the outermost frame inwards.
KERNEL_PARTS = (
    ("kernel: receive (recvmsg)", ("sys_recvmsg", "sys_recvfrom", "sys_read")),
    ("kernel: send (loopback TCP with it)", ("sys_sendmsg", "sys_sendto")),
    ("kernel: epoll_wait", ("sys_epoll_wait", "sys_epoll_pwait")),
    ("kernel: futex (a worker parks or is woken)", ("sys_futex",)),
    ("kernel: eventfd (the loop is woken)", ("sys_write", "ksys_write")),
    ("kernel: page faults", ("exc_page_fault", "asm_exc_page_fault")),
)
USER_PARTS = (
    ("wire: HTTP and JSON", ("lumen::wire",)),
    ("http, server: connections, infer service", ("lumen::http", "lumen::server")),
    ("net: event loop", ("lumen::net",)),
    ("engine: queue, worker, binding", ("lumen::engine", "lumen::MpmcQueue", "lumen::Doorbell")),
    ("memory: arena", ("lumen::Arena", "lumen::Mapping")),
    ("clock reads", ("clock_gettime", "[vdso]")),
)
MODEL = "model: OpenVINO"
OTHER = "other"


def part_of(frames: list[tuple[str, str]]) -> str:
    """`frames`: (symbol, dso) from the innermost outwards."""
    symbol, dso = frames[0]
    if "kernel" in dso:
        for name, dso_outer in reversed(frames):
            if "kernel" not in dso_outer:
                continue
            for part, marks in KERNEL_PARTS:
                if any(mark in name for mark in marks):
                    return part
        return "kernel: other (switches, interrupts)"
    for part, marks in USER_PARTS:
        if any(mark in symbol or mark in dso for mark in marks):
            return part
    # OpenVINO runs code that it generates at load: perf knows no file and no name for it.
    if any(mark in dso for mark in ("openvino", "tbb", "anon", "unknown", "perf-")):
        return MODEL
    if "memcpy" in symbol or "memmove" in symbol:
        return "copies (memcpy, OpenVINO's own among them)"
    return f"{OTHER}: {Path(dso).name}"


def read_samples(data: Path) -> Counter[str]:
    script = subprocess.run(
        ["perf", "script", "-i", str(data), "-F", "ip,sym,dso"],
        check=True,
        capture_output=True,
        text=True,
    )
    parts: Counter[str] = Counter()
    for block in script.stdout.split("\n\n"):
        frames = []
        for line in block.splitlines():
            words = line.split(None, 1)
            if len(words) < 2:
                continue
            symbol, _, dso = words[1].rpartition(" (")
            frames.append((symbol, dso.rstrip(")")))
        if frames:
            parts[part_of(frames)] += 1
    return parts


def profile(target: Target, seconds: float, folder: Path) -> tuple[Counter[str], float]:
    """Samples by part, and the requests a second meanwhile."""
    data = folder / "perf.data"
    words = ["pgrep", "-g", str(target.process.pid), "-x", "lumen"]
    found = subprocess.run(words, check=True, capture_output=True, text=True)
    server = found.stdout.split()[0]
    words = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_A_SECOND), "-g"]
    words += ["-o", str(data), "-p", server, "--", "sleep", f"{seconds * 1.5}"]
    recorder = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    load = serving.measure(target, CLIENTS, seconds)
    recorder.wait()
    return read_samples(data), load["per_second"]


def rows_of(target: Target, samples: Counter[str], per_second: float) -> list[Row]:
    """The largest part first. `rounds` has the counts that the time follows from."""
    total = sum(samples.values())
    name = f"{target.workload.model}, {serving.short_name(target)}, {CLIENTS} clients"
    return [
        make_row(
            f"{name}: {part}",
            "time a request",
            "µs",
            {"lumen": [count / total * 1e6 / per_second]},
            spread=None,
        )
        | {"rounds": {"samples": [count], "samples in all": [total], "requests/s": [per_second]}}
        for part, count in samples.most_common()
    ]


def measure(run: Run) -> None:
    if shutil.which("perf") is None:
        raise BenchError("perf is missing: apt-get install linux-perf")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        targets = [t for queue in QUEUE_TYPES for t in serving.start_lumen(stack, folder, queue)]
        for target in targets:  # all before the first is measured: then the server is stopped
            serving.wait_for_answer(target)
        for target in targets:
            run.add(*rows_of(target, *profile(target, run.seconds, folder)))


BENCH = Bench(
    title="Where a request's time goes",
    measure=measure,
    minutes=1.0,
    quick_minutes=0.5,
    rounds=(1, 1),
    seconds=(8.0, 2.0),
    sources=("include/**", "src/**", "apps/**", "bench/load/*"),
    tables={},  # the parts stand in the page of a report
)
