"""Triton's own message of a model's configuration, from the wheel of its client."""

from __future__ import annotations

import importlib.util
from importlib.metadata import distribution
from types import ModuleType


def triton_messages() -> ModuleType:
    """By its file: the package of it would want gRPC."""
    wheel = distribution("tritonclient")
    path = wheel.locate_file("tritonclient/grpc/model_config_pb2.py")
    spec = importlib.util.spec_from_file_location("model_config_pb2", str(path))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
