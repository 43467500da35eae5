"""lumen_engine.bus: views over the ring, their holders, and their end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.bus_pair import PATIENCE, Pair, rows
from lumen_engine import bus


def test_a_batch_is_a_view_of_the_ring(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    assert pair.publisher.send_batch(rows(10), type_id=3) == 10
    pair.theirs.close()
    batches = list(pair.subscriber.batches(256, dtype="float32"))
    assert len(batches) == 1
    batch = batches[0]
    assert batch.shape == (10, 16) and batch.dtype == np.float32
    assert batch.flags.c_contiguous and not batch.flags.owndata and not batch.flags.writeable
    assert batch.ctypes.data % 64 == 0
    np.testing.assert_array_equal(batch, rows(10))
    assert pair.subscriber.type_id == 3
    with pytest.raises(ValueError, match="read-only"):
        batch[0, 0] = 1


def test_a_batch_ends_where_size_or_type_changes(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    pair.publisher.send_batch(rows(2), type_id=1)
    pair.publisher.send_batch(rows(3), type_id=2)
    pair.publisher.send(b"", type_id=2)
    pair.publisher.send(b"", type_id=2)
    pair.theirs.close()
    seen = [(batch.shape, pair.subscriber.type_id) for batch in pair.subscriber.batches(256)]
    assert seen == [((2, 64), 1), ((3, 64), 2), ((2, 0), 2)]


def test_frames_that_an_item_does_not_divide_are_refused_and_stay(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair()
    pair.publisher.send(b"0123456789")
    with pytest.raises(ValueError, match="10 bytes are no whole number of items of 4 bytes"):
        next(pair.subscriber.batches(8, dtype="f4"))
    assert next(pair.subscriber.batches(8)).tobytes() == b"0123456789"
    # Rows of 10 bytes lie 64 apart: a view all the same, though not in one piece.
    pair.publisher.send_batch(np.arange(30, dtype="u1").reshape(3, 10))
    batch = next(pair.subscriber.batches(8))
    assert batch.shape == (3, 10) and batch.strides == (64, 1)
    np.testing.assert_array_equal(batch, np.arange(30).reshape(3, 10))
    with pytest.raises(ValueError, match="dtype"):
        next(pair.subscriber.batches(8, dtype="U4"))


def test_slots_go_back_when_the_last_object_is_gone_in_any_order(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(capacity=4096)
    pair.publisher.send_batch(rows(64))  # the ring is full
    batches = pair.subscriber.batches(16, dtype="f4")
    first, second, third = next(batches), next(batches), next(batches)
    assert pair.subscriber.held_frames == 48 and pair.subscriber.views == 3
    derived = second[3:5].T
    del second
    gc.collect()
    assert pair.subscriber.views == 3, "something that was made of it is alive"
    with pytest.raises(BufferError, match="3 views"):
        pair.subscriber.release()
    del third
    gc.collect()
    assert pair.subscriber.held_frames == 48, "in order, since the ring is"
    with pytest.raises(TimeoutError):
        pair.publisher.send(b"x", timeout=0)
    del first
    gc.collect()
    assert pair.subscriber.held_frames == 32
    pair.publisher.send_batch(rows(16, start=1000))
    np.testing.assert_array_equal(derived, rows(64)[19:21].T)
    del derived
    gc.collect()
    assert pair.subscriber.held_frames == 0
    pair.subscriber.release()


def test_the_loop_holds_one_batch_while_the_next_is_waited_for(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(capacity=4096)

    def publish() -> None:
        for i in range(50):
            pair.publisher.send_batch(rows(64, start=64 * i), timeout=PATIENCE)
        pair.theirs.close()

    thread = threading.Thread(target=publish)
    thread.start()
    got = 0
    for batch in pair.subscriber.batches(1000, dtype="f4", timeout=PATIENCE):
        np.testing.assert_array_equal(batch, rows(len(batch), start=got))
        got += len(batch)
    thread.join()
    assert got == 50 * 64


def test_a_subscriber_that_holds_the_whole_ring_is_told_so(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(capacity=4096)
    pair.publisher.send_batch(rows(64))
    held = [next(pair.subscriber.batches(32, dtype="f4")) for _ in range(2)]
    thread = threading.Thread(target=lambda: pair.publisher.send(b"next", timeout=PATIENCE))
    thread.start()
    with pytest.raises(bus.HeldError, match=r"2 views hold 64 frames \(4096 of 4096 bytes\)"):
        next(pair.subscriber.batches(32, timeout=PATIENCE))
    copies = [batch.copy() for batch in held]
    del held[:]
    gc.collect()
    assert next(pair.subscriber.batches(32, timeout=PATIENCE)).tobytes() == b"next"
    thread.join()
    np.testing.assert_array_equal(np.concatenate(copies), rows(64))


def test_views_survive_the_close_and_the_end_of_everything(path: str) -> None:
    pair = Pair(path)
    pair.publisher.send_batch(rows(4))
    batch = next(pair.subscriber.batches(4, dtype="f4"))
    frame_data = b""
    pair.publisher.send(b"frame")
    frame = pair.subscriber.take(PATIENCE)
    assert frame is not None
    pair.close()
    frame_data = bytes(frame.data)
    with pytest.raises(bus.BusError, match="closed"):
        next(pair.subscriber.batches(4))
    with pytest.raises(bus.BusError, match="closed"):
        pair.publisher.send(b"x")
    del pair, frame
    gc.collect()
    np.testing.assert_array_equal(batch, rows(4))
    assert frame_data == b"frame"


def test_a_frame_is_released_only_without_views(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    for text in (b"one", b"two"):
        pair.publisher.send(text, type_id=7, id=9)
    frames = pair.subscriber.frames(timeout=PATIENCE)
    frame = next(frames)
    assert (bytes(frame.data), frame.type_id, frame.id, len(frame)) == (b"one", 7, 9, 3)
    view = frame.data
    assert view.readonly
    with pytest.raises(BufferError, match="views of this frame are alive"):
        frame.release()
    view.release()
    frame.release()
    assert pair.subscriber.held_frames == 0
    with pytest.raises(BufferError, match="was released"):
        memoryview(frame)  # type: ignore[arg-type]
    array = np.frombuffer(next(frames), dtype="u1")  # type: ignore[call-overload]
    assert array.tobytes() == b"two" and pair.subscriber.held_frames == 1
    del array
    gc.collect()
    assert pair.subscriber.held_frames == 0


def test_read_into_copies_and_gives_back_at_once(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(capacity=4096)
    pair.publisher.send_batch(rows(20))
    into = np.zeros((16, 16), dtype="f4")
    assert pair.subscriber.read_into(into, timeout=PATIENCE) == 16
    np.testing.assert_array_equal(into, rows(16))
    assert pair.subscriber.held_frames == 0
    with pytest.raises(ValueError, match="frames of 64 bytes don't fit rows of 32"):
        pair.subscriber.read_into(np.zeros((4, 8), dtype="f4"))
    assert pair.subscriber.read_into(into) == 4
    read_only = np.zeros((4, 16), dtype="f4")
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only|not writable"):
        pair.subscriber.read_into(read_only)
    pair.theirs.close()
    assert pair.subscriber.read_into(into) == 0


def test_min_and_timeout(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    with pytest.raises(TimeoutError):
        next(pair.subscriber.batches(8, timeout=0))
    pair.publisher.send_batch(rows(2))
    assert len(next(pair.subscriber.batches(8, min=4, timeout=0.01))) == 2, "what is there"
    pair.publisher.send_batch(rows(5))
    assert len(next(pair.subscriber.batches(8, min=4, timeout=PATIENCE))) == 5


def test_a_place_is_written_without_a_copy(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    with pair.publisher.reserve(64, type_id=5, id=6) as place:
        np.frombuffer(place, dtype="f4")[:] = 1.5
    frame = pair.subscriber.take(PATIENCE)
    assert frame is not None and (frame.type_id, frame.id) == (5, 6)
    np.testing.assert_array_equal(np.frombuffer(frame, "f4"), np.full(16, 1.5))  # type: ignore[call-overload]
    with pytest.raises(KeyError), pair.publisher.reserve(64):
        raise KeyError
    kept = None
    with pytest.raises(BufferError), pair.publisher.reserve(64) as place:
        kept = np.frombuffer(place, dtype="f4")
    assert kept is not None
    with pytest.raises(TimeoutError):
        pair.subscriber.take(0)
    del kept, place
    gc.collect()
    pair.publisher.send(b"goes on")
    assert pair.subscriber.take(PATIENCE) is not None
    with pytest.raises(ValueError, match="got 2097152 bytes, the ring has 1048576"):
        pair.publisher.send(b"x" * (1 << 21))


def test_a_publisher_of_several_and_one_that_is_lapped(path: str) -> None:
    with bus.listen(path, role="publish", capacity=4096) as listener:
        publisher = listener.publisher
        first = bus.connect(path)
        lossy = bus.connect(path, role="lossy")
        publisher.wait_for_subscribers(2, PATIENCE)
        for i in range(200):
            publisher.send(b"x" * 64, id=i, timeout=PATIENCE)
            frame = first.subscriber.take(PATIENCE)
            assert frame is not None and frame.id == i
            del frame
        publisher.send(b"last", id=200)
        frames: list[bus.LossyFrame] = []
        while lossy.lost + len(frames) < 201:
            try:
                got = lossy.read(timeout=0)
            except TimeoutError:
                publisher.send(b"more", id=201)
                continue
            assert got is not None
            frames.append(got)
        assert lossy.lost > 0
        with pytest.raises(ValueError, match="lossy"):
            _ = lossy.subscriber


def test_dropped_after_max_hold(path: str) -> None:
    with bus.listen(path, role="publish", capacity=4096, max_hold=0.01) as listener:
        holder = bus.connect(path)
        listener.publisher.wait_for_subscribers(1, PATIENCE)
        listener.publisher.send_batch(rows(64))
        held = next(holder.subscriber.batches(8, dtype="f4"))
        listener.publisher.send_batch(rows(64), timeout=PATIENCE)
        with pytest.raises(bus.Dropped):
            while True:
                next(holder.subscriber.batches(8, timeout=PATIENCE))
        assert held.shape == (8, 16), "it can be read, though no longer what it was"


def test_the_stub_agrees_with_the_extension(project_root: Path, tmp_path: Path) -> None:
    stub = tmp_path / "_bus.pyi"
    subprocess.run(
        [sys.executable, "-m", "nanobind.stubgen", "-m", "lumen_engine._bus", "-o", stub],
        env={**os.environ, "PYTHONPATH": str(project_root / "python")},
        check=True,
        capture_output=True,
    )
    golden = project_root / "python" / "lumen_engine" / "_bus.pyi"
    assert stub.read_text() == golden.read_text(), (
        "make it anew: PYTHONPATH=python .venv/bin/python -m nanobind.stubgen"
        " -m lumen_engine._bus -o python/lumen_engine/_bus.pyi"
    )


def test_one_end_is_used_by_one_thread_at_a_time(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    thread = threading.Thread(target=lambda: pair.subscriber.take(PATIENCE))
    thread.start()
    with pytest.raises((ValueError, TimeoutError)) as caught:
        while True:
            try:
                pair.subscriber.take(0)
            except TimeoutError:
                continue
    assert "in use by another thread" in str(caught.value)
    pair.publisher.send(b"x")
    thread.join()


def test_a_listeners_publisher_outlives_the_listeners_handle(path: str) -> None:
    publisher = bus.listen(path, role="publish").publisher
    gc.collect()
    publisher.send(b"nobody hears it")
    publisher.flush()


def test_a_frame_does_not_take_a_place_that_is_reserved(path: str) -> None:
    with bus.listen(path, role="publish") as listener:
        connection = bus.connect(path)
        listener.publisher.wait_for_subscribers(1, PATIENCE)
        with listener.publisher.reserve(4) as place:
            # Another handle of the same publisher, too.
            for publisher in (listener.publisher, listener.publisher):
                with pytest.raises(ValueError, match="a reserved place is open"):
                    publisher.send(b"SSSS")
                with pytest.raises(ValueError, match="a reserved place is open"):
                    publisher.send_batch(rows(1))
                with pytest.raises(ValueError, match="a reserved place is open"):
                    publisher.reserve(4).__enter__()
            place[:] = b"good"
        frame = connection.subscriber.take(PATIENCE)
        assert frame is not None and bytes(frame.data) == b"good"


def test_an_error_in_a_reservation_is_not_hidden_by_a_close(path: str) -> None:
    with bus.listen(path):
        connection = bus.connect(path, role="publish")
        with pytest.raises(KeyError), connection.publisher.reserve(4):
            connection.close()
            raise KeyError


def test_a_refused_client_is_told_why(path: str) -> None:
    with pytest.raises(bus.BusError, match="powers of two"):
        bus.listen(path, capacity=5000)
    with bus.listen(path, users=[4242]):
        with pytest.raises(bus.BusError, match="may not connect here"):
            bus.connect(path, role="publish")
    with bus.listen(path, max_connections=1):
        first = bus.connect(path, role="publish")
        with pytest.raises(bus.BusError, match="limit of 1 connections"):
            bus.connect(path, role="publish")
        with pytest.raises(bus.BusError, match="only publishers connect here"):
            bus.connect(path)
        first.close()
    with pytest.raises(TimeoutError, match="nobody listens there yet"):
        bus.connect(path, timeout=0.01)
    with pytest.raises(ValueError, match="role"):
        bus.listen(path, role="reader")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "array",
    [
        np.array([None, 1], object),
        np.zeros(2, [("count", "i4"), ("what", object)]),
        memoryview(np.array([[None]], object)),
    ],
)
def test_an_array_of_objects_is_a_type_error_and_sends_no_addresses(
    make_pair: Callable[..., Pair], array: Any
) -> None:
    pair = make_pair()
    for send in (pair.publisher.send, pair.publisher.send_batch):
        with pytest.raises(TypeError, match="Python objects"):
            send(array)
    pair.publisher.send(np.zeros(2, [("O", "i4")]))  # a field may be called so
    pair.publisher.send(np.array(["2026-11-25"], "datetime64[D]").view("i8"))
    pair.theirs.close()
    assert [len(frame.data) for frame in pair.subscriber.frames()] == [8, 8]


def test_a_path_of_pathlib_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "bus"
    with bus.listen(path) as listener, bus.connect(path, role="publish") as connection:
        connection.publisher.send(b"1")
        assert listener.accept(5 * PATIENCE).subscriber.take(5 * PATIENCE) is not None


def test_a_send_after_the_listener_was_closed_is_an_error(tmp_path: Path) -> None:
    listener = bus.listen(tmp_path / "bus", role="publish")
    publisher = listener.publisher
    publisher.send(b"1")
    listener.close()
    for send in (publisher.send, publisher.send_batch):
        with pytest.raises(bus.BusError, match="closed"):
            send(np.zeros(1))
