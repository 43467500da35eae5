"""`lumen demo`: the receipt is read, and what pip or the package brings wrongly is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from integration.harness import ROOT, lumen_binary
from lumen_engine.demo import receipt
from lumen_engine.demo.models import FILES, DemoError, model_file, write_models
from scipy import ndimage

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

pytestmark = pytest.mark.tool


def demo(cache: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **more}
    words = [str(lumen_binary()), "demo"]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)


@pytest.fixture(scope="module")
def package() -> Path:
    """Its folder of models."""
    packages = judge_programs.environment("demo") / "lib"
    (models,) = packages.glob("python3*/site-packages/rapidocr_onnxruntime/models")
    return models


def test_the_receipt_is_read_and_nothing_is_fetched_twice(tmp_path: Path, package: Path) -> None:
    folder = tmp_path / "lumen" / "demo"
    write_models(folder / "models", package)
    done = demo(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert done.returncode == 0, done.stdout + done.stderr
    for text, _ in receipt.LINES:
        assert text in done.stdout
    assert "✗" not in done.stdout and "\x1b" not in done.stdout, "no terminal, no colours"
    assert "ocr_recognition     70" in done.stdout
    assert (folder / "receipt.png").stat().st_size > 10_000


def test_without_an_index_of_packages_the_fault_is_named(tmp_path: Path) -> None:
    done = demo(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0")
    assert done.returncode == 1
    assert "lumen demo: pip can't fetch rapidocr-onnxruntime" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_with_another_content_is_not_served(tmp_path: Path, package: Path) -> None:
    for name, (file, _) in FILES.items():
        content = (package / file).read_bytes()
        (tmp_path / file).write_bytes(content if name == "ocr_detection" else content[:-1] + b"x")
    with pytest.raises(DemoError, match="its SHA-256 is"):
        write_models(tmp_path / "models", tmp_path)
    assert not model_file(tmp_path / "models", "ocr_recognition").exists()


def test_patches_are_those_of_scipy() -> None:
    marked = np.random.default_rng(3).random((60, 80)) < 0.45
    found, _ = ndimage.label(marked)
    wanted = {
        (columns.start, rows.start, columns.stop, rows.stop)
        for rows, columns in ndimage.find_objects(found)
    }
    assert set(receipt.patches(marked)) == wanted
    assert receipt.patches(np.zeros((3, 3), bool)) == []
