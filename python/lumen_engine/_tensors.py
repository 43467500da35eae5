"""Tensors of the Open Inference Protocol as NumPy arrays, for the transports of `client.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Arrays = dict[str, "NDArray[Any]"]

# In the order of their numbers on the bus. NumPy has no BF16: it travels as uint16.
DATATYPES = (
    ("BOOL", np.dtype(np.bool_)),
    ("UINT8", np.dtype(np.uint8)),
    ("UINT16", np.dtype(np.uint16)),
    ("UINT32", np.dtype(np.uint32)),
    ("UINT64", np.dtype(np.uint64)),
    ("INT8", np.dtype(np.int8)),
    ("INT16", np.dtype(np.int16)),
    ("INT32", np.dtype(np.int32)),
    ("INT64", np.dtype(np.int64)),
    ("FP16", np.dtype(np.float16)),
    ("BF16", np.dtype(np.uint16)),
    ("FP32", np.dtype(np.float32)),
    ("FP64", np.dtype(np.float64)),
    ("BYTES", np.dtype(np.object_)),
)
NUMBERS = {name: number for number, (name, _) in enumerate(DATATYPES)}
BF16, BYTES = NUMBERS["BF16"], NUMBERS["BYTES"]
OF_DTYPE = {dtype: number for number, (_, dtype) in enumerate(DATATYPES) if number != BF16}

# Frame types: docs/formats/bus-inference.md.
INFER, SERVER_METADATA, SERVER_READY, MODEL_METADATA, MODEL_READY, STATISTICS = 1, 3, 4, 5, 6, 7


class InferError(RuntimeError):
    """The server has refused a request; `status` is HTTP's for it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message

    def __reduce__(self) -> tuple[type[InferError], tuple[int, str]]:
        """As exceptions go from one process to another: made anew by what it was made of."""
        return type(self), (self.status, self.message)


class Tensor(NamedTuple):
    """An input as it is sent."""

    name: str
    number: int  # of its datatype
    shape: tuple[int, ...]
    data: NDArray[np.uint8] | bytes


class InSequence(NamedTuple):
    """A request's place in a sequence, of a model that keeps states."""

    id: int | str  # 0 and "": none
    start: bool = False
    end: bool = False


class Wishes(NamedTuple):
    """The parameters of a request."""

    timeout_us: int | None = None
    no_cache: bool = False
    ttl_ms: int | None = None
    priority: int = 0
    sequence: InSequence = InSequence(0)


class Request(NamedTuple):
    model: str
    version: str
    inputs: list[Tensor]
    outputs: Sequence[str]
    known_outputs: Any  # of the model's metadata
    wishes: Wishes = Wishes()


def tensor_of(name: str, given: ArrayLike, number: int | None) -> Tensor:
    """`number`: the datatype that the model wants, where it is known."""
    array = np.asarray(given)
    # Numbers of Python become the model's type; arrays say their own.
    if not isinstance(given, np.ndarray) and number not in (None, BYTES):
        array = array.astype(DATATYPES[number][1])
    if array.dtype.kind in "OSU":
        elements = [item.encode() if isinstance(item, str) else bytes(item) for item in array.flat]
        data = b"".join(len(item).to_bytes(4, "little") + item for item in elements)
        return Tensor(name, BYTES, array.shape, data)
    is_bf16 = number == BF16 and array.dtype == np.uint16
    found = BF16 if is_bf16 else OF_DTYPE.get(array.dtype.newbyteorder("="))
    if found is None:
        raise ValueError(f"input '{name}': the protocol has no datatype for {array.dtype}")
    native = np.ascontiguousarray(array, DATATYPES[found][1])
    return Tensor(name, found, array.shape, native.reshape(-1).view(np.uint8))


def array_of(
    number: int, shape: Sequence[int], data: bytes | memoryview | NDArray[np.uint8]
) -> NDArray[Any]:
    """Its own copy."""
    if number != BYTES:
        return np.frombuffer(data, DATATYPES[number][1]).reshape(shape).copy()
    elements = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        elements.append(bytes(data[at + 4 : at + 4 + size]))
        at += 4 + size
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array.reshape(shape)
