"""bench/server.py's arithmetic: who is the rival, which way the ratio points, what spread means."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
from integration.harness import ROOT

KEYS = "bench row metric unit ours rival rival_name ratio spread limit".split()


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_server", ROOT / "bench" / "server.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_server"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def target(bench: ModuleType, name: str, rates: list[float], latencies: list[float]) -> Any:
    one = bench.Target(name, bench.WORKLOADS[1], 0, b"", ROOT, None, ROOT)
    one.results[1] = [{"per_second": r, "p50_us": p} for r, p in zip(rates, latencies, strict=True)]
    return one


def row(bench: ModuleType, metric: str) -> dict[str, Any]:
    ours = target(bench, "lumen inline", [900, 1000, 1100], [9, 10, 11])
    rivals = [
        target(bench, "slow", [100, 100, 100], [80, 80, 80]),
        target(bench, "best", [490, 500, 510], [20, 20, 20]),
    ]
    limits = [{"per_second": 5000.0, "p50_us": 3.0}]
    return bench.make_row(ours, rivals, limits, 1, metric)


def test_a_row_has_exactly_the_agreed_keys(bench: ModuleType) -> None:
    assert list(row(bench, "throughput")) == KEYS


def test_each_queue_type_has_rows_of_its_own_and_none_is_anothers_rival(
    bench: ModuleType,
) -> None:
    targets = [
        target(bench, name, [100, 100, 100], [80, 80, 80])
        for name in ("lumen mpmc", "lumen inline", "rival")
    ]
    for one in targets:
        one.clients = (1,)
    rows = bench.make_rows(targets, {"mlp": [{"per_second": 5000.0, "p50_us": 3.0}]})
    assert [r["row"] for r in rows] == ["mlp, 1 client, inline"] * 2 + ["mlp, 1 client, mpmc"] * 2
    assert {r["rival_name"] for r in rows} == {"rival"}


def test_throughput_is_compared_with_the_rival_that_answers_most(bench: ModuleType) -> None:
    got = row(bench, "throughput")
    assert (got["ours"], got["rival"], got["rival_name"], got["ratio"]) == (1000, 500, "best", 2)
    assert got["limit"] == 5000


def test_latency_is_compared_with_the_quickest_rival_and_a_ratio_above_1_is_ahead(
    bench: ModuleType,
) -> None:
    got = row(bench, "p50 latency")
    assert (got["ours"], got["rival"], got["rival_name"], got["ratio"]) == (10, 20, "best", 2)


def test_spread_is_the_wider_of_the_two(bench: ModuleType) -> None:
    assert row(bench, "throughput")["spread"] == 0.2


def test_lumens_request_is_what_tritonclient_sends(bench: ModuleType) -> None:
    import tritonclient.http as triton

    work = bench.WORKLOADS[1]
    tensor = triton.InferInput(work.input, list(work.shape), "FP32")
    tensor.set_data_from_numpy(work.array())
    body, length = triton.InferenceServerClient.generate_request_body([tensor])
    ours = bench.lumen_request(work)
    head, _, sent = ours.partition(b"\r\n\r\n")
    assert sent == bytes(body)
    assert f"Inference-Header-Content-Length: {length}".encode() in head
