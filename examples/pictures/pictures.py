# A model of digits takes PNG and JPEG files, and pixels, where it took numbers before. The forms
# are folders with the same model and a config.json each.
# Errors: exits 1 when the answers differ from those to the model's own numbers.
from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "models")]
from digits import data as digits_data
from lumen_engine import Client, InferError, Server

GREYS = 15  # of 8 bits, for each of the 17 that the digits were scanned in
FORMS = {
    "numbers": {},
    "pixels": {"pictures": {"image": {"scale": GREYS}}},
    "files": {"pictures": {"image": {"form": "files", "scale": GREYS}}},
}


def make_repository(folder: Path) -> None:
    for name, config in FORMS.items():
        shutil.copytree(ROOT / "models" / "digits" / "1", folder / name / "1")
        (folder / name / "config.json").write_text(json.dumps(config))


def file_of(pixels: np.ndarray, form: str, times: int) -> bytes:
    """A scan with `times` dots for each dot of the digit."""
    file = io.BytesIO()
    picture = Image.fromarray(np.kron(pixels, np.ones((times, times), np.uint8)))
    picture.save(file, form)
    return file.getvalue()


def main() -> int:
    _, pictures, _, labels = digits_data.split()
    pixels = (pictures * GREYS).astype(np.uint8).reshape(-1, 8, 8, 1)
    with tempfile.TemporaryDirectory() as folder:
        make_repository(Path(folder))
        with Server(folder) as server, Client(f"http://{server.url}") as client:

            def ask(form: str, image: np.ndarray) -> np.ndarray:
                return client.infer(form, {"image": image})["probabilities"]

            numbers = ask("numbers", pictures)
            of_pixels = ask("pixels", pixels)
            print(f"{len(labels)} digits: {(of_pixels.argmax(axis=1) == labels).mean():.0%} right")
            same = np.allclose(of_pixels, numbers, atol=1e-5)
            for form, times in (("PNG", 1), ("PNG", 10), ("JPEG", 10)):
                scans = [file_of(one[..., 0], form, times) for one in pixels]
                answers = ask("files", np.array(scans, dtype=object))
                right = (answers.argmax(axis=1) == labels).mean()
                size = sum(map(len, scans)) / len(scans)
                print(f"{form} files of {8 * times} x {8 * times}, {size:.0f} bytes: {right:.0%}")
                same &= right > 0.9
            try:
                ask("files", np.array([scans[0], b"GIF89a"], dtype=object))
                same = False
            except InferError as error:
                print(f"refused: {error}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
