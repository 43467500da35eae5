# Where a request's time goes, from /metrics: the histograms of the stages before and after some
# load, and the mean of each stage between. `metrics.py [HOST:PORT]`; without an address it starts a
# server of its own.
# Errors: exits 1 when the stages do not add up to the requests that were made.
from __future__ import annotations

import http.client
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Server

REQUESTS = 500
LINE = re.compile(r"^lumen_stage_duration_seconds_(sum|count)\{(.*)\} (\S+)$", re.MULTILINE)


def stages(address: str, model: str) -> dict[str, dict[str, float]]:
    """{"inference": {"sum": seconds, "count": requests}, ...}"""
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    found: dict[str, dict[str, float]] = {}
    for which, labels, value in LINE.findall(text):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["model"] == model:
            found.setdefault(label["stage"], {})[which] = float(value)
    return found


def load(address: str, model: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=10)
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 256], "data": [0.25] * 256}
    body = json.dumps({"inputs": [tensor]})
    for _ in range(REQUESTS):
        connection.request("POST", f"/v2/models/{model}/infer", body)
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise SystemExit(f"{reply.status}: {content.decode()}")


def watch(address: str) -> int:
    before = stages(address, "mlp")
    load(address, "mlp")
    after = stages(address, "mlp")
    print(f"mlp, {REQUESTS} requests, mean of each stage in µs")
    counted = 0.0
    for stage, end in after.items():
        begin = before.get(stage, {"sum": 0.0, "count": 0.0})
        count = end["count"] - begin["count"]
        if count == 0:
            continue
        if stage == "total":
            counted = count
        print(f"  {stage:<12}{(end['sum'] - begin['sum']) / count * 1e6:8.1f}")
    # The last reply is counted once it is out, which may be just after its client has it.
    return 0 if REQUESTS - 1 <= counted <= REQUESTS else 1


def main() -> int:
    if len(sys.argv) > 1:
        return watch(sys.argv[1])
    with Server(ROOT / "models") as server:
        return watch(server.url)


if __name__ == "__main__":
    sys.exit(main())
