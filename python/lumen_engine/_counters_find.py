"""Finds the counters files of the servers of this machine, and which server a user means.

Threads: any. Errors: CountersFileError, which says where was looked and how to mend it.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from lumen_engine._counters_layout import MAGIC, CountersFileError

SHARED_MEMORY = Path("/dev/shm")
NAME = re.compile(r"lumen-(?:(?P<uid>\d+)-)?(?P<pid>\d+)\.counters$")


@dataclass(frozen=True, slots=True)
class FoundServer:
    path: Path
    pid: int
    is_alive: bool


def folders() -> list[tuple[Path, str]]:
    """Where servers put their files by default, and the names of these files."""
    uid = os.getuid()
    places = [(SHARED_MEMORY, "lumen-*-*.counters" if uid == 0 else f"lumen-{uid}-*.counters")]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        places.insert(0, (Path(runtime), "lumen-*.counters"))
    return places


def find() -> list[FoundServer]:
    """The running servers first, then the newest: of this user, for root of all."""
    found = []
    for folder, pattern in folders():
        for path in folder.glob(pattern):
            match = NAME.search(path.name)
            if match is None:
                continue
            try:
                written = path.stat().st_mtime
                found.append((not _is_locked(path), -written, path, int(match["pid"])))
            except OSError:
                continue  # it ended meanwhile, or is another user's
    return [FoundServer(path, pid, not dead) for dead, _, path, pid in sorted(found)]


def resolve(target: str | None = None) -> Path:
    """The file of a path or a process id; without one, of the only server that runs."""
    if target is not None and not target.isdigit():
        return Path(target)
    servers = find()
    if target is not None:
        return _of_pid(int(target), servers)
    alive = [server for server in servers if server.is_alive]
    if len(alive) == 1:
        return alive[0].path
    if len(alive) > 1:
        raise CountersFileError(_choice("several servers run; name one by its PID or path", alive))
    if servers:
        raise CountersFileError(
            _choice("no server runs; name the file of a dead one to see its last counts", servers)
        )
    raise CountersFileError(
        f"no server found: {_looked()}; start one (`lumen serve`), or name the file that it was"
        " given by --stats"
    )


def _of_pid(pid: int, servers: list[FoundServer]) -> Path:
    for server in servers:
        if server.pid == pid:
            return server.path
    for path in _open_files(pid):
        if _has_magic(path):
            return path
    state = "runs, but has none" if Path(f"/proc/{pid}").exists() else "does not run"
    raise CountersFileError(
        f"no counters file of process {pid}, which {state}: {_looked()}, and at what it has open;"
        " `lumen serve --stats off` has none, and another user's can't be seen"
    )


def _looked() -> str:
    return "looked for " + " and ".join(str(folder / name) for folder, name in folders())


def _choice(problem: str, servers: list[FoundServer]) -> str:
    lines = [f"  {s.pid:>8}  {'running' if s.is_alive else 'dead   '}  {s.path}" for s in servers]
    return "\n".join([problem + ":", *lines])


def _is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)  # and with it the lock


def _open_files(pid: int) -> list[Path]:
    """The regular files that a process has open, where we may see them."""
    found = []
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []
    for link in links:
        try:
            path = Path(os.readlink(link))
            if path.is_absolute() and stat.S_ISREG(path.stat().st_mode):
                found.append(path)
        except OSError:
            continue  # closed meanwhile, or no file: a socket, a pipe
    return found


def _has_magic(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
