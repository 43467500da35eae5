"""Models with inputs of pictures: pixels and files, over every transport and both backends.

The oracle is Pillow, whose pixels the server must give bit by bit, and NumPy for the numbers. The
files are random ones, of all kinds that Pillow writes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import openvino
import pytest
import tritonclient.http as triton
from integration.ensemble_models import onnx_tools
from integration.harness import PATIENCE, ROOT, Server
from integration.picture_files import (
    BICUBIC,
    BILINEAR,
    HEIGHT,
    WIDTH,
    ask,
    ask_files,
    document,
    encoded,
    objects,
    pillow,
    png_of,
    random_file,
    some_picture,
    some_pixels,
    write_model,
    write_pixels_model,
)
from lumen_engine import Client
from onnx import TensorProto, helper
from PIL import Image

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

StartServer = Callable[..., Server]
SEED = 20261130
MEAN, SCALE = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
BACKENDS = ["openvino", "onnxruntime"]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    return folder


# --- pixels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_pixels_become_the_models_numbers(server: StartServer, models: Path, backend: str) -> None:
    wide = [n % 3 + 0.5 for n in range(3)]
    kinds: dict[str, tuple[list[int | str], dict[str, Any]]] = {
        "torch": (["n", 3, HEIGHT, WIDTH], {"mean": MEAN, "scale": SCALE}),
        "caffe": (["n", 3, HEIGHT, WIDTH], {"mean": MEAN, "channels": "bgr"}),
        "keras": (["n", HEIGHT, WIDTH, 3], {"mean": 127.5, "scale": 127.5}),
        "digits": ([1, 1, HEIGHT, WIDTH], {"scale": 255}),
        "free": (["n", 3, "h", "w"], {"size": [HEIGHT, WIDTH], "scale": wide}),
        "said": (["n", "c", "h", "w"], {"size": [HEIGHT, WIDTH], "layout": "nchw"}),
        "plain": (["n", HEIGHT, WIDTH, 3], {}),
    }
    for name, (shape, pictures) in kinds.items():
        write_model(models, name, shape, pictures, backend=backend)
    running = server("--backend", "auto", repository=models)
    for name, (shape, pictures) in kinds.items():
        channels = 1 if name == "digits" else 3
        metadata = document(running, f"/v2/models/{name}")
        rows = 1 if name == "digits" else -1
        expected = {"name": "x", "datatype": "UINT8", "shape": [rows, HEIGHT, WIDTH, channels]}
        assert metadata["inputs"] == [expected]
        for count in (1,) if rows == 1 else (1, 2, 5):
            pixels = some_pixels(count, count, HEIGHT, WIDTH, channels)
            numbers = (pixels - np.array(pictures.get("mean", 0), np.float32)) / np.float32(
                pictures.get("scale", 1)
            )
            if pictures.get("channels") == "bgr":
                numbers = numbers[..., ::-1]
            if shape[-1] != channels:
                numbers = numbers.transpose(0, 3, 1, 2)
            np.testing.assert_allclose(ask(running, name, pixels), -numbers, rtol=1e-5, atol=1e-5)


def test_pixels_of_any_size_are_resized_as_pillow_does_it(
    server: StartServer, models: Path
) -> None:
    for name, word in (("linear", "bilinear"), ("cubic", "bicubic")):
        write_model(
            models,
            name,
            ["n", HEIGHT, WIDTH, 3],
            {"resize": True, "filter": word},
            "Identity",
            TensorProto.UINT8,
        )
    running = server(repository=models)
    assert document(running, "/v2/models/cubic")["inputs"][0]["shape"] == [-1, -1, -1, 3]
    rng = random.Random(SEED)
    for _ in range(60):
        pixels = np.asarray(some_picture(rng))
        two = np.stack([pixels, pixels[::-1]])
        for name, resampling in (("linear", BILINEAR), ("cubic", BICUBIC)):
            expected = [
                np.asarray(Image.fromarray(one).resize((WIDTH, HEIGHT), resampling)) for one in two
            ]
            np.testing.assert_array_equal(ask(running, name, two), expected)


# --- files ------------------------------------------------------------------------------------


def test_random_files_give_pillows_pixels_over_tcp_and_the_bus(models: Path) -> None:
    sizes = [(HEIGHT, WIDTH), (1, 1), (33, 7), (64, 64)]
    kinds: dict[str, tuple[tuple[int, int], dict[str, Any], dict[str, Any]]] = {}
    for i, size in enumerate(sizes):
        kinds[f"rgb{i}"] = (size, {}, {})
        kinds[f"cubic{i}"] = (size, {"filter": "bicubic"}, {"resampling": BICUBIC})
        kinds[f"grey{i}"] = (size, {"channels": "grey"}, {"mode": "L"})
        kinds[f"middle{i}"] = (size, {"shorter_side": 70}, {"shorter_side": 70})
    for name, (size, pictures, _) in kinds.items():
        write_pixels_model(models, name, size, **pictures)
    rng = random.Random(SEED)
    with Server(models, bus=models.parent / "bus") as running:
        addresses = [f"http://{running.url}", f"bus:{models.parent / 'bus'}"]
        with Client(addresses[0]) as tcp, Client(addresses[1]) as bus:
            for number in range(int(150 / PATIENCE)):
                file = random_file(rng)
                for name, (size, _, options) in kinds.items():
                    client = rng.choice([tcp, bus])
                    got = client.infer(name, {"x": objects(file)})["y"][0]
                    expected = pillow(file, size, **options)
                    np.testing.assert_array_equal(got, expected, f"file {number}, {name}")


def test_png_with_16_bits_gives_the_upper_eight(server: StartServer, models: Path) -> None:
    write_pixels_model(models, "rgb", (HEIGHT, WIDTH))
    running = server(repository=models)
    values = np.random.default_rng(SEED).integers(0, 1 << 16, (HEIGHT, WIDTH, 3), dtype=np.uint16)
    file = png_of(values.astype(">u2").tobytes(), WIDTH, HEIGHT, depth=16, colour=2)
    np.testing.assert_array_equal(ask_files(running, "rgb", file)[0], pillow(file, (HEIGHT, WIDTH)))
    # Pillow cuts greys off at 255, which makes most pictures white.
    grey = values[..., 0]
    file = png_of(grey.astype(">u2").tobytes(), WIDTH, HEIGHT, depth=16, colour=0)
    np.testing.assert_array_equal(
        ask_files(running, "rgb", file)[0], np.repeat((grey >> 8)[..., None], 3, axis=2)
    )


def test_an_orientation_in_exif_data_is_not_applied(server: StartServer, models: Path) -> None:
    write_pixels_model(models, "rgb", (HEIGHT, WIDTH))
    running = server(repository=models)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    file = encoded(some_picture(random.Random(1)), "JPEG", exif=exif)
    np.testing.assert_array_equal(ask_files(running, "rgb", file)[0], pillow(file, (HEIGHT, WIDTH)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_become_the_models_numbers_in_batches(
    server: StartServer, models: Path, backend: str
) -> None:
    write_model(
        models,
        "torch",
        ["n", 3, HEIGHT, WIDTH],
        {"form": "files", "mean": MEAN, "scale": SCALE},
        backend=backend,
    )
    running = server("--backend", "auto", repository=models)
    metadata = document(running, "/v2/models/torch")
    assert metadata["inputs"] == [{"name": "x", "datatype": "BYTES", "shape": [-1]}]
    rng = random.Random(SEED)
    for count in (1, 2, 7, 64):
        files = [random_file(rng) for _ in range(count)]
        pixels = np.stack([pillow(file, (HEIGHT, WIDTH)) for file in files])
        numbers = ((pixels - np.array(MEAN, np.float32)) / np.array(SCALE, np.float32)).transpose(
            0, 3, 1, 2
        )
        answer = ask_files(running, "torch", *files)
        np.testing.assert_allclose(answer, -numbers, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clients_side_by_side_get_their_own_pictures(
    server: StartServer, models: Path, backend: str
) -> None:
    """ONNX Runtime has one instance for all workers."""
    write_model(
        models, "x", ["n", 3, HEIGHT, WIDTH], {"form": "files", "scale": 255}, backend=backend
    )
    write_model(models, "pixels", ["n", 3, HEIGHT, WIDTH], {"scale": 255}, backend=backend)
    running = server("--backend", "auto", "--thread-count", "2", repository=models)
    problems: list[str] = []

    def client(seed: int) -> None:
        rng = random.Random(seed)
        with Client(f"http://{running.url}") as asking:
            for _ in range(60):
                files = [random_file(rng) for _ in range(rng.randint(1, 3))]
                pixels = np.stack([pillow(file, (HEIGHT, WIDTH)) for file in files])
                expected = -(pixels / np.float32(255)).transpose(0, 3, 1, 2)
                given = objects(*files)
                for model, x in (("x", given), ("pixels", pixels)):
                    if not np.allclose(asking.infer(model, {"x": x})["y"], expected, atol=1e-6):
                        problems.append(f"{model} of client {seed}")

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_tritons_client_sends_files(server: StartServer, models: Path) -> None:
    write_pixels_model(models, "rgb", (HEIGHT, WIDTH))
    running = server(repository=models)
    files = [random_file(random.Random(seed)) for seed in range(3)]
    with triton.InferenceServerClient(running.url) as client:
        tensor = triton.InferInput("x", [3], "BYTES")
        tensor.set_data_from_numpy(objects(*files))
        answer = client.infer("rgb", [tensor]).as_numpy("y")
    np.testing.assert_array_equal(answer, [pillow(file, (HEIGHT, WIDTH)) for file in files])


# The judge's own; the file comes from a path, the pixels go back to one.
GRPC = """
import sys
import numpy as np
import tritonclient.grpc as triton

url, file, pixels = sys.argv[1:]
client = triton.InferenceServerClient(url)
tensor = triton.InferInput("x", [2], "BYTES")
tensor.set_data_from_numpy(np.array([open(file, "rb").read()] * 2, dtype=object))
np.save(pixels, client.infer("rgb", [tensor]).as_numpy("y"))
client.close()
"""


def test_files_come_over_grpc(server: StartServer, models: Path) -> None:
    write_pixels_model(models, "rgb", (HEIGHT, WIDTH))
    running = server(repository=models)
    file, pixels = models.parent / "file", models.parent / "pixels.npy"
    file.write_bytes(random_file(random.Random(7)))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [judge_programs.interpreter("grpc"), "-c", GRPC, running.url, str(file), str(pixels)],
        env=environment,
        check=True,
        timeout=150 * PATIENCE,
    )
    expected = pillow(file.read_bytes(), (HEIGHT, WIDTH))
    np.testing.assert_array_equal(np.load(pixels), [expected, expected])


def test_a_step_of_an_ensemble_takes_files(server: StartServer, models: Path) -> None:
    write_pixels_model(models, "read", (HEIGHT, WIDTH))
    write_model(models, "net", ["n", 3, HEIGHT, WIDTH], {"scale": 255})
    steps = [
        {"model": "read", "inputs": {"x": "file"}, "outputs": {"y": "pixels"}},
        {"model": "net", "inputs": {"x": "pixels"}, "outputs": {"y": "answer"}},
    ]
    (models / "both").mkdir()
    (models / "both" / "config.json").write_text(json.dumps({"ensemble": {"steps": steps}}))
    running = server(repository=models)
    file = random_file(random.Random(3))
    with Client(f"http://{running.url}") as client:
        answer = client.infer("both", {"file": objects(file)})["answer"]
    expected = -(pillow(file, (HEIGHT, WIDTH)) / np.float32(255)).transpose(2, 0, 1)
    np.testing.assert_allclose(answer[0], expected, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ["picture first", "picture last"])
def test_other_inputs_of_the_model_stay_as_they_are(
    server: StartServer, models: Path, backend: str, order: str
) -> None:
    inputs = [
        onnx_tools.value("x", ["n", 3, HEIGHT, WIDTH]),
        onnx_tools.value("factor", ["n", 1, 1, 1]),
    ]
    onnx_tools.save(
        models / "two" / "1" / "model.onnx",
        "two",
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        inputs if order == "picture first" else inputs[::-1],
        [onnx_tools.value("y", ["n", 3, HEIGHT, WIDTH])],
        [],
    )
    config = {"pictures": {"x": {"form": "files", "scale": 255}}, "backend": backend}
    (models / "two" / "config.json").write_text(json.dumps(config))
    running = server("--backend", "auto", repository=models)
    rng = random.Random(SEED)
    files = [random_file(rng) for _ in range(3)]
    factors = np.array([1, -2, 3], np.float32).reshape(3, 1, 1, 1)
    with Client(f"http://{running.url}") as client:
        answer = client.infer("two", {"x": objects(*files), "factor": factors})["y"]
    pixels = np.stack([pillow(file, (HEIGHT, WIDTH)) for file in files])
    expected = (pixels / np.float32(255)).transpose(0, 3, 1, 2) * factors
    np.testing.assert_allclose(answer, expected, atol=1e-5)


def test_a_model_in_openvinos_own_form_takes_pictures(server: StartServer, models: Path) -> None:
    source = models / "x" / "1" / "model.onnx"
    onnx_tools.save(
        source,
        "x",
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [onnx_tools.value("x", ["n", 3, HEIGHT, WIDTH])],
        [onnx_tools.value("y", ["n", 3, HEIGHT, WIDTH])],
        [onnx_tools.initializer("factor", np.array([2], np.float32))],
    )
    (models / "x" / "config.json").write_text(json.dumps({"pictures": {"x": {"scale": 255}}}))
    openvino.save_model(openvino.Core().read_model(source), source.with_suffix(".xml"), False)
    source.unlink()
    running = server(repository=models)
    pixels = some_pixels(1, 2, HEIGHT, WIDTH, 3)
    expected = 2 * (pixels / np.float32(255)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(ask(running, "x", pixels), expected, atol=1e-6)


def test_answers_to_files_are_cached(server: StartServer, models: Path) -> None:
    write_model(
        models,
        "x",
        ["n", 3, HEIGHT, WIDTH],
        {"form": "files"},
        response_cache={"enable": True},
    )
    running = server(repository=models)
    rng = random.Random(SEED)
    one, other = random_file(rng), random_file(rng)
    first = [ask_files(running, "x", file) for file in (one, other)]
    again = [ask_files(running, "x", file) for file in (one, other)]
    np.testing.assert_array_equal(first, again)
    stats = document(running, "/v2/models/x/stats")["model_stats"][0]["inference_stats"]
    assert stats["cache_hit"]["count"] == 2


def test_a_reload_with_other_numbers_is_not_answered_by_the_old_graph(
    server: StartServer, models: Path
) -> None:
    """The file is the same, and OpenVINO's compiled form of it is kept."""
    shape: list[int | str] = ["n", 3, HEIGHT, WIDTH]
    pixels = some_pixels(1, 1, HEIGHT, WIDTH, 3)
    write_model(models, "x", shape, {"scale": 255})
    running = server("--tcp-control", "on", repository=models)
    for scale in (255, 2, 127.5, 255):
        write_model(models, "x", shape, {"scale": scale})
        load = f"http://{running.url}/v2/repository/models/x/load"
        urlopen(Request(load, b"{}", method="POST")).read()
        expected = -(pixels / np.float32(scale)).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(ask(running, "x", pixels), expected, rtol=1e-6)


# --- a real net -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_squeezenet_answers_files_as_it_answers_pillows_numbers(
    server: StartServer, repository: Path, models: Path, backend: str
) -> None:
    """torchvision's preparation: Resize(256), CenterCrop(224), ToTensor, Normalize."""
    mean, scale = np.array(MEAN, np.float32), np.array(SCALE, np.float32)
    settings = {"mean": MEAN, "scale": SCALE}
    for name, config in (
        ("plain", {}),
        ("pixels", {"pictures": {"data": settings}}),
        ("files", {"pictures": {"data": {"form": "files", "shorter_side": 256, **settings}}}),
    ):
        (models / name / "1").mkdir(parents=True)
        source = repository / "squeezenet" / "1" / "model.onnx"
        (models / name / "1" / "model.onnx").symlink_to(source)
        (models / name / "config.json").write_text(json.dumps({"backend": backend, **config}))
    running = server("--backend", "auto", "--follow-links", "on", repository=models)
    rng = random.Random(SEED)
    file = encoded(some_picture(rng, most=800), "JPEG")
    pixels = pillow(file, (224, 224), shorter_side=256)
    numbers = ((pixels - mean) / scale).transpose(2, 0, 1)[None]
    with Client(f"http://{running.url}") as client:
        expected = client.infer("plain", {"data": numbers})["logits"]
        of_pixels = client.infer("pixels", {"data": pixels[None]})["logits"]
        given = objects(file)
        of_file = client.infer("files", {"data": given})["logits"]
    most = np.abs(expected).max()
    assert np.abs(of_pixels - expected).max() < 1e-4 * most
    np.testing.assert_array_equal(of_file, of_pixels)
