"""lumen_engine.bus and the process at its end: signals, forks, stops and unclean ends."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from integration import bus_pair, bus_waits
from integration.bus_pair import PATIENCE, Pair, is_in_use, rows, wait_for_state
from lumen_engine import bus

FOLDER = Path(bus_pair.__file__).parent


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


@contextmanager
def interrupted_through_another_thread(wait_until: Callable[[], None]) -> Iterator[None]:
    """The body must end by InterruptedError: of a signal that another thread gets."""

    def signal_another_thread() -> None:
        wait_until()
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    def on_signal(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGUSR1, on_signal)
    thread = threading.Thread(target=signal_another_thread)
    try:
        with pytest.raises(InterruptedError):
            thread.start()
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_no_poll_sees_ends_a_wait_too(make_pair: Callable[..., Pair]) -> None:
    """One that comes while a wait still spins, or as here to another thread, was lost."""
    pair = make_pair()

    def until_it_waits() -> None:
        while not is_in_use(pair.subscriber):
            pass
        wait_for_state(os.getpid(), "S")

    with interrupted_through_another_thread(until_it_waits):
        pair.subscriber.take(PATIENCE)


@pytest.mark.parametrize("answers", [False, True])
def test_a_signal_that_no_poll_sees_ends_the_wait_for_a_listener_too(
    path: str, answers: bool
) -> None:
    """Ctrl-C was lost where it came between two of the sleeps in which a listener is waited for."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        if answers:  # by taking the connection, and by nothing else
            silent.bind(path)
            silent.listen()
        begin = time.monotonic()
        # sleep: the main thread is in its wait by then; the test passes also where it is not
        with interrupted_through_another_thread(lambda: time.sleep(0.2)):
            bus.connect(path, timeout=PATIENCE)
        assert time.monotonic() - begin < PATIENCE, "it came at the end of the wait only"


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


class Holder:
    """A process that holds a batch of the first 16 frames of a ring, as bus_holder.py says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, command: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.line()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        wait_for_state(self.process.pid, "T")

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def holder(how: str, path: str) -> Iterator[Holder]:
    with bus_pair.python(str(FOLDER / "bus_holder.py"), how, path) as process:
        yield Holder(process)


@contextmanager
def holder_of_a_full_ring(path: str) -> Iterator[tuple[Holder, bus.Connection]]:
    """It listens, and this process publishes."""
    with holder("listen", path) as its, bus.connect(path, "publish", timeout=PATIENCE) as ours:
        ours.publisher.send_batch(rows(64))
        assert its.line() == "holds"
        with pytest.raises(TimeoutError):
            ours.publisher.send(b"x", timeout=0)
        yield its, ours


ENDS = {
    "sys.exit": 0,
    "raise": 1,
    "os._exit": 3,
    "kill": -signal.SIGKILL,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_holders_end_is_told_to_its_publisher(path: str, end: str) -> None:
    with holder_of_a_full_ring(path) as (its, ours):
        if end == "kill":
            its.process.kill()
        else:
            its.ask(end)
        _, err = its.process.communicate(timeout=PATIENCE)
        assert its.process.returncode == ENDS[end], err
        assert ("ZeroDivisionError" in err) if end == "raise" else err == ""
        with pytest.raises((bus.PeerDied, bus.PeerClosed)):
            while True:
                ours.publisher.send(b"x", timeout=PATIENCE)
    bus.listen(path).close()  # nothing is in its way


ENDS_WHILE_A_THREAD_WAITS = """
import sys, threading
from integration.bus_pair import Pair, is_in_use

class Last:
    def __del__(self):  # while the interpreter ends
        self.send(b"x")
        self.join(0.2)  # lets the thread have the interpreter's lock, if it wants it

pair = Pair(sys.argv[1])
thread = threading.Thread(target=pair.subscriber.take, daemon=True)
thread.start()
while not is_in_use(pair.subscriber):
    pass
last = sys.modules["last"] = Last()
last.send, last.join = pair.publisher.send, thread.join
del last
"""


def test_a_daemon_thread_that_waits_does_not_abort_the_process_at_its_end(path: str) -> None:
    with bus_pair.python("-c", ENDS_WHILE_A_THREAD_WAITS, path) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


def test_a_forked_child_neither_keeps_its_parent_alive_nor_loses_the_views(path: str) -> None:
    with holder_of_a_full_ring(path) as (its, ours):
        assert its.ask("fork") == "forked"
        assert its.ask("take") == "ForkedError"
        its.process.kill()
        its.process.wait()
        with pytest.raises(bus.PeerDied):
            while True:
                ours.publisher.send(b"x", timeout=PATIENCE)
        ours.close()
        assert its.ask("read") == str(int(rows(16).sum()))
        its.ask("os._exit")


def test_a_holder_that_is_stopped_is_not_dead_and_goes_on(path: str) -> None:
    with holder_of_a_full_ring(path) as (its, ours):
        its.stop()
        with pytest.raises(TimeoutError):
            ours.publisher.send_batch(rows(16, start=64), timeout=0.05)
        assert ours.is_alive
        its.go_on()
        assert its.ask("let go") == "nothing"
        assert ours.publisher.send_batch(rows(16, start=64), timeout=PATIENCE) == 16
        for first_row in (16, 32, 48, 64):
            assert its.ask("take") == str(rows(1, start=first_row)[0, 0])


def test_a_publisher_that_wants_to_go_on_drops_a_stopped_subscriber(path: str) -> None:
    with bus.listen(path, role="publish", capacity=4096, max_hold=0.05) as listener:
        other = bus.connect(path).subscriber
        with holder("connect", path) as its:
            listener.publisher.wait_for_subscribers(2, PATIENCE)
            listener.publisher.send_batch(rows(16))
            assert its.line() == "holds"
            its.stop()
            into = np.zeros((16, 16), "f4")
            for start in range(0, 160, 16):
                assert other.read_into(into, min=16, timeout=PATIENCE) == 16
                np.testing.assert_array_equal(into, rows(16, start))
                listener.publisher.send_batch(rows(16, start + 16), timeout=PATIENCE)
            assert listener.publisher.subscribers == 1
            its.go_on()
            answers = {its.ask("take") for _ in range(16)}
            assert "Dropped" in answers, answers
