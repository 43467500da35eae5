"""Lumen, a low-latency inference server for one machine: the executable and a helper around it.

`python -m lumen_engine serve ...` runs the `lumen` executable; `Server` starts one and stops it;
`Client` asks one, over the bus or HTTP; `lumen_engine.bus` is the bus itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lumen_engine.server import Server, ServerError, find_executable

__version__ = "0.1.0"
__all__ = ["Client", "InferError", "Server", "ServerError", "__version__", "find_executable"]

if TYPE_CHECKING:
    from lumen_engine.client import Client, InferError


def __getattr__(name: str) -> Any:
    """Names that need NumPy are imported when they are asked for."""
    if name in ("Client", "InferError"):
        from lumen_engine import client  # noqa: PLC0415

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
