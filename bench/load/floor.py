"""The floor of HTTP: nginx's empty answer beside `inline` with the MLP, both by wrk, which knows
nothing of Lumen. Nobody's rival, since it runs no model.

Threads: the caller's. Errors: RuntimeError when wrk counts an error.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import serving
import wrk
from serving import Target, Workload

FLOOR = "nginx, empty answer"
WRK_CONNECTIONS = 16


def json_body(work: Workload) -> bytes:
    """The tensor as numbers, each with the digits that give its float32 back; so is the reply."""
    numbers = ",".join(str(value) for value in work.array().ravel())
    head = f'"name":"{work.input}","shape":{list(work.shape)},"datatype":"FP32"'
    return f'{{"inputs":[{{{head},"data":[{numbers}]}}]}}'.encode()


def start_nginx(stack: ExitStack, folder: Path, work: Workload) -> Target:
    """nginx, which is sent the same requests as Lumen."""
    port = serving.free_port()
    log = folder / f"nginx-{work.model}.log"
    process = stack.enter_context(serving.running(wrk.nginx_command(folder / "nginx", port), log))
    target = serving.make_target(FLOOR, work, port, serving.lumen_request(work), process, log)
    target.is_floor = True
    return target


@dataclass
class WrkBody:
    """A request body that wrk sends to Lumen and to nginx in turn."""

    name: str
    file: Path
    json_bytes: int | None  # of the head before the tensor; None: all is JSON
    ours: Target
    floor: Target
    runs: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: {"ours": [], "floor": []}
    )

    @property
    def targets(self) -> tuple[Target, Target]:
        return self.ours, self.floor


def make_wrk_bodies(folder: Path, ours: Target, floor: Target) -> list[WrkBody]:
    head, _, body = ours.request.partition(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.startswith(b"Inference-Header"))
    kinds = {"binary": (body, int(length.split()[-1])), "JSON": (json_body(ours.workload), None)}
    made = []
    for name, (content, json_bytes) in kinds.items():
        file = folder / f"{name}.body"
        file.write_bytes(content)
        what = f"{name}, {len(content):,} bytes"
        made.append(WrkBody(what, file, json_bytes, ours, floor))
    path = f"/v2/models/{ours.workload.model}/infer"
    check_json_answer(ours, serving.post(path, json_body(ours.workload)))
    return made


def check_json_answer(ours: Target, request: bytes) -> None:
    with socket.create_connection(
        ("127.0.0.1", ours.port), timeout=serving.START_TIMEOUT_S
    ) as connection:
        connection.sendall(request)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        data = json.loads(reply.read())["outputs"][0]["data"]
    np.testing.assert_allclose(data, ours.workload.expected(), rtol=1e-3, atol=1e-4)


def measure_by_wrk(body: WrkBody, number: int, seconds: float) -> None:
    """Side by side, another is first in each round: their ratio is of one moment."""
    order = [("ours", body.ours), ("floor", body.floor)]
    for key, target in order[number % 2 :] + order[: number % 2]:
        url = f"http://127.0.0.1:{target.port}/v2/models/{body.ours.workload.model}/infer"
        serving.signal_group(target.process, signal.SIGCONT)
        try:
            run = wrk.run_wrk(
                url, body.file, body.json_bytes, WRK_CONNECTIONS, seconds, serving.LOAD_CORE
            )
        finally:
            serving.signal_group(target.process, signal.SIGSTOP)
        body.runs[key].append(run)


def make_wrk_row(body: WrkBody) -> dict[str, Any]:
    """The ratio is the median of the rounds' ratios, and the spread is theirs: the two runs of a
    round stand beside each other, those of different rounds may be minutes apart."""
    ours, floor = ([r["per_second"] for r in body.runs[key]] for key in ("ours", "floor"))
    ratios = [mine / bare for mine, bare in zip(ours, floor)]
    queue = body.ours.name.removeprefix("lumen ")
    return {
        "bench": "server",
        "row": f"{body.ours.workload.model}, {WRK_CONNECTIONS} connections, {queue}, "
        f"wrk, {body.name}",
        "metric": "throughput",
        "unit": "requests/s",
        "ours": round(median(ours), 2),
        "rival": round(median(floor), 2),
        "rival_name": FLOOR,
        "ratio": round(median(ratios), 3),
        "spread": round(serving.spread(ratios), 3),
        "limit": round(median(floor), 2),
        "rounds": {body.ours.name: ours, FLOOR: floor},
    }


def describe_wrk(body: WrkBody) -> dict[str, Any]:
    keys = ("per_second", "p50_us", "client_share")
    return {
        "body": body.name,
        "connections": WRK_CONNECTIONS,
        **{
            name: {key: round(median([run[key] for run in runs]), 3) for key in keys}
            | {"rounds_per_second": [round(run["per_second"], 1) for run in runs]}
            for name, runs in body.runs.items()
        },
    }


def start(stack: ExitStack, folder: Path) -> list[WrkBody]:
    """Both servers, each of which has answered; none where a program is missing."""
    if not wrk.find("nginx") or not wrk.find("wrk"):
        print("bench: no rows by wrk: apt-get install wrk nginx-light", file=sys.stderr)
        return []
    work = serving.WORKLOADS[1]
    flags = ["--backend", "openvino", "--model-repository", str(work.repository)]
    flags += ["--queue-type", "inline"]
    (ours,) = serving.start_lumen_with(stack, folder, "inline by wrk", flags, [work])
    ours.name = "lumen inline"
    floor = start_nginx(stack, folder, work)
    for target in (ours, floor):
        serving.wait_for_answer(target)
    return make_wrk_bodies(folder, ours, floor)
