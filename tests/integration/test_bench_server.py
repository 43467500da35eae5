"""bench/server.py: the rival, the limit and the direction of a ratio; the bytes that are sent."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import ROOT

from bench import server
from bench.load import backend_rows, floor, serving
from bench.rivals.build import PLACE, SOURCE, fill_in_registry
from bench.runner.places import BenchError

KEYS = "row metric unit ours rival rival_name ratio spread limit rounds".split()

pytestmark = pytest.mark.tool


def target(name: str, rates: list[float], latencies: list[float]) -> Any:
    one = serving.Target(name, serving.WORKLOADS[1], 0, b"", ROOT, None, ROOT)
    one.results[1] = [{"per_second": r, "p50_us": p} for r, p in zip(rates, latencies, strict=True)]
    return one


def row(metric: str) -> dict[str, Any]:
    ours = target("lumen inline", [900, 1000, 1100], [9, 10, 11])
    rivals = [
        target("slow", [100, 100, 100], [80, 80, 80]),
        target("best", [490, 500, 510], [20, 20, 20]),
    ]
    limits = [{"per_second": 5000.0, "p50_us": 3.0}]
    return serving.http_row(ours, rivals, 1, metric, limits)


def test_a_row_has_exactly_the_agreed_keys() -> None:
    assert list(row("throughput")) == KEYS


def test_each_queue_type_has_rows_of_its_own_and_none_is_anothers_rival() -> None:
    targets = [
        target(name, [100, 100, 100], [80, 80, 80])
        for name in ("lumen mpmc", "lumen inline", "rival")
    ]
    for one in targets:
        one.clients = (1,)
    rows = server.rows_of_queues(targets, {"mlp": [{"per_second": 5000.0, "p50_us": 3.0}]})
    assert [r["row"] for r in rows] == ["mlp, 1 client, inline"] * 2 + ["mlp, 1 client, mpmc"] * 2
    assert {r["rival_name"] for r in rows} == {"rival"}


def test_throughput_is_compared_with_the_rival_that_answers_most() -> None:
    got = row("throughput")
    assert (got["ours"], got["rival"], got["rival_name"], got["ratio"]) == (1000, 500, "best", 2)
    assert got["limit"] == 5000


def test_latency_is_compared_with_the_quickest_rival_and_a_ratio_above_1_is_ahead() -> None:
    got = row("p50 latency")
    assert (got["ours"], got["rival"], got["rival_name"], got["ratio"]) == (10, 20, "best", 2)


def test_a_row_of_two_cores_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = target("lumen mpmc", [1000], [10])
    monkeypatch.setattr(serving, "start_lumen", lambda *_: [one])
    monkeypatch.setattr(serving, "wait_for_answer", lambda _: None)
    one.request_file = ROOT / "no such file"
    monkeypatch.setattr(Path, "rename", lambda self, to: to)
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(()))
    one.process = subprocess.CompletedProcess([], 0)
    one.process.pid = 1
    split = serving.start_split_lumen(None, ROOT)
    split.results = {n: [{"per_second": 1.0, "p50_us": 1.0}] for n in (1, 4, 16)}
    rival = target("rival", [1], [1])
    rival.results[16] = rival.results[1]
    rows = server.rows_of_queues([split, rival], {"mlp": [{"per_second": 1.0, "p50_us": 1.0}]})
    assert all(r["row"].endswith("split, 2 cores") for r in rows)


def test_the_limit_of_auto_is_the_better_backend_that_was_named() -> None:
    rates = {"openvino": 1000.0, "onnxruntime": 1500.0, "auto": 1400.0}
    targets = [
        target(f"lumen inline, {name}", [rate], [1e6 / rate]) for name, rate in rates.items()
    ]
    targets.append(target("fastapi", [100.0], [9e3]))
    for one in targets:
        one.results[16] = one.results[1]
    rows = backend_rows.make_rows(targets)
    auto = {r["metric"]: r for r in rows if r["row"] == "mlp, 1 client, inline, auto"}
    assert (auto["throughput"]["ours"], auto["throughput"]["limit"]) == (1400, 1500)
    assert auto["p50 latency"]["limit"] == round(1e6 / 1500, 4)
    assert {r["rival_name"] for r in rows} == {"fastapi"} and len(rows) == 9


def wrk_body(ours: list[float], nginx: list[float]) -> Any:
    targets = [target(name, [1], [1]) for name in ("lumen inline", floor.FLOOR)]
    body = floor.WrkBody("binary, 1,167 bytes", ROOT, 143, *targets)
    for key, rates in (("ours", ours), ("floor", nginx)):
        body.runs[key] = [{"per_second": rate, "p50_us": 9, "client_share": 0.7} for rate in rates]
    return body


def test_a_row_by_wrk_is_the_median_of_each_rounds_ratio_to_the_floor() -> None:
    """A machine that halves its speed from round to round changes neither ratio nor spread."""
    got = floor.make_wrk_row(wrk_body([80, 45, 160], [100, 50, 200]))
    assert list(got) == KEYS
    assert got["row"] == "mlp, 16 connections, inline, wrk, binary, 1,167 bytes"
    assert (got["ours"], got["rival"], got["rival_name"]) == (80, 100, "nginx, empty answer")
    assert (got["ratio"], got["spread"]) == (0.8, 0.125)


def test_an_error_that_wrk_counted_ends_the_bench() -> None:
    def read(errors: int, status: int = 0) -> dict[str, float]:
        report = {"count": 300, "seconds": 2.0, "errors": errors, "p50_us": 7, "p99_us": 9}
        text = f"Running 2s test\n{json.dumps(report)}\n"
        return floor.wrk.read_report(subprocess.CompletedProcess([], status, text, ""), 1.5, 2.0)

    assert (read(0)["per_second"], read(0)["client_share"]) == (150, 0.75)
    for wrong in ((1,), (0, 1)):
        with pytest.raises(BenchError, match="wrk"):
            read(*wrong)


def test_the_json_body_is_the_same_tensor() -> None:
    work = serving.WORKLOADS[1]
    (tensor,) = json.loads(floor.json_body(work))["inputs"]
    assert (tensor["name"], tensor["shape"], tensor["datatype"]) == ("input", [1, 256], "FP32")
    assert np.array(tensor["data"], np.float32).tobytes() == work.array().tobytes()


def test_the_lock_file_of_hyper_names_the_registry_that_cargo_names() -> None:
    made = 'name = "x"\nsource = "registry+sparse-one"\n'
    filled = fill_in_registry((SOURCE / "hyper_ort" / "pinned.lock").read_text(), made)
    assert PLACE not in filled and filled.count('source = "registry+sparse-one"') > 20
    with pytest.raises(BenchError, match="no registry"):
        fill_in_registry("", 'name = "x"\n')


def test_lumens_request_equals_tritonclients() -> None:
    import tritonclient.http as triton

    work = serving.WORKLOADS[1]
    tensor = triton.InferInput(work.input, list(work.shape), "FP32")
    tensor.set_data_from_numpy(work.array())
    body, length = triton.InferenceServerClient.generate_request_body([tensor])
    ours = serving.lumen_request(work)
    head, _, sent = ours.partition(b"\r\n\r\n")
    assert sent == bytes(body)
    assert f"Inference-Header-Content-Length: {length}".encode() in head
