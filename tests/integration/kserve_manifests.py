"""Reads manifests by the models of KServe's SDK and of Kubernetes' client, and prints their kinds.

Run by the environment of the judge kserve: FILE.yaml ... A key that the models do not know, a value
of another type and a field that is missing end it with an error that names the place.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import kserve.models
import kubernetes.client
import yaml

KINDS = {
    "ClusterServingRuntime": "V1alpha1ClusterServingRuntime",
    "InferenceService": "V1beta1InferenceService",
}
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float)}
# One of both, which the models leave open.
QUANTITIES = ("ResourceQuantity", "V1beta1MetricQuantity", "IntOrString", "object")


def model(name: str) -> Any:
    name = name.removeprefix("K8sIoApiAutoscalingV2").removeprefix("K8sIoApiAppsV1")
    found = getattr(kserve.models, name, None) or getattr(kubernetes.client, name, None)
    if found is None:
        raise SystemExit(f"no model {name}")
    return found


def read(value: Any, kind: str, place: str) -> Any:
    """The value as its model; SystemExit if it is none."""
    if kind in QUANTITIES:
        return value
    if kind in PLAIN:
        if not isinstance(value, PLAIN[kind]) or (kind != "bool" and isinstance(value, bool)):
            raise SystemExit(f"{place}: {value!r} is no {kind}")
        return value
    if found := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        if not isinstance(value, list):
            raise SystemExit(f"{place}: wanted a list")
        return [read(one, found[1], f"{place}[{i}]") for i, one in enumerate(value)]
    if found := re.fullmatch(r"[Dd]ict[(\[]str, (.*)[)\]]", kind):
        return {key: read(one, found[1], f"{place}.{key}") for key, one in value.items()}
    of = model(kind)
    names = {key: name for name, key in of.attribute_map.items()}
    if unknown := value.keys() - names.keys():
        raise SystemExit(f"{place}: {kind} has no {sorted(unknown)}")
    given = {
        names[key]: read(one, of.openapi_types[names[key]], f"{place}.{key}")
        for key, one in value.items()
    }
    try:
        return of(**given)  # looks for the fields that must be there
    except ValueError as error:
        raise SystemExit(f"{place}: {error}") from None


def main() -> None:
    for path in sys.argv[1:]:
        with open(path) as file:
            for document in yaml.safe_load_all(file):
                made = read(document, KINDS[document["kind"]], path)
                print(made.kind, made.metadata.name)


if __name__ == "__main__":
    main()
