"""Containers, KServe and systemd: examples judged by tools of others, their flags by a server."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from integration.harness import ROOT, Server

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

StartServer = Callable[..., Server]
EXAMPLES = ROOT / "examples"
CONTAINERFILE = EXAMPLES / "container" / "Containerfile"
UNIT = EXAMPLES / "systemd" / "lumen.service"
MANIFESTS = sorted((EXAMPLES / "kserve").glob("*.yaml"))
pytestmark = pytest.mark.tool


def judged(*words: object) -> str:
    texts = [str(word) for word in words]
    done = subprocess.run(texts, capture_output=True, text=True, timeout=100)
    return done.stdout + done.stderr if done.returncode != 0 else ""


def serves_with(server: StartServer, flags: list[str]) -> None:
    """The address and the repository are the test's own; `flags` has one or two words for each."""
    words = " ".join(flags).replace("=", " ").split()
    given = dict(zip(words[::2], words[1::2]))
    assert given.pop("--http").startswith("0.0.0.0:") and given.pop("--model-repository")
    assert given.pop("--unix", "off") == "off"
    started = server(*[word for pair in given.items() for word in pair])
    started.stop()
    assert started.exit_code == 0


def test_hadolint_has_nothing_to_say_of_the_container(server: StartServer) -> None:
    folder = judge_programs.environment("container")
    assert judged(folder / "bin" / "hadolint", "--no-color", CONTAINERFILE) == ""
    text = CONTAINERFILE.read_text()
    entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[0])
    command = json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[0])
    assert entry[:2] == ["/opt/lumen/bin/lumen", "serve"]
    serves_with(server, entry[2:] + command)


def test_the_check_of_the_containers_health_sees_a_server_and_its_absence(
    server: StartServer,
) -> None:
    (line,) = re.findall(r"^  CMD (\[.*\])$", CONTAINERFILE.read_text(), re.MULTILINE)
    words = json.loads(line)
    assert words[:2] == ["/opt/lumen/bin/python", "-c"]
    started = server()
    program = words[2].replace("127.0.0.1:8000", started.url)
    assert judged(sys.executable, "-c", program) == ""
    started.stop()
    assert "refused" in judged(sys.executable, "-c", program)


def test_the_models_of_kserve_take_the_manifests_and_refuse_others(tmp_path: Path) -> None:
    python = judge_programs.interpreter("kserve")
    script = Path(__file__).with_name("kserve_manifests.py")
    assert len(MANIFESTS) == 2
    assert judged(python, script, *MANIFESTS) == ""
    broken = tmp_path / "broken.yaml"
    for old, new in (("periodSeconds: 1", "period: 1"), ("multiModel: false", "multiModel: 3")):
        broken.write_text((EXAMPLES / "kserve" / "runtime.yaml").read_text().replace(old, new, 1))
        assert "broken.yaml.spec" in judged(python, script, broken)


def test_a_server_takes_the_flags_of_the_runtime(server: StartServer) -> None:
    runtime = yaml.safe_load((EXAMPLES / "kserve" / "runtime.yaml").read_text())
    (container,) = runtime["spec"]["containers"]
    serves_with(server, container["args"])
    (service,) = [path for path in MANIFESTS if path.name == "service.yaml"]
    predictor = yaml.safe_load(service.read_text())["spec"]["predictor"]
    waits = [int(one.split("=")[1]) for one in container["args"] if one.startswith("--drain")]
    assert predictor["terminationGracePeriodSeconds"] * 1000 > sum(waits)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_finds_the_unit_closed_enough() -> None:
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=35", UNIT]
    assert judged(*words) == ""  # 3.5 of 10 at most


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for name in ("lumen.service", "lumen.socket"):
        text = UNIT.with_name(name).read_text()
        # verify looks whether the program is there.
        (tmp_path / name).write_text(text.replace("/opt/lumen/bin/lumen", "/bin/true"))
    found = judged("systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir()))
    assert found == ""
    (tmp_path / "lumen.socket").write_text("[Socket]\nListenStream=nowhere:none\n")
    assert judged("systemd-analyze", "verify", "--man=no", tmp_path / "lumen.socket") != ""
