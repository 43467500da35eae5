"""/metrics as OpenMetrics, read by Prometheus' own client library, which is strict."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from integration import prometheus
from integration.harness import Server
from integration.raw_http import Connection, get, post_json
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar

StartServer = Callable[..., Server]
# As Prometheus 2.42 sends it.
SCRAPER = (
    "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
    "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
TRACE = "0af7651916cd43dd8448eb211c80319c"


def infer(connection: Connection, flags: str = "") -> None:
    lines = [f"traceparent: 00-{TRACE}-b7ad6b7169203331-{flags}"] if flags else []
    inputs = [{"name": "input", "datatype": "FP32", "shape": [1, 256], "data": [0.0] * 256}]
    reply = connection.exchange(post_json("/v2/models/mlp/infer", {"inputs": inputs}, *lines))
    assert reply.status == 200


def with_bounds_as_numbers(labels: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The two formats write whole bounds in two ways."""
    return frozenset((k, str(float(v)) if k == "le" else v) for k, v in labels)


def exemplars(connection: Connection) -> list[Exemplar]:
    reply = connection.exchange(get("/metrics", SCRAPER))
    return [
        sample.exemplar
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
        if sample.exemplar
    ]


def test_both_formats_have_the_same_figures(server: StartServer) -> None:
    with server().connect() as connection:
        for _ in range(3):
            infer(connection)
        reply = connection.exchange(get("/metrics", SCRAPER))
        assert (
            reply.headers["content-type"]
            == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        )
        text = reply.body.decode()
        assert text.endswith("\n# EOF\n")
        families = list(text_string_to_metric_families(text))
        samples = {
            (sample.name, with_bounds_as_numbers(sample.labels.items()))
            for family in families
            for sample in family.samples
        }
        plain = connection.exchange(get("/metrics"))
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        expected = {
            (name, with_bounds_as_numbers(labels))
            for family in prometheus.parse(plain.body.decode()).values()
            for name, labels in family.samples
        }
        assert samples == expected
        kinds = {family.name: family.type for family in families}
        assert kinds["lumen_requests"] == "counter"
        assert kinds["nv_inference_request_success"] == "unknown"
        success = next(f for f in families if f.name == "lumen_inference_success")
        assert next(s.value for s in success.samples if s.labels["model"] == "mlp") == 3


def test_a_bucket_has_the_trace_of_a_request_that_fell_into_it(server: StartServer) -> None:
    with server().connect() as connection:
        infer(connection)
        infer(connection, flags="00")
        assert exemplars(connection) == [], "neither client records its trace"
        infer(connection, flags="01")
        (found,) = exemplars(connection)
        assert found.labels == {"trace_id": TRACE}
        assert 0 < found.value < 10
        assert found.timestamp is not None
        # It is that of the total time, and within the bounds of its bucket.
        families = text_string_to_metric_families(
            connection.exchange(get("/metrics", SCRAPER)).body.decode()
        )
        buckets = [
            sample
            for family in families
            if family.name == "lumen_stage_duration_seconds"
            for sample in family.samples
            if sample.name.endswith("_bucket")
            and (sample.labels["model"], sample.labels["stage"]) == ("mlp", "total")
        ]
        bounds = [float(bucket.labels["le"]) for bucket in buckets]
        place = next(i for i, bucket in enumerate(buckets) if bucket.exemplar)
        assert (bounds[place - 1] if place else 0) < found.value <= bounds[place]


def test_a_client_chooses_the_format_by_its_weights(server: StartServer) -> None:
    with server().connect() as connection:

        def is_open(*accept: str) -> bool:
            reply = connection.exchange(get("/metrics", *(f"Accept: {one}" for one in accept)))
            assert reply.status == 200
            return reply.headers["content-type"].startswith("application/openmetrics-text")

        assert not is_open()
        assert not is_open("*/*")
        assert not is_open("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
        assert not is_open("application/openmetrics-text;q=0.2,text/plain")
        assert not is_open("application/openmetrics-text;q=0")
        assert is_open("application/openmetrics-text")
        assert is_open("APPLICATION/openmetrics-text; version=1.0.0 ; q=0.9, text/plain;q=0.3")
