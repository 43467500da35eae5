"""Models of tables as people train them: scikit-learn, LightGBM and XGBoost, converted to ONNX.

Trained when a test asks, a second or two each; nothing is kept.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import xgboost
from onnxmltools.convert import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import to_onnx
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

TABLES = {"binary": load_breast_cancer, "multiclass": load_iris, "regression": load_diabetes}
TREES = {"n_estimators": 20, "n_jobs": 1}


@dataclass
class Case:
    """A trained model, its ONNX file and the table that it was trained on."""

    model: Any
    onnx: bytes
    table: np.ndarray
    takes_nan: bool = False

    @property
    def is_classifier(self) -> bool:
        return hasattr(self.model, "predict_proba")


def table(kind: str) -> tuple[np.ndarray, np.ndarray]:
    features, target = TABLES[kind](return_X_y=True)
    return features.astype(np.float32), target


def sklearn_case(make: Callable[[], Any], zipmap: bool) -> Case:
    features, target = table("binary")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few iterations for a perfect fit
        model = make().fit(features, target)
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    onnx = to_onnx(model, features[:1], options={id(last): {"zipmap": zipmap}})
    return Case(model, onnx.SerializeToString(), features)


def boosted_case(library: str, kind: str) -> Case:
    features, target = table(kind)
    if library == "lightgbm":
        parts = (lightgbm.LGBMClassifier, lightgbm.LGBMRegressor, convert_lightgbm, {"verbose": -1})
    else:
        parts = (xgboost.XGBClassifier, xgboost.XGBRegressor, convert_xgboost, {})
    classifier, regressor, convert, options = parts
    model = (regressor if kind == "regression" else classifier)(**TREES, **options)
    model.fit(features, target)
    types = [("X", FloatTensorType([None, features.shape[1]]))]
    onnx = convert(model, initial_types=types, target_opset=15)
    return Case(model, onnx.SerializeToString(), features, takes_nan=True)


MAKERS: dict[str, Callable[[], Case]] = {
    "logistic": lambda: sklearn_case(lambda: LogisticRegression(max_iter=5000), True),
    "logistic_plain": lambda: sklearn_case(lambda: LogisticRegression(max_iter=5000), False),
    "forest": lambda: sklearn_case(lambda: RandomForestClassifier(50, random_state=1), True),
    "forest_plain": lambda: sklearn_case(lambda: RandomForestClassifier(50, random_state=1), False),
    "boosting": lambda: sklearn_case(lambda: GradientBoostingClassifier(random_state=1), True),
    "boosting_plain": lambda: sklearn_case(
        lambda: GradientBoostingClassifier(random_state=1), False
    ),
    "scaled_mlp": lambda: sklearn_case(
        lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=200, random_state=1)),
        True,
    ),
    **{
        f"{library}_{kind}": lambda library=library, kind=kind: boosted_case(library, kind)
        for library in ("lightgbm", "xgboost")
        for kind in TABLES
    },
}


def make_repository(folder: Path, backend: str = "onnxruntime") -> dict[str, Case]:
    """Writes all of them as a model repository; returns the expected answers."""
    cases = {name: make() for name, make in MAKERS.items()}
    for name, case in cases.items():
        write_model(folder, name, case.onnx, backend)
    return cases


def write_model(folder: Path, name: str, onnx: bytes, backend: str) -> None:
    (folder / name / "1").mkdir(parents=True)
    (folder / name / "1" / "model.onnx").write_bytes(onnx)
    (folder / name / "config.json").write_text(json.dumps({"backend": backend}))
