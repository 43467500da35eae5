#!/usr/bin/env python3
"""Keeps a bench's output in bench/baselines/NAME.json, with its raw rounds, the machine, the day,
the commit and a hash of the files that it measures, and draws the documents' tables of it anew.

  ./dev bench queue | tools/keep_baseline.py queue
  .venv/bin/lumen matrix --model mlp --rounds 5 --json | tools/keep_baseline.py matrix_mlp

Rows of near and of far cores become two measurements. One of the other kind that is there already
stays. Errors: its exit status: the input is not a bench's JSON object, or has no raw rounds;
nothing is written then.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import baselines

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "bench" / "baselines"
# The settings on which a kernel's speed depends most, by the kernel's names for them.
TELLING_FLAGS = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2"}


def describe_cpu(cpuinfo: str) -> str:
    """ "AMD EPYC 9B45, AVX-512": the first CPU of /proc/cpuinfo, which has one paragraph a CPU."""
    first = cpuinfo.split("\n\n")[0]
    found = dict(re.findall(r"^(model name|flags)\s*: (.*)$", first, re.MULTILINE))
    name = re.sub(r"\((R|TM)\)| Processor", "", found.get("model name", "unknown CPU")).strip()
    flags = found.get("flags", "").split()
    kinds = [text for flag, text in TELLING_FLAGS.items() if flag in flags]
    if "AVX-512" in kinds and "AVX2" in kinds:
        kinds.remove("AVX2")
    hypervisor = ["virtual"] if "hypervisor" in flags else []
    return ", ".join([name, *kinds, *hypervisor])


def describe_machine() -> dict[str, Any]:
    return {
        "cpu": describe_cpu(Path("/proc/cpuinfo").read_text()),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "day": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def draw_documents() -> int:
    return subprocess.run([sys.executable, ROOT / "tools" / "figures.py"]).returncode


def measured(name: str, document: dict[str, Any], day: str = "") -> list[baselines.Measurement]:
    """One for each kind of machine that the rows name. ValueError: not fit to be kept. `day`: when
    it was measured, where that is not today."""
    rows = document["rows"]
    if not rows:
        raise ValueError("it has no rows")
    bare = [row for row in rows if not row.get("rounds")]
    if bare:
        raise ValueError(f"{len(bare)} rows have no raw rounds, the first is {bare[0].get('row')}")
    made = {
        "machine": describe_machine() | ({"day": day} if day else {}),
        "commit": baselines.commit(name),
        "sources": baselines.content_hash(name),
    }
    return [{"kind": one["kind"], **made, **one} for one in baselines.by_kind(document)]


def kept_from(file: Path, fresh: list[baselines.Measurement]) -> list[baselines.Measurement]:
    """The measurements of other kinds; each keeps its own commit and day."""
    if not file.exists():
        return []
    kinds = {measurement["kind"] for measurement in fresh}
    return [
        measurement
        for measurement in baselines.measurements(file)
        if measurement["kind"] not in kinds
    ]


def keep(name: str, fresh: list[baselines.Measurement]) -> None:
    file = BASELINES / f"{name}.json"
    together = sorted(
        [*fresh, *kept_from(file, fresh)], key=lambda measurement: str(measurement["kind"])
    )
    text = json.dumps({"measurements": together}, indent=1, ensure_ascii=False)
    # One line for the samples of a contender: they are most of the file.
    text = re.sub(r"\[\s+(-?[\d.e+-]+(?:,\s+-?[\d.e+-]+)*)\s+\]", one_line, text)
    file.write_text(text + "\n")


def main() -> int:
    names = baselines.benches()
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        print(f"usage: ./dev bench NAME | {sys.argv[0]} {'|'.join(names)}", file=sys.stderr)
        return 2
    name = sys.argv[1]
    try:
        fresh = measured(name, json.load(sys.stdin))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"keep_baseline: not what a bench prints, nothing kept: {error}", file=sys.stderr)
        return 1
    keep(name, fresh)
    return draw_documents()


def one_line(match: re.Match[str]) -> str:
    return "[" + re.sub(r"\s+", " ", match[1]) + "]"


if __name__ == "__main__":
    sys.exit(main())
