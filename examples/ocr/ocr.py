# Reads a photographed receipt by one request: an ensemble of PP-OCR's three models (detection,
# direction, recognition), with four steps in Python before, between and behind them.
# Errors: exits 1 when a line is read wrong.
from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
from lumen_engine import Client, Server
from lumen_engine.demo import models, receipt


def main() -> int:
    fetched = models.fetched_repository(models.cache_folder() / "ocr", models.WITH_DIRECTION)
    photo = receipt.photograph(receipt.draw())
    right = True
    with tempfile.TemporaryDirectory() as name:
        repository = shutil.copytree(fetched, Path(name) / "models")
        shutil.copytree(HERE / "models", repository, dirs_exist_ok=True)
        # The processes of the steps run by the Python that runs this file.
        words = ["--python", sys.executable]
        with Server(repository, words, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}) as one:
            with Client(f"http://{one.url}") as client:
                for turn in (0, 180):
                    picture = np.asarray(photo.rotate(turn))
                    answer = client.infer("ocr", {"picture": picture})
                    read = [text.decode() for text in answer["text"]]
                    lines = read if turn == 0 else read[::-1]
                    right &= lines == [text for text, _ in receipt.LINES]
                    print(f"turned by {turn}: {' | '.join(lines)}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
