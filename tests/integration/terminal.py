"""A program in a terminal: tmux, whose server is the test's own. Errors: AssertionError with the
screen as it was."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from integration.harness import PATIENCE, eventually


class Terminal:
    """`with Terminal(folder, [program, ...]) as terminal:`; leaving it ends the program."""

    def __init__(
        self,
        folder: Path,
        words: Sequence[object],
        *,
        env: dict[str, str] | None = None,
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        # A path of a unix socket is short; pytest's folders are long.
        self._socket = f"/tmp/lumen-tmux-{os.getpid()}-{time.monotonic_ns()}"
        self._status = folder / "exit-status"
        script = folder / "in-terminal.sh"
        command = " ".join(f"'{word}'" for word in words)
        # The window stays when the program has ended, with its last screen.
        script.write_text(
            f"{command}\necho $? >'{self._status}'\n"
            f"tmux -S '{self._socket}' wait-for -S ended\nsleep 1000\n"
        )
        clean = {key: value for key, value in os.environ.items() if key != "TMUX"}
        self._env = {**clean, "LC_ALL": "C.UTF-8", **(env or {})}
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux("new-session", "-d", *size, "sh", str(script))

    def screen(self, *, with_styles: bool = False) -> str:
        return self._tmux("capture-pane", "-p", *(["-e"] if with_styles else []))

    def press(self, *keys: str) -> None:
        """Names as tmux has them: `q`, `Space`, `Enter`, `Escape`, `Down`."""
        self._tmux("send-keys", "--", *keys)

    def resize(self, columns: int, lines: int) -> None:
        """Until the window has that size."""
        wanted = f"{columns}x{lines}"

        def has_it() -> bool:
            self._tmux("resize-window", "-x", str(columns), "-y", str(lines))
            size = self._tmux("display-message", "-p", "#{window_width}x#{window_height}")
            return size.strip() == wanted

        eventually(has_it, lambda: f"the window never was {wanted}")

    def wait_for(self, wanted: str | Callable[[str], bool]) -> str:
        """The first screen that has `wanted`, or of which it is true."""
        screen = ""

        def is_seen() -> bool:
            nonlocal screen
            screen = self.screen()
            return wanted in screen if isinstance(wanted, str) else wanted(screen)

        eventually(is_seen, lambda: f"never seen: {wanted}; the screen:\n{screen}")
        return screen

    def exit_status(self) -> int:
        # The program's script signals it; a signal that came first is kept.
        self._tmux("wait-for", "ended")
        return int(self._status.read_text())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tmux("kill-server")
        Path(self._socket).unlink(missing_ok=True)

    def _tmux(self, *words: str) -> str:
        # -f: nobody's own settings. 256 colours, as most terminals have.
        start = ["tmux", "-S", self._socket, "-f", "/dev/null"]
        done = subprocess.run(
            [*start, *words], env=self._env, capture_output=True, text=True, timeout=60 * PATIENCE
        )
        assert done.returncode == 0, f"tmux {words}: {done.stderr}"
        return done.stdout
