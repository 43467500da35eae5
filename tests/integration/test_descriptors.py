"""The limit of open files: raised at start, said where it is low, met by several I/O threads."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from integration.harness import ServeProcess
from integration.prometheus import parse, value
from integration.raw_http import Connection, get

LIVE = get("/v2/health/live")
THREADS = 4


def serve(repository: Path, *arguments: str, descriptors: tuple[int, int]) -> ServeProcess:
    """With a soft and a hard limit."""
    return ServeProcess(
        *("--http", "127.0.0.1:0", "--unix", "off", "--model-repository", str(repository)),
        *("--thread-count", "1", "--max-active-requests", "8", *arguments),
        descriptors=descriptors,
    )


def limit_of(process: ServeProcess) -> tuple[int, int]:
    return resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)


def allow_up_to(process: ServeProcess, count: int) -> None:
    hard = limit_of(process)[1]
    resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (count, hard))


def lowest_free(process: ServeProcess) -> int:
    used = {int(name) for name in os.listdir(f"/proc/{process.process.pid}/fd")}
    return next(number for number in range(len(used) + 1) if number not in used)


def wakeups(connection: Connection) -> float:
    text = connection.exchange(get("/metrics")).body.decode()
    return value(parse(text), "lumen_loop_wakeups_total")


def outcome(connection: Connection) -> str:
    """ "refused" without a word, "served", or neither in time."""
    try:
        return "served" if connection.exchange(LIVE).status == 200 else "wrong"
    except (AssertionError, ConnectionError):
        return "refused"
    except TimeoutError:
        return "forgotten"


def close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.socket.close()


def test_serve_raises_its_limit_to_the_need_of_max_connections(small_repository: Path) -> None:
    with serve(small_repository, "--max-connections", "500", descriptors=(128, 4096)) as one:
        soft, hard = limit_of(one)
        assert 500 < soft < 700
        assert hard == 4096
        connections = [one.connect() for _ in range(200)]
        assert {connection.exchange(LIVE).status for connection in connections} == {200}
        close_all(connections)
        assert not any("descriptor" in line for line in one.log)


def test_serve_says_its_lower_limit_and_keeps_to_it(small_repository: Path) -> None:
    with serve(small_repository, "--max-connections", "500", descriptors=(64, 128)) as one:
        line = one.wait_for_log("descriptor limit: got 128", "max_connections 500")
        assert "ulimit -Hn" in line
        # The oldest make room for the newest, as at any max_connections: nobody is refused.
        connections = []
        for _ in range(150):
            connections.append(one.connect())
            assert connections[-1].exchange(LIVE).status == 200
        assert connections[0].is_closed()
        close_all(connections)


def test_several_io_threads_without_descriptors_refuse_or_serve_later(
    small_repository: Path,
) -> None:
    threads = ("--io-threads", str(THREADS), "--max-connections", "100")
    with serve(small_repository, *threads, descriptors=(1024, 1024)) as one:
        # UBSan looks at an object of a type that it meets for the first time through a pipe: with
        # no descriptor left it would call any object bad.
        with one.connect() as first:
            assert first.exchange(LIVE).status == 200
        for _ in range(5):
            allow_up_to(one, lowest_free(one))
            # A thread that is about to refuse with its reserve may lose that to another's accept().
            connections = [one.connect() for _ in range(40)]
            allow_up_to(one, 1024)
            assert {outcome(connection) for connection in connections} <= {"refused", "served"}
            close_all(connections)
            with one.connect() as after:
                assert after.exchange(LIVE).status == 200


def test_several_io_threads_that_lose_their_reserve_do_not_spin_and_come_back(
    small_repository: Path,
) -> None:
    threads = ("--io-threads", str(THREADS), "--max-connections", "100")
    with serve(small_repository, *threads, descriptors=(1024, 1024)) as one, one.connect() as kept:
        before = wakeups(kept)
        began = time.monotonic()
        allow_up_to(one, 3)  # no number is left, the reserve's neither
        waiting = [one.connect() for _ in range(40)]
        exchanges = 0
        while time.monotonic() < began + 0.5:
            assert kept.exchange(LIVE).status == 200
            exchanges += 1
        turns = wakeups(kept) - before
        pauses = THREADS * (time.monotonic() - began) / 0.02
        assert turns <= 6 * exchanges + 4 * pauses + 100, "a thread spins"
        allow_up_to(one, 1024)
        assert {outcome(connection) for connection in waiting} == {"served"}, "of the backlog"
        close_all(waiting)
