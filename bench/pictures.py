"""The question: how dear is a picture as pixels, or as a file, beside the model's own numbers?

  lumen bench (core 1) --TCP--> lumen (core 0), SqueezeNet 1.1: FP32 numbers, 602 KB a request
  lumen bench (core 1) --TCP--> lumen (core 0), the same model with "pictures": pixels, 151 KB
  a bare OpenVINO loop (core 0), the limit
  a thread (core 1) --TCP--> the same loop: blocking calls and no HTTP, as many bytes as of pixels

The noise of a model that takes milliseconds hides all that is beside it, so that has a row of its
own: the client's mean without the time of the run, by the server's clock. Its limit is that of the
bare loop behind a connection. Then a JPEG of 640 x 480 by a client in Python: sent as it is, or
decoded, resized and normalised by Pillow and NumPy in the client and sent as numbers.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from lumen_engine import Client, Server
from PIL import Image

from bench.load import serving
from bench.load.calls import p50_us
from bench.runner import ROOT, Bench, Goal, Run, make_row
from bench.runner.places import lumen_bench, make_squeezenet, program

NUMBERS, PIXELS, FILES = "FP32", "pixels", "JPEG"
IN_CLIENT = "Pillow and NumPy in the client"
BARE, BARE_TCP = "bare OpenVINO", "bare OpenVINO behind TCP"
MEAN, SCALE = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
SIDE = 224
PIXEL_BYTES = 3 * SIDE * SIDE


def make_models(models: Path) -> None:
    settings = {"mean": MEAN, "scale": SCALE}
    documents: dict[str, dict[str, object]] = {
        NUMBERS: {},
        PIXELS: {"pictures": {"data": settings}},
        FILES: {"pictures": {"data": {"form": "files", **settings}}},
    }
    for name, document in documents.items():
        (models / name / "1").mkdir(parents=True)
        source = ROOT / "models" / "squeezenet" / "1" / "model.onnx"
        (models / name / "1" / "model.onnx").write_bytes(source.read_bytes())
        (models / name / "config.json").write_text(json.dumps({"backend": "openvino", **document}))


def photograph() -> bytes:
    """Slopes and edges, as large as a photograph of that size is as a JPEG."""
    coarse = np.random.default_rng(1).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def in_client(client: Client, file: bytes) -> object:
    picture = Image.open(io.BytesIO(file)).convert("RGB")
    pixels = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    numbers = (pixels - np.array(MEAN, np.float32)) / np.array(SCALE, np.float32)
    return client.infer(NUMBERS, {"data": np.ascontiguousarray(numbers.transpose(2, 0, 1)[None])})


def measure_sizes(run: Run, url: str) -> None:
    (work,) = [one for one in serving.WORKLOADS if one.model == "squeezenet"]
    for clients in (1, 4):
        load = ("--clients", str(clients), "--duration", str(run.seconds))
        p50: dict[str, list[float]] = {PIXELS: [], NUMBERS: [], BARE: []}
        rates: dict[str, list[float]] = {PIXELS: [], NUMBERS: []}
        beside: dict[str, list[float]] = {PIXELS: [], NUMBERS: [], BARE_TCP: []}
        for turn in run.turns([PIXELS, NUMBERS, BARE]):
            for name in turn:
                if name == BARE:
                    p50[BARE].append(serving.measure_limit(work, run.seconds)["p50_us"])
                    behind = serving.measure_limit(work, run.seconds, sent_bytes=PIXEL_BYTES)
                    beside[BARE_TCP].append(behind["mean_us"])
                    continue
                row = lumen_bench(url, name, *load, cpu=serving.LOAD_CORE)
                p50[name].append(row["latency_us"]["p50"])
                rates[name].append(row["per_second"])
                run_us = row["server"]["stages_us"]["inference"]
                beside[name].append(row["latency_us"]["mean"] - run_us)
        of = f"squeezenet, TCP, {clients} client{'s' if clients > 1 else ''}"
        run.add(make_row(of, "p50", "us", p50, limit=BARE))
        if clients == 1:
            what = "mean beside the run of the model"
            run.add(make_row(of, what, "us", beside, limit=BARE_TCP))
        run.add(make_row(of, "throughput", "requests/s", rates, more_is_better=True))


def measure_files(run: Run, url: str) -> None:
    file = photograph()
    given = np.array([file, None], dtype=object)[:1]
    found: dict[str, list[float]] = {FILES: [], IN_CLIENT: []}
    with Client(f"http://{url}") as client:
        calls: dict[str, Callable[[], object]] = {
            FILES: lambda: client.infer(FILES, {"data": given}),
            IN_CLIENT: lambda: in_client(client, file),
        }
        for turn in run.turns(list(calls)):
            for name in turn:
                found[name].append(p50_us(calls[name], run.seconds))
    run.add(make_row(f"a JPEG of 640 x 480, {len(file) // 1000} KB", "p50", "us", found))


def measure(run: Run) -> None:
    make_squeezenet()
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        make_models(models)
        pin = partial(os.sched_setaffinity, 0, {serving.SERVER_CORE})
        words = ["--unix", "off"]
        with Server(models, words, executable=program("lumen"), preexec_fn=pin) as server:
            measure_sizes(run, server.url)
            measure_files(run, server.url)


BENCH = Bench(
    title="Pictures",
    measure=measure,
    minutes=1.5,
    quick_minutes=0.5,
    rounds=(5, 2),
    seconds=(2.0, 1.0),
    sources=("include/**", "src/**", "apps/**"),
    goals=(
        Goal(
            "^squeezenet, TCP, 1 client$",
            "over_limit_at_most",
            40.0,
            "within 40 us of the bare model behind a connection of TCP",
            metric="mean beside the run of the model",
        ),
    ),
    is_kept=False,
)
