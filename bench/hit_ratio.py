#!/usr/bin/env python3
"""The question: how many requests hit with each eviction policy, and how many in other caches?

Seven traces, each written to a file that all read; caches of 1, 5 and 10 % of the keys. A miss puts
the key in. One thread asks; of `Concurrent` the worse of one shard and of eight counts.

  Lru, S3Fifo   against LRU and S3FIFO of libcachesim
  Lfu           against WTinyLFU of libcachesim, and Caffeine

A row is a policy and a trace, at that of the three sizes where ours is furthest behind (`size`).
`rounds` has all three sizes, for every contender.

  bench/hit_ratio.py [--quick] [--json]     stdout is one JSON object, the table is on stderr
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "rivals"))
import build_caffeine  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
LIBCACHESIM = "libcachesim==0.3.5"
TRACES = (
    "zipf 0.8",
    "zipf 1.0",
    "zipf 1.2",
    "zipf and scans",
    "loop",
    "shifting zipf",
    "recent keys",
)
PARTS = (0.01, 0.05, 0.1)
SAME_KIND = {"LRU": "Lru", "S3FIFO": "S3Fifo", "WTinyLFU": "Lfu", "Caffeine": "Lfu"}
# A policy and the cache that has it -> the hit ratios in points, a size each.
Ratios = dict[tuple[str, str], list[float]]


def program() -> Path:
    folder = Path(os.environ.get("LUMEN_BUILD", ROOT / ".build" / "native"))
    found = folder / "bench_hit_ratio"
    if not found.exists():
        sys.exit(f"{found} is missing: run ./dev bench hit_ratio, which builds it")
    return found


def install_libcachesim() -> Any:
    """The module; None where it is not to be had. Its own needs are for traces from elsewhere."""
    folder = ROOT / ".build" / "libcachesim"
    if not (folder / "libcachesim").exists():
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        words = [*pip, "install", "--no-deps", "--target", str(folder), LIBCACHESIM]
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("libcachesim")
    except ImportError as problem:
        print(f"bench: libcachesim left out: {problem}", file=sys.stderr)
        return None


def run_lines(words: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(words)} failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_libcachesim(module: Any, file: Path, sizes: list[int]) -> Ratios:
    found: Ratios = {}
    for name in ("LRU", "S3FIFO", "WTinyLFU"):
        for entries in sizes:
            options = module.ReaderInitParam(binary_fmt_str="<Q", ignore_obj_size=True)
            options.obj_id_field = 1
            reader = module.TraceReader(str(file), module.TraceType.BIN_TRACE, options)
            missed, _ = getattr(module, name)(entries).process_trace(reader)
            ratios = found.setdefault((SAME_KIND[name], f"libcachesim {name}"), [])
            ratios.append(100 - 100 * missed)
    return found


def run_trace(file: Path, sizes: list[int], module: Any, java: list[str] | None) -> Ratios:
    words = [str(file), *map(str, sizes)]
    found: Ratios = {}
    for line in run_lines([str(program()), "run", *words]):
        ratio = 100 * line["hits"] / line["requests"]
        found.setdefault((line["policy"], line["flavour"]), []).append(ratio)
    if module is not None:
        found |= run_libcachesim(module, file, sizes)
    if java is not None:
        lines = run_lines([*java, "HitRatio", *words])
        found["Lfu", "Caffeine"] = [100 * line["hits"] / line["requests"] for line in lines]
    return found


def make_row(
    name: str, ratios: Ratios, policy: str, ours: list[str], rivals: list[str]
) -> dict[str, Any]:
    """`ours` may be several flavours of which the worst counts; of the rivals the best does."""
    present = [rival for rival in rivals if (policy, rival) in ratios]
    cases = []
    for size, part in enumerate(PARTS):
        flavour = min(ours, key=lambda f: ratios[policy, f][size])
        mine = ratios[policy, flavour][size]
        rival = max(present, key=lambda r: ratios[policy, r][size], default=None)
        theirs = None if rival is None else ratios[policy, rival][size]
        cases.append((mine - (theirs or 0), mine, theirs, rival, part))
    _, mine, theirs, rival, part = min(cases, key=lambda case: case[0])
    return {
        "bench": "hit_ratio",
        "row": name,
        "metric": "hit ratio",
        "unit": "points",
        "ours": round(mine, 2),
        "rival": None if theirs is None else round(theirs, 2),
        "rival_name": rival,
        "ratio": round(mine / theirs, 3) if theirs else None,
        "spread": 0.0,  # a trace and a seed give one figure
        "limit": None,
        "size": f"{100 * part:.0f} % of the keys",
        "rounds": {who: ratios[policy, who] for who in (*ours, *present)},
    }


def make_rows(trace: str, ratios: Ratios) -> list[dict[str, Any]]:
    rows = []
    for policy in ("Lru", "S3Fifo", "Lfu"):
        flavours = [who for (of, who) in ratios if of == policy]
        rivals = [who for who in flavours if who.startswith("libcachesim") or who == "Caffeine"]
        concurrent = [who for who in flavours if who.startswith("Concurrent")]
        one = ["OneThread"]
        name = f"{policy}, {trace}"
        rows.append(make_row(f"{name}, OneThread", ratios, policy, one, rivals))
        rows.append(make_row(f"{name}, Concurrent", ratios, policy, concurrent, rivals))
        if policy == "Lru":
            beside = f"{name}, Concurrent beside OneThread"
            rows.append(make_row(beside, ratios, policy, concurrent, one))
    return rows


def show(trace: str, sizes: list[int], ratios: Ratios) -> None:
    heads = "".join(f"{entries:>10}" for entries in sizes)
    print(f"\n{trace:16} {'hit ratio, %, at entries':28}{heads}", file=sys.stderr)
    for (policy, who), points in sorted(ratios.items()):
        figures = "".join(f"{point:10.2f}" for point in points)
        print(f"{policy:16} {who:28}{figures}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the keys, about a minute")
    parser.add_argument("--json", action="store_true", help="no table on stderr")
    parser.add_argument("--seed", type=int, default=1, help="of the traces (1)")
    options = parser.parse_args()
    keys, requests = (100_000, 1_000_000) if options.quick else (500_000, 4_000_000)
    sizes = [int(keys * part) for part in PARTS]
    module = install_libcachesim()
    java = build_caffeine.command(ROOT / ".build")
    folder = ROOT / ".build" / "traces"
    folder.mkdir(parents=True, exist_ok=True)
    report = []
    for trace in TRACES:
        file = folder / f"{trace.replace(' ', '_')}.keys"
        made = [str(program()), "make", str(file), trace, str(keys), str(requests)]
        subprocess.run([*made, str(options.seed)], check=True)
        ratios = run_trace(file, sizes, module, java)
        file.unlink()
        if not options.json:
            show(trace, sizes, ratios)
        report += make_rows(trace, ratios)
    print(json.dumps({"rows": report}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
