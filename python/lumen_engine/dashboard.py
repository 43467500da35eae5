"""`lumen dashboard`: starts Streamlit with the dashboard's pages and settings that keep it local.

The pages are the folder python/dashboard/, in a wheel lumen_engine/_app/dashboard. This process
becomes Streamlit: same process id, same signals. Errors: a line on stderr and status 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
NEEDED = ("streamlit", "plotly", "polars")
LARGEST_PORT = 65535


def pages_folder() -> Path | None:
    """Where the pages are: below this file in a wheel, beside its folder in the tree."""
    for folder in (HERE / "_app" / "dashboard", HERE.parent / "dashboard"):
        if (folder / "entry" / "run.py").is_file():
            return folder
    return None


def read_settings(folder: Path) -> ModuleType:
    """dashboard/settings.py by its path: the package's name differs, and needs nothing else."""
    spec = importlib.util.spec_from_file_location(
        "lumen_dashboard_settings", folder / "settings.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def port_number(text: str) -> int:
    if not text.isdigit() or not 0 <= int(text) <= LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: wanted 0 (a free one) to 65535")
    return int(text)


def parse_arguments(argv: list[str], settings: ModuleType) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lumen dashboard",
        description="Shows telemetry CSVs, results of bench, matrix and perf, and servers that run,"
        " in a browser. Only this machine can reach it, and it loads nothing from outside.",
    )
    parser.add_argument(
        "paths", nargs="*", metavar="PATH",
        help="telemetry CSV, JSON of `lumen bench`, `matrix` or `perf`, or a folder with such;"
        " default: results/, where it is there",
    )  # fmt: skip
    parser.add_argument(
        "--port",
        type=port_number,
        default=settings.PORT,
        help=f"default {settings.PORT}; 0: a free one",
    )
    parser.add_argument(
        "--address", default=settings.ADDRESS,
        help="address to listen on; every host that reaches it sees all files; default 127.0.0.1",
    )  # fmt: skip
    parser.add_argument(
        "--base-url-path", default="", metavar="PATH",
        help="the path under which a proxy shows it, such as tools/lumen; the proxy passes the path"
        " on unchanged, and upgrades to websocket",
    )  # fmt: skip
    parser.add_argument(
        "--proxy-host",
        action="append",
        default=[],
        metavar="NAME",
        help="the name under which a proxy is reached; pages of other names are refused",
    )
    return parser.parse_args(argv)


def command_of(argv: list[str]) -> list[str]:
    """The whole command line that this process becomes."""
    folder = pages_folder()
    if folder is None:
        raise SystemExit("lumen dashboard: its pages are missing: reinstall lumen-engine")
    settings = read_settings(folder)
    arguments = parse_arguments(argv, settings)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"lumen dashboard: {sys.executable} has no {', '.join(missing)}:"
            " pip install 'lumen-engine[dashboard]', or in the source tree -r requirements.txt"
        )
    flags = settings.flags(
        {
            "server.port": str(arguments.port),
            "server.address": arguments.address,
            "browser.serverAddress": arguments.address,
            "server.baseUrlPath": arguments.base_url_path.strip("/"),
        },
        [
            *arguments.proxy_host,
            *([arguments.address] if arguments.address != settings.ADDRESS else []),
        ],
    )
    gone = [path for path in arguments.paths if not Path(path).exists()]
    if gone:
        raise SystemExit(
            f"lumen dashboard: there is no {', '.join(gone)}: name a telemetry CSV (made when its"
            " server starts), a JSON of bench, matrix, perf or quantize, a counters file, or a"
            " folder"
        )
    paths = [str(Path(path).absolute()) for path in arguments.paths]
    return [sys.executable, str(folder / "entry" / "serve.py"), *flags, "--", *paths]


def main(argv: list[str]) -> int:
    command = command_of(argv)
    sys.stdout.flush()
    os.execv(command[0], command)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
