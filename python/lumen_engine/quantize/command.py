"""The command `lumen quantize`: data, candidates, measurements, choice, the new version.

Its steps are told on stderr; stdout gets the table or the JSON. Threads: the main one. Errors: a
line on stderr and status 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from lumen_engine.quantize import candidates, gate, network, runners, samples, table, written
from lumen_engine.quantize.candidates import Candidate, Quantiser
from lumen_engine.quantize.distance import Answer, sqnr_db
from lumen_engine.quantize.errors import QuantizeError, told_by
from lumen_engine.quantize.gate import Choice, Entry, Gate
from lumen_engine.quantize.options import Options, parse_options

NOT_WORTH_IT = 3
# Rows whose answers have to stay the same when the model is rewritten for the quantiser.
COMPARED_ROWS = 4
IN_OPENVINO = (
    "The server gives it to OpenVINO if it knows the model's other operators, as lumen models "
    '--explain shows; "backend": "openvino" in config.json does in any case.'
)


def tell(text: str) -> None:
    print(f"lumen quantize: {text}", file=sys.stderr, flush=True)


@dataclass
class Comparison:
    """Judges candidates by the held-out rows, in each backend, and measures them."""

    judged: samples.Samples
    wanted: list[Answer]
    gate: Gate

    def __post_init__(self) -> None:
        self._shapes = runners.common_shapes(self.judged.calls)
        self._running: dict[tuple[str, str], runners.Runner] = {}
        self._found: dict[tuple[str, str], gate.Judgement | str] = {}
        self.answers: dict[tuple[str, str], list[Answer]] = {}

    def add(self, candidate: Candidate) -> None:
        for backend in ("openvino", "onnxruntime"):
            if candidate.precision != "f32" and backend == "onnxruntime":
                continue  # the server refuses it there
            key = (candidate.name, backend)
            try:
                runner = self._runner(candidate, backend)
                answers = [runner.run(call) for call in self.judged.calls]
            except Exception as error:  # each backend has types of its own
                self._found[key] = told_by(error)
                continue
            self._found[key] = self.gate.judge(answers)
            self.answers[key] = answers
            self._running[key] = runner

    def _runner(self, candidate: Candidate, backend: str) -> runners.Runner:
        if backend == "onnxruntime":
            return runners.OnnxRuntime(candidate.model)
        return runners.OpenVino(candidate.model, candidate.precision, self._shapes)

    def passes(self, name: str) -> bool:
        found = [self._found.get((name, backend)) for backend in ("openvino", "onnxruntime")]
        return any(
            isinstance(one, gate.Judgement) and one.verdict is gate.Verdict.PASSES for one in found
        )

    def measured(self, all_candidates: Sequence[Candidate]) -> list[Entry]:
        times = runners.measure(self._running, self.judged.calls)
        entries = []
        for candidate in all_candidates:
            for backend in ("openvino", "onnxruntime"):
                found = self._found.get((candidate.name, backend))
                if found is None:
                    continue
                if isinstance(found, str):
                    entries.append(Entry(candidate, backend, problem=found))
                else:
                    us = times[candidate.name, backend]
                    entries.append(Entry(candidate, backend, us, found))
        return entries


def mixed(quantiser: Quantiser, comparison: Comparison, add: Callable[[Candidate], None]) -> None:
    """Leaves 1, 2, 4 ... of the parts in float until the gate passes, half of them at most."""
    parts = quantiser.parts_by_sensitivity(tell)
    count = 1
    while count <= len(parts) // 2:
        floats = [name for part in parts[:count] for name in part]
        tell(f"INT8 with {len(floats)} of {len(quantiser.nodes)} nodes in float")
        rest = [name for name in quantiser.nodes if name not in floats]
        name = f"int8, {len(floats)} in float"
        add(Candidate(name, quantiser.quantise(rest), float_nodes=tuple(floats)))
        if comparison.passes(name):
            return
        count *= 2


def compare(
    model: onnx.ModelProto, data: samples.Samples, options: Options, folder: Path
) -> tuple[Comparison, list[Entry], tuple[int, int]]:
    calibrating, judged = samples.split(data)
    tell(f"{len(calibrating)} rows calibrate, {len(judged)} judge")
    prepared = network.prepare(model, judged.calls[:COMPARED_ROWS])
    quantiser = Quantiser(prepared, calibrating.calls, folder)
    if not quantiser.nodes:
        raise QuantizeError(
            f"nothing to quantise: no {', '.join(network.QUANTISED)} with weights of its own"
        )
    wanted = runners.OnnxRuntime(model).run_all(judged.calls)
    comparison = Comparison(judged, wanted, Gate(options.metric, options.gate, judged, wanted))
    tell(f"gate: {comparison.gate.told()}")
    tried: list[Candidate] = []

    def add(candidate: Candidate) -> None:
        tried.append(candidate)
        comparison.add(candidate)

    for candidate in candidates.plain(model, runners.has_bf16()):
        add(candidate)
    packed = candidates.weights_only(prepared)
    if packed is not None:
        add(packed)
    tell(f"finding ranges for {len(quantiser.nodes)} nodes")
    add(Candidate("int8", quantiser.quantise(quantiser.nodes)))
    if not comparison.passes("int8"):
        mixed(quantiser, comparison, add)
    tell("measuring")
    return comparison, comparison.measured(tried), (len(calibrating), len(judged))


def least_db_of(
    comparison: Comparison, entries: Sequence[Entry], chosen: Entry, rows: int
) -> float:
    """The server's limit for the kept rows: a little below that of the worst eligible backend."""
    found = [
        sqnr_db(
            comparison.wanted[:rows], comparison.answers[one.candidate.name, one.backend][:rows]
        )
        for one in entries
        if one.candidate is chosen.candidate and one.is_eligible
    ]
    return min(found) - written.MARGIN_DB


def advice(choice: Choice, options: Options) -> str:
    if choice.entry.candidate.name == "bf16":
        return f'bf16 is the best choice: "precision": "bf16" in {options.model_folder}/config.json'
    return f"f32 is the best choice: leave {options.source} as it is"


def finish(
    comparison: Comparison, entries: list[Entry], rows: tuple[int, int], options: Options
) -> tuple[Choice, Path | None]:
    choice = gate.choose(entries)
    if not choice.is_written or options.dry_run:
        return choice, None
    kept = written.kept_rows(comparison.judged.calls, comparison.wanted)
    least = least_db_of(comparison, entries, choice.entry, kept)
    target = written.write_version(
        options.model_folder,
        options.source,
        choice,
        entries,
        comparison.gate,
        rows,
        (comparison.judged.calls[:kept], comparison.wanted[:kept]),
        least,
    )
    return choice, target


def document(
    entries: Sequence[Entry], choice: Choice, target: Path | None, seconds: float
) -> dict[str, Any]:
    return {
        "candidates": [written.entry_document(entry) for entry in entries],
        "choice": written.entry_document(choice.entry),
        "why": choice.why,
        "written": None if target is None else str(target),
        "seconds": round(seconds, 2),
    }


def run(argv: Sequence[str] | None) -> int:
    begin = time.monotonic()
    try:
        # Before OpenVINO starts its threads: one for each CPU of the process, with any option.
        with runners.one_cpu():
            return run_on_one_cpu(argv, begin)
    except QuantizeError as error:
        print(f"lumen quantize: {error}", file=sys.stderr)
        return 1


def run_on_one_cpu(argv: Sequence[str] | None, begin: float) -> int:
    options = parse_options(argv)
    model = network.read(options.source)
    data = samples.load(options.data, network.inputs_of(model))
    with tempfile.TemporaryDirectory(prefix="lumen-quantize-") as folder:
        comparison, entries, rows = compare(model, data, options, Path(folder))
    choice, target = finish(comparison, entries, rows, options)
    seconds = time.monotonic() - begin
    if options.json:
        print(json.dumps(document(entries, choice, target, seconds), indent=1))
    else:
        print(table.make_table(entries, choice), end="")
        print(f"\n{choice.why}")
        if choice.entry.judgement and choice.entry.judgement.verdict is gate.Verdict.WARNS:
            decibels = choice.entry.judgement.sqnr_db
            print(f"Warning: {decibels:.1f} dB is below the gate; try its answers first.")
        if not choice.is_written:
            print(advice(choice, options))
        elif target is None:
            print("nothing written: --dry-run")
        else:
            print(f"written: {target}, in {seconds:.1f} s")
            if choice.entry.backend == "openvino":
                print(IN_OPENVINO)
    return 0 if choice.is_written else NOT_WORTH_IT
