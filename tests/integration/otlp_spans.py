"""Spans of OTLP messages, read by OpenTelemetry's own decoder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

Span = dict[str, Any]


def refuse_unknown(message: Message) -> None:
    """A field that the decoder does not know would be a wrong number."""
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in value if field.is_repeated else [value]:
            refuse_unknown(one)


def attributes(pairs: Any) -> dict[str, Any]:
    values = {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
    assert len(values) == len(pairs), f"an attribute is there twice: {pairs}"
    return values


def spans_of(bodies: Iterable[bytes]) -> list[Span]:
    """Times in nanoseconds since the epoch, ids in hexadecimal digits."""
    found: list[Span] = []
    for body in bodies:
        message = ExportTraceServiceRequest.FromString(body)
        refuse_unknown(message)
        for resource_spans in message.resource_spans:
            resource = attributes(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                assert scope_spans.scope.name == "lumen"
                found += [read(span, resource) for span in scope_spans.spans]
    assert len({span["id"] for span in found}) == len(found)
    return found


def read(span: trace_pb2.Span, resource: dict[str, Any]) -> Span:
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": trace_pb2.Span.SpanKind.Name(span.kind),
        "begin": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "attributes": attributes(span.attributes),
        "is_error": span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        "flags": span.flags,
        "resource": resource,
    }


def requests_in(spans: list[Span]) -> dict[str, Span]:
    """Those of whole requests, by the request's id."""
    found = [span for span in spans if span["kind"] == "SPAN_KIND_SERVER"]
    return {span["attributes"]["lumen.request_id"]: span for span in found}


def stages_in(spans: list[Span]) -> dict[str, dict[str, Span]]:
    """Those of stages, by the id of their request or step, then by name."""
    found: dict[str, dict[str, Span]] = defaultdict(dict)
    for span in spans:
        if "lumen.model" not in span["attributes"]:
            assert span["name"] not in found[span["parent"]]
            found[span["parent"]][span["name"]] = span
    return found
