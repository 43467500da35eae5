"""Which files the named paths mean. Only files that were named at the start are ever read.

Pure but for looking at folders. A folder gives its *.csv and *.json, and those of folders in it
(`results/micro`).
"""

from __future__ import annotations

from pathlib import Path

DEFAULT_FOLDER = "results"  # where `lumen matrix` writes
MAX_FILES = 1_000  # of all folders; a home folder by mistake must not be read for minutes
DEPTH = 3
NEIGHBOUR = ".traceparent.csv"  # beside a telemetry CSV: other columns, by no run of its own


def find_files(named: list[Path]) -> tuple[list[Path], list[str]]:
    """Files in order without doubles, and the errors in the names."""
    found: dict[Path, None] = {}
    problems = []
    for path in named:
        if path.is_dir():
            inside = sorted(_inside(path, DEPTH))
            if not inside:
                problems.append(f"{path}: no .csv and no .json in this folder")
            found.update(dict.fromkeys(inside))
        elif path.exists():
            found[path] = None
        else:
            problems.append(f"{path}: there is no such file; it is read once it is there")
    if len(found) > MAX_FILES:
        problems.append(
            f"{len(found):,} files are in these folders, the first {MAX_FILES:,} are read; name"
            f" fewer"
        )
    return list(found)[:MAX_FILES], problems


def _inside(folder: Path, depth: int) -> list[Path]:
    found: list[Path] = []
    try:
        entries = list(folder.iterdir())
    except OSError:
        return found
    for entry in entries:
        if entry.name.startswith(".") or entry.name.endswith(NEIGHBOUR):
            continue
        if entry.is_dir() and depth > 1:
            found += _inside(entry, depth - 1)
        elif entry.suffix in (".csv", ".json") and entry.is_file():
            found.append(entry)
        if len(found) > MAX_FILES:
            break
    return found


def short_names(paths: list[Path]) -> dict[Path, str]:
    """The stem, with as many folders before it as tell it from the others."""
    names: dict[Path, str] = {}
    for depth in range(1, 12):
        left = [path for path in paths if path not in names]
        short = {path: "/".join([*path.parts[-depth:-1], path.stem]) for path in left}
        taken = list(short.values())
        names.update({path: name for path, name in short.items() if taken.count(name) == 1})
    return {path: names.get(path, str(path)) for path in paths}
