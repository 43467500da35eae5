"""Random models through the server, against the answers of ONNX's reference.

    python tests/judges/random_judge.py [--seed FIRST] [--models N] [--backend NAME] [--keep FOLDER]

Each model is asked by HTTP, JSON and the bus; with four requests at once, which the server may
pack; the same again, of which half of the models keep answers in the response cache; and again
while the engine is changed live. A wrong model is made smaller; --keep writes it as a case.
Left out: models that come and go while the server runs, which only the C++ face can; each chunk of
models is a server of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    ROOT_OF_TESTS = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(ROOT_OF_TESTS), str(ROOT_OF_TESTS.parent / "python")]

import onnx
from judges.asking import RIGHT, Died, JudgedServer, Verdict, difference
from judges.random_models import Arrays, RandomModel, make, smaller
from lumen_engine import ServerError
from lumen_engine.client import InferError
from numpy.typing import NDArray

CHUNK = 100
CACHE = {"response_cache": {"enable": True, "ttl_ms": 60000, "max_bytes": 1 << 20}}


class OneRequest:
    """Another request of a model than its first, with its right answer."""

    def __init__(self, model: RandomModel, answer: Arrays) -> None:
        self.name, self.model, self.inputs = model.name, b"", model.inputs
        self.outputs, self.datatypes = answer, model.datatypes
        self.rtol, self.atol = model.rtol, model.atol
        self.neighbours: list[Arrays] = []


def judge_together(server: JudgedServer, model: RandomModel) -> Verdict:
    got = server.ask_all(model, model.requests)
    if isinstance(got, InferError):
        return Verdict("refused", str(got))
    for number, (one, answer) in enumerate(zip(got, model.answers)):
        problem = difference(one, OneRequest(model, answer))
        if problem:
            return Verdict("wrong", f"request {number} of {len(got)}: {problem}")
    return RIGHT


def judge_chunk(models: Sequence[RandomModel], backend: str) -> dict[str, dict[str, Verdict]]:
    """By model and way. A server that ends itself is told of the model that was asked last."""
    found: dict[str, dict[str, Verdict]] = {}
    try:
        with JudgedServer(models, backend) as server:
            for model in models:
                ways = server.judge(model)
                if "load" not in ways:
                    ways["together"] = judge_together(server, model)
                    ways["again"] = judge_together(server, model)
                found[model.name] = ways
            served = [model for model in models if "load" not in found[model.name]]
            for kind in ("inline", "mpmc"):
                server.change_engine(queue_type=kind)
                for model in served:
                    found[model.name][kind] = judge_together(server, model)
    except (Died, ServerError) as error:
        if len(models) == 1:
            return {models[0].name: {"server": Verdict("died", str(error).splitlines()[0])}}
        half = len(models) // 2
        return judge_chunk(models[:half], backend) | judge_chunk(models[half:], backend)
    return found


def problem_of(ways: dict[str, Verdict]) -> str:
    bad = [f"{way}: {one.why}" for way, one in ways.items() if one.kind in ("wrong", "died")]
    return bad[0] if bad else ""


def shrink(seed: int, backend: str, config: dict[str, Any]) -> tuple[RandomModel, str] | None:
    """The smallest part that is wrong when it is served alone; None where no part is."""
    parts = smaller(seed)
    for part in parts:
        part.config = config
    found: dict[str, dict[str, Verdict]] = {}
    for at in range(0, len(parts), CHUNK):
        found |= judge_chunk(parts[at : at + CHUNK], backend)
    for part in parts:
        problem = problem_of(found[part.name])
        if problem:
            return part, problem
    return None


def as_json(array: NDArray[Any]) -> Any:
    if array.dtype.kind == "O":
        return [item.decode() for item in array.reshape(-1)]
    return array.reshape(-1).tolist()


def keep(model: RandomModel, problem: str, backend: str, folder: Path) -> None:
    """model.onnx, and case.json: the requests with their right answers."""
    target = folder / model.name
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.onnx").write_bytes(model.model)
    sides = zip(model.requests, model.answers)
    requests = [
        {
            side: [
                {
                    "name": name,
                    "datatype": model.datatypes[name],
                    "shape": list(array.shape),
                    "data": as_json(array),
                }
                for name, array in arrays.items()
            ]
            for side, arrays in (("inputs", inputs), ("outputs", outputs))
        }
        for inputs, outputs in sides
    ]
    document = {"backend": backend, "problem": problem, "seed": model.seed, "requests": requests}
    (target / "case.json").write_text(json.dumps(document, indent=1) + "\n")


def models_of(seeds: range) -> list[RandomModel]:
    models = [make(seed) for seed in seeds]
    for model in models:
        model.config = CACHE if model.seed % 2 else {}
    return models


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first model")
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--keep", type=Path, help="folder that wrong models are written to")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    seeds = range(options.seed, options.seed + options.models)
    by_kind: Counter[str] = Counter()
    for at in range(0, len(seeds), CHUNK):
        models = models_of(seeds[at : at + CHUNK])
        found = judge_chunk(models, options.backend)
        for model in models:
            ways = found[model.name]
            problem = problem_of(ways)
            kinds = {verdict.kind for verdict in ways.values()}
            is_refused = "load" in ways or "right" not in kinds
            by_kind["wrong" if problem else "refused" if is_refused else "right"] += 1
            if not problem:
                continue
            print(f"seed {model.seed}: {problem}\n  {' '.join(model.operators)}", flush=True)
            part = shrink(model.seed, options.backend, model.config)
            if part is not None:
                print(f"  smaller: {onnx.printer.to_text(part[0].proto.graph)}\n  {part[1]}")
            if options.keep:
                keep(*(part or (model, problem)), options.backend, options.keep)
    print(f"random models, {options.backend}: " + ", ".join(f"{n} {k}" for k, n in by_kind.items()))
    return 1 if by_kind["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
