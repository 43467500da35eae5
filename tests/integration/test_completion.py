"""Tab completion, by the three shells themselves."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from integration.harness import lumen_binary
from integration.terminal import Terminal


def with_lumen() -> dict[str, str]:
    folder = str(Path(lumen_binary()).parent)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def answers(*words: str) -> list[str]:
    done = subprocess.run(
        [str(lumen_binary()), "__complete", *words], capture_output=True, text=True, check=True
    )
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def by_bash(line: str) -> list[str]:
    script = f"""
source <(lumen completion bash)
COMP_LINE={line!r}
read -r -a COMP_WORDS <<<"$COMP_LINE"
[[ "$COMP_LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_lumen
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    return _lines(["bash", "--norc", "-c", script])


def by_fish(line: str) -> list[str]:
    script = f"lumen completion fish | source; complete -C {line!r}"
    return [one.partition("\t")[0] for one in _lines(["fish", "--no-config", "-c", script])]


def _lines(command: list[str]) -> list[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=with_lumen(), check=True
    )
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", [by_bash, by_fish])
def test_a_shell_completes_commands_flags_and_values(shell: object) -> None:
    assert callable(shell)
    assert set(shell("lumen ")) >= {"serve", "bench", "check", "top", "ps", "load", "completion"}
    assert shell("lumen ser") == ["serve"]
    assert shell("lumen serve --queue-c") == ["--queue-capacity"]
    assert shell("lumen serve --loop e") == ["epoll"]
    assert sorted(shell("lumen serve --queue-type ")) == sorted(
        ["auto", "mpmc", "batched", "spsc", "naive", "inline"]
    )
    assert shell("lumen slow --mo") == ["--model"]
    assert sorted(shell("lumen completion ")) == ["bash", "fish", "zsh"]


def test_zsh_completes_in_a_terminal(tmp_path: Path) -> None:
    (tmp_path / ".zshrc").write_text(
        "autoload -Uz compinit && compinit -u\nsource <(lumen completion zsh)\nPS1='zsh> '\n"
    )
    env = {**with_lumen(), "ZDOTDIR": str(tmp_path)}
    with Terminal(tmp_path, ["zsh", "-i"], env=env, columns=120) as terminal:
        terminal.wait_for("zsh>")
        terminal.press("lumen ser", "Tab")
        terminal.wait_for("zsh> lumen serve")
        terminal.press("--queue-c", "Tab")
        terminal.wait_for("zsh> lumen serve --queue-capacity")
        terminal.press("C-u")
        terminal.press("lumen check ", ".zsh", "Tab")
        terminal.wait_for("lumen check .zsh")


def test_where_lumen_has_no_word_a_shell_completes_file_names(tmp_path: Path) -> None:
    assert answers("check", "") == []
    assert answers("serve", "--config", "") == []
    assert answers("none", "") == []
    (tmp_path / "repository-here").mkdir()
    script = f"cd {str(tmp_path)!r}; lumen completion fish | source; complete -C 'lumen check rep'"
    assert _lines(["fish", "--no-config", "-c", script]) == ["repository-here/"]


@pytest.mark.parametrize(
    "command",
    [
        "top",
        "slow",
        "trace",
        "perf",
        "ps",
        "load",
        "unload",
        "engine",
        "record",
        "quantize",
        "demo",
        "dashboard",
    ],
)
def test_the_flags_of_python_commands_are_theirs(command: str) -> None:
    """apps/python_command.cc lists them, so that no Python has to start for a tab."""
    done = subprocess.run(
        [str(lumen_binary()), command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    own = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", done.stdout, re.MULTILINE))
    assert set(answers(command, "--")) == own


def test_an_unknown_shell_is_told() -> None:
    done = subprocess.run(
        [str(lumen_binary()), "completion", "tcsh"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "got 'tcsh', wanted bash, zsh or fish" in done.stderr
