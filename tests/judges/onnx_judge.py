"""The judge that nobody here wrote: ONNX's own backend test suite through the server.

    python tests/judges/onnx_judge.py [--backend NAME] [--tenth] [--only WORD] [--write]

Each case is asked by HTTP with binary data, by JSON and over the bus; where its rows can be made
free, also beside neighbours of other values. The results are held against onnx_expected.tsv: a
case that changes sides fails. --write makes that file and the tables of docs/models.md anew.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

if __name__ == "__main__":
    ROOT_OF_TESTS = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(ROOT_OF_TESTS), str(ROOT_OF_TESTS.parent / "python")]

from judges.asking import DEVICE, Asked, Died, JudgedServer, Verdict
from judges.onnx_cases import Case, all_cases
from lumen_engine import ServerError

BACKENDS = ("auto", "openvino", "onnxruntime")
WAYS = ("load", "http", "json", "bus", "packed")
CHUNK = 300
SLOW_S = 3.0
NEVER_WRONG = "right or refused"
# Kernels of CPUs round otherwise, most of all in 16 bits: found on two machines.
BY_CPU = "right or wrong by CPU"
EXPECTED = Path(__file__).with_name("onnx_expected.tsv")

Verdicts = dict[str, Verdict]  # by way


def start_or_split(cases: Sequence[Asked], backend: str) -> dict[str, Verdicts]:
    """All of `cases`; a model that ends the server is found by halving and told as died."""
    found: dict[str, Verdicts] = {}
    try:
        with JudgedServer(cases, backend) as server:
            for case in cases:
                start = time.monotonic()
                found[case.name] = server.judge(case)
                seconds = time.monotonic() - start
                if seconds > SLOW_S:
                    print(f"{backend}: {case.name}: {seconds:.1f} s", file=sys.stderr, flush=True)
        return found
    except (Died, ServerError, subprocess.TimeoutExpired) as error:
        asked = next((case for case in cases if case.name not in found), None)
        if isinstance(error, Died) and asked is not None:
            found[asked.name] = {"http": Verdict("died", str(error))}
            rest = [case for case in cases if case.name not in found]
            return {**found, **(start_or_split(rest, backend) if rest else {})}
        if len(cases) == 1:
            return {cases[0].name: {"load": Verdict("died", str(error).splitlines()[0])}}
    half = len(cases) // 2
    return {**start_or_split(cases[:half], backend), **start_or_split(cases[half:], backend)}


def judge_all(cases: Sequence[Asked], backend: str, chunk: int = CHUNK) -> dict[str, Verdicts]:
    found: dict[str, Verdicts] = {}
    for at in range(0, len(cases), chunk):
        start = time.monotonic()
        found |= start_or_split(cases[at : at + chunk], backend)
        print(
            f"{backend}: {min(at + chunk, len(cases))} of {len(cases)} "
            f"({time.monotonic() - start:.1f} s)",
            file=sys.stderr,
            flush=True,
        )
    return found


def side(verdicts: Verdicts) -> str:
    """One word: right, refused, wrong, died; and the ways that differ from the first."""
    kinds = [verdicts[way].kind for way in WAYS if way in verdicts]
    for kind in ("died", "wrong"):
        if kind in kinds:
            ways = [way for way in WAYS if way in verdicts and verdicts[way].kind == kind]
            return kind if len(ways) == len(kinds) else f"{kind}:{','.join(ways)}"
    refused = [way for way in WAYS if way in verdicts and verdicts[way].kind == "refused"]
    if not refused:
        return "right"
    return "refused" if len(refused) == len(kinds) else f"right:but {','.join(refused)} refused"


def read_expected(path: Path = EXPECTED) -> dict[str, dict[str, str]]:
    """The side of each case, by backend."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    header = lines[0].split("\t")[1:]
    return {
        name: dict(zip(header, sides)) for name, *sides in (line.split("\t") for line in lines[1:])
    }


def changes(found: dict[str, str], expected: dict[str, dict[str, str]], backend: str) -> list[str]:
    """A line for each case whose side is not the expected one. `auto` has none that may be wrong:
    the file says NEVER_WRONG where it was. BY_CPU: either, on whichever machine this is."""
    lines = []
    for name, got in found.items():
        wanted = expected.get(name, {}).get(backend, "right")
        is_free = wanted == NEVER_WRONG and not got.startswith(("wrong", "died"))
        is_by_cpu = wanted == BY_CPU and got.startswith(("right", "wrong"))
        if got != wanted and not is_free and not is_by_cpu:
            lines.append(f"{backend}: {name}: {got}, expected {wanted}")
    return lines


def device_changes(found: dict[str, str], expected: dict[str, dict[str, str]]) -> list[str]:
    """A line for each case that is wrong where ONNX Runtime's own answer, which it hands on, is
    not. It refuses more: strings, tensors without elements, models that it would run no node of."""
    return [
        f"{DEVICE}: {name}: {got}"
        for name, got in found.items()
        if got.startswith(("wrong", "died"))
        and not expected.get(name, {}).get("onnxruntime", "right").startswith(("wrong", BY_CPU))
    ]


def counts(sides: Iterable[str]) -> Counter[str]:
    return Counter(one.split(":")[0] for one in sides)


def report(found: dict[str, dict[str, Verdicts]]) -> str:
    """Counts by backend, and each wrong case with how it is wrong."""
    lines = []
    for backend, cases in found.items():
        by_side = counts(side(one) for one in cases.values())
        lines.append(f"{backend}: " + ", ".join(f"{n} {kind}" for kind, n in by_side.items()))
        for name, verdicts in sorted(cases.items()):
            if not side(verdicts).startswith(("wrong", "died")):
                continue
            bad = next(v for v in verdicts.values() if v.kind in ("wrong", "died"))
            lines.append(f"  {name}: {side(verdicts)}: {bad.why}")
    return "\n".join(lines)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", action="append", choices=(*BACKENDS, DEVICE))
    parser.add_argument("--tenth", action="store_true", help="the fixed tenth that the tests ask")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--write", action="store_true", help="the file and the tables anew")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    every = all_cases()
    cases: list[Case] = [case for case in every if not case.unspoken and options.only in case.name]
    if options.tenth:
        cases = [case for case in cases if case.is_of_the_tenth]
    asked = options.backend or (BACKENDS if options.write else (*BACKENDS, DEVICE))
    found = {name: judge_all(cases, name) for name in asked}
    print(report(found), flush=True)
    if options.write:
        from judges import onnx_tables  # noqa: PLC0415

        onnx_tables.write(every, found)
        return 0
    expected = read_expected()
    lines = []
    for backend, one in found.items():
        sides = {name: side(verdicts) for name, verdicts in one.items()}
        is_device = backend == DEVICE
        lines += device_changes(sides, expected) if is_device else changes(sides, expected, backend)
    print("\n".join(lines) or "each case is on its side")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
