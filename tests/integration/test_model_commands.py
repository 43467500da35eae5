"""`lumen ps`, `load` and `unload` against a running server; `lumen check` without one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.harness import MODELS, Server, copy_models, lumen_binary
from integration.raw_http import get


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    models = copy_models(tmp_path / "models", [MODELS / "identity", MODELS / "mlp"])
    broken = models / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"none")
    with Server(models, unix=str(tmp_path / "s.sock")) as one:
        yield one


def run(*words: str, unix: str | None = None) -> subprocess.CompletedProcess[str]:
    arguments = [*words, "--unix", unix] if unix else list(words)
    environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    return subprocess.run(
        [str(lumen_binary()), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


def test_ps_shows_each_version_with_its_state(server: Server) -> None:
    with server.connect() as connection:
        assert connection.exchange(get("/v2/models/mlp/ready")).status == 200
    shown = run("ps", unix=server.unix_path)
    assert shown.returncode == 0, shown.stderr
    head, *lines = shown.stdout.splitlines()
    assert head.split() == [
        *("MODEL", "VERSION", "STATE", "BACKEND", "LANE", "INSTANCES", "REQUESTS", "MEAN")
    ]
    assert [line.split()[:3] for line in lines[:3]] == [
        ["broken", "1", "UNAVAILABLE"],
        ["identity", "1", "READY"],
        ["mlp", "1", "READY"],
    ]
    assert lines[2].split()[3] == "openvino"
    assert lines[3].startswith("broken/1: broken/1/model.onnx")
    as_json = json.loads(run("ps", "--json", unix=server.unix_path).stdout)
    assert [one["name"] for one in as_json] == ["broken", "identity", "mlp"]
    assert as_json[2]["engine"]["statistics"]["inference_stats"]["success"]["count"] == 0


def test_models_are_loaded_and_unloaded(server: Server, tmp_path: Path) -> None:
    done = run("unload", "mlp", "identity", unix=server.unix_path)
    assert (done.returncode, done.stdout) == (0, "unloaded mlp\nunloaded identity\n")
    states = {
        one["name"]: one["state"]
        for one in json.loads(run("ps", "--json", unix=server.unix_path).stdout)
    }
    assert states == dict.fromkeys(["broken", "identity", "mlp"], "UNAVAILABLE")
    done = run("load", "mlp", unix=server.unix_path)
    assert (done.returncode, done.stdout) == (0, "loaded mlp\n")
    shutil.copytree(MODELS / "mlp" / "1", tmp_path / "models" / "mlp" / "2")
    told = run("ps", unix=server.unix_path).stdout
    assert "mlp: version 2 is on disk, not loaded: lumen load mlp\n" in told
    assert run("load", "mlp", unix=server.unix_path).returncode == 0
    ready = [
        one["version"] for one in json.loads(run("ps", "--json", unix=server.unix_path).stdout)
    ]
    assert ready == ["1", "1", "2", "1"]


@pytest.mark.parametrize("command", ["load", "unload"])
def test_a_model_that_is_not_there_is_named(server: Server, command: str) -> None:
    done = run(command, "nothing/../mlp", unix=server.unix_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"lumen {command}: model 'nothing/../mlp'"), done.stderr


def test_a_broken_model_is_told_with_its_reason(server: Server) -> None:
    done = run("load", "broken", unix=server.unix_path)
    assert done.returncode == 1
    assert "broken/1/model.onnx" in done.stderr


def test_without_a_server_the_socket_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "none.sock")
    done = run("ps", unix=path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert path in done.stderr
    assert "--unix" in run("ps").stderr


def test_models_gives_the_reason_of_each_choice_and_of_each_failure(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "identity", MODELS / "mlp"])
    (models / "broken" / "1").mkdir(parents=True)
    (models / "broken" / "1" / "model.onnx").write_bytes(b"none")
    shown = run("models", "--model-repository", str(models)).stdout.splitlines()
    assert [line.split()[0] for line in shown[::2]] == ["broken/1", "identity/1", "mlp/1"]
    assert "broken/1/model.onnx" in shown[1]
    assert shown[3].startswith("    onnxruntime") and "us against" in shown[3]


def test_check_names_the_faults_of_a_repository(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    done = run("check", str(models), "--backend", "openvino")
    assert (done.returncode, done.stdout) == (
        0,
        "ok  mlp/1\n1 versions, 0 of them can't be served\n",
    )
    shutil.copytree(MODELS / "mlp", models / "other")
    (models / "other" / "config.json").write_text('{"wieght": 2}')
    (models / "loose").mkdir()
    shutil.copy(MODELS / "mlp" / "1" / "model.onnx", models / "loose")
    done = run("check", str(models), "--backend", "openvino")
    assert done.returncode == 1
    assert "bad other/1\n" in done.stdout
    assert 'unknown key "wieght"; did you mean "weight"?' in done.stdout
    assert "move it to loose/1/model.onnx" in done.stdout
    assert done.stdout.endswith("3 versions, 2 of them can't be served\n")


def test_check_names_the_faults_of_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"server": {"io_threads": 2}}')
    done = run("check", str(file))
    assert (done.returncode, done.stdout) == (0, f"ok  {file}\n")
    file.write_text('{"server": {"io_thread": 2}}')
    done = run("check", str(file))
    assert (done.returncode, done.stdout.startswith("bad ")) == (1, True)
    assert "io_threads" in done.stdout
    assert run("check", str(tmp_path / "none.json")).returncode == 1
