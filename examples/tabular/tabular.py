#!/usr/bin/env python3
# A scikit-learn pipeline from training to answers: train, convert, serve, call.
# Run: .venv/bin/python examples/tabular/tabular.py
# Errors: exits 1 with the server's words, or when an answer is not the pipeline's own.
from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import tritonclient.http as triton
from skl2onnx import to_onnx
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from lumen_engine import Server


def main() -> int:
    # Train.
    wines = load_wine()
    features = wines.data.astype(np.float32)
    train, held_out, labels, truth = train_test_split(features, wines.target, random_state=1)
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(50, random_state=1))
    pipeline.fit(train, labels)

    with tempfile.TemporaryDirectory() as folder:
        # Convert: one line. The repository's layout is NAME/VERSION/model.onnx.
        onnx = to_onnx(pipeline, train[:1])
        version = Path(folder) / "wine" / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").write_bytes(onnx.SerializeToString())

        # Serve, and call by any client of the Open Inference Protocol.
        with Server(Path(folder)) as server:
            client = triton.InferenceServerClient(server.url)
            rows = triton.InferInput("X", list(held_out.shape), "FP32")
            rows.set_data_from_numpy(held_out)
            answer = client.infer("wine", [rows])
            guesses = answer.as_numpy("output_label")
            sure = answer.as_numpy("output_probability").max(axis=1)

    print(f"{(guesses == truth).mean():.1%} of {len(truth)} held-out wines right")
    for guess, share, row in list(zip(guesses, sure, truth))[:3]:
        print(f"  {wines.target_names[guess]} ({share:.0%} sure), is {wines.target_names[row]}")
    same = np.array_equal(guesses, pipeline.predict(held_out))
    print("the answers are the pipeline's own" if same else "FAILED: not the pipeline's answers")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
