"""Lumen, a low-latency inference server for one machine: the executable and a helper around it.

`python -m lumen_engine serve ...` runs the `lumen` executable; `Server` starts one and stops it.
"""

from lumen_engine.server import Server, ServerError, find_executable

__version__ = "0.1.0"
__all__ = ["Server", "ServerError", "__version__", "find_executable"]
