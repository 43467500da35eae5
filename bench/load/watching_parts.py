"""Parts of bench/watching.py: a server's CPU time, a load by slices, and the readers that watch.

Threads: main, and one that empties the terminal of `top`. Errors: BenchError names the program
that failed and its output; a reader that did not read is one too, as a cost of nothing would be
measured.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from bench.load import serving
from bench.load.serving import BINARY, BUILD, LOAD_CORE, ROOT
from bench.runner.places import BenchError, cpu_ns, program, run_json

# Rotates after 10 s at full load; two files at most, so a run leaves no gigabytes.
CSV_BYTES = 256 << 20
REPLY_TIMEOUT_S = 30.0
TOP_STARTS_S = 30.0
# Of its slices, how many `top` must have read in: less, and it was not watching.
LEAST_LOOKS = 0.8


def csv_flags(path: Path) -> list[str]:
    return [
        *("--telemetry-csv-path", str(path), "--telemetry-csv-keep", "1"),
        *("--telemetry-csv-max-bytes", str(CSV_BYTES)),
    ]


class Watched:
    """A server, and its CPU time since it was last asked for."""

    def __init__(self, target: serving.Target) -> None:
        self.target = target
        self._before = 0

    def cpu_ns(self) -> int:
        now = cpu_ns(self.target.process.pid)
        since, self._before = now - self._before, now
        return since


class Child:
    """A process that is ended with the block."""

    process: subprocess.Popen[bytes]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        serving.signal_group(self.process, signal.SIGCONT, signal.SIGKILL)
        self.process.wait()


class SliceLoad(Child):
    """bench_slice_load, which keeps its connections to all servers."""

    def __init__(self, targets: list[serving.Target], clients: int) -> None:
        words = [program("bench_slice_load"), str(targets[0].request_file), str(clients)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            ["taskset", "-c", str(LOAD_CORE), *words, *(str(target.port) for target in targets)],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )

    def __enter__(self) -> SliceLoad:
        return self

    def run(
        self, index: int, ms: int, meanwhile: Callable[[], None] | None = None, at_ms: float = 0
    ) -> int:
        """Loads server `index` so long; `meanwhile` is called at `at_ms`. The requests answered."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        begin = time.monotonic()
        self.process.stdin.write(f"{index} {ms}\n".encode())
        self.process.stdin.flush()
        if meanwhile is not None:
            time.sleep(max(0.0, begin + at_ms / 1e3 - time.monotonic()))
            meanwhile()
        if not select.select([self.process.stdout], [], [], REPLY_TIMEOUT_S)[0]:
            raise BenchError(f"bench_slice_load: no answer within {REPLY_TIMEOUT_S:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(self.process.stderr.read().decode().strip())
        return int(line.split()[0])


class Scraper:
    """GET /metrics over one connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_TIMEOUT_S)

    def __enter__(self) -> Scraper:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def scrape(self) -> None:
        self._socket.sendall(b"GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n")
        reply = bytearray()
        wanted = 0
        while wanted == 0 or len(reply) < wanted:
            part = self._socket.recv(1 << 20)
            if not part:
                raise BenchError("/metrics: the server closed the connection")
            reply += part
            head, end, _ = bytes(reply[:4096]).partition(b"\r\n\r\n")
            if end and wanted == 0:
                if not head.startswith(b"HTTP/1.1 200"):
                    raise BenchError(f"/metrics: got {head[:100]!r}")
                length = head.lower().split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0]
                wanted = len(head) + 4 + int(length)


class Top(Child):
    """`lumen top --hz 10` in a terminal of 120 x 40, stopped but between resume() and pause()."""

    def __init__(self, counters: Path) -> None:
        self._ours, its = pty.openpty()
        termios.tcsetwinsize(its, (40, 120))
        env = {**os.environ, "TERM": "xterm-256color", "LUMEN_PYTHON": sys.executable}
        env["PYTHONPATH"] = str(ROOT / "python")
        self.process = subprocess.Popen(
            ["taskset", "-c", str(LOAD_CORE), str(BINARY), "top", "--hz", "10", str(counters)],
            stdin=its,
            stdout=its,
            stderr=its,
            env=env,
            start_new_session=True,
        )
        os.close(its)
        self._shown = bytearray()
        threading.Thread(target=self._empty, daemon=True).start()
        self._wait_until_it_looks()
        self.pause()
        self._slices = self._looked = self._used_ns = 0
        self._at_resume = (0, 0)

    def __enter__(self) -> Top:
        return self

    def _empty(self) -> None:
        # Linux says EIO once the other side is closed.
        try:
            while part := os.read(self._ours, 1 << 16):
                self._shown += part
                del self._shown[:-65536]
        except OSError:
            return

    def _reader(self) -> int:
        """`lumen` becomes the Python that looks, or starts it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0]) if children.strip() else self.process.pid

    def _reads(self) -> int:
        text = Path(f"/proc/{self._reader()}/io").read_text()
        return int(text.split("syscr: ")[1].split()[0])

    def _cpu_ns(self) -> int:
        return cpu_ns(self._reader())

    def _wait_until_it_looks(self) -> None:
        end = time.monotonic() + TOP_STARTS_S
        while b"mlp" not in bytes(self._shown):
            if self.process.poll() is not None or time.monotonic() > end:
                raise BenchError(f"lumen top shows no model: {bytes(self._shown[-600:])!r}")
            time.sleep(0.1)
        time.sleep(1)

    def resume(self) -> None:
        self._at_resume = self._reads(), self._cpu_ns()
        serving.signal_group(self.process, signal.SIGCONT)

    def pause(self) -> None:
        serving.signal_group(self.process, signal.SIGSTOP)
        if hasattr(self, "_slices"):
            reads, cpu_ns = self._at_resume
            self._slices += 1
            self._looked += self._reads() > reads
            self._used_ns += self._cpu_ns() - cpu_ns

    def burn_as_much(self) -> None:
        """Takes this core for as long as `top` has in a slice, so far."""
        end = time.thread_time_ns() + self._used_ns // max(1, self._slices)
        while time.thread_time_ns() < end:
            pass

    def describe(self) -> dict[str, float]:
        """In what part of its slices it has read the file, and its share of its core."""
        part = self._looked / max(1, self._slices)
        if part < LEAST_LOOKS:
            raise BenchError(f"lumen top looked in {part:.0%} of its slices: was it watching?")
        used_ms = self._used_ns / max(1, self._slices) / 1e6
        return {"looked_in": round(part, 3), "cpu_ms_a_slice": round(used_ms, 2)}


def flight_recorder_ns() -> list[float]:
    """Of each run, the time of a request where the model has used the caches; empty: not built."""
    if not (BUILD / "bench_flight_recorder").exists():
        return []
    words = [program("bench_flight_recorder"), "--benchmark_filter=usual/64"]
    words += ["--benchmark_format=json", "--benchmark_repetitions=5", "--benchmark_min_time=0.1"]
    runs = run_json(words)["benchmarks"]
    return [round(float(run["cpu_time"]), 2) for run in runs if run["run_type"] == "iteration"]
