# The digits data and its one split: two thirds to train on, one third held out. The trainer and
# the demo both take it from here, so that the demo never shows an image the model was trained on.
# Source: scikit-learn's bundled copy of the UCI test set (1,797 scans of 8 x 8, values 0 to 16).
from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SPLIT_SEED = 20261120


def split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and held-out images (f32 [n,1,8,8], 0 to 16), training and held-out labels."""
    digits = load_digits()
    images = digits.images.astype(np.float32)[:, np.newaxis]
    return train_test_split(
        images, digits.target, test_size=1 / 3, random_state=SPLIT_SEED, stratify=digits.target
    )
