"""The floor of HTTP: nginx's empty answer beside `inline` with the MLP, both by wrk, which knows
nothing of Lumen. Nobody's rival, since it runs no model.

Threads: the caller's. Errors: BenchError when wrk counts an error.
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from bench.load import serving, wrk
from bench.load.serving import Target, Workload
from bench.runner import Row, make_row
from bench.runner.places import left_out
from bench.runner.rows import rounded, spread
from bench.runner.run import rotated

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
    for key, target in rotated([("ours", body.ours), ("floor", body.floor)], number):
        url = f"http://127.0.0.1:{target.port}/v2/models/{body.ours.workload.model}/infer"
        with serving.awake(target):
            run = wrk.run_wrk(
                url, body.file, body.json_bytes, WRK_CONNECTIONS, seconds, serving.LOAD_CORE
            )
        body.runs[key].append(run)


def make_wrk_row(body: WrkBody) -> Row:
    """The ratio is the median of the rounds' ratios, and the spread is theirs: the two runs of a
    round stand beside each other, those of different rounds may be minutes apart."""
    ours, floor = ([r["per_second"] for r in body.runs[key]] for key in ("ours", "floor"))
    ratios = [mine / bare for mine, bare in zip(ours, floor)]
    queue = serving.short_name(body.ours)
    model = body.ours.workload.model
    return make_row(
        f"{model}, {WRK_CONNECTIONS} connections, {queue}, wrk, {body.name}",
        "throughput",
        "requests/s",
        {body.ours.name: ours, FLOOR: floor},
        more_is_better=True,
        limit=median(floor),
        ratio=rounded(median(ratios)),
        spread=rounded(spread(ratios)),
    )


def start(stack: ExitStack, folder: Path) -> list[WrkBody]:
    """Both servers, each of which has answered; none where a program is missing."""
    if not wrk.find("nginx") or not wrk.find("wrk"):
        left_out("wrk", "apt-get install wrk nginx-light")
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
