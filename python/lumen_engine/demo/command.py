"""`lumen demo`: draws and photographs a receipt, serves PP-OCR, reads the lines, shows latencies.

Threads: main. Errors: one line on stderr and exit status 1, also where a line is read wrongly.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from lumen_engine import Client, InferError, Server, ServerError
from lumen_engine.demo import receipt
from lumen_engine.demo.models import DemoError, cache_folder, fetched_repository, model_file

Array = np.typing.NDArray[np.float32]
ROUNDS = 10
COLUMNS = 78  # of the photograph in a terminal; two pixels above each other are a character


@dataclass
class Timed:
    """Calls of one model, one after the other."""

    client: Client
    model: str
    output: str
    took_ms: list[float] = field(default_factory=list)

    def infer(self, tensor: Array) -> Array:
        begin = time.perf_counter_ns()
        found: Array = self.client.infer(self.model, {"x": tensor})[self.output]
        self.took_ms.append((time.perf_counter_ns() - begin) / 1e6)
        return found

    def row(self) -> str:
        p50, slowest = np.percentile(self.took_ms, [50, 100])
        stages = self.client.statistics(self.model)["model_stats"][0]["inference_stats"]
        inside = stages["compute_infer"]["ns"] / max(stages["compute_infer"]["count"], 1) / 1e6
        return (
            f"  {self.model:<16}{len(self.took_ms):>6}{p50:>10.1f}{slowest:>10.1f}{inside:>10.1f}"
        )


def in_colours(photo: Image.Image) -> str:
    """For a terminal: the upper half of a character has one pixel, its ground the one below."""
    small = np.asarray(photo.resize((COLUMNS, COLUMNS), Image.Resampling.BOX))
    lines = []
    for upper, lower in zip(small[::2], small[1::2]):
        cells = (
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]}m\x1b[48;2;{b[0]};{b[1]};{b[2]}m▀"
            for a, b in zip(upper, lower)
        )
        lines.append("  " + "".join(cells) + "\x1b[0m")
    return "\n".join(lines)


def shows_colours() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def read_photo(client: Client, photo: Image.Image, known: list[str]) -> bool:
    """Whether each line was read rightly. The first round warms up and is shown."""
    find = Timed(client, "ocr_detection", "sigmoid_0.tmp_0")
    read = Timed(client, "ocr_recognition", "softmax_11.tmp_0")
    found: list[receipt.Line] = []
    for _ in range(1 + ROUNDS):
        is_text = find.infer(receipt.detection_input(photo))[0, 0]
        parts = [receipt.recognition_input(line) for line in receipt.lines_of(photo, is_text)]
        found = [receipt.read(read.infer(part)[0], known) for part in parts]
    wanted = [text for text, _ in receipt.LINES]
    for line, text in zip(found, wanted):
        mark = "✓" if line.text == text else f"✗ is {text}"
        print(f"  │ {line.text:<24} │ {line.sure:>6.1%} sure  {mark}")
    del find.took_ms[0], read.took_ms[: len(found)]
    print("\n  milliseconds     calls       p50   slowest  in model")
    print("  " + "─" * 52)
    print(f"{find.row()}\n{read.row()}")
    return [line.text for line in found] == wanted


def run(folder: Path, keep: bool) -> int:
    repository = fetched_repository(folder)
    photo = receipt.photograph(receipt.draw())
    picture = folder / "receipt.png"
    photo.save(picture)
    log = folder / "server.log"
    with Server(repository, log_file=log, start_new_session=True) as server:
        known = receipt.characters(model_file(repository, "ocr_recognition"))
        if shows_colours():
            print(in_colours(photo))
        print(f"\n  {picture}: drawn, and photographed in software; read by PP-OCR\n")
        with Client(f"http://{server.url}") as client:
            is_right = read_photo(client, photo, known)
        print("\n  Next: serve your own models, <name>/<version>/model.onnx")
        if keep and is_right:
            print(f"  the server stays: http={server.url}; stop it: kill {server.pid}; log: {log}")
            server.let_go()
        else:
            print("  lumen serve --model-repository models/")
    if not is_right:
        raise DemoError(f"a line of the receipt was read wrongly; the server's log: {log}")
    return 0


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="lumen demo", description="Reads a photographed receipt by two models with real"
        f" weights, which pip fetches once into {cache_folder()}.", allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="leave the server running")
    options = parser.parse_args(argv)
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return run(folder, options.keep)
    except (DemoError, ServerError, InferError, OSError) as error:
        print(f"lumen demo: {error}", file=sys.stderr)
        return 1
