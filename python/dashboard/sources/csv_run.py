"""A run: one telemetry CSV with the files that its rotation made (PATH.1, PATH.2, ...).

Of one thread. A rotated file keeps its rows: it is known by its inode, under any later name.
Rows of a file that is gone are forgotten, so memory is bounded by the files on disk.
"""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from .follow import FollowedFile

ROTATED = re.compile(r"\.(\d{1,4})$")


def rotated_number(path: Path) -> int:
    """0 for PATH itself, 2 for PATH.2."""
    match = ROTATED.search(path.name)
    return int(match[1]) if match else 0


class CsvRun:
    """The rows of a path, oldest file first."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self._files: dict[tuple[int, int], FollowedFile] = {}
        self._order: list[FollowedFile] = []

    def refresh(self) -> bool:
        """Whether anything changed."""
        found: dict[tuple[int, int], Path] = {}
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                continue  # between the listing and now a rotation renamed it; the next look has it
            found[status.st_dev, status.st_ino] = path
        changed = set(found) != set(self._files)
        files = {}
        for inode, path in found.items():
            file = self._files.get(inode) or FollowedFile(path)
            file.path = path
            changed = file.refresh() or changed
            files[inode] = file
        self._files = files
        self._order = sorted(files.values(), key=lambda file: -rotated_number(file.path))
        return changed

    def _paths(self) -> list[Path]:
        """Newest first: a file that is renamed while we list is met twice rather than never."""
        try:
            names = [p for p in self.path.parent.iterdir() if p.name.startswith(self.path.name)]
        except OSError:
            return []
        ours = [p for p in names if p == self.path or p.name == self.path.name + f".{rotated(p)}"]
        return sorted(ours, key=rotated_number)

    @property
    def files(self) -> list[FollowedFile]:
        return self._order

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._order)

    def frames(self) -> list[pl.DataFrame]:
        name = pl.lit(self.name).cast(pl.Categorical()).alias("run")
        return [frame.with_columns(name) for file in self._order for frame in file.frames]

    def slowest(self) -> list[pl.DataFrame]:
        name = pl.lit(self.name).cast(pl.Categorical()).alias("run")
        kept = [file.slowest for file in self._order if file.slowest is not None]
        return [frame.with_columns(name) for frame in kept]

    def problems(self) -> list[str]:
        """Sentences for the user, the most important first."""
        if not self._order:
            return [f"{self.path}: is gone or can't be looked at"]
        found = []
        for file in self._order:
            if file.problem:
                found.append(file.problem)
            if file.unreadable:
                found.append(
                    f"{file.path}: {file.unreadable:,} lines can't be read and are left out;"
                    f" the first: {file.first_unreadable}"
                )
            if file.waiting_bytes:
                found.append(
                    f"{file.path}: the last line has no end ({file.waiting_bytes:,} bytes): it is"
                    " left out until the server has written the rest"
                )
            found += [step_text(file, step.row, step.seconds) for step in file.clock.steps[:3]]
            if file.clock.count > 3:
                found.append(f"{file.path}: {file.clock.count:,} clock steps and gaps in all")
        return found


def rotated(path: Path) -> str:
    match = ROTATED.search(path.name)
    return match[1] if match else ""


def step_text(file: FollowedFile, row: int, seconds: float) -> str:
    where = f"{file.path}: at record {row + 1:,} the clock"
    if seconds < 0:
        return f"{where} was set back by {-seconds:,.1f} s: times before and after overlap"
    return f"{where} goes on {seconds:,.0f} s later: it was set forward, or no request came"
