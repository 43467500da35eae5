"""Whether this process may count by `perf`, and the one setting that is changed so that it may.

kernel.perf_event_paranoid is lowered where it is in the way and where that can be had without
asking (root, or `sudo -n`). A shell of its own lowers it and puts it back: it waits on a pipe from
us, whose end it sees however we end, SIGKILL included. Threads: the main one. Errors: a note.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lumen_engine.perf.programs import END_TIMEOUT_S, Interrupts

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# One's own processes, user and kernel side. At 2 the kernel side is missing, and with it context
# switches; Debian's 3 and Ubuntu's 4 shut everybody out.
ENOUGH = 1
CAP_SYS_ADMIN = 21
CAP_PERFMON = 38

# The shell ignores Ctrl-C's signal; `cat` ends when the pipe does. A value that somebody else has
# set meanwhile is theirs.
KEEPER = """trap "" INT TERM HUP
old=$(cat "$1") && echo "$2" > "$1" || exit 1
echo "$old"
cat > /dev/null
[ "$(cat "$1")" = "$2" ] || exit 3
echo "$old" > "$1"
"""
CHANGED_BY_OTHERS = 3


@dataclass
class Access:
    """The state found and the changes made; `notes` are for the user."""

    found: int | None = None
    set_to: int | None = None
    notes: list[str] | None = None

    def note(self, text: str) -> None:
        self.notes = [*(self.notes or []), text]


def capabilities(status: str) -> int:
    """Those in effect, from the text of /proc/self/status."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def is_exempt(status: str) -> bool:
    return bool(capabilities(status) & (1 << CAP_SYS_ADMIN | 1 << CAP_PERFMON))


def root_words() -> list[str] | None:
    """The words in front of a command that needs root; None: it can't be had without asking."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo is None:
        return None
    asked = subprocess.run([sudo, "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True)
    return [sudo, "-n"] if asked.returncode == 0 else None


def read_paranoid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def without_it(value: int) -> str:
    """The counters that a user can and can't read at that value."""
    left = "the user side of one's own processes only" if value == 2 else "nothing without root"
    return (
        f"kernel.perf_event_paranoid is {value}: {left}, wanted {ENOUGH} or less. Changing it "
        f"needs root: sudo sysctl kernel.perf_event_paranoid={ENOUGH}, or run this as root"
    )


@contextmanager
def unblocked(interrupts: Interrupts, path: Path = PARANOID) -> Iterator[Access]:
    """Within it, this user may count as far as that can be had; after it all is as it was."""
    access = Access(found=read_paranoid(path))
    if access.found is None:
        access.note(f"no {path}: this kernel has no perf events, or /proc is not its own")
        yield access
        return
    if access.found <= ENOUGH or is_exempt(Path("/proc/self/status").read_text()):
        yield access
        return
    words = root_words()
    if words is None:
        access.note(without_it(access.found))
        yield access
        return
    with interrupts.held():
        keeper = start_keeper(words, path)
    try:
        assert keeper.stdout is not None
        if not keeper.stdout.readline().strip():
            access.note(f"{path} can't be written, even as root. {without_it(access.found)}")
        else:
            access.set_to = ENOUGH
            access.note(
                f"kernel.perf_event_paranoid set from {access.found} to {ENOUGH} for this run"
            )
        yield access
    finally:
        with interrupts.held():
            end_keeper(keeper, access, path)


def start_keeper(words: list[str], path: Path) -> subprocess.Popen[str]:
    """A group of its own but our session: sudo remembers an authenticated user by session."""
    return subprocess.Popen(
        [*words, "sh", "-c", KEEPER, "sh", str(path), str(ENOUGH)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,
    )


def end_keeper(keeper: subprocess.Popen[str], access: Access, path: Path) -> None:
    assert keeper.stdin is not None and keeper.stdout is not None
    keeper.stdin.close()
    keeper.stdout.close()
    try:
        status = keeper.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        access.note(
            f"{path} may still be {ENOUGH}, it was {access.found}: look, and set it by hand"
        )
        return
    if access.set_to is None:
        return
    if status == CHANGED_BY_OTHERS:
        access.note(f"{path} was changed by somebody else meanwhile, and left as it is")
    elif status != 0 or read_paranoid(path) != access.found:
        access.note(f"{path} could not be set back to {access.found}: do so by hand")
    else:
        access.note(f"kernel.perf_event_paranoid set back to {access.found}")
