"""lumen_engine.bus and the process at its end: signals, forks, stops and unclean ends."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from integration import bus_pair, bus_waits
from integration.bus_pair import PATIENCE, Pair, rows
from lumen_engine import bus

FOLDER = Path(bus_pair.__file__).parent


def wait_for_state(pid: int, state: str) -> None:
    """S: its main thread sleeps; T: it is stopped."""
    stat = Path(f"/proc/{pid}/task/{pid}/stat")
    while (now := stat.read_text().rpartition(")")[2].split()[0]) != state:
        assert now != "Z", "it has ended"


@pytest.mark.parametrize("sleeps", [True, False])
@pytest.mark.parametrize("wait", bus_waits.WAITS)
def test_ctrl_c_breaks_every_wait(path: str, wait: str, sleeps: bool) -> None:
    with bus_pair.python(str(FOLDER / "bus_waits.py"), wait, path) as process:
        assert process.stdout and process.stdout.readline() == "waits\n"
        if sleeps:
            wait_for_state(process.pid, "S")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert out == "" and "KeyboardInterrupt" in err
    assert process.returncode == -signal.SIGINT


def test_a_signal_that_no_poll_sees_ends_a_wait_too(make_pair: Callable[..., Pair]) -> None:
    """One that comes while a wait still spins, or as here to another thread, was lost."""
    pair = make_pair()

    def is_in_use() -> bool:
        with pytest.raises(ValueError) as refused:
            pair.subscriber.read_into(np.zeros((0, 16)))  # refused in any case, without a wait
        return "in use by another thread" in str(refused.value)

    def signal_another_thread() -> None:
        while not is_in_use():
            pass
        wait_for_state(os.getpid(), "S")
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    def on_signal(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, on_signal)
    thread = threading.Thread(target=signal_another_thread)
    try:
        with pytest.raises(InterruptedError):
            thread.start()
            pair.subscriber.take(PATIENCE)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_child_of_fork_has_dead_handles_and_readable_views(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(capacity=4096)
    pair.publisher.send_batch(rows(8))
    batch = next(pair.subscriber.batches(8, dtype="f4"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for attempt in (
                lambda: pair.publisher.send(b"x"),
                lambda: next(pair.subscriber.batches(1)),
                lambda: pair.listener.accept(0),
            ):
                with pytest.raises(bus.ForkedError):
                    attempt()
            np.testing.assert_array_equal(batch, rows(8))
            del batch
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pair.subscriber.held_frames == 8, "the child has given nothing back"
    del batch
    gc.collect()
    pair.publisher.send_batch(rows(64), timeout=PATIENCE)


def test_a_child_can_not_commit_for_its_parent(path: str) -> None:
    with bus.listen(path, role="publish") as listener:
        publisher = listener.publisher
        reservation = publisher._raw.reserve(4)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(bus.ForkedError):
                    reservation.commit()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        reservation.abandon()


PRODUCER = """
import sys
import numpy as np
from lumen_engine import bus
connection = bus.connect(sys.argv[1], role="publish")
connection.publisher.send_batch(np.arange(64, dtype="f4").reshape(4, 16))
print("sent", flush=True)
sys.stdin.read()
"""


def test_a_publisher_that_is_killed_is_told_and_its_frames_stay(path: str) -> None:
    with bus.listen(path) as listener, bus_pair.python("-c", PRODUCER, path) as process:
        connection = listener.accept(PATIENCE)
        assert process.stdout and process.stdout.readline() == "sent\n"
        process.kill()
        process.wait()
        batch = next(connection.subscriber.batches(64, dtype="f4", timeout=PATIENCE))
        with pytest.raises(bus.PeerDied):
            next(connection.subscriber.batches(64, timeout=PATIENCE))
        np.testing.assert_array_equal(batch, rows(4))
        assert not connection.is_alive
