"""The question: is a state dearer in the server's hands than in the client's?

  client (core 1) --TCP or bus--> lumen (core 0), the model keeps its state: sequence_id
  client (core 1) --TCP or bus--> lumen (core 0), the same model: the client sends the state along,
                                  and takes the new one out of the reply
  a bare ONNX Runtime loop in Python (core 0), the limit

Models: a recurrent net of 1,024 cells with a state of 4 KB, and of 64 Ki with one of 256 KB, as
large ones have. The client is Lumen's own in Python, the same for both.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from lumen_engine import Client, Server
from onnx import TensorProto, ValueInfoProto, helper, save

from bench.load import serving
from bench.load.calls import p50_us
from bench.runner import Bench, Run, make_row
from bench.runner.places import program

SERVER, CLIENT, BARE = "state in the server", "state in the client", "bare ONNX Runtime"
CELLS = {"4 KB": 1024, "256 KB": 65_536}
STATE = {"states": [{"input": "h", "output": "h_out"}]}


def make_models(models: Path) -> None:
    """h_out = tanh(h w + x), y = the sum of h_out: elementwise, so that the state is the cost."""
    for size, cells in CELLS.items():
        nodes = [
            helper.make_node("Mul", ["h", "w"], ["hw"]),
            helper.make_node("Add", ["hw", "x"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["h_out"]),
            helper.make_node("ReduceSum", ["h_out", "axis"], ["y"], keepdims=1),
        ]

        def value(name: str, columns: int) -> ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", columns])

        graph = helper.make_graph(
            nodes,
            "rnn",
            [value("x", 1), value("h", cells)],
            [value("y", 1), value("h_out", cells)],
            [
                helper.make_tensor("w", TensorProto.FLOAT, [cells], np.linspace(-1, 1, cells)),
                helper.make_tensor("axis", TensorProto.INT64, [1], [1]),
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        for contender, config in ((SERVER, {"sequences": STATE}), (CLIENT, {})):
            folder = models / f"{contender} {size}".replace(" ", "_")
            (folder / "1").mkdir(parents=True)
            save(model, folder / "1" / "model.onnx")
            (folder / "config.json").write_text(json.dumps({"backend": "onnxruntime", **config}))


class Stream:
    """One client's requests, one after the other."""

    def __init__(self, client: Client, size: str) -> None:
        self.client, self.size = client, size
        self.x = np.full((1, 1), 0.1, np.float32)
        self.state = np.zeros((1, CELLS[size]), np.float32)
        self.begun = False

    def by_server(self) -> None:
        model = f"{SERVER} {self.size}".replace(" ", "_")
        inputs = {"x": self.x}
        self.client.infer(model, inputs, sequence_id=1, sequence_start=not self.begun)
        self.begun = True

    def by_client(self) -> None:
        model = f"{CLIENT} {self.size}".replace(" ", "_")
        self.state = self.client.infer(model, {"x": self.x, "h": self.state})["h_out"]


def bare(file: Path, size: str) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options)
    given = {"x": np.full((1, 1), 0.1, np.float32), "h": np.zeros((1, CELLS[size]), np.float32)}
    return lambda: given.update(h=session.run(["y", "h_out"], given)[1])


def measure(run: Run) -> None:
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        make_models(models)
        bus = Path(folder) / "bus"
        pin = partial(os.sched_setaffinity, 0, {serving.SERVER_CORE})
        words = ["--unix", "off", "--bus", str(bus)]
        with Server(models, words, executable=program("lumen"), preexec_fn=pin) as server:
            os.sched_setaffinity(0, {serving.LOAD_CORE})
            for transport, url in (("TCP", f"http://{server.url}"), ("bus", f"bus:{bus}")):
                with Client(url) as client:
                    for size in CELLS:
                        stream = Stream(client, size)
                        file = models / f"{CLIENT} {size}".replace(" ", "_") / "1" / "model.onnx"
                        calls: dict[str, Callable[[], object]] = {
                            SERVER: stream.by_server,
                            CLIENT: stream.by_client,
                            BARE: bare(file, size),
                        }
                        found: dict[str, list[float]] = {name: [] for name in calls}
                        for turn in run.turns(list(calls)):
                            for name in turn:
                                found[name].append(p50_us(calls[name], run.seconds, 100))
                        of = f"a state of {size}, {transport}, 1 client"
                        run.add(make_row(of, "p50", "us", found, limit=BARE))


BENCH = Bench(
    title="Stateful models",
    measure=measure,
    minutes=1.5,
    quick_minutes=0.5,
    rounds=(5, 2),
    seconds=(1.0, 0.5),
    sources=("include/**", "src/**", "apps/**"),
    is_kept=False,
)
