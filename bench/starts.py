"""The question: how long does a start take, with each backend and with `auto`, and does `auto`
choose the same at each?

A start is from the executable's start to the answer 200 of /v2/health/ready; the repository is the
demo's, its files in the page cache (`openvino` leaves out one of its five models, trees). First:
nothing is kept, so that `auto` tries and measures; second: with all that the first has kept
(choices, times of calls, compiled models). The kinds of start take turns. And the second start of
20 models by OpenVINO, four copies of each of five, against a start with nothing kept. --choices N:
so many first starts with `auto`, and for each model that both backends were measured for how often
each was chosen, and how far apart their calls were.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lumen_engine import Server

from bench.runner import ROOT, Bench, Goal, Option, Run, make_row
from bench.runner.places import program, say
from bench.runner.rows import rounded, spread

MODELS = ROOT / "models"
RIVALS = ("openvino", "onnxruntime")
BACKENDS = (*RIVALS, "auto")
STARTS = ("first", "second")
# Of calls of the two backends, from which on the choice is to be the same.
CLEARLY_APART = 0.1
CHOICES, QUICK_CHOICES = 20, 3
MANY = ("squeezenet", "convnet", "digits", "mlp", "identity")
COPIES = 4


@dataclass
class Kept:
    """Where a start keeps what the next one reads; nowhere without a folder."""

    folder: Path | None

    def words(self) -> list[str]:
        if self.folder is None:
            return ["--backend-choices", "off", "--compiled-models", "off"]
        choices, compiled = self.folder / "backends.json", self.folder / "compiled"
        return ["--backend-choices", str(choices), "--compiled-models", str(compiled)]


def start(backend: str, kept: Kept, models: Path = MODELS) -> tuple[float, dict[str, Any]]:
    """Milliseconds until it is ready, and the backend in each model's document."""
    words = ["--backend", backend, *kept.words()]
    begin = time.monotonic()
    with Server(models, words, executable=program("lumen"), start_timeout_s=300) as server:

        def get(path: str) -> Any:
            try:
                with urllib.request.urlopen(f"http://{server.url}{path}", timeout=30) as reply:
                    return json.load(reply)
            except urllib.error.HTTPError:
                return {}  # not ready, or not available

        while not get("/v2/health/ready").get("ready"):
            time.sleep(0.001)
        took_ms = (time.monotonic() - begin) * 1e3
        names = [folder.name for folder in models.iterdir() if (folder / "1").is_dir()]
        return took_ms, {name: get(f"/v2/models/{name}").get("parameters") for name in names}


def time_starts(run: Run, folder: Path) -> None:
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number, turn in enumerate(run.turns(BACKENDS)):
        for backend in turn:
            for kind in STARTS:
                took_ms = start(backend, Kept(folder / f"{backend}-{number}"))[0]
                taken[kind, backend].append(took_ms)
    for kind, backend in sorted(taken):
        rounds = {backend: taken[kind, backend]}
        if backend == "auto":  # against the one that would have been named instead
            rival = min(RIVALS, key=lambda name: median(taken[kind, name]))
            rounds[rival] = taken[kind, rival]
        run.add(make_row(f"{kind} start, {backend}", "until ready", "ms", rounds))


def time_many_models(run: Run, folder: Path) -> None:
    models = folder / "models"
    for name in MANY:
        for copy in range(COPIES):
            shutil.copytree(MODELS / name, models / f"{name}{copy}")
    kept = Kept(folder / "many")
    start("openvino", kept, models)
    kinds = {"openvino": kept, "nothing kept": Kept(None)}
    taken: dict[str, list[float]] = defaultdict(list)
    for turn in run.turns(tuple(kinds)):
        for kind in turn:
            taken[kind].append(start("openvino", kinds[kind], models)[0])
    count = COPIES * len(MANY)
    run.add(make_row(f"second start of {count} models, openvino", "until ready", "ms", dict(taken)))


def cost(tried: dict[str, Any]) -> float:
    """As the server weighs it: the geometric mean over the sizes."""
    return math.exp(sum(math.log(call["ns"]) for call in tried["costs"]) / len(tried["costs"]))


def count_choices(run: Run, starts: int, folder: Path) -> None:
    """A row for each model that both backends were measured for: the share of starts whose choice
    is not that of most."""
    chosen: dict[str, list[str]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    for number in range(starts):
        for name, found in start("auto", Kept(folder / f"choices-{number}"))[1].items():
            costs = {one["name"]: cost(one) for one in found["backends_tried"] if one["costs"]}
            if len(costs) == len(RIVALS):
                chosen[name].append(found["backend"])
                ratios[name].append(costs["onnxruntime"] / costs["openvino"])
    for name, backends in sorted(chosen.items()):
        usual = max(RIVALS, key=backends.count)
        middle = median(ratios[name])
        is_clear = max(middle, 1 / middle) > 1 + CLEARLY_APART
        counts = {backend: backends.count(backend) for backend in RIVALS}
        say(f"{name}: {counts}; onnxruntime takes {middle:.2f} times openvino's time")
        row = make_row(
            f"choice for {name}, {'clearly apart' if is_clear else 'level'}",
            "starts with the other backend",
            "share",
            {"time of onnxruntime by that of openvino": ratios[name]},
            spread=rounded(spread(ratios[name])),
            chosen=counts,
        )
        run.add(row | {"ours": round(1 - backends.count(usual) / len(backends), 3)})


def measure(run: Run) -> None:
    with tempfile.TemporaryDirectory() as name:
        time_starts(run, Path(name))
        time_many_models(run, Path(name))
        starts = run.options.choices
        starts = run.pick(CHOICES, QUICK_CHOICES) if starts is None else int(starts)
        count_choices(run, starts, Path(name))


BENCH = Bench(
    title="Starts",
    measure=measure,
    minutes=1.9,
    quick_minutes=0.6,
    rounds=(7, 2),
    options=(Option("--choices", None, f"first starts of auto: {CHOICES}, quick {QUICK_CHOICES}"),),
    sources=("include/**", "src/**", "apps/**", "models/tabular/*.py"),
    goals=(
        Goal("^second start of", "at_most", 1000, "under a second", metric="until ready"),
        Goal(
            "^choice for .*, clearly apart",
            "at_most",
            0.05,
            "the same choice in 19 of 20 starts",
            metric="starts with the other backend",
        ),
    ),
)
