# An ensemble: pixels of 8 bits go to `scale`, its numbers to `digits`, and the digit's ink is
# measured at the same time. One request, where a client would make three.
# Errors: exits 1 when an answer differs from that of the models asked one by one.
from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "models")]
import onnx_tools
from digits import data as digits_data
from lumen_engine import Client, Server

ENSEMBLE = {
    "steps": [
        {"model": "scale", "inputs": {"pixels": "picture"}, "outputs": {"numbers": "scaled"}},
        {"model": "digits", "inputs": {"image": "scaled"}},
        {"model": "ink", "inputs": {"image": "scaled"}},
    ]
}
PICTURE = ["rows", 1, 8, 8]
GREYS = 15  # of 8 bits, for each of the 17 that the digits were scanned in


def make_repository(folder: Path) -> None:
    shutil.copytree(ROOT / "models" / "digits" / "1", folder / "digits" / "1")
    onnx_tools.save(
        folder / "scale" / "1" / "model.onnx",
        "scale",
        [
            helper.make_node("Cast", ["pixels"], ["whole"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["whole", "greys"], ["numbers"]),
        ],
        [onnx_tools.value("pixels", PICTURE, TensorProto.UINT8)],
        [onnx_tools.value("numbers", PICTURE)],
        [onnx_tools.initializer("greys", np.array(GREYS, np.float32))],
    )
    onnx_tools.save(
        folder / "ink" / "1" / "model.onnx",
        "ink",
        [helper.make_node("ReduceMean", ["image"], ["ink"], axes=[1, 2, 3], keepdims=0)],
        [onnx_tools.value("image", PICTURE)],
        [onnx_tools.value("ink", ["rows"])],
        [],
    )
    (folder / "read_digit").mkdir()
    (folder / "read_digit" / "config.json").write_text(json.dumps({"ensemble": ENSEMBLE}))


def main() -> int:
    _, pictures, _, labels = digits_data.split()
    pixels = (pictures * GREYS).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        make_repository(Path(folder))
        with Server(folder) as server, Client(f"http://{server.url}") as client:
            whole = client.infer("read_digit", {"picture": pixels})
            scaled = client.infer("scale", {"pixels": pixels})["numbers"]
            one_by_one = client.infer("digits", {"image": scaled})
            one_by_one |= client.infer("ink", {"image": scaled})
    right = (whole["probabilities"].argmax(axis=1) == labels).mean()
    print(f"{len(labels)} pictures: {right:.0%} read right; their ink is {whole['ink'].mean():.2f}")
    same = all(np.array_equal(whole[name], one_by_one[name]) for name in one_by_one)
    return 0 if same and right > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
