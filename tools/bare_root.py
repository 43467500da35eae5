"""Installs the wheel in a Debian that has Python and nothing else, and asks it for an answer.

    sudo python3 tools/bare_root.py WHEEL [--root DIR]

debootstrap makes the root (40 s); an existing one is taken as it is. pip downloads the wheel's
packages before the clock starts. Prints JSON: the seconds to the end of `pip install` and to the
first answer, and the size of the environment. Errors: SystemExit with the words of the tool.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from dev_setup import run_quietly

SUITE = "bookworm"
# In the root, by its own Python: a server of the wheel, and one answer of a model.
FIRST_ANSWER = """
import json, urllib.request
from lumen_engine import Server
with Server("/models") as server:
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
    path = f"http://{server.url}/v2/models/identity/infer"
    with urllib.request.urlopen(path, json.dumps(body).encode()) as reply:
        print(json.load(reply)["outputs"][0]["data"])
"""


def run(words: Sequence[object]) -> str:
    done = run_quietly(words)
    if done.returncode != 0:
        raise SystemExit(f"bare_root: {' '.join(map(str, words))}: {done.stdout}")
    return done.stdout


def inside(root: Path, words: Sequence[object]) -> str:
    """Mounts end with the command: no later removal of the root may meet /dev in it."""
    script = 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"'
    environment = ["env", "-i", "PATH=/usr/bin:/bin"]
    return run(["unshare", "--mount", "sh", "-c", script, root, *environment, *words])


def prepare(root: Path, wheel: Path) -> None:
    """The root, with pip's packages and a model."""
    if not (root / "usr/bin/python3").exists():
        packages = "--include=python3,python3-venv"
        run(["debootstrap", "--variant=minbase", packages, SUITE, root])
    for name in ("wheels", "venv", "models"):
        shutil.rmtree(root / name, ignore_errors=True)
    wheels = root / "wheels"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", wheels]
    run([*pip, "--only-binary", ":all:", "--python-version", "3.11", wheel])
    shutil.copytree(ROOT / "models" / "identity", root / "models" / "identity")


def measure(root: Path, wheel: Path) -> dict[str, object]:
    if inside(root, ["sh", "-c", "command -v cc gcc g++ || true"]).strip():
        raise SystemExit(f"bare_root: {root} has a compiler: it is not bare")
    start = time.monotonic()
    inside(root, ["python3", "-m", "venv", "/venv"])
    pip = ["/venv/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/wheels"]
    inside(root, [*pip, f"/wheels/{wheel.name}"])
    installed_s = time.monotonic() - start
    answer = inside(root, ["/venv/bin/python", "-c", FIRST_ANSWER])
    first_answer_s = time.monotonic() - start
    if json.loads(answer) != [1, 2, 3]:
        raise SystemExit(f"bare_root: the answer is {answer}; wanted [1, 2, 3]")
    packages = run(["du", "-sm", root / "venv/lib/python3.11/site-packages"]).split()[0]
    return {
        "wheel": wheel.name,
        "installed_s": round(installed_s, 1),
        "first_answer_s": round(first_answer_s, 1),
        "packages_mib": int(packages),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--root", type=Path, help="default: one that is removed afterwards")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = arguments.root or Path(scratch) / "root"
        prepare(root, arguments.wheel)
        print(json.dumps(measure(root, arguments.wheel)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
