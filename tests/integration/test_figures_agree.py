"""One run, told by all that tells of it: CSV, counters file, /metrics, lumen top, lumen bench.

The server's own percentiles agree within 1 % or a bucket; those of lumen bench are the client's,
which are longer by a part that the server can't see: the way there and back. A single reply may be
at the client before the server's thread, held up after its write, has looked at the clock: so of
single requests only the time before the write is surely within the client's.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from integration import prometheus
from integration.harness import PATIENCE, Server, lumen_binary
from integration.raw_http import get
from lumen_engine.counters_file import CountersFile, Histogram
from lumen_engine.top.view import Look, view_of

pytestmark = pytest.mark.timing

StartServer = Callable[..., Server]
REQUESTS = 5_000
STAGES = ("parse", "queue", "preprocess", "inference", "postprocess", "write", "total")
PERCENTS = (50.0, 99.0, 99.9)


def nth(values: list[float], percent: float) -> float:
    """The smallest value that `percent` of them do not exceed."""
    return values[max(1, math.ceil(len(values) * percent / 100)) - 1]


def ns_of(path: Path, stage: str) -> list[float]:
    """A stage of all lines, in ns, sorted."""
    with path.open(newline="") as lines:
        texts = (line[f"{stage}_us"] for line in csv.DictReader(lines))
        return sorted(float(text) * 1000 for text in texts if text)


def before_write_ns_of(path: Path) -> list[float]:
    """From the first byte until the reply is written, of all lines, in ns, sorted."""
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return sorted((float(row["total_us"]) - float(row["write_us"])) * 1000 for row in rows)


def assert_same_bucket_or_within_1_percent(got: float, exact: float, what: str) -> None:
    # Half a bucket of 64 an octave is 0.8 %; below 64 ns a bucket is a nanosecond.
    assert got == pytest.approx(exact, rel=0.01, abs=1), what


def bounds_of(text: str, stage: str) -> dict[float, float]:
    """Requests by the bound of /metrics, in ns, that they are not above."""
    family = prometheus.parse(text)["lumen_stage_duration_seconds"]
    return {
        float(dict(labels)["le"]) * 1e9: count
        for (name, labels), count in family.samples.items()
        if name.endswith("_bucket") and ("stage", stage) in labels and ("model", "mlp") in labels
    }


def assert_metrics_fit(
    bounds: dict[float, float], histogram: Histogram, exact: list[float]
) -> None:
    assert bounds[math.inf] == histogram.count == len(exact)
    for bound, count in bounds.items():
        # A value that is let in above a bound is in its fine bucket: 1.6 % above it at most.
        below = sum(1 for value in exact if value <= bound)
        with_bucket = sum(1 for value in exact if value <= bound * 65 / 64 + 1)
        assert below <= count <= with_bucket, bound


def test_csv_counters_file_metrics_top_and_bench_tell_the_same_of_one_run(
    server: StartServer, tmp_path: Path
) -> None:
    lines, stats = tmp_path / "requests.csv", Path("/dev/shm") / f"{tmp_path.name}.counters"
    running = server("--telemetry-csv-path", str(lines), "--stats", str(stats))
    url = f"http://{running.host}:{running.port}"
    load = [str(lumen_binary()), "bench", url, "--model", "mlp", "--clients", "4", "--json"]
    load += ["--requests", str(REQUESTS), "--warm-up", "0"]
    with CountersFile(stats) as file:
        before = Look(file.snapshot(), None)
        done = subprocess.run(load, capture_output=True, text=True, timeout=60 * PATIENCE)
        assert done.returncode == 0, done.stderr
        with running.connect() as connection:
            text = connection.exchange(get("/metrics")).body.decode()
        after = Look(file.snapshot(), None)
    running.stop()
    (row,) = json.loads(done.stdout)["rows"]
    (model,) = (model for model in after.counts.models if model.name == "mlp")
    (told,) = (model for model in view_of(before, after).models if model.name == "mlp")

    for stage in STAGES:
        exact, histogram = ns_of(lines, stage), model.stages[stage]
        assert len(exact) == histogram.count >= REQUESTS
        assert histogram.sum == pytest.approx(sum(exact), rel=1e-6)
        for percent in PERCENTS:
            what = f"{stage} p{percent}"
            got = histogram.percentile(percent)
            assert_same_bucket_or_within_1_percent(got, nth(exact, percent), what)
        assert_metrics_fit(bounds_of(text, stage), histogram, exact)
    total, before_write = model.stages["total"], before_write_ns_of(lines)
    for percent, key in ((50.0, "p50"), (99.0, "p99"), (99.9, "p999")):
        assert getattr(told, f"{key}_ns") == total.percentile(percent), key
        assert row["latency_us"][key] > 0.99 * nth(before_write, percent) / 1000, key
    # The client's excess, in the mean: the way through the kernel, there and back.
    outside = row["latency_us"]["mean"] - row["server"]["stages_us"]["total"]
    assert row["server"]["outside_us"] == pytest.approx(outside, abs=0.01)
    assert outside > 0
