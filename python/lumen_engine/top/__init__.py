"""`lumen top`: what a server does, live. See command.py; main() is what commands.py calls."""

from __future__ import annotations

from lumen_engine.top.command import main

__all__ = ["main"]
