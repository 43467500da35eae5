#!/usr/bin/env python3
# Trains gradient boosting on the breast-cancer table and writes 1/model.onnx, by scikit-learn and
# skl2onnx. Seeded; a second on one core. Errors: exits 1 below 93 % of the held-out rows.
#
#   .venv/bin/python models/tabular/train.py
from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import data
import numpy as np
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingClassifier

SEED = 7
REQUIRED_ACCURACY = 0.93


def fit(rows: np.ndarray, labels: np.ndarray) -> GradientBoostingClassifier:
    model = GradientBoostingClassifier(n_estimators=100, max_depth=3, random_state=SEED)
    return model.fit(rows, labels)


def main() -> int:
    train_rows, held_out_rows, train_labels, held_out_labels = data.split()
    model = fit(train_rows, train_labels)
    accuracy = model.score(held_out_rows, held_out_labels)
    print(f"{accuracy:.2%} of {len(held_out_labels)} held-out rows right")
    if accuracy < REQUIRED_ACCURACY:
        return 1
    # Without zipmap: the probabilities as a tensor, not as a map a row.
    onnx = to_onnx(model, train_rows[:1], options={"zipmap": False}, target_opset=17)
    path = HERE / "1" / "model.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(onnx.SerializeToString(deterministic=True))
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
