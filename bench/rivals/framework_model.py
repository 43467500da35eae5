"""A classifier as the framework itself runs it (scikit-learn, LightGBM), one thread: a Python
service before its model is converted.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np


class FrameworkModel:
    def __init__(self, path: str) -> None:
        self.classifier = pickle.loads(Path(path).read_bytes())

    def run(self, rows: np.ndarray) -> np.ndarray:
        return self.classifier.predict_proba(rows).astype(np.float32)

    def rows(self, body: bytes) -> np.ndarray:
        """The bytes as one row; a view, no copy."""
        return np.frombuffer(body, np.float32).reshape(1, -1)
