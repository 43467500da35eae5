"""The error of `lumen quantize`. Pure."""

from __future__ import annotations


class QuantizeError(RuntimeError):
    """What is wrong, where, and the fix; it goes to stderr as it is."""
