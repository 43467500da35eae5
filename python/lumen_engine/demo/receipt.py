"""A receipt: drawn, photographed in software, and read by PP-OCR, two models with real weights.

The models are those of the PyPI package rapidocr-onnxruntime (Apache-2.0). One says for each pixel
whether it is text; the other reads a line as a row of characters. What lies between is here: the
boxes of lines, and the letters of the most likely characters (CTC: repeats and blanks are dropped).
Text runs from left to right and is nearly level. Threads: one. Errors: none of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFilter, ImageFont

# Each with its size in pixels.
LINES = (
    ("LUMEN COFFEE", 44),
    ("12 Harbour Street", 26),
    ("2 x Espresso 5.20", 28),
    ("1 x Oat Latte 4.10", 28),
    ("1 x Almond Cake 3.90", 28),
    ("Total 13.20", 34),
    ("Thank you!", 30),
)
SIDE = 640  # of the photograph; a multiple of 32, as the first model wants it
LINE_HEIGHT = 48  # as the second model wants it
TEXT = 0.3  # how sure the first model has to be of a pixel
SMALLEST = 6  # pixels of a line's box
WOOD = (98, 74, 56)


@dataclass(frozen=True)
class Line:
    text: str
    sure: float  # the mean of its characters


def draw() -> Image.Image:
    paper = Image.new("RGB", (520, 470), (246, 243, 236))
    pen = ImageDraw.Draw(paper)
    y = 28
    for text, size in LINES:
        pen.text((40, y), text, fill=(38, 36, 40), font=ImageFont.load_default(size))
        y += size + 24
    return paper


def photograph(paper: Image.Image) -> Image.Image:
    """Tilted, lit from one side, not quite sharp, with the noise of a camera."""
    table = Image.new("RGB", (SIDE, SIDE), WOOD)
    table.paste(paper, (60, 85))
    tilted = table.rotate(2.2, resample=Image.Resampling.BICUBIC, fillcolor=WOOD)
    blurred = tilted.filter(ImageFilter.GaussianBlur(0.9))
    light = np.linspace(1.05, 0.72, SIDE)[np.newaxis, :, np.newaxis]
    noise = np.random.default_rng(1).normal(0, 5, (SIDE, SIDE, 3))
    pixels = np.asarray(blurred, np.float32) * light + noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def planes(image: Image.Image) -> np.ndarray:
    """[1,3,height,width], blue first, 0 to 255."""
    pixels = np.asarray(image, np.float32)[:, :, ::-1]
    return pixels.transpose(2, 0, 1)[np.newaxis]


def detection_input(photo: Image.Image) -> np.ndarray:
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
    deviation = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)
    return np.ascontiguousarray((planes(photo) / 255 - mean) / deviation)


def lines_of(photo: Image.Image, is_text: np.ndarray) -> list[Image.Image]:
    """The lines from top to bottom; `is_text` [height,width]: the first model's answer."""
    boxes = []
    for left, top, right, bottom in patches(is_text > TEXT):
        if min(bottom - top, right - left) < SMALLEST:
            continue
        rim = math.ceil((bottom - top) * 0.35)  # the model marks the middle of a line
        boxes.append((left - rim, top - rim, right + rim, bottom + rim))
    return [photo.crop(box) for box in sorted(boxes, key=lambda box: box[1])]


def patches(marked: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Left, top, right and bottom of each patch of marked pixels that touch, by flood filling."""
    left = set(zip(*(places.tolist() for places in np.nonzero(marked))))
    found = []
    while left:
        edge, rows, columns = [left.pop()], [], []
        while edge:
            row, column = edge.pop()
            rows.append(row)
            columns.append(column)
            for step in (
                (row - 1, column),
                (row + 1, column),
                (row, column - 1),
                (row, column + 1),
            ):
                if step in left:
                    left.remove(step)
                    edge.append(step)
        found.append((min(columns), min(rows), max(columns) + 1, max(rows) + 1))
    return found


def recognition_input(line: Image.Image) -> np.ndarray:
    width = max(LINE_HEIGHT, round(line.width * LINE_HEIGHT / line.height))
    scaled = line.resize((width, LINE_HEIGHT), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(planes(scaled) / 127.5 - 1)


def characters(model: Path) -> list[str]:
    """By the numbers of the second model's outputs; 0 is none."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    kept = session.get_modelmeta().custom_metadata_map
    return ["", *kept["character"].splitlines(), " "]


def read(probabilities: np.ndarray, known: list[str]) -> Line:
    """`probabilities` [places,characters]: the second model's answer."""
    best, sure = probabilities.argmax(1), probabilities.max(1)
    is_new = np.r_[True, best[1:] != best[:-1]] & (best != 0)
    text = "".join(known[number] for number in best[is_new])
    return Line(text, float(sure[is_new].mean()) if text else 0.0)
