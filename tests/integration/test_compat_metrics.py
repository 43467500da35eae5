"""The metrics by Triton's names: the numbers of the statistics, of each model that there is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, Server, copy_models
from integration.prometheus import parse
from integration.raw_http import get
from tritonclient.utils import InferenceServerException

STATISTICS = {
    "nv_inference_request_success": ("success", "count"),
    "nv_inference_request_failure": ("fail", "count"),
    "nv_inference_request_duration_us": ("success", "ns"),
    "nv_inference_queue_duration_us": ("queue", "ns"),
    "nv_inference_compute_input_duration_us": ("compute_input", "ns"),
    "nv_inference_compute_infer_duration_us": ("compute_infer", "ns"),
    "nv_inference_compute_output_duration_us": ("compute_output", "ns"),
    "nv_cache_num_hits_per_model": ("cache_hit", "count"),
    "nv_cache_num_misses_per_model": ("cache_miss", "count"),
    "nv_cache_hit_duration_per_model": ("cache_hit", "ns"),
    "nv_cache_miss_duration_per_model": ("cache_miss", "ns"),
}


def test_tritons_names_tell_the_numbers_of_the_statistics(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp", MODELS / "identity"])
    (models / "mlp" / "config.json").write_text(json.dumps({"response_cache": {"enable": True}}))
    with Server(models) as server, triton.InferenceServerClient(server.url) as client:
        for rows in (1, 2, 2, 5):
            array = np.ones((rows, 256), np.float32)
            one = triton.InferInput("input", [rows, 256], "FP32").set_data_from_numpy(array)
            client.infer("mlp", [one])
        wrong = triton.InferInput("input", [1, 255], "FP32")
        wrong.set_data_from_numpy(np.ones((1, 255), np.float32))
        with pytest.raises(InferenceServerException):
            client.infer("mlp", [wrong])
        stats = {one["name"]: one for one in client.get_inference_statistics()["model_stats"]}
        with server.connect() as connection:
            families = parse(connection.exchange(get("/metrics")).body.decode())
    for name in ("mlp", "identity"):
        labels = (("model", name), ("version", "1"))
        told = {key: families[key].samples[key, labels] for key in STATISTICS}
        for key, (part, kind) in STATISTICS.items():
            number = stats[name]["inference_stats"][part][kind]
            assert told[key] == pytest.approx(number / (1000 if kind == "ns" else 1)), key
        for key, part in (
            ("nv_inference_count", "inference_count"),
            ("nv_inference_exec_count", "execution_count"),
        ):
            assert families[key].samples[key, labels] == stats[name][part]
        pending = "nv_inference_pending_request_count"
        assert families[pending].kind == "gauge"
        assert families[pending].samples[pending, labels] == 0
    assert stats["mlp"]["inference_stats"]["cache_hit"]["count"] == 1
    assert stats["mlp"]["inference_stats"]["fail"]["count"] == 1
