"""No dependency reports home: a server writes nothing but its own files and asks no name server.

ONNX Runtime 1.29 and newer wrote a device id and a database below the user's cache folder, and
asked DNS for a collector, unless it was told not to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from integration.harness import (
    MODELS,
    Server,
    copy_models,
    lumen_binary,
    preloaded,
)


def private_folders(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir()
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    return {"HOME": str(home)} | {name: str(home / name.lower()) for name in names}


def test_a_server_with_onnx_runtime_writes_nothing_into_the_home_folder_but_its_own_cache(
    tmp_path: Path,
) -> None:
    env = private_folders(tmp_path)
    # A user that asks for telemetry does not get it from a server, either.
    env["ORT_DISABLE_TELEMETRY"] = "0"
    repository = copy_models(tmp_path / "models", [MODELS / "identity"])
    with Server(repository, "--backend", "onnxruntime", env=env) as server:
        tensor = triton.InferInput("input", [1, 3], "FP32")
        tensor.set_data_from_numpy(np.ones((1, 3), np.float32))
        triton.InferenceServerClient(server.url).infer("identity", [tensor])
    written = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert all("lumen" in path.relative_to(tmp_path / "home").parts for path in written), written


@pytest.fixture(scope="module")
def network_calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which a program's calls to other machines are lines of its stderr."""
    source = Path(__file__).with_name("network_calls.c")
    return {**os.environ, **preloaded(tmp_path_factory.mktemp("preload"), source)}


def test_the_list_of_network_calls_has_those_of_a_program(network_calls: dict[str, str]) -> None:
    code = (
        "import socket\n"
        "socket.getaddrinfo('localhost', 1)\n"
        "socket.socket(type=socket.SOCK_DGRAM).connect(('127.0.0.1', 9))\n"
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=network_calls, capture_output=True)
    made = [line.split()[2] for line in done.stderr.decode().splitlines() if "network" in line]
    assert made == ["getaddrinfo", "connect", "sendto"]


def test_loading_a_model_calls_no_other_machine(
    tmp_path: Path, network_calls: dict[str, str]
) -> None:
    repository = copy_models(tmp_path / "models", [MODELS / "identity"])
    done = subprocess.run(
        [str(lumen_binary()), "models", "--model-repository", str(repository)],
        env={**network_calls, **private_folders(tmp_path)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "identity" in done.stdout
    assert "network call" not in done.stderr
