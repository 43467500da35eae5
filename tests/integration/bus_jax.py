"""JAX and views of the ring: `bus_jax.py NAME PATH` runs one of the checks.

A process of its own, since JAX's threads don't go with the tests that fork.
"""

from __future__ import annotations

import gc
import sys

import jax
import numpy as np
import pytest
from integration.bus_pair import Pair, rows


def dlpack_of_a_read_only_view_is_refused(path: str) -> None:
    """JAX (0.10) asks for DLPack's first version, which has no way to say "read-only"."""
    pair = Pair(path)
    pair.publisher.send_batch(rows(4))
    batch = next(pair.subscriber.batches(4, dtype="f4"))
    with pytest.raises(BufferError, match="readonly"):
        jax.dlpack.from_dlpack(batch)


def dlpack_of_a_copy_shares_its_memory(path: str) -> None:
    pair = Pair(path, writable=True)
    pair.publisher.send_batch(rows(4))
    batch = next(pair.subscriber.batches(4, dtype="f4"))
    array = jax.dlpack.from_dlpack(batch)
    assert array.unsafe_buffer_pointer() == batch.ctypes.data
    assert pair.subscriber.held_frames == 0
    del batch
    gc.collect()
    pair.close()
    np.testing.assert_array_equal(array, rows(4))


def device_put_takes_a_view_as_it_is(path: str) -> None:
    pair = Pair(path)
    pair.publisher.send_batch(rows(4))
    batch = next(pair.subscriber.batches(4, dtype="f4"))
    array = jax.device_put(batch)
    assert array.unsafe_buffer_pointer() == batch.ctypes.data
    del batch
    gc.collect()
    assert pair.subscriber.views == 1
    np.testing.assert_array_equal(array, rows(4))
    # Its result may be written over it: JAX does not where the memory is another's.
    added = jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    np.testing.assert_array_equal(added, rows(4) + 1)
    del array
    gc.collect()
    assert pair.subscriber.views == 0


CHECKS = {
    check.__name__: check
    for check in (
        dlpack_of_a_read_only_view_is_refused,
        dlpack_of_a_copy_shares_its_memory,
        device_put_takes_a_view_as_it_is,
    )
}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](sys.argv[2])
