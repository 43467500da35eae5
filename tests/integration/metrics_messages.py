"""Prometheus' metrics.proto (prometheus/client_model), as far as Lumen's messages use it, for
protobuf's own library. The numbers and types are those of that file.

Errors: AssertionError for messages that are cut off, and for fields that stand in none of these.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Field = descriptor_pb2.FieldDescriptorProto
PACKAGE = "io.prometheus.client"
MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "LabelPair": {"name": (1, "string"), "value": (2, "string")},
    "Gauge": {"value": (1, "double")},
    "Counter": {"value": (1, "double"), "exemplar": (2, "Exemplar")},
    "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "Exemplar": {"label": (1, "*LabelPair"), "value": (2, "double"), "timestamp": (3, "Timestamp")},
    "Bucket": {
        "cumulative_count": (1, "uint64"),
        "upper_bound": (2, "double"),
        "exemplar": (3, "Exemplar"),
    },
    "BucketSpan": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": {
        "sample_count": (1, "uint64"),
        "sample_sum": (2, "double"),
        "bucket": (3, "*Bucket"),
        "schema": (5, "sint32"),
        "zero_threshold": (6, "double"),
        "zero_count": (7, "uint64"),
        "positive_span": (12, "*BucketSpan"),
        "positive_delta": (13, "*sint64"),
    },
    "Metric": {
        "label": (1, "*LabelPair"),
        "gauge": (2, "Gauge"),
        "counter": (3, "Counter"),
        "histogram": (7, "Histogram"),
    },
    "MetricFamily": {
        "name": (1, "string"),
        "help": (2, "string"),
        "type": (3, "int32"),
        "metric": (4, "*Metric"),
    },
}
KINDS = {0: "counter", 1: "gauge", 4: "histogram"}


def family_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="lumen_metrics.proto", package=PACKAGE, syntax="proto2"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            added = message.field.add(name=field, number=number)
            added.label = Field.LABEL_REPEATED if kind.startswith("*") else Field.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in MESSAGES:
                added.type = Field.TYPE_MESSAGE
                added.type_name = f".{PACKAGE}.{kind}"
            else:
                added.type = getattr(Field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.MetricFamily"))


MetricFamily = family_class()


def parse(data: bytes) -> list[Any]:
    """Each family behind its length, a varint."""
    families = []
    at = 0
    while at < len(data):
        size = shift = 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        assert at + size <= len(data), "cut off"
        family = MetricFamily.FromString(data[at : at + size])
        known = MetricFamily.FromString(data[at : at + size])
        known.DiscardUnknownFields()
        assert known.SerializeToString() == family.SerializeToString(), "an unknown field"
        families.append(family)
        at += size
    return families
