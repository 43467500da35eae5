"""Runs fuzz targets, as many at once as there are cores, each from a seed that is printed.

A target's inputs are the committed corpus and the finds of earlier runs on this machine, which
stays under .build. `keep` merges that into the committed corpus: only inputs that reach code that
none before reached are taken, so it stays small.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dev_report import Count
from dev_setup import ROOT, run_quietly, say

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
# Longer inputs repeat the code that shorter ones reach, and make a run slower.
MAX_INPUT_BYTES = 4096
# Of a single input, which takes microseconds: more is a loop that doesn't end.
INPUT_TIMEOUT_S = 10


def targets() -> list[str]:
    sources = sorted((ROOT / "tests" / "fuzz").glob("*_fuzz.cc"))
    return [path.stem.removesuffix("_fuzz") for path in sources]


@dataclass(frozen=True)
class Fuzzer:
    build: Path
    seconds: int
    keep: bool

    def scratch(self, name: str) -> Path:
        folder = self.build / "corpus" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, name: str) -> bool:
        seed = random.SystemRandom().randrange(1, 2**31)
        scratch = self.scratch(name)
        words = [str(self.build / f"fuzz_{name}"), f"-max_total_time={self.seconds}"]
        words += [f"-seed={seed}", f"-max_len={MAX_INPUT_BYTES}", f"-timeout={INPUT_TIMEOUT_S}"]
        words += [f"-artifact_prefix={scratch}-", "-print_final_stats=1", str(scratch)]
        start = time.monotonic()
        done = run_quietly([*words, str(CORPUS / name)])
        good = done.returncode == 0
        took = time.monotonic() - start
        runs = re.findall(
            r"(?:number_of_executed_units: |^)(\d+)(?: mutated inputs)?$", done.stdout, re.M
        )
        ran = f"{int(runs[-1]):,} inputs" if runs else "no count"
        say(f"fuzz {name}: {'ok' if good else 'FAILED'}, seed {seed}, {ran} ({took:.0f} s)")
        if not good:
            say(f"again: {' '.join(words)}\n{done.stdout[-8000:]}")
        return good and (not self.keep or self.merge(name))

    def merge(self, name: str) -> bool:
        """libFuzzer's own: inputs of the second folder that add to the first go there."""
        folder = CORPUS / name
        before = len(list(folder.iterdir()))
        words = [str(self.build / f"fuzz_{name}"), "-merge=1", "-use_counters=0"]
        words.append(f"-max_len={MAX_INPUT_BYTES}")
        done = run_quietly([*words, str(folder), str(self.scratch(name))])
        say(f"corpus {name}: {before} files before, {len(list(folder.iterdir()))} now")
        return done.returncode == 0


def run_all(fuzzer: Fuzzer, names: Sequence[str], jobs: int) -> Count:
    with ThreadPoolExecutor(jobs) as pool:
        good = list(pool.map(fuzzer.run, names))
    return Count(sum(good), len(good) - sum(good))
