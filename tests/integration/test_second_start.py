"""A start with models as an earlier one compiled them: the same answers, and never another model's.

By the OpenVINO backend; ONNX Runtime compiles nothing that it could write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.http as triton
from integration.harness import FIXTURES, MODELS, Server, copy_models
from onnx import numpy_helper

INPUTS = {
    "mlp": ("input", [256]),
    "convnet": ("image", [1, 28, 28]),
    "digits": ("image", [1, 8, 8]),
    "identity": ("input", [7]),
}
ROWS = (1, 2, 3, 16)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def serve(models: Path, cache: Path, *arguments: str) -> Server:
    return Server(models, *arguments, env={**os.environ, "XDG_CACHE_HOME": str(cache)})


def blobs(cache: Path) -> list[Path]:
    """Of compiled models; times of calls are files there, too."""
    files = sorted((cache / "lumen" / "compiled").glob("*.blob"))
    return [path for path in files if b" costs" not in path.read_bytes()[:4096]]


def answer(server: Server, model: str, array: np.ndarray, name: str) -> np.ndarray:
    with triton.InferenceServerClient(server.url) as client:
        tensor = triton.InferInput(name, list(array.shape), "FP32").set_data_from_numpy(array)
        result = client.infer(model, [tensor])
        return result.as_numpy(result.get_response()["outputs"][0]["name"])


def answers(server: Server) -> Iterator[np.ndarray]:
    for model, (name, shape) in INPUTS.items():
        for rows in ROWS:
            array = np.random.default_rng(rows).random((rows, *shape), np.float32)
            yield answer(server, model, array, name)


@pytest.mark.parametrize("queue_type", ["auto", "batched", "inline"])
def test_the_answers_of_a_second_start_are_those_of_the_first(
    tmp_path: Path, cache: Path, queue_type: str
) -> None:
    models = copy_models(tmp_path / "models", [MODELS / name for name in INPUTS])
    arguments = ("--queue-type", queue_type)
    with serve(models, cache, *arguments, "--compiled-models", "off") as server:
        wanted = list(answers(server))
    assert not (cache / "lumen" / "compiled").exists()
    for start in ("first", "second"):
        with serve(models, cache, *arguments) as server:
            for got, one in zip(answers(server), wanted, strict=True):
                assert np.array_equal(got, one), start
        kept = {path: path.stat().st_ino for path in blobs(cache)}
        assert kept
        if start == "first":
            after_first = kept
    assert kept == after_first, "the second start compiled nothing"


def test_damaged_files_are_compiled_anew(tmp_path: Path, cache: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    array = np.ones((1, 256), np.float32)
    with serve(models, cache) as server:
        wanted = answer(server, "mlp", array, "input")
    damages = (lambda data: data[:-1], lambda data: data[:-1] + b"\0", lambda _: b"")
    for damage in damages:
        for path in blobs(cache):
            path.write_bytes(damage(path.read_bytes()))
        before = {path: path.stat().st_size for path in blobs(cache)}
        with serve(models, cache) as server:
            assert np.array_equal(answer(server, "mlp", array, "input"), wanted)
        after = {path: path.stat().st_size for path in blobs(cache)}
        assert after.keys() == before.keys()
        assert all(size > 1000 for size in after.values())


def scale_weights(path: Path, factor: float) -> None:
    """The file has the same size and, for a look at its times, has not changed."""
    before = path.stat()
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(model, path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def check_that_a_change_is_seen(models: Path, cache: Path, change: Callable[[], None]) -> None:
    """Between two starts the weights of mlp are changed."""
    array = np.random.default_rng(5).random((1, 256), np.float32)
    with serve(models, cache) as server:
        before = answer(server, "mlp", array, "input")
    change()
    with serve(models, cache) as server:
        after = answer(server, "mlp", array, "input")
    assert not np.array_equal(before, after)
    with serve(models, cache, "--compiled-models", "off") as server:
        assert np.array_equal(after, answer(server, "mlp", array, "input"))


def test_a_model_whose_content_has_changed_is_compiled_anew(tmp_path: Path, cache: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    path = models / "mlp" / "1" / "model.onnx"
    scale_weights(path, 1.0)  # in the form that onnx writes
    size = path.stat().st_size

    def change() -> None:
        scale_weights(path, 0.5)
        assert path.stat().st_size == size

    check_that_a_change_is_seen(models, cache, change)


def test_a_model_with_weights_in_another_file_is_not_kept(tmp_path: Path, cache: Path) -> None:
    """Its own file does not change with them."""
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    path = models / "mlp" / "1" / "model.onnx"
    whole = onnx.load(path)
    path.unlink()
    save = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save_model(whole, path, **save)

    def change() -> None:
        assert blobs(cache) == []
        weights = path.with_name("weights.bin")
        halves = np.frombuffer(weights.read_bytes(), np.float32) * np.float32(0.5)
        weights.write_bytes(halves.tobytes())

    check_that_a_change_is_seen(models, cache, change)


def test_each_path_has_its_own_and_options_that_matter_too(tmp_path: Path, cache: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    with serve(models, cache):
        pass
    one = len(blobs(cache))
    copy_models(models, [FIXTURES / "add_sub"])
    copy_models(tmp_path / "elsewhere", [MODELS / "mlp"])
    with serve(tmp_path / "elsewhere", cache):
        pass
    assert len(blobs(cache)) == 2 * one
    (models / "mlp" / "config.json").write_text('{"precision": "bf16"}')
    with serve(models, cache):
        pass
    assert len(blobs(cache)) > 2 * one


def test_other_users_may_not_write_the_folder(tmp_path: Path, cache: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    with serve(models, cache):
        pass
    folder = cache / "lumen" / "compiled"
    assert folder.stat().st_mode & 0o777 == 0o700
    before = {path: path.stat().st_mtime_ns for path in blobs(cache)}
    folder.chmod(0o777)
    array = np.ones((1, 256), np.float32)
    with serve(models, cache) as server:
        assert answer(server, "mlp", array, "input").shape == (1, 10)
    assert {path: path.stat().st_mtime_ns for path in blobs(cache)} == before, "neither read"


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_times_of_calls_are_measured_once(tmp_path: Path, cache: Path, backend: str) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])

    def costs() -> dict[Path, tuple[int, bytes]]:
        files = (cache / "lumen" / "compiled").glob("*.blob")
        found = {path: path.read_bytes() for path in files}
        return {
            path: (path.stat().st_ino, data) for path, data in found.items() if b" costs" in data
        }

    with serve(models, cache, "--backend", backend):
        pass
    first = costs()
    assert len(first) == 1
    with serve(models, cache, "--backend", backend):
        pass
    assert costs() == first, "a file that is written again is another one"
