# Finds speech in three streams at once with silero's model, whose state the server keeps. The
# package silero-vad (MIT) is fetched by pip; its model is taken out, nothing of it is run.
# Errors: exits 1 when the answers differ from those of a loop that keeps the state itself.
from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from lumen_engine import Client, Server

PACKAGE = "silero-vad==6.2.3"
MODEL = "silero_vad/data/silero_vad_16k_op15.onnx"
RATE, FRAME, CONTEXT, FRAMES = 16_000, 512, 64, 90
BARS, VOWEL = " .:-=+*#", (600, 1200, 2500)


def make_repository(folder: Path) -> Path:
    """Returns the model's file."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*words, "--disable-pip-version-check", PACKAGE], check=True)
    file = folder / "models" / "vad" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    with zipfile.ZipFile(next(folder.glob("silero_vad-*.whl"))) as wheel:
        file.write_bytes(wheel.read(MODEL))
    config = {"sequences": {"states": [{"input": "state", "output": "stateN"}]}}
    (file.parents[1] / "config.json").write_text(json.dumps(config))
    return file


def voice(pitch: float, every_s: float) -> np.ndarray:
    """A voice that sings a vowel and is silent in turn; frames with the samples before them."""
    time = np.arange(FRAMES * FRAME) / RATE
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.2 * np.sin(19 * time))) / RATE
    loudness = {k: sum(1 / (1 + ((k * pitch - f) / 140) ** 2) for f in VOWEL) for k in range(1, 25)}
    tone = sum(loudness[k] * np.sin(k * phase) for k in loudness)
    audio = 0.2 * tone * (np.sin(2 * np.pi * time / every_s) > 0)
    padded = np.concatenate([np.zeros(CONTEXT), audio]).astype(np.float32)
    return np.stack([padded[at * FRAME :][: CONTEXT + FRAME] for at in range(FRAMES)])[:, None]


def loop(file: Path, frames: np.ndarray) -> list[float]:
    """The same by hand: the state is sent with each request, and taken out of each answer."""
    session = onnxruntime.InferenceSession(file)
    state, found = np.zeros((2, 1, 128), np.float32), []
    for frame in frames:
        given = {"input": frame, "sr": np.array(RATE), "state": state}
        probability, state = session.run(None, given)
        found.append(probability.item())
    return found


def main() -> int:
    streams = {"anna": voice(210, 1.6), "ben": voice(160, 0.8), "nobody": voice(0, 1.0)}
    found: dict[str, list[float]] = {stream: [] for stream in streams}
    with tempfile.TemporaryDirectory() as name:
        file = make_repository(Path(name))
        with Server(Path(name) / "models") as server, Client(f"http://{server.url}") as client:
            for at in range(FRAMES):
                for stream, frames in streams.items():
                    inputs = {"input": frames[at], "sr": np.array(RATE)}
                    place = {"sequence_start": at == 0, "sequence_end": at == FRAMES - 1}
                    answer = client.infer("vad", inputs, sequence_id=stream, **place)
                    found[stream].append(answer["output"].item())
        for stream, levels in found.items():
            print(f"{stream:>6} |{''.join(BARS[int(8 * min(one, 0.99))] for one in levels)}|")
        alike = all(np.allclose(found[s], loop(file, f), atol=1e-3) for s, f in streams.items())
    print("the same as by hand" if alike else "NOT the same as by hand")
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
