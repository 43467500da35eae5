"""Which CPUs the threads that run models may use, read from the kernel."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from integration.harness import ServeProcess, UnixConnection
from integration.raw_http import post_json

# Another test's server takes CPUs, and gives them back in the middle of one of these.
pytestmark = [pytest.mark.alone, pytest.mark.timing]

USABLE = sorted(os.sched_getaffinity(0))
ALL = ("--http", "127.0.0.1:0", "--unix", "off")


@pytest.fixture
def base(small_repository: Path) -> list[str]:
    return [*ALL, "--model-repository", str(small_repository)]


def parse_list(text: str) -> list[int]:
    """ "0-1,3" as the kernel writes it."""
    cpus: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def cpus_of(pid: int, thread: str) -> list[int]:
    """Of the oldest thread with that name: OpenVINO's own bear the name of the thread that made
    them."""
    oldest: tuple[int, Path] | None = None
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has ended meanwhile
            if (task / "comm").read_text().strip() != thread:
                continue
            started = int((task / "stat").read_text().rpartition(")")[2].split()[19])
            if oldest is None or (started, int(task.name)) < (oldest[0], int(oldest[1].name)):
                oldest = (started, task)
    assert oldest is not None, f"no thread {thread}"
    status = (oldest[1] / "status").read_text()
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)$", status, re.MULTILINE)
    assert allowed
    return parse_list(allowed[1])


def taken_by_lumen() -> set[int]:
    names = re.findall(r" @lumen-cpu-(\d+)$", Path("/proc/net/unix").read_text(), re.MULTILINE)
    return {int(cpu) for cpu in names}


def pinning(serve: ServeProcess) -> str:
    """ "pinned to CPU 1", as the banner has it."""
    line = next(line for line in serve.banner if line.startswith("cpus "))
    return line.partition(": ")[2].partition(", ")[2].partition("; ")[0]


def infer(serve: ServeProcess) -> int:
    given = {"name": "input", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    with serve.connect() as connection:
        request = post_json("/v2/models/identity/infer", {"inputs": [given]})
        return connection.exchange(request).status


@contextmanager
def servers(base: list[str], count: int, *arguments: str) -> Iterator[list[ServeProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ServeProcess(*base, *arguments)) for _ in range(count)]


@pytest.mark.parametrize("queue", ["mpmc", "spsc", "naive", "batched"])
def test_a_worker_sits_on_the_cpu_that_it_was_given(base: list[str], queue: str) -> None:
    for cpu in (USABLE[0], USABLE[-1]):
        arguments = ("--queue-type", queue, "--pin-threads", str(cpu))
        with ServeProcess(*base, *arguments) as serve:
            assert infer(serve) == 200  # so the I/O thread runs and has its name
            assert cpus_of(serve.process.pid, "lumen-w0") == [cpu]
            assert pinning(serve).startswith(f"pinned to CPU {cpu}")
            assert cpus_of(serve.process.pid, "lumen-io0") == USABLE


def test_with_inline_the_io_thread_sits_there(base: list[str]) -> None:
    arguments = ("--queue-type", "inline", "--pin-threads", str(USABLE[-1]))
    with ServeProcess(*base, *arguments) as serve:
        assert infer(serve) == 200
        assert cpus_of(serve.process.pid, "lumen-io0") == [USABLE[-1]]


@pytest.mark.parametrize("queue", ["mpmc", "inline"])
def test_off_leaves_every_thread_all_cpus(base: list[str], queue: str) -> None:
    with ServeProcess(*base, "--queue-type", queue, "--pin-threads", "off") as serve:
        assert infer(serve) == 200
        thread = "lumen-io0" if queue == "inline" else "lumen-w0"
        assert cpus_of(serve.process.pid, thread) == USABLE
        assert pinning(serve) == "not pinned"


def test_two_servers_pin_no_two_threads_to_one_cpu_while_others_are_free(base: list[str]) -> None:
    """Was: each pinned its workers from the last CPU down, so that all sat on the same."""
    with ServeProcess(*base, "--pin-threads", "on") as first:
        [cpu] = cpus_of(first.process.pid, "lumen-w0")
        free = set(USABLE) - taken_by_lumen()
        with ServeProcess(*base, "--pin-threads", "on") as second:
            [other] = cpus_of(second.process.pid, "lumen-w0")
            # Servers that are none of this test's may have taken the rest.
            assert other != cpu if free else "another Lumen server" in pinning(second)


def test_by_themselves_servers_share_no_cpu_and_say_where_they_are(base: list[str]) -> None:
    two = USABLE[-2:]
    os.sched_setaffinity(0, two)  # for the servers, which inherit it
    try:
        with servers(base, len(two) + 1) as all_of_them:
            places = [cpus_of(serve.process.pid, "lumen-w0") for serve in all_of_them]
            texts = [pinning(serve) for serve in all_of_them]
    finally:
        os.sched_setaffinity(0, USABLE)
    pinned = [cpus for cpus, text in zip(places, texts) if text.startswith("pinned")]
    assert len({tuple(cpus) for cpus in pinned}) == len(pinned)
    assert all(len(cpus) == 1 for cpus in pinned)
    for cpus, text in zip(places, texts):
        assert text == f"pinned to CPU {cpus[0]}" or text.startswith("not pinned: ")
    # One more than there are CPUs goes unpinned, and says why.
    assert texts[-1].startswith("not pinned: ") and places[-1] == two


def test_a_live_change_keeps_the_cpu(small_repository: Path, tmp_path: Path) -> None:
    """Was: the worker moved where a better CPU had become free."""
    path = tmp_path / "s.sock"
    arguments = ("--http", "off", "--unix", str(path), "--model-repository", str(small_repository))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as name:
        with suppress(OSError):  # a server that is none of this test's has it
            if len(USABLE) > 1:
                name.bind(f"\0lumen-cpu-{USABLE[-1]}")
        with ServeProcess(*arguments, "--pin-threads", "on") as serve:
            name.close()
            before = cpus_of(serve.process.pid, "lumen-w0")
            connection = UnixConnection(path)
            reply = connection.exchange(
                post_json("/v2/lumen/engine", {"allocator_type": "standard"})
            )
            assert reply.status == 200
            connection.socket.close()
            assert cpus_of(serve.process.pid, "lumen-w0") == before
            assert set(before) <= taken_by_lumen()


def test_a_pin_that_the_kernel_refuses_is_a_warning(base: list[str]) -> None:
    absent = 8191
    with ServeProcess(*base, "--pin-threads", str(absent)) as serve:
        serve.wait_for_log("warning", "pinning thread", str(absent))
        assert infer(serve) == 200
        assert cpus_of(serve.process.pid, "lumen-w0") == USABLE
