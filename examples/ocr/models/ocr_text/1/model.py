# The text of each line, and how sure its characters are.
from pathlib import Path

import numpy as np
from lumen_engine.demo import receipt

MODEL = Path(__file__).parents[2] / "ocr_recognition" / "1" / "model.onnx"
CHARACTERS = receipt.characters(MODEL)


def run(inputs):
    lines = [receipt.read(row, CHARACTERS) for row in inputs["characters"]]
    texts = np.array([line.text.encode() for line in lines], np.object_)
    return {"text": texts, "sure": np.array([line.sure for line in lines], np.float32)}
