"""docs/dashboard/grafana.json: a board by Grafana's own model; its queries ask for our series."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from integration import prometheus
from integration.harness import MODELS, ROOT, Server
from integration.raw_http import get, post_json

BOARD = ROOT / "docs" / "dashboard" / "grafana.json"
# Of Grafana, in place of a duration.
INTERVAL = "$__rate_interval"
COLUMNS = 24


def board() -> dict[str, Any]:
    return dict(json.loads(BOARD.read_text()))


def queries() -> list[str]:
    found = [target["expr"] for panel in board()["panels"] for target in panel.get("targets", [])]
    assert len(found) > 15
    return [str(one).replace(INTERVAL, "1m") for one in found]


def selectors(node: Any) -> Iterator[Any]:
    """The vector selectors of a parsed query."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from selectors(child)
    for child in getattr(node, "args", None) or []:
        yield from selectors(child)


def test_grafanas_model_reads_the_board_and_loses_nothing() -> None:
    read = Dashboard.from_json(board())
    assert (read.uid, read.title) == ("lumen", "Lumen")
    again = json.loads(JSONEncoder().encode(read))
    given = board()
    panels = {panel["id"]: panel for panel in again["panels"]}
    assert len(panels) == len(given["panels"])
    for panel in given["panels"]:
        read_back = panels[panel["id"]]
        for key in ("type", "title", "gridPos"):
            assert read_back[key] == panel[key], panel["title"]
        assert [one["expr"] for one in read_back.get("targets") or []] == [
            one["expr"] for one in panel.get("targets", [])
        ]
    names = [one["name"] for one in again["templating"]["list"]]
    assert names == ["datasource", "instance", "model"]


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board()["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_every_query_asks_for_series_that_the_server_has() -> None:
    with Server(MODELS) as server, server.connect() as connection:
        inputs = [{"name": "input", "datatype": "FP32", "shape": [1, 256], "data": [0.0] * 256}]
        assert connection.exchange(post_json("/v2/models/mlp/infer", {"inputs": inputs}))
        families = prometheus.parse(connection.exchange(get("/metrics")).body.decode())
    labels_of: dict[str, dict[str, set[str]]] = {}
    for family in families.values():
        for name, labels in family.samples:
            values = labels_of.setdefault(name, {"instance": {"x"}})
            for label, value in labels:
                values.setdefault(label, set()).add(value)
    for query in queries():
        parsed = promql_parser.parse(query)
        found = list(selectors(parsed))
        assert found, query
        for selector in found:
            assert selector.name in labels_of, f"{query}: no metric {selector.name}"
            for matcher in selector.matchers.matchers:
                values = labels_of[selector.name].get(matcher.name)
                assert values, f"{query}: {selector.name} has no label {matcher.name}"
                if not matcher.value.startswith("$") and str(matcher.op).endswith("Equal"):
                    assert matcher.value in values, query
        for label in re.findall(r"by \(([^)]*)\)", query):
            for one in label.split(", "):
                assert all(one in labels_of[s.name] for s in found), (query, one)
