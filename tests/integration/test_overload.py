"""Too much at once: refusals come at once, and admitted requests are answered."""

from __future__ import annotations

import resource
import selectors
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from integration.harness import PATIENCE, SANITIZED, SANITIZED_ACTIVE_REQUESTS, Server
from integration.load import (
    SLOW_QUEUE_TYPES,
    Load,
    infer_bytes,
    make_cases,
    output_bytes,
    read_csv,
    statistics,
    stopped,
)
from integration.raw_http import Connection, Reply, get
from integration.reference import Reference
from integration.slow_model import make_slow_model

pytestmark = pytest.mark.timing

StartServer = Callable[..., Server]
LIVE = get("/v2/health/live")
SLOW = infer_bytes("slow", "input", np.ones((1, 1)))
ONE = np.ones((1, 1), np.float32).tobytes()
every_kind = pytest.mark.parametrize("queue", SLOW_QUEUE_TYPES)


@pytest.fixture
def slow_repository(small_repository: Path) -> Path:
    make_slow_model(small_repository)
    return small_repository


@contextmanager
def opened(one: Server, count: int) -> Iterator[list[Connection]]:
    """Connections that the server has accepted.

    The last reply goes to none of them: a loop that is stopped behind it may receive from that
    connection once more before it looks at all of them.
    """
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(one.address)) for _ in range(count)]
        with Connection(one.address) as another:
            for connection in (*connections, another):
                assert connection.exchange(LIVE).status == 200
        yield connections


def send_at_once(one: Server, connections: list[Connection], request: bytes) -> list[Reply]:
    """All come to the server in one turn of its loop; the replies in the order of their coming."""
    with stopped(one.pid):
        for connection in connections:
            connection.send(request)
        for connection in connections:
            connection.wait_until_acknowledged()
    replies = []
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while len(replies) < len(connections):
            ready = selector.select(60)
            assert ready, f"{len(replies)} of {len(connections)} replies"
            for key, _ in ready:
                replies.append(key.data.reply())
                selector.unregister(key.fileobj)
    return replies


# --- the queue is full ----------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(("arguments", "status"), [([], 429), (["--overload-status", "503"], 503)])
def test_a_full_queue_refuses_at_once_and_answers_its_requests(
    server: StartServer,
    slow_repository: Path,
    tmp_path: Path,
    queue: str,
    arguments: list[str],
    status: int,
) -> None:
    file = tmp_path / "trace.csv"
    one = server(
        *("--queue-type", queue, "--queue-capacity", "2", "--telemetry-csv-path", str(file)),
        *arguments,
        repository=slow_repository,
    )
    with opened(one, 40) as connections:
        replies = send_at_once(one, connections, SLOW)
        statuses = [reply.status for reply in replies]
        served = statuses.count(200)
        assert statuses.count(status) == 40 - served
        # Two in the queue, and those that the one worker takes out of it: `batched` up to 16, to
        # look for requests to pack.
        assert 2 <= served <= (18 if queue == "batched" else 4)
        # At once: an admitted request takes 50 ms or more, and all refusals came before.
        assert statuses == [status] * (40 - served) + [200] * served
        for reply in replies:
            if reply.status == 200:
                assert output_bytes(reply) == ONE
            else:
                assert reply.headers["retry-after"] == "1"
                assert "queue" in reply.error and "connection" not in reply.headers
        # It serves again, on the connections that were refused too.
        for connection in connections[-4:]:
            assert output_bytes(connection.exchange(SLOW)) == ONE
        counts = statistics(connections[0], "slow")
        assert counts["execution_count"] == counts["success"] == served + 4
        assert counts["fail"] == 40 - served
    one.stop()
    lines = read_csv(file)
    assert sum(line["status"] == str(status) for line in lines) == 40 - served
    for line in lines:
        # A refused request has not been in the queue, and no worker has seen it.
        assert line["queue_type"] == queue
        assert (line["status"] == "200") == (line["queue_us"] != "") == (line["worker"] != "")


def raise_descriptor_limit() -> None:
    """For servers that are started from here on, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.skipif(PATIENCE > 1, reason="sanitizers: memory for 64 requests only, see harness")
@pytest.mark.parametrize("queue", [name for name in SLOW_QUEUE_TYPES if name != "inline"])
def test_with_the_defaults_too_many_at_once_are_answered_429(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    """Was: as many requests in memory as places in the queue, so that the rest waited unread.

    Not `inline`: it runs the requests of a turn, 256 at most, before it reads more.
    """
    raise_descriptor_limit()
    one = server("--queue-type", queue, repository=slow_repository)
    # Waiting requests expire, so that a thousand take no time: one runs, the others are answered
    # 504.
    late = infer_bytes("slow", "input", np.ones((1, 1)), timeout=50_000)
    with opened(one, 1024 + 16 + 1 + 200) as connections:
        statuses = [reply.status for reply in send_at_once(one, connections, late)]
        assert set(statuses) <= {200, 429, 504}
        # 1,024 in the queue, and those that the worker takes out of it.
        assert 0 < statuses.count(429) <= len(statuses) - 1024
        assert connections[0].exchange(LIVE).status == 200


@every_kind
def test_at_the_default_capacity_nobody_is_refused(server: StartServer, queue: str) -> None:
    one = server("--queue-type", queue)
    array = np.random.default_rng(5).standard_normal((1, 256)).astype(np.float32)
    # A request that has neither memory nor one of the places for heads may be refused.
    with opened(one, SANITIZED_ACTIVE_REQUESTS if SANITIZED else 300) as connections:
        replies = send_at_once(one, connections, infer_bytes("mlp", "input", array))
    assert {reply.status for reply in replies} == {200}
    assert len({output_bytes(reply) for reply in replies}) == 1


@every_kind
def test_refusals_under_load_lose_no_answer(
    server: StartServer, small_repository: Path, queue: str
) -> None:
    """With a queue of two and 24 clients each request is answered: served right, or refused."""
    one = server("--queue-type", queue, "--queue-capacity", "2")
    cases = make_cases(Reference(small_repository), "mlp", [1] * 8, seed=6)
    outcome = Load(lambda: Connection(one.address), cases, 24, 50).join()
    refused = [failure for failure in outcome.failures if ": 429 " in failure]
    assert outcome.failures == refused
    assert len(outcome.ids) + len(refused) == 24 * 50
    with Connection(one.address) as connection:
        assert statistics(connection, "mlp")["success"] == len(outcome.ids)


# --- the latency budget ---------------------------------------------------------------------------


def with_budget(queue: str, budget_us: int) -> tuple[str, ...]:
    """`inline` by epoll: a turn of io_uring may see one alone of requests that came together.

    Seen on Linux 6.18; see docs/architecture/loops.md.
    """
    loop = ("--loop", "epoll") if queue == "inline" else ()
    return ("--queue-type", queue, "--latency-budget-us", str(budget_us), *loop)


@every_kind
def test_a_request_that_cannot_meet_the_budget_is_refused_at_the_door(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    # 30 ms, where the model alone takes 50 or more: only a request without others ahead gets in.
    one = server(*with_budget(queue, 30_000), repository=slow_repository)
    with opened(one, 8) as connections:
        assert connections[0].exchange(SLOW).status == 200  # from now on its time is known
        replies = send_at_once(one, connections, SLOW)
        assert [reply.status for reply in replies] == [429] * 7 + [200]
        for reply in replies[:-1]:
            assert "budget" in reply.error and reply.headers["retry-after"] == "1"
        assert statistics(connections[0], "slow")["execution_count"] == 2
        # When nothing is ahead any more the next gets in.
        assert connections[5].exchange(SLOW).status == 200


@every_kind
def test_the_first_burst_of_all_is_held_to_the_budget_too(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    """Was: nothing was known of a model before its first run, and the whole burst was let in."""
    one = server(*with_budget(queue, 30_000), repository=slow_repository)
    with opened(one, 8) as connections:
        statuses = [reply.status for reply in send_at_once(one, connections, SLOW)]
        assert statuses == [429] * 7 + [200]


@every_kind
def test_a_request_beyond_the_budget_is_refused_before_its_body(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    one = server(*with_budget(queue, 30_000), repository=slow_repository)
    head, separator, body = SLOW.partition(b"\r\n\r\n")
    with opened(one, 2) as (first, second):
        with stopped(one.pid):  # one turn of the loop brings both, in this order
            first.send_into_kernel(SLOW)
            second.send_into_kernel(head + separator)
        reply = second.reply()
        assert reply.status == 429 and "budget" in reply.error
        second.send(body)  # as clients do that look for a reply only when all is sent
        assert output_bytes(first.reply()) == ONE
        assert output_bytes(second.exchange(SLOW)) == ONE


@every_kind
def test_within_the_budget_nobody_is_refused(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    one = server(*with_budget(queue, 3_600_000_000), repository=slow_repository)
    with opened(one, 6) as connections:
        assert connections[0].exchange(SLOW).status == 200
        assert {r.status for r in send_at_once(one, connections, SLOW)} == {200}


@every_kind
def test_expired_requests_no_longer_count_against_the_budget(
    server: StartServer, slow_repository: Path, queue: str
) -> None:
    """A backlog that was charged and never taken off again would refuse everybody in the end."""
    one = server(*with_budget(queue, 60_000_000), repository=slow_repository)
    late = infer_bytes("slow", "input", np.ones((1, 1)), timeout=20_000)
    with opened(one, 12) as connections:
        assert connections[0].exchange(SLOW).status == 200
        for _ in range(3):
            statuses = [reply.status for reply in send_at_once(one, connections, late)]
            assert set(statuses) == {200, 504}
            assert statuses.count(200) >= 1
        # With 30 s more of backlog than there is, this would be refused.
        assert {r.status for r in send_at_once(one, connections[:4], SLOW)} == {200}
