"""Commands of `lumen` that are Python: the Python that runs them, its arguments, and no Python at
all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lumen_engine import commands

# In a Python's place: passes the look for the package, then prints its arguments.
FAKE = """#!/bin/sh
if [ "$1" = -c ]; then exit 0; fi
echo "$0"; for word in "$@"; do echo "<$word>"; done; echo "$PYTHONPATH"; echo "$LUMEN_BINARY"
exit 7
"""


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)
    path.chmod(0o755)
    return path


def run(words: list[object], **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key != "LUMEN_BINARY"}
    return subprocess.run(
        [str(word) for word in words],
        env=clean | env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def test_help_lists_every_python_command(lumen_binary: Path) -> None:
    shown = run([lumen_binary, "--help"]).stdout
    listed = re.findall(r"^  (\w+) +\S.*$", shown, re.MULTILINE)
    assert set(commands.COMMANDS) <= set(listed)
    assert listed[-len(commands.COMMANDS) :] == list(commands.COMMANDS), "one order in both tables"


def test_arguments_and_the_exit_status_go_through_as_they_are(
    lumen_binary: Path, tmp_path: Path
) -> None:
    python = script(tmp_path / "python", FAKE)
    words = ["top", "--help", "-x", "a b", "--json=1", "--"]
    done = run([lumen_binary, *words], LUMEN_PYTHON=str(python), PYTHONPATH="/before")
    lines = done.stdout.splitlines()
    assert done.returncode == 7
    assert lines[:3] == [str(python), "<-m>", "<lumen_engine>"]
    assert lines[3:-2] == [f"<{word}>" for word in words]
    assert lines[-2].endswith("/python:/before"), "the tree's package comes first"
    assert lines[-1] == str(lumen_binary.resolve())


@pytest.mark.parametrize("called_by", ["path", "name"])
def test_the_python_beside_the_called_path_is_used(
    lumen_binary: Path, tmp_path: Path, called_by: str
) -> None:
    folder = tmp_path / "an environment" / "bin"
    python = script(folder / "python3", FAKE)
    (folder / "lumen").symlink_to(lumen_binary)
    word = folder / "lumen" if called_by == "path" else "lumen"
    # A shell, since Python would look the name up in its own PATH.
    done = run(["sh", "-c", f"'{word}' slow"], PATH=f"{folder}:{os.environ['PATH']}")
    assert done.stdout.splitlines()[0] == str(python)


@pytest.mark.parametrize(
    "body, told",
    [
        (None, "can't be run: No such file or directory; install python3"),
        ("#!/bin/sh\nexit 3\n", "has no package lumen_engine: pip install lumen-engine[tools]"),
        ("#!/bin/sh\nexit 4\n", "is older than 3.11"),
        ("#!/bin/sh\nexit 9\n", "exited with status 9"),
    ],
)
def test_a_python_that_will_not_do_is_told_in_one_line(
    lumen_binary: Path, tmp_path: Path, body: str | None, told: str
) -> None:
    python = tmp_path / "python"
    if body is not None:
        script(python, body)
    done = run([lumen_binary, "top"], LUMEN_PYTHON=str(python))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("lumen top: ") and told in done.stderr


def test_python_runs_its_own_commands_without_the_executable(tmp_path: Path) -> None:
    caller = script(tmp_path / "lumen", "#!/bin/sh\necho the executable\nexit 9\n")
    words = [sys.executable, "-m", "lumen_engine"]
    package = str(Path(commands.__file__).parents[1])
    env = {"LUMEN_BINARY": str(caller), "PYTHONPATH": package}
    done = run([*words, "slow", "--help"], **env)
    assert done.returncode == 0 and "usage: lumen slow" in done.stdout
    done = run([*words, "serve"], **env)
    assert (done.returncode, done.stdout) == (9, "the executable\n")


@pytest.mark.parametrize("missing", ["numpy"])
def test_a_missing_requirement_is_told_with_the_way_to_get_it(
    lumen_binary: Path, tmp_path: Path, missing: str
) -> None:
    gone = tmp_path / missing / "__init__.py"
    script(gone, f"raise ModuleNotFoundError('no {missing}', name='{missing}')")
    done = run([lumen_binary, "top"], LUMEN_PYTHON=sys.executable, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert f"lumen top: needs {missing}" in done.stderr
    assert "pip install 'lumen-engine[tools]'" in done.stderr


def test_extras_have_the_pins_of_the_requirements(project_root: Path) -> None:
    pinned = (project_root / "requirements.txt").read_text().split()
    project = tomllib.loads((project_root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    extras.pop("ray")  # Python that imports it, and no command of ours, chooses its version
    assert {each.extra for each in commands.COMMANDS.values()} >= set(extras)
    for pins in extras.values():
        for pin in pins:
            assert pin in pinned
