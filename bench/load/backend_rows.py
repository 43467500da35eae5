"""The rows of `bench/server.py` that compare backends: a network and two models of a table, with
each backend that can serve them and with `auto`, against FastAPI with ONNX Runtime and, for the
tables, with the framework that trained them (scikit-learn, LightGBM).

`inline`, since it adds least to the model. The limit of a row is the better of the backends that
are named, which `auto` has to find.
Threads: the caller's. Errors: as those of serving.py.
"""

from __future__ import annotations

import pickle
import shutil
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import lightgbm
from onnxmltools.convert import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

from bench.load import serving
from bench.load.serving import CLIENTS, ROOT, Target, Workload, column
from bench.runner import Row
from bench.runner.rows import paired_limit, rounded
from models.tabular import data, train

AUTO = "auto"
BACKENDS = {"mlp": ("openvino", "onnxruntime", AUTO)}
BACKENDS_OF_TABLES = ("onnxruntime", AUTO)  # OpenVINO has no operators of trees


def backends_of(work: Workload) -> tuple[str, ...]:
    return BACKENDS.get(work.model, BACKENDS_OF_TABLES)


def make_workloads(folder: Path) -> list[Workload]:
    """A repository of three models in `folder`, two of which are trained here, on the same rows."""
    repository = folder / "repository"
    for model in ("mlp", "tabular"):
        shutil.copytree(ROOT / "models" / model / "1", repository / model / "1")
    rows, held_out, labels, _ = data.split()
    trees = lightgbm.LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1).fit(rows, labels)
    types = [("X", FloatTensorType([None, rows.shape[1]]))]
    onnx = convert_lightgbm(trees, initial_types=types, target_opset=15, zipmap=False)
    file = repository / "lightgbm" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(onnx.SerializeToString())
    workloads = [Workload("mlp", "input", "output", (1, 256), repository)]
    for model, classifier in (("tabular", train.fit(rows, labels)), ("lightgbm", trees)):
        pickled = folder / f"{model}.pickle"
        pickled.write_bytes(pickle.dumps(classifier))
        row = tuple(float(value) for value in held_out[0])
        shape = (1, len(row))
        workloads.append(
            Workload(model, "X", "probabilities", shape, repository, False, pickled, row)
        )
    return workloads


def start(stack: ExitStack, folder: Path) -> list[Target]:
    workloads = make_workloads(folder)
    targets: list[Target] = []
    for backend in BACKENDS["mlp"]:
        flags = ["--backend", backend, "--backend-choices", "off", "--queue-type", "inline"]
        flags += ["--model-repository", str(workloads[0].repository)]
        served = [work for work in workloads if backend in backends_of(work)]
        name = f"inline, {backend}"
        targets += serving.start_lumen_with(stack, folder, name, flags, served)
    for work in workloads:
        rivals = ["fastapi"] if work.framework is None else ["fastapi", "fastapi-framework"]
        targets += [serving.start_rival(stack, folder, rival, work) for rival in rivals]
    for target in targets:
        serving.wait_for_answer(target)
    return targets


def make_rows(targets: list[Target]) -> list[Row]:
    """A limit is paired with ours by round: the same backend differs more from round to round than
    two backends do."""
    rows = []
    for work in {target.workload: None for target in targets}:
        mine = [t for t in targets if t.workload == work and serving.is_ours(t)]
        rivals = [t for t in targets if t.workload == work and not serving.is_ours(t)]
        named = [t for t in mine if not t.name.endswith(AUTO)]
        for ours in mine:
            for clients in CLIENTS:
                best = max(named, key=lambda t: median(column(t, clients, "per_second")))
                rows.append(row_against(ours, rivals, best, clients, "throughput"))
            best = min(named, key=lambda t: median(column(t, 1, "p50_us")))
            rows.append(row_against(ours, rivals, best, 1, "p50 latency"))
    return sorted(rows, key=lambda row: row["row"])


def row_against(ours: Target, rivals: list[Target], best: Target, clients: int, metric: str) -> Row:
    limits = best.results[clients]
    key = serving.METRICS[metric][0]
    limit = paired_limit(column(ours, clients, key), [run[key] for run in limits])
    return serving.http_row(ours, rivals, clients, metric, limits) | {"limit": rounded(limit)}
