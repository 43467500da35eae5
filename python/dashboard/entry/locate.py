"""Finds the dashboard's package, which has two names: in the source tree and in an installed wheel.

The scripts beside it stand in a folder of their own because Python puts that on sys.path first.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent.parent
IN_WHEEL = "_app"


def module(name: str) -> ModuleType:
    """`app` is dashboard.app or lumen_engine._app.dashboard.app."""
    if PACKAGE.parent.name == IN_WHEEL:
        return importlib.import_module(f"lumen_engine.{IN_WHEEL}.dashboard.{name}")
    if str(PACKAGE.parent) not in sys.path:
        sys.path.append(str(PACKAGE.parent))
    return importlib.import_module(f"dashboard.{name}")
