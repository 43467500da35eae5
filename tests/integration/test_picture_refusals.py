"""Picture files and configurations that must be refused: each by its name and its place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import PATIENCE, Server
from integration.picture_files import (
    HEIGHT,
    WIDTH,
    ask_files,
    encoded,
    objects,
    pillow,
    png_of,
    random_file,
    some_picture,
    write_model,
    write_pixels_model,
)
from lumen_engine import Client, InferError

StartServer = Callable[..., Server]
SEED = 20261130


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    return folder


def refusal(server: Server, *files: bytes) -> str:
    with pytest.raises(InferError) as error:
        ask_files(server, "rgb", *files)
    assert error.value.status == 400
    return str(error.value)


def test_files_that_are_no_pictures_are_refused_by_their_place(
    server: StartServer, models: Path
) -> None:
    write_pixels_model(models, "rgb", (HEIGHT, WIDTH), most_pixels=1_000_000)
    running = server(repository=models)
    good = random_file(random.Random(1))
    jpeg = encoded(some_picture(random.Random(2)), "JPEG")
    assert "'x': element 1 is empty, wanted a JPEG or PNG file" in refusal(running, good, b"")
    gif = encoded(some_picture(random.Random(2), "P"), "GIF")
    assert "element 0 has" in refusal(running, gif)
    assert "47 49 46 38" in refusal(running, gif)
    assert "can't be decoded" in refusal(running, jpeg[: len(jpeg) // 2])
    assert "can't be decoded" in refusal(running, png_of(b"\0" * 100, 100, 100))
    cmyk = encoded(some_picture(random.Random(2)).convert("CMYK"), "JPEG")
    assert "CMYK" in refusal(running, cmyk)
    bomb = png_of(b"", 60_000, 60_000)
    assert "is a PNG of 60000 x 60000, wanted at most 1000000 pixels" in refusal(running, bomb)
    np.testing.assert_array_equal(ask_files(running, "rgb", good)[0], pillow(good, (HEIGHT, WIDTH)))


def test_changed_files_give_an_error_or_pixels_and_the_server_lives(
    server: StartServer, models: Path
) -> None:
    write_pixels_model(models, "rgb", (HEIGHT, WIDTH))
    running = server(repository=models)
    rng = random.Random(SEED)
    refused = 0
    with Client(f"http://{running.url}") as client:
        for _ in range(int(1500 / PATIENCE)):
            file = bytearray(random_file(rng))
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(file))
                file[at:] = rng.choice(
                    [
                        bytes([rng.randrange(256)]) + file[at + 1 :],
                        file[at + rng.randint(1, 30) :],
                        rng.randbytes(rng.randint(1, 30)) + file[at:],
                    ]
                )
                file = file or bytearray(b"\0")
            try:
                client.infer("rgb", {"x": objects(bytes(file))})
            except InferError as error:
                assert error.status == 400, str(error)
                refused += 1
    assert refused > 100
    good = random_file(rng)
    np.testing.assert_array_equal(ask_files(running, "rgb", good)[0], pillow(good, (HEIGHT, WIDTH)))


SHAPE: list[int | str] = ["n", 3, HEIGHT, WIDTH]


@pytest.mark.parametrize(
    ("shape", "pictures", "words"),
    [
        (SHAPE, {"form": "jpeg"}, 'pictures.x.form": got "jpeg", wanted one of "pixels" "files"'),
        (SHAPE, {"from": "files"}, 'unknown key "from" in "pictures.x"; did you mean "form"?'),
        (SHAPE, {"size": [1, 2]}, 'got "size": [1, 2], and the model takes FP32[-1,3,12,20]'),
        (SHAPE, {"size": 224}, 'pictures.x.size": got 224, wanted a height and a width from 1'),
        (SHAPE, {"scale": 0}, 'pictures.x.scale": got 0, wanted a number'),
        (SHAPE, {"mean": [1, 2]}, 'got 2 numbers of "mean" and 0 of "scale", wanted 1 or 3'),
        (SHAPE, {"mean": [1, 2, 3, 4]}, 'pictures.x.mean": got [1,2,3,4], wanted a number'),
        (SHAPE, {"channels": "grey"}, "wanted 1 channels there"),
        (SHAPE, {"layout": "nhwc"}, "wanted 3 channels there"),
        (SHAPE, {"filter": "bicubic"}, 'add "resize": true, or leave them out'),
        (SHAPE, {"form": "files", "resize": False}, "files are resized to the model's size always"),
        (SHAPE, {"form": "files", "shorter_side": 19}, "wanted at least 20, the longer side"),
        (["n", 3, "h", "w"], {}, "the model takes any height and width (FP32[-1,3,-1,-1]); give"),
        (["n", 3, 8, 3], {}, "the second or the fourth axis may be that of channels"),
        (["n", 3], {}, "wanted FP32 or UINT8 with four axes"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_with_the_fix(
    server: StartServer, models: Path, shape: list[int | str], pictures: Any, words: str
) -> None:
    write_model(models, "x", shape, pictures)
    write_pixels_model(models, "rgb", (HEIGHT, WIDTH))
    running = server(repository=models)
    assert running.wait_for_log(words)
    file = random_file(random.Random(1))
    assert ask_files(running, "rgb", file).shape == (1, HEIGHT, WIDTH, 3)


def test_an_input_that_the_model_does_not_have_is_refused(
    server: StartServer, models: Path
) -> None:
    write_model(models, "x", SHAPE, {})
    (models / "x" / "config.json").write_text(json.dumps({"pictures": {"data": {}}}))
    running = server(repository=models)
    assert running.wait_for_log(
        'key "pictures.data": the model has no such input, wanted one of "x"'
    )
