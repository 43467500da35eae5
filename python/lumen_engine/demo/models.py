"""The models of the demo, PP-OCR's, out of the PyPI package rapidocr-onnxruntime (Apache-2.0).

The package is fetched by pip and unpacked; nothing of it is run. What was fetched once is kept.
Errors: DemoError, whose text names the fault and the fix.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "rapidocr-onnxruntime==1.4.4"
MEGABYTES = 15
# By the name of the model: the file in the package, and its SHA-256.
FILES = {
    "ocr_detection": (
        "ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    "ocr_recognition": (
        "ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    ),
}
# For examples/ocr, which takes lines that stand on their head, too.
WITH_DIRECTION = FILES | {
    "ocr_direction": (
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
}

Files = dict[str, tuple[str, str]]


class DemoError(RuntimeError):
    """Its text names the fault and the fix."""


def cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "lumen" / "demo"


def model_file(repository: Path, name: str) -> Path:
    return repository / name / "1" / "model.onnx"


def write_models(repository: Path, package: Path, files: Files = FILES) -> None:
    """`package`: its folder of models."""
    for name, (file, wanted) in files.items():
        content = (package / file).read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != wanted:
            raise DemoError(
                f"{package / file}: its SHA-256 is {found}, wanted {wanted}: it is not the file"
                f" that the demo was made for; wanted the package {PACKAGE}"
            )
        target = model_file(repository, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_suffix(".half")  # a demo that is interrupted leaves no half a model
        half.write_bytes(content)
        half.replace(target)


def fetched_repository(folder: Path, files: Files = FILES) -> Path:
    """The repository in `folder`, whose models are fetched if they are not there."""
    repository = folder / "models"
    if all(model_file(repository, name).is_file() for name in files):
        return repository
    print(f"fetching {PACKAGE} ({MEGABYTES} MB, once) by pip into {folder} ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="lumen-demo-") as name:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        words += ["--disable-pip-version-check", "--only-binary=:all:", "--dest", name, PACKAGE]
        done = subprocess.run(words, capture_output=True, text=True)
        wheels = list(Path(name).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            said = done.stderr.strip().splitlines()
            raise DemoError(
                f"pip can't fetch {PACKAGE}: {said[-1] if said else 'it said nothing'}; wanted an"
                " index of packages within reach (pip config, PIP_INDEX_URL)"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            for file, _ in files.values():
                wheel.extract(f"rapidocr_onnxruntime/models/{file}", name)
        write_models(repository, Path(name) / "rapidocr_onnxruntime" / "models", files)
    return repository
