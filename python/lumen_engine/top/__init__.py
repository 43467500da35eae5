"""`lumen top`: a server's work, live. See command.py; commands.py calls main()."""

from __future__ import annotations

from lumen_engine.top.command import main

__all__ = ["main"]
