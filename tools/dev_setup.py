"""Brings a bare Debian or Ubuntu to where Lumen builds: apt packages and .venv.

Called by ./dev in one thread, under a file lock, so two commands at once install once. Standard
library only, because nothing else is there yet. Errors: SystemExit with the command to type.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
APT_LIST = ROOT / "tools" / "apt-packages.txt"
APT_FUZZ_LIST = ROOT / "tools" / "apt-packages-fuzz.txt"
APT_TEST_LIST = ROOT / "tools" / "apt-packages-test.txt"
REQUIREMENTS = ROOT / "requirements.txt"


def say(text: str) -> None:
    """Chatter goes to stderr: the stdout of ./dev bench is one JSON object."""
    print(f"dev: {text}", file=sys.stderr, flush=True)


def names_in(path: Path) -> list[str]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def missing_packages(wanted: list[str]) -> list[str]:
    query = ["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *wanted]
    listed = subprocess.run(query, capture_output=True, text=True).stdout
    installed = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]


def root_prefix() -> list[str] | None:
    """The words in front of apt-get that give it root, or None where we can't have it unasked."""
    if os.geteuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0
    ):
        return ["sudo", "-n"]
    return None


def install_packages(missing: list[str]) -> None:
    prefix = root_prefix()
    if prefix is None:
        say("these packages are missing, and installing them needs root. Run this, then again:")
        print(f"sudo apt-get install {' '.join(missing)}", flush=True)
        raise SystemExit(1)
    say(f"apt-get install {' '.join(missing)}")
    # invoke-rc.d starts no service in runlevel 1: nginx is a rival here, nobody's web server.
    environment = ("DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
    apt = [*prefix, "env", *environment, "apt-get", "-qq"]
    # A failed update may still leave lists that are good enough; the installation says.
    subprocess.run([*apt, "update"], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    install = [*apt, "install", "-y", "--no-install-recommends", *missing]
    if subprocess.run(install, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode != 0:
        raise SystemExit(f"dev: apt-get failed. Try: sudo apt-get install {' '.join(missing)}")


def run_quietly(
    words: Sequence[object], cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Its two outputs together, as text; it can't ask anything."""
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def install_rivals(packages: Sequence[str]) -> None:
    """`packages`: the names that each has on one system or another, "A | B". A rival that can't be
    had costs its column, not the bench."""
    if not shutil.which("dpkg-query"):
        return
    missing = []
    for line in dict.fromkeys(filter(None, packages)):
        names = [name.strip() for name in line.split("|")]
        if len(missing_packages(names)) == len(names):
            known = subprocess.run(["apt-cache", "madison", *names], capture_output=True, text=True)
            offered = {line.split("|")[0].strip() for line in known.stdout.splitlines()}
            missing += [name for name in names if name in offered][:1]
    if missing and root_prefix() is None:
        say(f"going on without {' '.join(missing)}: installing them needs root")
    elif missing:
        try:
            install_packages(missing)
        except SystemExit as refused:
            say(f"going on without {' '.join(missing)} ({refused.code})")


def make_venv() -> None:
    """A .venv whose interpreter is gone (a moved tree, an upgraded Python) is made anew."""
    works = (
        PYTHON.exists() and subprocess.run([PYTHON, "-c", ""], capture_output=True).returncode == 0
    )
    if works:
        return
    if sys.version_info < (3, 11):  # noqa: UP036 - this is where an older one is told
        raise SystemExit(f"dev: python3 is {sys.version.split()[0]}, wanted 3.11 or newer")
    say("making .venv")
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], stdout=sys.stderr)
    if done.returncode != 0:
        raise SystemExit("dev: can't make .venv. Try: sudo apt-get install python3-venv")


def pip_install(requirements: Path) -> None:
    """Installs the packages that a file pins unless this very file, with this Python, is installed
    already.

    The pins of requirements.txt bind the other files too: a rival of a bench must not move the
    numpy that the tests run with.
    """
    stamp = VENV / f".stamp-{requirements.stem}"
    key = hashlib.sha256(requirements.read_bytes() + REQUIREMENTS.read_bytes())
    key.update(f"{sys.version_info[:2]}".encode())
    if stamp.exists() and stamp.read_text() == key.hexdigest():
        return
    say(f"pip install -r {requirements.relative_to(ROOT)}")
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["-r", str(requirements), "-c", str(constraints_file())]
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode != 0:
        raise SystemExit(f"dev: pip could not install {requirements.relative_to(ROOT)} (see above)")
    stamp.write_text(key.hexdigest())


def constraints_file() -> Path:
    """requirements.txt without extras: pip refuses `name[extra]` in a constraints file."""
    path = VENV / "constraints.txt"
    lines = names_in(REQUIREMENTS)
    path.write_text("".join(line.replace("[http]", "") + "\n" for line in lines))
    return path


def setup(extra: Path | None = None, apt: Path | None = None) -> None:
    """Everything that a build needs; `extra` is a further requirements file (lint, test, bench),
    `apt` a further list of packages (fuzz, test)."""
    lock_path = ROOT / ".build" / ".setup.lock"
    lock_path.parent.mkdir(exist_ok=True)
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = names_in(APT_LIST) + (names_in(apt) if apt else [])
        missing = missing_packages(wanted) if shutil.which("dpkg-query") else []
        if missing:
            install_packages(missing)
        make_venv()
        for requirements in (REQUIREMENTS, extra):
            if requirements is not None:
                pip_install(requirements)
