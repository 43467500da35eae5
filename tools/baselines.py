"""The ground of the kept figures: the files that a bench measures, and whether they changed since.

bench/baselines/NAME.json holds {"measurements": [...]}, one for each kind of machine ("near",
"far", or null where the bench does not tell them apart), each with `machine`, `commit`, `sources`
(a hash of the content of the files that bench/sources.toml lists) and `rows`, whose `rounds` are
the raw samples."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASELINES = ROOT / "bench" / "baselines"

Measurement = dict[str, Any]


def by_kind(document: dict[str, Any]) -> list[Measurement]:
    """The output of a bench, near and far cores apart. A rival that only the other kind has may be
    the best: without it a row has no best rival, but where it is behind one that it has."""
    rows = document["rows"]
    everyone: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        everyone.setdefault(_key(row), set()).update(row.get("rounds", ()))
    kinds = dict.fromkeys(row.get("cpus") for row in rows)
    more = {key: value for key, value in document.items() if key != "rows"}
    return [
        {
            "kind": kind,
            **more,
            "rows": [
                _compared(row, everyone[_key(row)]) for row in rows if row.get("cpus") == kind
            ],
        }
        for kind in kinds
    ]


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return row.get("row", ""), row.get("metric", "")


def _compared(row: dict[str, Any], everyone: set[str]) -> dict[str, Any]:
    """`lacks`: the missing kind; rows of a bench that does not tell cores apart lack none."""
    lacks = sorted(everyone - row.get("rounds", {}).keys()) if row.get("cpus") else []
    if not lacks:
        return row
    is_behind = row["ratio"] is not None and row["ratio"] < 1
    nobody = {} if is_behind else {"rival": None, "rival_name": None, "ratio": None}
    return {**row, **nobody, "lacks": lacks}


def benches(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Each baseline's entry: `files`."""
    return tomllib.loads((root / "bench" / "sources.toml").read_text())


def expand(pattern: str) -> list[str]:
    """a{b,c}d: abd and acd; one pair of braces, which pathlib's globs don't have."""
    match = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", pattern)
    if match is None:
        return [pattern]
    before, choices, after = match.groups()
    return [before + choice + after for choice in choices.split(",")]


def sources(name: str, root: Path = ROOT) -> list[str]:
    """The files that the baseline measures. One that is listed by name and missing is an error."""
    found: set[str] = set()
    for listed in benches(root)[name]["files"]:
        for pattern in expand(listed):
            paths = [path for path in root.glob(pattern) if path.is_file()]
            if pattern.endswith("**"):  # pathlib: folders only
                paths = [path for path in root.glob(pattern + "/*") if path.is_file()]
            paths = [p for p in paths if "__pycache__" not in p.parts and "target" not in p.parts]
            if not paths:
                raise SystemExit(f"bench/sources.toml: [{name}] lists {pattern}, which isn't there")
            found.update(path.relative_to(root).as_posix() for path in paths)
    return sorted(found)


def content_hash(name: str, root: Path = ROOT) -> str:
    digest = hashlib.sha256()
    for path in sources(name, root):
        content = (root / path).read_bytes()
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def measurements(file: Path) -> list[Measurement]:
    found: list[Measurement] = json.loads(file.read_text())["measurements"]
    return found


def is_fresh(name: str, measurement: Measurement, root: Path = ROOT) -> bool:
    return measurement["sources"] == content_hash(name, root)


def commit(name: str, root: Path = ROOT) -> str:
    """The commit at hand, and whether the files that are measured differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", *sources(name, root))
    return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")
