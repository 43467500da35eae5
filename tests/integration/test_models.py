"""The models in the tree agree with their scripts and descriptions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from integration.harness import FIXTURES, MODELS, make_squeezenet
from integration.reference import Reference


def load_script(file: Path) -> ModuleType:
    """A script that is no package; its folder holds the modules that it imports."""
    sys.path.insert(0, str(file.parent))
    try:
        spec = importlib.util.spec_from_file_location(f"script_{file.parent.name}", file)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(file.parent))


def test_digits_are_right_for_97_percent_of_the_held_out_third() -> None:
    data = load_script(MODELS / "digits" / "data.py")
    train_images, images, train_labels, truth = data.split()
    assert len(truth) == 599 and len(train_labels) == 1198
    probabilities = Reference(MODELS).infer("digits", {"image": images})["probabilities"]
    assert (probabilities.argmax(1) == truth).mean() >= 0.97
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)


def test_the_split_keeps_the_held_out_images_out_of_the_training() -> None:
    train_images, images, _, _ = load_script(MODELS / "digits" / "data.py").split()
    trained = {image.tobytes() for image in train_images}
    # Scans may repeat in the data itself; the split must not.
    assert sum(image.tobytes() in trained for image in images) == 0


def test_squeezenet_has_exactly_the_weights_of_the_paper() -> None:
    make_squeezenet()
    model = onnx.load(MODELS / "squeezenet" / "1" / "model.onnx")
    assert sum(int(np.prod(t.dims)) for t in model.graph.initializer) == 1_235_496
    logits = Reference(MODELS).infer("squeezenet", {"data": np.ones((1, 3, 224, 224), np.float32)})
    assert logits["logits"].shape == (1, 1000)
    assert np.isfinite(logits["logits"]).all() and logits["logits"].std() > 0


def test_convnet_answers_each_row_of_a_batch_by_itself() -> None:
    images = np.random.default_rng(1).random((3, 1, 28, 28), np.float32)
    reference = Reference(MODELS)
    logits = reference.infer("convnet", {"image": images})["logits"]
    assert logits.shape == (3, 10) and logits.std() > 0
    single = reference.infer("convnet", {"image": images[1:2]})["logits"]
    np.testing.assert_allclose(single, logits[1:2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "convnet", "identity"])
def test_a_generated_model_in_the_tree_equals_its_scripts_output(name: str, tmp_path: Path) -> None:
    script = load_script(MODELS / name / "make.py")
    script.HERE = tmp_path
    script.main()
    written = (tmp_path / "1" / "model.onnx").read_bytes()
    assert written == (MODELS / name / "1" / "model.onnx").read_bytes()


def test_the_models_in_the_tree_are_small() -> None:
    for folder in (MODELS, FIXTURES):
        for file in folder.glob("*/1/model.onnx"):
            assert file.parent.parent.name == "squeezenet" or file.stat().st_size < 200_000, file
