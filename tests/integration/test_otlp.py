"""Spans by OTLP/HTTP: held against the CSV, against OpenTelemetry's SDK and decoder, and through a
collector that nobody here wrote; and collectors that are slow, wrong or away.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from integration import prometheus, raw_http2
from integration.certificates import Authority
from integration.ensemble_models import WIDTH, make_model
from integration.harness import (
    MODELS,
    PATIENCE,
    Server,
    copy_models,
    eventually,
    lumen_binary,
    run_serve,
)
from integration.load import infer_bytes, read_csv
from integration.otlp_spans import Span, requests_in, spans_of, stages_in
from integration.raw_http import get, post_json
from lumen_engine import Client
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanKind

StartServer = Callable[..., Server]
SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, PARENT = SAMPLED[3:35], SAMPLED[36:52]
Answer = tuple[int, dict[str, str], bytes]
TAKEN: Answer = (200, {}, b"")


class Collector:
    """Keeps the messages that it takes. `answers`: of its next requests, each once; then TAKEN.
    `certified`: a certificate and its key, for TLS."""

    def __init__(self, port: int = 0, certified: tuple[Path, Path] | None = None) -> None:
        self.answers: list[Answer] = []
        self.messages: list[bytes] = []
        self.heads: list[tuple[str, str]] = []
        self.attempts = 0
        self.news = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                status, headers, reply = collector.take(self, body)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(reply))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if certified is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certified)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = f"https://localhost:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def take(self, request: BaseHTTPRequestHandler, body: bytes) -> Answer:
        with self.news:
            self.attempts += 1
            self.heads.append((request.path, request.headers["Content-Type"]))
            answer = self.answers.pop(0) if self.answers else TAKEN
            if answer[0] == 200:
                self.messages.append(body)
            self.news.notify_all()
            return answer

    def wait_for_attempts(self, count: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: self.attempts >= count, 30 * PATIENCE)

    def spans(self) -> list[Span]:
        return spans_of(self.messages)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.close()


def request(name: str, *headers: str, tensor: str = "input", model: str = "identity") -> bytes:
    whole = infer_bytes(model, tensor, np.zeros((2, 3)), request_id=name)
    first, separator, rest = whole.partition(b"\r\n")
    return first + b"".join(b"\r\n" + line.encode() for line in headers) + separator + rest


def ask(server: Server, *requests: bytes) -> list[int]:
    with server.connect() as connection:
        return [connection.exchange(one).status for one in requests]


def traced(*names: str) -> list[bytes]:
    return [request(name, f"traceparent: {SAMPLED}") for name in names]


def figures(server: Server) -> dict[str, int]:
    with server.connect() as connection:
        families = prometheus.parse(connection.exchange(get("/metrics")).body.decode())
    names = ("records_exported", "records_dropped", "failures", "spans_rejected")
    return {name: int(prometheus.value(families, f"lumen_otlp_{name}_total")) for name in names}


def nanoseconds(text: str) -> int:
    """Of a timestamp of the CSV, in microseconds."""
    moment = datetime.fromisoformat(text)
    return int(moment.replace(microsecond=0).timestamp()) * 10**9 + moment.microsecond * 1000


def test_a_span_says_of_its_request_the_same_as_the_csv(
    server: StartServer, collector: Collector, tmp_path: Path
) -> None:
    csv = tmp_path / "requests.csv"
    one = server("--telemetry-csv-path", str(csv), "--otlp-endpoint", collector.url)
    off = SAMPLED[:-2] + "00"
    sent = [
        *traced(*(f"request-{number}" for number in range(50))),
        request("wrong", f"traceparent: {SAMPLED}", tensor="no_such_input"),
        request("not-sampled", f"traceparent: {off}"),
        request("without"),
    ]
    assert ask(one, *sent) == [200] * 50 + [400] + [200] * 2
    one.stop()
    lines = {line["request_id"]: line for line in read_csv(csv)}
    assert collector.heads[0] == ("/v1/traces", "application/x-protobuf")
    assert f"spans {collector.url}" in one.banner
    spans = collector.spans()
    found, parts = requests_in(spans), stages_in(spans)
    assert set(found) == set(lines) - {"not-sampled", "without"}
    for name, span in found.items():
        line = lines[name]
        assert (span["trace"], span["parent"]) == (TRACE, PARENT)
        assert span["name"] == "infer identity" and span["flags"] == 0x301
        assert span["resource"]["service.name"] == "lumen" and not span["is_error"]
        assert abs(span["begin"] - nanoseconds(line["timestamp"])) <= 1000
        said = {key.removeprefix("lumen."): str(v) for key, v in span["attributes"].items()}
        for column in ("model", "status", "lane", "transport"):
            assert said[column] == line[column]
        assert (said.get("rows", "0"), said.get("worker", "")) == (line["rows"], line["worker"])
        assert said["http.response.status_code"] == line["status"]
        durations = {
            stage: part["end"] - part["begin"] for stage, part in parts[span["id"]].items()
        }
        durations["total"] = span["end"] - span["begin"]
        for stage in ("parse", "queue", "preprocess", "inference", "postprocess", "write", "total"):
            told = line[f"{stage}_us"]
            assert f"{durations.get(stage, 0) / 1000:.3f}" == (told or "0.000"), (stage, line)
        if line["status"] == "200":
            for before, after in zip(list(durations)[:-2], list(durations)[1:-1], strict=True):
                assert parts[span["id"]][before]["end"] == parts[span["id"]][after]["begin"]


def test_the_spans_of_opentelemetrys_sdk_are_the_parents(
    server: StartServer, collector: Collector
) -> None:
    one = server("--otlp-endpoint", collector.url + "/v1/traces", "--otlp-service-name", "ranking")
    tracer = TracerProvider(sampler=ALWAYS_ON).get_tracer("client")
    unsampled = TracerProvider(sampler=ALWAYS_OFF).get_tracer("client")
    calls: dict[str, ReadableSpan] = {}
    for number in range(30):
        name = f"call-{number}"
        with tracer.start_as_current_span("checkout", kind=SpanKind.CLIENT) as span:
            headers: dict[str, str] = {}
            inject(headers)
            assert ask(one, request(name, f"traceparent: {headers['traceparent']}")) == [200]
        assert isinstance(span, ReadableSpan)
        calls[name] = span
        with unsampled.start_as_current_span("checkout"):
            inject(headers)
            assert ask(one, request("off", f"traceparent: {headers['traceparent']}")) == [200]
    one.stop()
    found = requests_in(collector.spans())
    assert set(found) == set(calls)
    for name, call in calls.items():
        context, ours = call.get_span_context(), found[name]
        assert context is not None and call.start_time is not None and call.end_time is not None
        assert ours["trace"] == f"{context.trace_id:032x}"
        assert ours["parent"] == f"{context.span_id:016x}"
        # The client may have the reply before the server's thread looks at its clock again.
        assert call.start_time <= ours["begin"] <= call.end_time
        assert ours["resource"]["service.name"] == "ranking"


def test_requests_of_each_transport_have_spans(
    server: StartServer, collector: Collector, tmp_path: Path
) -> None:
    bus = tmp_path / "bus"
    one = server("--otlp-endpoint", collector.url, "--otlp-one-in", "1", "--bus", str(bus))
    row = np.zeros((1, 3), np.float32)
    assert ask(one, *traced("http")) == [200]
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}
    body = json.dumps({"id": "http2", "inputs": [tensor]}).encode()
    with raw_http2.Connection(one.address) as connection:
        path = "/v2/models/identity/infer"
        connection.send(raw_http2.rest(1, "POST", path, body, traceparent=SAMPLED))
        assert connection.reply(1).status == 200
        sent = raw_http2.identity(row.tobytes(), b"grpc")
        connection.send(raw_http2.call(3, raw_http2.INFER, sent, traceparent=SAMPLED))
        assert connection.end_of(3)[-1].headers["grpc-status"] == "0"
    with Client(f"bus:{bus}") as client:
        client.infer("identity", {"input": row})
    one.stop()
    spans = list(requests_in(collector.spans()).values())
    found = {span["attributes"]["lumen.transport"]: span for span in spans}
    assert len(spans) == 4 and set(found) == {"http", "http2", "grpc", "bus"}
    for transport, span in found.items():
        whose = (span["trace"], span["parent"]) == (TRACE, PARENT)
        assert whose == (transport != "bus"), transport
        is_http = "http.response.status_code" in span["attributes"]
        assert is_http == (transport in ("http", "http2"))
    assert found["grpc"]["attributes"]["rpc.system"] == "grpc"


@contextmanager
def rotel(to: str) -> Iterator[str]:
    """A collector written in Rust, which passes spans on to `to`; gives its URL."""
    place = importlib.util.find_spec("rotel")
    assert place is not None and place.origin is not None
    program = Path(place.origin).with_name("rotel-agent")
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = [found.getsockname()[1] for found in (one, two)]
    words = ["start", "--otlp-http-endpoint", f"127.0.0.1:{ports[0]}"]
    words += ["--otlp-grpc-endpoint", f"127.0.0.1:{ports[1]}", "--exporter", "otlp"]
    words += ["--otlp-exporter-endpoint", to, "--otlp-exporter-protocol", "http"]
    process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: is_listening(ports[0]), lambda: f"rotel: {process.poll()}")
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        process.terminate()
        process.wait(timeout=20 * PATIENCE)


def is_listening(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.tool
def test_a_collector_of_others_takes_the_spans_and_passes_them_on(
    server: StartServer, collector: Collector
) -> None:
    with rotel(collector.url) as url:
        one = server("--otlp-endpoint", url, "--otlp-one-in", "1")
        names = [f"request-{number}" for number in range(200)]
        assert ask(one, *(request(name) for name in names)) == [200] * 200
        one.stop()
        # It sends batches on, the last one when it ends.
        eventually(lambda: sum(map(len, collector.messages)) > 200 * 300, lambda: "no spans")
    spans = collector.spans()
    assert set(requests_in(spans)) == set(names)
    assert all(part.keys() >= {"parse", "inference"} for part in stages_in(spans).values())


def test_steps_of_an_ensemble_are_spans_within_that_of_their_request(
    server: StartServer, collector: Collector, tmp_path: Path
) -> None:
    models = tmp_path / "ensembles"
    make_model(models, "plus", "front")
    make_model(models, "plus", "back")
    steps = [
        {"model": "front", "inputs": {"x": "x"}, "outputs": {"y": "t"}},
        {"model": "back", "inputs": {"x": "t"}, "outputs": {"y": "y"}},
    ]
    (models / "both").mkdir()
    (models / "both" / "config.json").write_text(json.dumps({"ensemble": {"steps": steps}}))
    one = server("--otlp-endpoint", collector.url, "--otlp-one-in", "1", repository=models)
    names = [f"request-{number}" for number in range(20)]
    row = np.ones((1, WIDTH))
    assert (
        ask(one, *(infer_bytes("both", "x", row, request_id=name) for name in names)) == [200] * 20
    )
    one.stop()
    spans = collector.spans()
    found = requests_in(spans)
    assert set(found) == set(names)
    assert len({span["trace"] for span in found.values()}) == 20
    for span in found.values():
        inner = [one for one in spans if one["parent"] == span["id"] and one["name"][:5] == "step "]
        assert [one["name"] for one in inner] == ["step front", "step back"]
        assert all(one["trace"] == span["trace"] for one in inner)
        front, back = inner
        assert span["begin"] <= front["begin"] <= front["end"] <= back["end"] <= span["end"]
        for one_step in inner:
            assert "inference" in stages_in(spans)[one_step["id"]]


def test_one_in_n_of_the_requests_without_a_traceparent_begins_a_trace(
    server: StartServer, collector: Collector
) -> None:
    one = server("--otlp-endpoint", collector.url, "--otlp-one-in", "5")
    sent = [request(f"plain-{number}") for number in range(100)]
    off = SAMPLED[:-2] + "00"
    sent += [request("not-sampled", f"traceparent: {off}") for _ in range(20)]
    assert ask(one, *sent) == [200] * 120
    one.stop()
    found = requests_in(collector.spans())
    assert len(found) == 20 and not any(span["parent"] for span in found.values())
    assert len({span["trace"] for span in found.values()}) == 20


def test_each_request_is_counted_once_whether_the_collector_follows_or_not(
    server: StartServer, collector: Collector
) -> None:
    one = server("--otlp-endpoint", collector.url, "--otlp-one-in", "1")
    words = [str(lumen_binary()), "bench", f"http://{one.url}", "--model", "mlp", "--json"]
    words += ["--clients", "16", "--requests", "20000", "--warm-up", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100 * PATIENCE)
    assert done.returncode == 0, done.stderr
    with one.connect() as connection:
        families = prometheus.parse(connection.exchange(get("/metrics")).body.decode())
    asked = int(prometheus.value(families, "lumen_responses_total", **{"class": "2xx"}))
    eventually(
        lambda: figures(one)["records_exported"] + figures(one)["records_dropped"] >= 20000,
        lambda: str((asked, figures(one))),
    )
    exported = figures(one)["records_exported"]
    one.stop()
    assert len(requests_in(collector.spans())) >= exported > 0


def test_a_message_that_may_be_taken_later_is_sent_again_and_nothing_is_lost(
    server: StartServer, collector: Collector
) -> None:
    collector.answers = [(503, {}, b""), (429, {"Retry-After": "1"}, b"")]
    one = server("--otlp-endpoint", collector.url)
    assert ask(one, *traced("a", "b")) == [200, 200]
    collector.wait_for_attempts(3)
    wanted = {"records_exported": 2, "records_dropped": 0, "failures": 2, "spans_rejected": 0}
    eventually(lambda: figures(one) == wanted, lambda: str(figures(one)))
    one.stop()
    assert set(requests_in(collector.spans())) == {"a", "b"}
    assert not [line for line in one.log if "otlp_endpoint" in line]


def test_a_message_that_is_refused_is_dropped_told_once_and_the_next_one_is_sent(
    server: StartServer, collector: Collector
) -> None:
    collector.answers = [(404, {}, b""), (400, {}, b"")]
    one = server("--otlp-endpoint", collector.url)
    for attempt, name in enumerate(("a", "b", "c"), 1):
        assert ask(one, *traced(name)) == [200]
        collector.wait_for_attempts(attempt)
    wanted = {"records_exported": 1, "records_dropped": 2, "failures": 2, "spans_rejected": 0}
    eventually(lambda: figures(one) == wanted, lambda: str(figures(one)))
    told = [line for line in one.log if "otlp_endpoint" in line]
    assert len(told) == 1
    assert "answered 404; wanted the URL of its OTLP/HTTP receiver" in told[0]
    assert set(requests_in(collector.spans())) == {"c"}


def test_spans_that_a_collector_refuses_of_a_message_are_counted(
    server: StartServer, collector: Collector
) -> None:
    # ExportTraceServiceResponse{partial_success{rejected_spans: 3, error_message: "no"}}
    collector.answers = [(200, {}, bytes([0x0A, 6, 0x08, 3, 0x12, 2]) + b"no")]
    one = server("--otlp-endpoint", collector.url)
    assert ask(one, *traced("a")) == [200]
    collector.wait_for_attempts(1)
    eventually(lambda: figures(one)["spans_rejected"] == 3, lambda: str(figures(one)))
    assert one.wait_for_log("otlp_endpoint", "refused 3 spans")


def test_a_collector_that_comes_later_gets_later_spans(server: StartServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    one = server("--otlp-endpoint", f"http://127.0.0.1:{port}")
    assert ask(one, *traced("early")) == [200]
    one.wait_for_log("otlp_endpoint", "Connection refused", "spans are dropped")
    late = Collector(port)
    try:
        assert ask(one, *traced("late")) == [200]
        eventually(lambda: figures(one)["records_exported"] == 1, lambda: str(figures(one)))
        one.stop()
        assert set(requests_in(late.spans())) == {"late"}
    finally:
        late.close()


def test_a_server_whose_collector_never_answers_serves_and_stops(server: StartServer) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        one = server("--otlp-endpoint", url, "--otlp-one-in", "1")
        for batch in range(5):
            names = [f"request-{batch}-{number}" for number in range(100)]
            assert ask(one, *(request(name) for name in names)) == [200] * 100
        one.interrupt()
        assert one.wait() == 0


def test_a_collector_of_tls_gets_the_spans_where_its_authority_is_known(
    server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    collector = Collector(certified=authority.sign("collector"))
    try:
        stranger = server("--otlp-endpoint", collector.url)
        assert ask(stranger, *traced("a")) == [200]
        stranger.wait_for_log("otlp_endpoint", "certificate verify failed")
        eventually(
            lambda: figures(stranger)["records_dropped"] == 1, lambda: str(figures(stranger))
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        one = server("--otlp-endpoint", collector.url)
        assert ask(one, *traced("b")) == [200]
        collector.wait_for_attempts(1)
        assert list(requests_in(collector.spans())) == ["b"]
    finally:
        collector.close()


def test_a_collector_whose_name_is_not_known_does_not_stop_the_server(server: StartServer) -> None:
    one = server("--otlp-endpoint", "http://no-such-host.invalid:4318")
    one.wait_for_log("otlp_endpoint", "no-such-host.invalid")
    assert ask(one, *traced("a")) == [200]
    eventually(lambda: figures(one)["records_dropped"] == 1, lambda: str(figures(one)))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("grpc://127.0.0.1:4317", "at port 4318"),
        ("grpcs://127.0.0.1:4317", "at port 4318"),
        ("127.0.0.1:4318", "wanted http://HOST:PORT"),
        ("http://127.0.0.1:99999", "its port is not 1 to 65535"),
        ("http://", "has no host"),
    ],
)
def test_an_endpoint_that_is_none_is_refused_at_the_start(url: str, words: str) -> None:
    done = run_serve(
        "--model-repository", str(MODELS), "--http", "127.0.0.1:0", "--otlp-endpoint", url
    )
    assert done.returncode != 0 and "otlp_endpoint" in done.stderr.replace("-", "_")
    assert words in done.stderr


def test_a_span_names_the_model_that_was_asked_while_models_come_and_go(
    server: StartServer, collector: Collector, tmp_path: Path
) -> None:
    """An index of a model that has gone is the next one's."""
    models = copy_models(tmp_path / "own", [MODELS / "identity", MODELS / "mlp"])
    for name in ("first", "second"):
        make_model(models, "plus", name)
    words = ("--otlp-endpoint", collector.url, "--otlp-one-in", "1", "--tcp-control", "on")
    one = server(*words, "--model-control", "explicit", repository=models)
    row = np.ones((1, WIDTH))
    with one.connect() as connection:
        for number in range(30):
            name = ("first", "second")[number % 2]
            path = f"/v2/repository/models/{name}"
            assert connection.exchange(post_json(f"{path}/load", {})).status == 200
            sent = infer_bytes(name, "x", row, request_id=f"{number}-{name}")
            assert connection.exchange(sent).status == 200
            assert connection.exchange(post_json(f"{path}/unload", {})).status == 200
    one.stop()
    found = requests_in(collector.spans())
    assert len(found) == 30
    for name, span in found.items():
        assert span["name"] == f"infer {name.partition('-')[2]}"
