#!/usr/bin/env python3
"""The question: how long does a start take, with each backend and with `auto`, and does `auto`
choose the same at each?

A start is from the executable's start to the answer 200 of /v2/health/ready; the repository is the
demo's, its files in the page cache (`openvino` leaves out one of its five models, trees). First:
without kept choices, so that `auto` tries and measures; second: with those of the first. The kinds
of start take turns. --choices N: so many first starts with `auto`, and for each model that both
backends were measured for how often each was chosen, and how far apart their calls were.
bench/starts.py [--quick] [--json] [--choices N]: stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "python"))
from lumen_engine import Server

BINARY = os.environ.get("LUMEN_BINARY", str(ROOT / ".build" / "native" / "lumen"))
MODELS = ROOT / "models"
RIVALS = ("openvino", "onnxruntime")
BACKENDS = (*RIVALS, "auto")
STARTS = ("first", "second")
# Of calls of the two backends, from which on the choice is to be the same.
CLEARLY_APART = 0.1


def start(backend: str, choices: Path) -> tuple[float, dict[str, Any]]:
    """Milliseconds until it is ready, and the backend in each model's document."""
    arguments = ["--backend", backend, "--backend-choices", str(choices)]
    begin = time.monotonic()
    with Server(MODELS, arguments, executable=BINARY, start_timeout_s=300) as server:

        def get(path: str) -> Any:
            try:
                with urllib.request.urlopen(f"http://{server.url}{path}", timeout=30) as reply:
                    return json.load(reply)
            except urllib.error.HTTPError:
                return {}  # not ready, or not available

        while not get("/v2/health/ready").get("ready"):
            time.sleep(0.001)
        took_ms = (time.monotonic() - begin) * 1e3
        names = [folder.name for folder in MODELS.iterdir() if (folder / "1").is_dir()]
        return took_ms, {name: get(f"/v2/models/{name}").get("parameters") for name in names}


def make_row(row: str, metric: str, unit: str, ours: float, **more: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("rival", "rival_name", "ratio", "spread", "limit"))
    return {"bench": "starts", "row": row, "metric": metric, "unit": unit, "ours": ours} | {
        **empty,
        **more,
    }


def time_starts(rounds: int, folder: Path) -> list[dict[str, Any]]:
    taken: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        turn = number % len(BACKENDS)
        for backend in (*BACKENDS[turn:], *BACKENDS[:turn]):
            choices = folder / f"{backend}-{number}.json"
            for kind in STARTS:
                taken[kind, backend].append(round(start(backend, choices)[0], 1))
    rows = []
    for (kind, backend), times in sorted(taken.items()):
        more: dict[str, Any] = {"rounds": {backend: times}}
        more["spread"] = round((max(times) - min(times)) / median(times), 3)
        if backend == "auto":  # against the one that would have been named instead
            rival = min(RIVALS, key=lambda name: median(taken[kind, name]))
            others = taken[kind, rival]
            more |= {"rival": round(median(others), 1), "rival_name": rival}
            more["ratio"] = round(median(others) / median(times), 3)
            more["rounds"][rival] = others
        ours = round(median(times), 1)
        rows.append(make_row(f"{kind} start, {backend}", "until ready", "ms", ours, **more))
    return rows


def cost(tried: dict[str, Any]) -> float:
    """As the server weighs it: the geometric mean over the sizes."""
    return math.exp(sum(math.log(call["ns"]) for call in tried["costs"]) / len(tried["costs"]))


def count_choices(starts: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each model that both backends were measured for: the share of starts whose choice
    is not that of most."""
    chosen: dict[str, list[str]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    for number in range(starts):
        for name, found in start("auto", folder / f"choices-{number}.json")[1].items():
            costs = {one["name"]: cost(one) for one in found["backends_tried"] if one["costs"]}
            if len(costs) == len(RIVALS):
                chosen[name].append(found["backend"])
                ratios[name].append(round(costs["onnxruntime"] / costs["openvino"], 4))
    rows = []
    for name, backends in sorted(chosen.items()):
        usual = max(RIVALS, key=backends.count)
        middle = median(ratios[name])
        is_clear = max(middle, 1 / middle) > 1 + CLEARLY_APART
        share = 1 - backends.count(usual) / len(backends)
        rows.append(
            make_row(
                f"choice for {name}, {'clearly apart' if is_clear else 'level'}",
                "starts with the other backend",
                "share",
                round(share, 3),
                spread=round((max(ratios[name]) - min(ratios[name])) / middle, 3),
                rounds={"time of onnxruntime by that of openvino": ratios[name]},
                chosen={backend: backends.count(backend) for backend in RIVALS},
            )
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        text = f"{row['row']:<40}{row['ours']:>10,} {row['unit']}"
        if row["rival"] is not None:
            text += f", {row['rival_name']} {row['rival']:,.0f}"
        if "chosen" in row:
            (ratios,) = row["rounds"].values()
            counts = ", ".join(f"{name} {count}" for name, count in row["chosen"].items())
            text += f" ({counts}; onnxruntime takes {median(ratios):.2f} times openvino's time,"
            text += f" {min(ratios):.2f} to {max(ratios):.2f})"
        print(text, file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="How long starts take, and what auto chooses.")
    parser.add_argument("--quick", action="store_true", help="2 rounds")
    parser.add_argument("--json", action="store_true", help="nothing on stderr")
    parser.add_argument("--rounds", type=int, help="default 9, quick 2; 0: no starts are timed")
    parser.add_argument("--choices", type=int, default=0, metavar="N", help="first starts of auto")
    arguments = parser.parse_args()
    rounds = arguments.rounds
    if rounds is None:
        rounds = 2 if arguments.quick else 9
    with tempfile.TemporaryDirectory() as name:
        rows = time_starts(rounds, Path(name)) + count_choices(arguments.choices, Path(name))
    if not arguments.json:
        show(rows)
    print(json.dumps({"rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
