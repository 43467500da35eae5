"""Whether a candidate's answers are good enough, and which candidate is the one to serve.

Threads: one; a metric of the user's own is their code. Errors: QuantizeError.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from lumen_engine.quantize.candidates import Candidate
from lumen_engine.quantize.distance import Answer, is_float, sqnr_db, top1
from lumen_engine.quantize.errors import QuantizeError
from lumen_engine.quantize.samples import Array, Samples

# Signal to error. 30 dB: an error of 3 % of the signal; below 20 dB, of 10 %.
PASS_DB = 30.0
WARN_BELOW_PASS_DB = 10.0
PASS_TOP1 = 0.99
# Of the user's own metric: the most that it may fall below that of f32.
MOST_LOSS = 0.01
# bf16 has to be so much faster than f32, and INT8 than both, to be worth a setting or a file.
WORTH = 1.1


class Verdict(Enum):
    PASSES = "passes"
    WARNS = "warns"
    REFUSED = "refused"


@dataclass(frozen=True)
class Judgement:
    sqnr_db: float
    top1: float | None
    metric: float | None  # the user's own
    verdict: Verdict


@dataclass(frozen=True)
class Entry:
    """A candidate in one backend. `problem`: why it has no figures."""

    candidate: Candidate
    backend: str
    us: float = 0
    judgement: Judgement | None = None
    problem: str = ""

    @property
    def is_eligible(self) -> bool:
        return self.judgement is not None and self.judgement.verdict is not Verdict.REFUSED

    @property
    def passes(self) -> bool:
        return self.judgement is not None and self.judgement.verdict is Verdict.PASSES


Metric = Callable[[dict[str, Array], dict[str, Array], dict[str, Array]], float]


def load_metric(path: Path) -> Metric:
    """`metric(inputs, outputs, more)` of the user's file, of all held-out rows at once."""
    spec = importlib.util.spec_from_file_location("lumen_quantize_metric", path)
    if spec is None or spec.loader is None:
        raise QuantizeError(f"--metric {path}: wanted sqnr, top1 or a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise QuantizeError(f"--metric {path}: {type(error).__name__}: {error}") from error
    found = getattr(module, "metric", None)
    if not callable(found):
        raise QuantizeError(
            f"{path} defines no metric(inputs, outputs, more): a number for all rows, the more the "
            "better; each argument has arrays by name, `more` those of the data that are no inputs"
        )
    made: Metric = found
    return made


def _joined(calls: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Rows behind each other; a list of arrays where their shapes differ."""
    made: dict[str, Any] = {}
    for name in calls[0]:
        arrays = [call[name] for call in calls]
        same = all(array.shape[1:] == arrays[0].shape[1:] and array.ndim for array in arrays)
        made[name] = np.concatenate(arrays) if same else arrays
    return made


class Gate:
    """`metric`: sqnr, top1 or the path of a Python file. `least`: nothing, or the metric's gate."""

    def __init__(
        self, metric: str, least: float | None, judged: Samples, wanted: list[Answer]
    ) -> None:
        self.metric = metric
        self._judged = judged
        self._wanted = wanted
        self._own = None if metric in ("sqnr", "top1") else load_metric(Path(metric))
        usual = PASS_DB if metric == "sqnr" else PASS_TOP1 if metric == "top1" else MOST_LOSS
        self.least = usual if least is None else least
        if metric == "sqnr" and not any(is_float(array) for array in wanted[0].values()):
            raise QuantizeError("the model's outputs are whole numbers: --metric top1, or a file")
        if metric == "top1" and top1(wanted, wanted) is None:
            raise QuantizeError(
                "--metric top1: the first output has no classes (two or more along its last axis)"
            )
        self._own_of_f32 = self._value_of_own(wanted)

    def judge(self, got: list[Answer]) -> Judgement:
        decibels = sqnr_db(self._wanted, got)
        share = top1(self._wanted, got)
        own = self._value_of_own(got)
        if own is not None and self._own_of_f32 is not None:
            good = own >= self._own_of_f32 - self.least  # false of NaN
            verdict = Verdict.PASSES if good else Verdict.REFUSED
        elif self.metric == "top1":
            good = share is not None and share >= self.least
            verdict = Verdict.PASSES if good else Verdict.REFUSED
        elif decibels >= self.least:
            verdict = Verdict.PASSES
        else:
            warns = decibels >= self.least - WARN_BELOW_PASS_DB
            verdict = Verdict.WARNS if warns else Verdict.REFUSED
        return Judgement(decibels, share, own, verdict)

    def _value_of_own(self, answers: list[Answer]) -> float | None:
        if self._own is None:
            return None
        try:
            inputs, outputs = _joined(self._judged.calls), _joined(answers)
            return float(self._own(inputs, outputs, self._judged.more))
        except Exception as error:  # the user's code
            raise QuantizeError(
                f"--metric {self.metric}: metric() failed: {type(error).__name__}: {error}"
            ) from error

    def told(self) -> str:
        if self.metric == "sqnr":
            return (
                f"signal to error {self.least:g} dB, warns from {self.least - WARN_BELOW_PASS_DB:g}"
            )
        if self.metric == "top1":
            return f"{100 * self.least:g} % of the classes are those of f32"
        return f"{self.metric}: at most {self.least:g} below f32, which has {self._own_of_f32:.6g}"


@dataclass(frozen=True)
class Choice:
    entry: Entry
    why: str

    @property
    def is_written(self) -> bool:
        return self.entry.candidate.is_small


def fastest(entries: Sequence[Entry]) -> Entry | None:
    return min(entries, key=lambda one: one.us, default=None)


def choose(entries: Sequence[Entry]) -> Choice:
    """The fastest that passes the gate, or one that warns if it is worth the warning."""
    sure = _best([one for one in entries if one.passes])
    any_eligible = _best([one for one in entries if one.is_eligible])
    if any_eligible is None:
        raise QuantizeError("no form of the model passes the gate; it asks for too much")
    best = any_eligible
    if sure is not None and any_eligible.us * WORTH > sure.us:
        best = sure
    small = [one for one in entries if one.candidate.is_small and one.judgement]
    plain = _best(
        [one for one in entries if not one.candidate.is_small and (one.passes or one is best)]
    )
    if plain is None:
        return Choice(best, "no float form of the model passes the gate")
    against = f"{plain.candidate.name} in {plain.backend} takes {plain.us:,.1f} us"
    if best.candidate.is_small:
        return Choice(best, f"{plain.us / best.us:.2f} times as fast: {against}")
    quick = fastest(small)
    if quick is None or quick.us * WORTH > plain.us:
        took = "no backend runs it" if quick is None else f"{quick.us:,.1f} us at best"
        if quick is not None and quick.us < plain.us:
            took += f", not {WORTH} times as fast"
        return Choice(plain, f"INT8 does not pay here: {took}; {against}")
    return Choice(plain, f"INT8 costs too much: {quick.us:,.1f} us, but {_lost(quick)}; {against}")


def _best(entries: Sequence[Entry]) -> Entry | None:
    """f32, unless bf16 is worth a setting, unless a small form is worth a file."""
    best = None
    for wanted in (
        lambda one: one.candidate.name == "f32",
        lambda one: one.candidate.name == "bf16",
        lambda one: one.candidate.is_small,
    ):
        found = fastest([one for one in entries if wanted(one)])
        if found is not None and (best is None or found.us * WORTH <= best.us):
            best = found
    return best


def _lost(entry: Entry) -> str:
    found = entry.judgement
    assert found is not None
    if found.metric is not None:
        return f"the metric is {found.metric:.6g}"
    share = "" if found.top1 is None else f", {100 * found.top1:.1f} % of the classes"
    return f"{found.sqnr_db:.1f} dB{share}"
