"""A model is loaded and run for the first time in a process of its own.

A backend that crashes on it ends that process, and the server serves the others. No model at hand
ends a backend that the server does not refuse before, so a preloaded library plays the fault.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, PATIENCE, Server, eventually, lumen_binary, preloaded

BACKENDS = ("auto", "openvino")


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the trial of a model "crashes" crashes, and of "hangs" hangs."""
    source = Path(__file__).with_name("trial_faults.c")
    # It has a handler of its own for SIGFPE.
    return preloaded(tmp_path_factory.mktemp("preload"), source, "handle_sigfpe=0")


def private_cache(folder: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(folder / "cache")}


def models(folder: Path, *names: str) -> Path:
    """The model `identity` under each name, in files that differ: a file is tried once."""
    for name in names:
        model = onnx.load(MODELS / "identity" / "1" / "model.onnx")
        model.doc_string = name
        (folder / name / "1").mkdir(parents=True)
        onnx.save(model, folder / name / "1" / "model.onnx")
    return folder


def answers(server: Server, model: str) -> bool:
    tensor = triton.InferInput("input", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 3), np.float32))
    client = triton.InferenceServerClient(server.url)
    if not client.is_model_ready(model):
        return False
    return bool((client.infer(model, [tensor]).as_numpy("output") == 1).all())


def children_of(pid: int) -> list[str]:
    """Of each of its threads."""
    children = []
    for one in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has ended meanwhile
            children += one.read_text().split()
    return children


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_that_crashes_on_a_model_leaves_the_others_served(
    tmp_path: Path, faults: dict[str, str], backend: str
) -> None:
    repository = models(tmp_path / "models", "before", "crashes", "later")
    env = faults | private_cache(tmp_path)
    with Server(repository, "--backend", backend, env=env) as server:
        assert answers(server, "before")
        assert answers(server, "later"), "a new process is started for it"
        assert not answers(server, "crashes")
        reason = server.wait_for_log("crashes", "unavailable")
        assert "ended the process in which models are tried first, by signal 8" in reason
        assert children_of(server.process.pid) == [], "the process ends once models are loaded"


def test_a_model_that_was_tried_is_not_tried_at_the_next_start(
    tmp_path: Path, faults: dict[str, str]
) -> None:
    repository = models(tmp_path / "models", "crashes")
    with Server(repository, env=private_cache(tmp_path)) as server:
        assert answers(server, "crashes"), "without the preloaded library it does not"
    with Server(repository, env=faults | private_cache(tmp_path)) as server:
        assert answers(server, "crashes")


def stop_while_trials_hang(folder: Path, faults: dict[str, str], *names: str) -> None:
    """A server that tries these models gets SIGTERM; neither it nor a trial is left."""
    repository = models(folder / "models", *names)
    words = [str(lumen_binary()), "serve", "--model-repository", str(repository)]
    words += ["--http", "127.0.0.1:0", "--unix", "off"]
    env = {**os.environ, **faults, **private_cache(folder)}
    server = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def trials() -> list[str]:
        return children_of(server.pid)

    eventually(lambda: len(trials()) == len(names), lambda: f"{len(trials())} trials at once")
    started = trials()
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=2 * PATIENCE) == 0
    for trial in started:
        assert not Path(f"/proc/{trial}").exists(), "a process that tried a model is left behind"


def test_a_stop_signal_ends_a_trial_that_hangs(tmp_path: Path, faults: dict[str, str]) -> None:
    stop_while_trials_hang(tmp_path, faults, "hangs")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="each load takes a CPU")
def test_two_models_are_tried_at_once_and_a_stop_signal_ends_both_trials(
    tmp_path: Path, faults: dict[str, str]
) -> None:
    stop_while_trials_hang(tmp_path, faults, "hangs", "hangs_too")
