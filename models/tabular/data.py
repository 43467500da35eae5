# The breast-cancer table of scikit-learn (569 rows of 30 measurements, from UCI) and its one split:
# two thirds to train on, one third held out, for the trainer and the demo alike.
from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

SPLIT_SEED = 20261122


def split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and held-out rows (f32 [n,30]), training and held-out labels (1: benign)."""
    features, target = load_breast_cancer(return_X_y=True)
    return train_test_split(
        features.astype(np.float32),
        target,
        test_size=1 / 3,
        random_state=SPLIT_SEED,
        stratify=target,
    )
