"""How far answers are from the f32 model's. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lumen_engine.quantize.samples import Array

Answer = dict[str, Array]
# Of answers that are the same: JSON has no infinity.
SAME_DB = 200.0


def is_float(array: Array) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating))


def sqnr_db(wanted: Sequence[Answer], got: Sequence[Answer]) -> float:
    """Signal to quantisation noise over all calls, in dB, of the output that is furthest off.

    Whole numbers, where there are no floats: by the share of equal ones, as if each other one
    were noise as loud as the signal. Numbers that are not finite where the f32 model's are: 0 dB
    or less.
    """
    names = [name for name in wanted[0] if is_float(wanted[0][name])] or list(wanted[0])
    return min(
        _of_output([(one[name], other[name]) for one, other in zip(wanted, got)]) for name in names
    )


def _of_output(pairs: Sequence[tuple[Array, Array]]) -> float:
    signal = noise = 0.0
    for one, other in pairs:
        if one.shape != other.shape:
            return -SAME_DB
        if not is_float(one):
            signal += one.size
            noise += int((one != other).sum())
            continue
        left, right = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(left)
        if not np.array_equal(finite, np.isfinite(right)):
            return -SAME_DB
        signal += float((left[finite] ** 2).sum())
        noise += float(((left[finite] - right[finite]) ** 2).sum())
    if noise == 0:
        return SAME_DB
    if signal == 0:
        return -SAME_DB
    return float(np.clip(10 * np.log10(signal / noise), -SAME_DB, SAME_DB))


def top1(wanted: Sequence[Answer], got: Sequence[Answer]) -> float | None:
    """The share of rows whose class is the f32 model's; None: the first output has none.

    The first output is looked at: its whole numbers, or the largest along its last axis, if there
    are two or more.
    """
    name, first = next(iter(wanted[0].items()))
    if is_float(first) and (first.ndim == 0 or first.shape[-1] < 2):
        return None
    same = total = 0
    for one, other in zip(wanted, got):
        left, right = one[name], other[name]
        if is_float(first):
            left, right = left.argmax(axis=-1), right.argmax(axis=-1)
        total += left.size
        same += int((left == right).sum()) if left.shape == right.shape else 0
    return same / max(1, total)
