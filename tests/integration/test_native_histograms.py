"""/metrics as Prometheus' messages: read by protobuf's library, and scraped by Prometheus itself
with native histograms on. The oracle of a quantile is the CSV, with a line for each request."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from integration import metrics_messages, prometheus
from integration.harness import PATIENCE, ROOT, Server, eventually
from integration.raw_http import Connection, get
from integration.test_open_metrics import TRACE, infer
from integration.triton_server import free_ports

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

StartServer = Callable[..., Server]
# As Prometheus 2.42 sends it with native histograms on.
SCRAPER = (
    "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding="
    "delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;"
    "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
FAMILY = "lumen_stage_duration_seconds"
SERIES = f'{FAMILY}{{model="mlp",stage="total"}}'


def scrape(connection: Connection) -> dict[str, Any]:
    reply = connection.exchange(get("/metrics", SCRAPER))
    assert reply.status == 200
    assert reply.headers["content-type"] == (
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
        "encoding=delimited"
    )
    families = metrics_messages.parse(reply.body)
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    return {family.name: family for family in families}


def labels_of(metric: Any) -> prometheus.Labels:
    return tuple(sorted((label.name, label.value) for label in metric.label))


def native_counts(histogram: Any) -> dict[int, int]:
    """By the bucket's index: its bounds are 2^((i-1)/8) and 2^(i/8)."""
    counts: dict[int, int] = {}
    deltas = iter(histogram.positive_delta)
    index = count = 0
    for span in histogram.positive_span:
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            counts[index] = count
            index += 1
    assert next(deltas, None) is None
    return counts


def test_messages_have_the_figures_of_the_text(server: StartServer) -> None:
    running = server()
    with running.connect() as connection:
        for _ in range(5):
            infer(connection)
        connection.exchange(get("/metrics"))  # counts itself
        told = scrape(connection)
        text = prometheus.parse(connection.exchange(get("/metrics")).body.decode())
    assert list(told) == list(text)
    for name, family in told.items():
        assert metrics_messages.KINDS[family.type] == text[name].kind, name
        assert family.help == text[name].help, name
        for metric in family.metric:
            labels = labels_of(metric)
            if metric.HasField("histogram"):
                sum_of = text[name].samples[f"{name}_sum", labels]
                assert math.isclose(metric.histogram.sample_sum, sum_of, rel_tol=1e-6)
                assert metric.histogram.sample_count == text[name].samples[f"{name}_count", labels]
            else:
                assert (name, labels) in text[name].samples, (name, labels)
        wanted = {labels for sample, labels in text[name].samples if not sample.endswith("_bucket")}
        assert {labels_of(metric) for metric in family.metric} == wanted, name
    success = told["lumen_inference_success_total"].metric
    assert [m.counter.value for m in success if ("model", "mlp") in labels_of(m)] == [5]


def test_native_buckets_hold_what_the_classic_ones_hold(server: StartServer) -> None:
    with server().connect() as connection:
        for _ in range(200):
            infer(connection)
        histograms = [metric.histogram for metric in scrape(connection)[FAMILY].metric]
    assert any(histogram.sample_count == 200 for histogram in histograms)
    for histogram in histograms:
        assert (histogram.schema, histogram.zero_threshold > 0) == (3, True)
        assert histogram.positive_span, "without one it would be a classic histogram"
        counts = native_counts(histogram)
        assert sum(counts.values()) + histogram.zero_count == histogram.sample_count
        assert all(count > 0 for count in counts.values())
        assert histogram.bucket[-1].upper_bound == math.inf
        assert histogram.bucket[-1].cumulative_count == histogram.sample_count
        for bucket in histogram.bucket:
            # A bucket that has the bound in it may be on either side.
            at = histogram.zero_count + sum(
                n for i, n in counts.items() if 2 ** (i / 8) <= bucket.upper_bound
            )
            most = histogram.zero_count + sum(
                n for i, n in counts.items() if 2 ** ((i - 1) / 8) <= bucket.upper_bound * 1.02
            )
            assert at <= bucket.cumulative_count <= most
        for bucket in histogram.bucket:
            assert not bucket.HasField("exemplar")


def test_a_bucket_has_the_trace_of_a_request(server: StartServer) -> None:
    with server().connect() as connection:
        infer(connection, flags="01")
        found = [
            (bucket.exemplar, bucket.upper_bound)
            for metric in scrape(connection)[FAMILY].metric
            for bucket in metric.histogram.bucket
            if bucket.HasField("exemplar")
        ]
    ((exemplar, bound),) = found
    assert [(label.name, label.value) for label in exemplar.label] == [("trace_id", TRACE)]
    assert 0 < exemplar.value <= bound
    assert abs(exemplar.timestamp.seconds - time.time()) < 100


@contextmanager
def scraped_by_prometheus(server: Server, folder: Path) -> Iterator[Callable[[str], Any]]:
    """Asks it: the value of an expression with one series, None where it has none."""
    (port,) = free_ports(1)
    target = f"{server.host}:{server.port}"
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"},
        "scrape_configs": [{"job_name": "lumen", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    words = [str(judge_programs.debian_program("prometheus")), "--enable-feature=native-histograms"]
    words += [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    words += [f"--web.listen-address=127.0.0.1:{port}"]
    log = folder / "prometheus.log"

    def ask(expression: str) -> Any:
        query = urllib.parse.urlencode({"query": expression})
        try:
            url = f"http://127.0.0.1:{port}/api/v1/query?{query}"
            with urllib.request.urlopen(url, timeout=10) as reply:
                result = json.load(reply)["data"]["result"]
        except OSError:
            return None
        return float(result[0]["value"][1]) if result else None

    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        eventually(lambda: ask("up") == 1, lambda: log.read_text()[-2000:], 30)
        yield ask
    finally:
        process.terminate()
        process.wait(30 * PATIENCE)


def test_prometheus_reads_quantiles_to_a_bucket_of_9_percent(
    server: StartServer, tmp_path: Path
) -> None:
    lines = tmp_path / "requests.csv"
    running = server("--telemetry-csv-path", str(lines))
    (tmp_path / "prometheus").mkdir()
    with scraped_by_prometheus(running, tmp_path / "prometheus") as ask:
        # Of a quiet model there is a histogram, without requests.
        assert ask(f"histogram_count({SERIES})") == 0
        with running.connect() as connection:
            for _ in range(1000):
                infer(connection)
        eventually(lambda: ask(f"histogram_count({SERIES})") == 1000)
        told = {q: ask(f"histogram_quantile({q}, {SERIES})") for q in (0.1, 0.5, 0.9, 0.99)}
        sum_s = ask(f"histogram_sum({SERIES})")
        assert ask(f"histogram_fraction(0, 100, {SERIES})") == 1
        assert ask('lumen_inference_success_total{model="mlp"}') == 1000
        running.stop()
    with lines.open(newline="") as file:
        total = sorted(float(row["total_us"]) / 1e6 for row in csv.DictReader(file))
    assert len(total) == 1000
    assert math.isclose(sum_s, sum(total), rel_tol=1e-6)
    width = 2 ** (1 / 8)
    for quantile, seconds in told.items():
        exact = float(np.quantile(total, quantile, method="inverted_cdf"))
        # The bucket of the value, and the histogram's own half bucket of 0.8 %.
        assert exact / width / 1.01 < seconds < exact * width * 1.01, quantile
