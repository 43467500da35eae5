# One trace through two programs: a client's span of OpenTelemetry, and within it those of the
# server. A real collector is named as this one: --otlp-endpoint http://127.0.0.1:4318.
# Errors: exits 1 when the server's span does not begin within the client's.
from __future__ import annotations

import http.client
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

from opentelemetry.propagate import inject
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Server

WIDTH = 40


class Span(NamedTuple):
    depth: int
    name: str
    begin: int  # ns since the epoch, as `end`
    end: int


class Collector(BaseHTTPRequestHandler):
    spans: list[Span] = []
    came = threading.Event()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in part.scope_spans[0].spans:
                depth = 1 if span.name.startswith("infer ") else 2
                self.spans.append(
                    Span(depth, span.name, span.start_time_unix_nano, span.end_time_unix_nano)
                )
        self.send_response_only(200)
        self.end_headers()
        self.came.set()


def main() -> int:
    collector = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    pixels = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [0.5] * 64}
    body = json.dumps({"inputs": [pixels]})
    tracer = TracerProvider().get_tracer("shop")
    with Server(ROOT / "models", ["--otlp-endpoint", endpoint]) as server:
        connection = http.client.HTTPConnection(server.url)
        for _ in range(2):  # the second one finds the connection open
            Collector.spans.clear()
            Collector.came.clear()
            with tracer.start_as_current_span("checkout", kind=SpanKind.CLIENT) as span:
                headers: dict[str, str] = {}
                inject(headers)  # traceparent: 00-<trace>-<span>-01
                connection.request("POST", "/v2/models/digits/infer", body, headers)
                reply = connection.getresponse()
                assert reply.read() and reply.status == 200
            Collector.came.wait(30)
    whole = Span(0, span.name, span.start_time, span.end_time)
    for one in [whole, *Collector.spans]:
        left, right = ((t - whole.begin) * WIDTH // (whole.end - whole.begin) for t in one[2:])
        bar = " " * left + "█" * max(right - left, 1)
        name, took = "  " * one.depth + one.name, (one.end - one.begin) / 1e3
        print(f"{name:20} {bar:{WIDTH + 1}} {took:8.1f} us")
    first = Collector.spans[0]  # it may end later: the client has the reply by then
    return 0 if first.name == "infer digits" and whole.begin <= first.begin <= whole.end else 1


if __name__ == "__main__":
    sys.exit(main())
