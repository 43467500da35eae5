# The lines of text, cut out of the picture, one below the other; grey behind a short one's end.
import numpy as np
from lumen_engine.demo import receipt
from PIL import Image

START = 192  # pixels of a line's beginning, by which its direction is seen


def run(inputs):
    is_text = inputs["is_text"][0, 0]
    photo = Image.fromarray(inputs["picture"]).resize(is_text.shape[::-1])
    # Without text: a line that holds none, since a model takes no row less.
    found = receipt.lines_of(photo, is_text) or [Image.new("RGB", (48, 48), "grey")]
    lines = [receipt.recognition_input(line)[0] for line in found]
    widths = np.array([line.shape[2] for line in lines])
    table = np.zeros((len(lines), 3, receipt.LINE_HEIGHT, max(START, widths.max())), np.float32)
    for row, line in zip(table, lines):
        row[:, :, : line.shape[2]] = line
    return {"lines": table, "widths": widths, "starts": table[:, :, :, :START]}
