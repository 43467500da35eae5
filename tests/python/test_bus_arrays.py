"""lumen_engine.bus: its views in other libraries, and writable copies for them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from integration import bus_pair
from integration.bus_pair import PATIENCE, Pair, rows
from lumen_engine import bus


def test_dlpack_says_that_a_view_is_read_only(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    pair.publisher.send_batch(rows(4))
    batch = next(pair.subscriber.batches(4, dtype="f4"))
    with pytest.raises(BufferError):
        batch.__dlpack__()  # without DLPack 1.0 there is no way to say it
    again = np.from_dlpack(batch)
    assert not again.flags.writeable and again.ctypes.data == batch.ctypes.data
    del batch
    gc.collect()
    assert pair.subscriber.views == 1
    del again
    gc.collect()
    assert pair.subscriber.views == 0


@pytest.mark.parametrize(
    "check",
    [
        "dlpack_of_a_read_only_view_is_refused",
        "dlpack_of_a_copy_shares_its_memory",
        "device_put_takes_a_view_as_it_is",
    ],
)
def test_jax(path: str, check: str) -> None:
    script = Path(bus_pair.__file__).with_name("bus_jax.py")
    with bus_pair.python(str(script), check, path) as process:
        _, err = process.communicate(timeout=4 * PATIENCE)
    assert process.returncode == 0, err


@pytest.mark.parametrize("writable", [False, True])
def test_torch(make_pair: Callable[..., Pair], writable: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: its wheel is too large")
    pair = make_pair(writable=writable)
    pair.publisher.send_batch(rows(4))
    batch = next(pair.subscriber.batches(4, dtype="f4"))
    try:
        tensor = torch.from_dlpack(batch)
    except BufferError as error:
        assert not writable and "readonly" in str(error)  # one that asks for DLPack's first version
        return
    assert tensor.data_ptr() == batch.ctypes.data
    del batch
    gc.collect()
    assert pair.subscriber.views == (0 if writable else 1)
    np.testing.assert_array_equal(tensor, rows(4))
    del tensor
    gc.collect()
    assert pair.subscriber.views == 0


def test_a_writable_batch_is_a_copy_that_holds_nothing(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(capacity=4096, writable=True)
    batches = pair.subscriber.batches(64, dtype="f4", timeout=PATIENCE)
    pair.publisher.send_batch(rows(64))  # the ring is full
    first, second = next(batches), next(batches)
    assert pair.subscriber.views == pair.subscriber.held_frames == 0
    pair.publisher.send_batch(rows(64, start=64), timeout=0)
    got = np.concatenate([first, second])
    np.testing.assert_array_equal(got, rows(64))
    assert first.ctypes.data % 64 == 0
    first[:] = second[:] = -1
    np.testing.assert_array_equal(np.concatenate([next(batches), next(batches)]), got + 64 * 16)
    first.__dlpack__()  # any consumer takes it


def test_a_write_to_a_copy_does_not_reach_the_ring(path: str) -> None:
    with bus.listen(path, role="publish") as listener:
        writer = bus.connect(path, writable=True)
        reader = bus.connect(path)
        listener.publisher.wait_for_subscribers(2, PATIENCE)
        listener.publisher.send_batch(rows(4))
        batch = next(writer.subscriber.batches(4, dtype="f4"))
        batch[:] = -1
        np.testing.assert_array_equal(next(reader.subscriber.batches(4, dtype="f4")), rows(4))


def test_copies_of_rows_that_lie_apart_are_in_one_piece(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(writable=True)
    sent = np.arange(30, dtype="u1").reshape(3, 10)
    pair.publisher.send_batch(sent)
    batch = next(pair.subscriber.batches(8))
    assert batch.flags.c_contiguous and batch.flags.writeable
    np.testing.assert_array_equal(batch, sent)
    pair.publisher.send(b"")
    assert next(pair.subscriber.batches(8)).shape == (1, 0)


def test_a_frame_that_does_not_fit_its_type_stays_for_a_copy_too(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair(writable=True)
    pair.publisher.send(b"0123456789")
    with pytest.raises(ValueError, match="no whole number of items"):
        next(pair.subscriber.batches(8, dtype="f4"))
    assert next(pair.subscriber.batches(8)).tobytes() == b"0123456789"


def test_a_writable_frame_is_a_copy_until_its_release(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(writable=True)
    pair.publisher.send(b"one", type_id=7, id=9)
    pair.publisher.send(b"")
    frame = next(pair.subscriber.frames(PATIENCE))
    assert (frame.type_id, frame.id, len(frame)) == (7, 9, 3)
    assert pair.subscriber.views == pair.subscriber.held_frames == 0
    view = frame.data
    view[0] = ord("O")
    pair.close()
    assert bytes(frame.data) == b"One"
    with pytest.raises(BufferError, match="views of this frame are alive"):
        frame.release()
    view.release()
    frame.release()
    with pytest.raises(BufferError, match="was released"):
        memoryview(frame)  # type: ignore[arg-type]


def test_only_a_subscriber_may_be_writable(path: str) -> None:
    with pytest.raises(ValueError, match="role='publish' has no views"):
        bus.listen(path, role="publish", writable=True)
    with pytest.raises(ValueError, match="role='lossy' has no views"):
        bus.connect(path, role="lossy", writable=True)
