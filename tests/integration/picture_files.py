"""Models of one operator that take pictures, random picture files, and Pillow's pixels of them."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from integration.ensemble_models import onnx_tools
from integration.harness import Server
from lumen_engine import Client
from onnx import TensorProto, helper
from PIL import Image

HEIGHT, WIDTH = 12, 20
BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC


def write_model(
    models: Path,
    name: str,
    shape: list[int | str],
    pictures: dict[str, Any],
    operator: str = "Neg",
    dtype: int = TensorProto.FLOAT,
    **more: Any,
) -> None:
    """A model of one operator from x to y."""
    folder = models / name
    onnx_tools.save(
        folder / "1" / "model.onnx",
        name,
        [helper.make_node(operator, ["x"], ["y"])],
        [onnx_tools.value("x", shape, dtype)],
        [onnx_tools.value("y", shape, dtype)],
        [],
    )
    (folder / "config.json").write_text(json.dumps({"pictures": {"x": pictures}, **more}))


def write_pixels_model(models: Path, name: str, size: tuple[int, int], **pictures: Any) -> None:
    """Its answer is the pixels that the server made of a file."""
    channels = 1 if pictures.get("channels") == "grey" else 3
    write_model(
        models,
        name,
        ["rows", *size, channels],
        {"form": "files", "layout": "nhwc", **pictures},
        "Identity",
        TensorProto.UINT8,
    )


def document(server: Server, path: str) -> Any:
    with urlopen(f"http://{server.url}{path}") as reply:
        return json.load(reply)


def ask(server: Server, model: str, x: Any) -> np.ndarray:
    with Client(f"http://{server.url}") as client:
        return client.infer(model, {"x": x})["y"]


def objects(*files: bytes) -> np.ndarray:
    return np.array([*files, None], dtype=object)[:-1]


def ask_files(server: Server, model: str, *files: bytes) -> np.ndarray:
    return ask(server, model, objects(*files))


def some_pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def some_picture(rng: random.Random, mode: str = "RGB", most: int = 90) -> Image.Image:
    """Noise would hide errors of colour sampling; a coarse picture made larger has edges and
    slopes."""
    coarse = some_pixels(rng.randrange(1 << 30), rng.randint(1, 9), rng.randint(1, 9), 4)
    picture = Image.fromarray(coarse, "RGBA")
    picture = picture.resize((rng.randint(1, most), rng.randint(1, most)), BICUBIC)
    return picture.convert("RGB").convert(mode) if mode != "RGBA" else picture


def encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def random_file(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        picture = some_picture(rng, rng.choice(["RGB", "RGB", "L"]))
        return encoded(
            picture,
            "JPEG",
            quality=rng.choice([1, 30, 75, 95, 100]),
            progressive=rng.random() < 0.3,
            optimize=rng.random() < 0.3,
            **({"subsampling": rng.choice([0, 1, 2])} if picture.mode == "RGB" else {}),
        )
    return encoded(some_picture(rng, rng.choice(["RGB", "L", "P", "1", "RGBA", "LA"])), "PNG")


def pillow(
    file: bytes,
    size: tuple[int, int],
    mode: str = "RGB",
    resampling: Image.Resampling = BILINEAR,
    shorter_side: int = 0,
) -> np.ndarray:
    """The pixels that the server must make of the file."""
    picture = Image.open(io.BytesIO(file)).convert(mode)
    height, width = size
    if shorter_side:  # as torchvision's Resize and CenterCrop have it
        w, h = picture.size
        if w <= h:
            picture = picture.resize((shorter_side, int(shorter_side * h / w)), resampling)
        else:
            picture = picture.resize((int(shorter_side * w / h), shorter_side), resampling)
        left = round((picture.width - width) / 2.0)
        top = round((picture.height - height) / 2.0)
        picture = picture.crop((left, top, left + width, top + height))
    else:
        picture = picture.resize((width, height), resampling)
    return np.asarray(picture).reshape(height, width, -1)


def png_of(pixels: bytes, width: int, height: int, depth: int = 8, colour: int = 0) -> bytes:
    """Rows without filters; `pixels` may be fewer than the head says."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum_)

    row = width * (3 if colour == 2 else 1) * depth // 8
    rows = b"".join(b"\0" + pixels[i : i + row] for i in range(0, len(pixels), row))
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
