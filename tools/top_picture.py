"""Draws docs/top.svg: `lumen top` over a server of this tree's models under a mixed load.

    .venv/bin/python tools/top_picture.py [OUTPUT]

The view itself, without a terminal, written as SVG by Textual. Threads: one, and the load's
processes. Errors: those of the server and of the view, by raising.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from lumen_engine.server import Server
from lumen_engine.top.app import TopApp

SIZE = (92, 20)
HZ = 2.0
# Seconds of usual load, of more, and of the usual again: 25 looks, as the sparklines have.
CALM_S, BUSY_S, END_S = 5.0, 3.0, 5.0
# Requests a second of each model: little enough for two CPUs, so that no queue grows.
LOAD = {"mlp": 2_000, "digits": 400, "squeezenet": 8}
MORE = {"mlp": 3_000, "squeezenet": 12}
# Answered from the response cache, four of five.
CACHED = "digits"
REPEATS = ("--repeat-ratio", "0.8")
RUN = ROOT / ".build" / "release" / "lumen"


def main(argv: list[str]) -> int:
    output = Path(argv[0]) if argv else ROOT / "docs" / "top.svg"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stats, socket = folder / "lumen.counters", folder / "s"
        server = Server(
            copy_of_models(folder), ["--stats", str(stats)], executable=RUN, http="off", unix=socket
        )
        stack.enter_context(server)
        for model, rate in LOAD.items():
            stack.callback(start_load(socket, model, rate).kill)
        svg = asyncio.run(picture(stats, socket))
    output.write_text(without_links(svg))
    print(f"{output}: {output.stat().st_size:,} bytes")
    return 0


def copy_of_models(folder: Path) -> Path:
    """With a response cache for one of them."""
    for model in LOAD:
        shutil.copytree(ROOT / "models" / model / "1", folder / "models" / model / "1")
    settings = '{"response_cache": {"enable": true}}'
    (folder / "models" / CACHED / "config.json").write_text(settings)
    return folder / "models"


def start_load(socket: Path, model: str, rate: int) -> subprocess.Popen[bytes]:
    words = [str(RUN), "bench", f"unix:{socket}", "--model", model, "--clients", "2"]
    words += ["--rate", str(rate), "--duration", "600"]
    words += REPEATS if model == CACHED else []
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def picture(stats: Path, socket: Path) -> str:
    app = TopApp(stats, hz=HZ)
    async with app.run_test(size=SIZE):
        await asyncio.sleep(CALM_S)
        more = [start_load(socket, model, rate) for model, rate in MORE.items()]
        await asyncio.sleep(BUSY_S)
        for each in more:
            each.kill()
        await asyncio.sleep(END_S)
        return app.export_screenshot(title="lumen top")


def without_links(svg: str) -> str:
    """A picture in a README loads nothing: the viewer's own monospace font will do."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    links = set(re.findall(r"https?://[^\"') ]+", svg)) - {"http://www.w3.org/2000/svg"}
    if links:
        raise SystemExit(f"top_picture: the picture would load {links}")
    return svg


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
