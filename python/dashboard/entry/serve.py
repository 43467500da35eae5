"""Starts Streamlit with run.py: `python serve.py FLAGS -- PATHS`. `lumen dashboard` becomes this.

The pages' modules and the files are read while Streamlit starts and the browser opens, so that the
first page does not wait for all of it. Threads: Streamlit's, and one that reads ahead.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import locate
from streamlit.web.cli import main


def read_ahead(arguments: list[str]) -> None:
    """An error here comes again, and is told, when a page wants the same."""
    app = locate.module("app")
    app.prepare(arguments)


def serve(arguments: list[str]) -> None:
    paths = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    threading.Thread(target=read_ahead, args=(paths,), daemon=True, name="read-ahead").start()
    script = Path(__file__).resolve().parent / "run.py"
    sys.argv = ["streamlit", "run", str(script), *arguments]
    main()


if __name__ == "__main__":
    serve(sys.argv[1:])
