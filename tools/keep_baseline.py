#!/usr/bin/env python3
"""Keeps what a bench printed as bench/baselines/NAME.json, with the machine and the day in it, and
draws the README's tables anew.

  ./dev bench queue | tools/keep_baseline.py queue
  .venv/bin/lumen matrix --model mlp --rounds 5 --json | tools/keep_baseline.py matrix_mlp

Says no by its exit status: what comes in is not a bench's JSON object, and nothing is written then.
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

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "bench" / "baselines"
# What a kernel's speed depends on most, by the kernel's names for it.
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


def draw_readme() -> int:
    return subprocess.run([sys.executable, ROOT / "tools" / "readme_figures.py"]).returncode


def main() -> int:
    if len(sys.argv) != 2 or not re.fullmatch(r"\w+", sys.argv[1]):
        print(f"usage: ./dev bench NAME | {sys.argv[0]} NAME", file=sys.stderr)
        return 2
    try:
        document = json.load(sys.stdin)
        if not document["rows"]:
            raise ValueError("it has no rows")
    except (ValueError, KeyError, TypeError) as error:
        print(f"keep_baseline: not what a bench prints, nothing kept: {error}", file=sys.stderr)
        return 1
    document = {"machine": describe_machine(), **document}
    file = BASELINES / f"{sys.argv[1]}.json"
    file.write_text(json.dumps(document, indent=1) + "\n")
    return draw_readme()


if __name__ == "__main__":
    sys.exit(main())
