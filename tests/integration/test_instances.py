"""The memory of a model's instances: in the banner, the engine's document and the metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from integration import prometheus
from integration.harness import Server, UnixConnection
from integration.raw_http import Connection, get, post_json

pytestmark = pytest.mark.timing

ENGINE = "/v2/lumen/engine"


def models_of(connection: Connection) -> dict[str, dict[str, Any]]:
    reply = connection.exchange(get(ENGINE))
    assert reply.status == 200
    return {model["name"]: model for model in reply.json()["models"]}


def check_metrics(connection: Connection, models: dict[str, dict[str, Any]]) -> None:
    metrics = prometheus.parse(connection.exchange(get("/metrics")).body.decode())
    for name, model in models.items():
        labels = {"model": name, "version": model["version"]}
        count = prometheus.value(metrics, "lumen_model_instances", **labels)
        size = prometheus.value(metrics, "lumen_model_instance_bytes", **labels)
        assert (count, size) == (model["instances"], model["instance_bytes"])


def test_the_engines_document_the_metrics_and_the_banner_agree_on_instances(
    small_repository: Path, tmp_path: Path
) -> None:
    unix = tmp_path / "s"
    arguments = "--queue-type", "mpmc", "--thread-count", "2"
    server = Server(small_repository, *arguments, unix=str(unix))
    with server, UnixConnection(unix) as connection:
        models = models_of(connection)
        assert models
        for name, model in models.items():
            assert model["instances"] == 2
            threads = {"workers": 2, "express_workers": 0, "io_threads": 0}
            old_name = {"additional_workers": 0}  # of express_workers, until 0.2
            assert model["instance_threads"] == {**threads, **old_name}
            line = next(line for line in server.banner if line.startswith(f"  {name}/"))
            assert re.search(r"; 2 instances( of (under )?[\d.]+ [MG]B)?$", line)
        check_metrics(connection, models)


def test_after_a_change_the_new_instances_count_and_the_old_ones_do_not(
    small_repository: Path, tmp_path: Path
) -> None:
    unix = tmp_path / "s"
    (small_repository / "mlp" / "config.json").write_text('{"instances": 1}')
    server = Server(small_repository, "--thread-count", "1", unix=str(unix))
    with server, UnixConnection(unix) as connection:
        for change, workers in (
            ({"queue_type": "mpmc", "thread_count": 3}, 3),
            ({"queue_type": "inline"}, 0),
            ({"queue_type": "mpmc", "thread_count": 2}, 2),
        ):
            assert connection.exchange(post_json(ENGINE, change)).status == 200
            models = models_of(connection)
            assert models["identity"]["instance_threads"]["workers"] == workers
            assert models["mlp"]["instance_threads"]["workers"] == min(workers, 1)
            for model in models.values():
                threads = model["instance_threads"]
                assert model["instances"] == threads["workers"] + threads["io_threads"]
            check_metrics(connection, models)
