"""All sources of the dashboard, kept for all of its sessions and refreshed by the next that looks.

Threads: any; one refreshes at a time, and its result is replaced as a whole. Memory: all rows.
Errors: none are raised; `problems` are sentences for the user.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from .sources.csv_run import CsvRun, rotated_number
from .sources.documents import Documents
from .sources.errors import SourceError
from .sources.json_files import is_matrix_csv, read_json, read_matrix_csv
from .sources.paths import find_files, short_names
from .sources.telemetry_csv import KINDS, SLOWEST_COLUMNS, STAGES

# Sessions and fragments that look at the same moment share one look.
FRESH_S = 0.2
COUNTERS_MAGIC = b"LMCNTNS1"


@dataclass(frozen=True)
class Content:
    """The content of all files at one moment. A new `version` means that something changed."""

    version: int
    rows: pl.DataFrame
    slowest: pl.DataFrame
    documents: Documents
    problems: list[str] = field(default_factory=list)
    names: dict[str, Path] = field(default_factory=dict)  # of the runs
    counters: list[Path] = field(default_factory=list)  # files of servers, for the page Live


class Store:
    def __init__(self, named: list[Path]) -> None:
        self.named = named
        self._lock = threading.Lock()
        self._looked = 0.0
        self._runs: dict[Path, CsvRun] = {}
        self._documents: dict[Path, tuple[tuple[int, int, int], Documents, str]] = {}
        self._content = Content(0, _no_rows(), _no_slowest(), Documents())

    def content(self) -> Content:
        """Looks at the files, unless somebody just did."""
        with self._lock:
            if self._content.version == 0 or time.monotonic() - self._looked > FRESH_S:
                self._refresh()
                self._looked = time.monotonic()
            return self._content

    def _refresh(self) -> None:
        paths, problems = find_files(self.named)
        bases = [path for path in paths if not rotated_number(path) or path in self.named]
        names = short_names(bases)
        changed = self._content.version == 0 or problems != self._content.problems[: len(problems)]
        runs: dict[Path, CsvRun] = {}
        documents = {}
        counters: list[Path] = []
        for path in bases:
            kind = self._kind(path)
            if kind == "counters":
                counters.append(path)
            elif kind == "telemetry":
                run = self._runs.get(path) or CsvRun(names[path], path)
                changed = run.refresh() or run.name != names[path] or changed
                run.name = names[path]
                runs[path] = run
            else:
                known = self._documents.get(path)
                documents[path] = _look(path, names[path], kind, known)
                changed = changed or documents[path] is not known
        changed = changed or runs.keys() != self._runs.keys()
        changed = changed or documents.keys() != self._documents.keys()
        changed = changed or counters != self._content.counters
        self._runs, self._documents = runs, documents
        if changed:
            self._content = self._gather(problems, names, counters)

    def _kind(self, path: Path) -> str:
        if path in self._runs:
            return "telemetry"
        if path.suffix == ".json":
            return "json"
        try:
            if not path.is_file():
                return "telemetry"  # its reader tells the error
            with path.open("rb") as file:
                begin = file.read(200)
        except OSError:
            return "telemetry"  # its reader tells the error
        if begin.startswith(COUNTERS_MAGIC):
            return "counters"
        return "matrix" if is_matrix_csv(begin.decode("utf-8", "replace")) else "telemetry"

    def _gather(self, problems: list[str], names: dict[Path, str], counters: list[Path]) -> Content:
        problems = list(problems)
        frames: list[pl.DataFrame] = []
        slowest: list[pl.DataFrame] = []
        for run in self._runs.values():
            frames += run.frames()
            slowest += run.slowest()
            problems += run.problems()
        documents = Documents()
        for _, found, problem in self._documents.values():
            documents.add(found)
            problems += [problem] if problem else []
        return Content(
            self._content.version + 1,
            pl.concat(frames, rechunk=False) if frames else _no_rows(),
            pl.concat(slowest, rechunk=False) if slowest else _no_slowest(),
            documents,
            problems,
            {name: path for path, name in names.items()},
            counters,
        )


_stores: dict[tuple[str, ...], Store] = {}
_stores_lock = threading.Lock()


def shared(named: tuple[str, ...]) -> Store:
    """The store of these paths, for all callers in this process."""
    with _stores_lock:
        if named not in _stores:
            _stores[named] = Store([Path(name) for name in named])
        return _stores[named]


def _look(
    path: Path, name: str, kind: str, known: tuple[tuple[int, int, int], Documents, str] | None
) -> tuple[tuple[int, int, int], Documents, str]:
    """The document of a file; the one that is known where the file is still the same."""
    try:
        status = path.stat()
        mark = status.st_mtime_ns, status.st_size, status.st_ino
        if known is not None and known[0] == mark:
            return known
        if kind == "json":
            return mark, read_json(path, name), ""
        return mark, Documents(cells=read_matrix_csv(path, name)), ""
    except OSError as error:
        return (0, 0, 0), Documents(), f"{path}: can't be read: {error.strerror}"
    except SourceError as error:
        return mark, Documents(), str(error)


def _no_rows() -> pl.DataFrame:
    kinds = {"time": pl.Datetime("us"), **KINDS, "warm_up": pl.Boolean(), "run": pl.Categorical()}
    return pl.DataFrame(schema=kinds)


def _no_slowest() -> pl.DataFrame:
    every = {**KINDS, "request_id": pl.String(), "time": pl.Datetime("us")}
    names = [*SLOWEST_COLUMNS, *(f"{stage}_us" for stage in STAGES)]
    kinds = {name: every[name] for name in names}
    return pl.DataFrame(schema={**kinds, "warm_up": pl.Boolean(), "run": pl.Categorical()})
