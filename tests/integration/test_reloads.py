"""Models that are loaded anew while clients use them: nothing fails, and nothing stays behind."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from integration.harness import MODELS, SANITIZED, Server, copy_models, eventually
from onnx import helper

sys.path.insert(0, str(MODELS))
import onnx_tools

# `./dev soak` sets it: 200.
RELOADS = int(os.environ.get("LUMEN_RELOADS", "24" if SANITIZED else "40"))
# Of different models, one after the other; `./dev soak`: 1,000.
LOADS = int(os.environ.get("LUMEN_LOADS", "24" if SANITIZED else "60"))
SETTLED = 20  # allocators and caches have their usual size by then
# Of OpenVINO, which each instance has: a model that is measured anew while others run has another
# number of instances, up or down. 200 loads of the soak would show one thread a load.
EXECUTOR_THREADS = 12
RNG = np.random.default_rng(11)
ROWS = {"mlp": RNG.random((3, 256), np.float32), "digits": RNG.random((1, 1, 8, 8), np.float32)}


@dataclass
class Resources:
    """Of the server's process."""

    resident_mib: float
    mappings: int
    threads: int
    descriptors: int

    @staticmethod
    def of(server: Server) -> Resources:
        proc = Path("/proc") / str(server.process.pid)
        return Resources(
            int((proc / "statm").read_text().split()[1]) / 256,
            len((proc / "maps").read_text().splitlines()),
            len(list((proc / "task").iterdir())),
            len(list((proc / "fd").iterdir())),
        )


def infer(client: triton.InferenceServerClient, model: str) -> np.ndarray:
    metadata = client.get_model_metadata(model)
    rows = ROWS[model]
    one = triton.InferInput(metadata["inputs"][0]["name"], list(rows.shape), "FP32")
    one.set_data_from_numpy(rows)
    return client.infer(model, [one]).as_numpy(metadata["outputs"][0]["name"])


@contextmanager
def load_on(server: Server, wanted: dict[str, np.ndarray]) -> Iterator[dict[str, int]]:
    """Two clients a model, whose answers are compared; a fault fails the test at the end."""
    stop = threading.Event()
    answered = dict.fromkeys(wanted, 0)
    faults: list[BaseException] = []

    def ask(model: str) -> None:
        try:
            with triton.InferenceServerClient(server.url) as client:
                while not stop.is_set():
                    assert np.allclose(infer(client, model), wanted[model], atol=1e-5)
                    answered[model] += 1
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=ask, args=(model,)) for model in wanted for _ in range(2)]
    for one in threads:
        one.start()
    try:
        yield answered
    finally:
        stop.set()
        for one in threads:
            one.join()
    assert not faults, faults


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_models_are_loaded_anew_under_load_and_nothing_is_left(
    tmp_path: Path, backend: str
) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp", MODELS / "digits"])
    spare = tmp_path / "spare.onnx"
    arguments = ["--backend", backend, "--tcp-control", "on", "--max-active-requests", "16"]
    with Server(models, *arguments) as server:
        with triton.InferenceServerClient(server.url) as client:
            wanted = {model: infer(client, model) for model in ROWS}
            settled = None
            with load_on(server, wanted) as answered:
                for number in range(RELOADS):
                    # As a careful deployment does it: a file that takes the place of the old one.
                    model = ("mlp", "digits")[number % 2]
                    shutil.copy(MODELS / model / "1" / "model.onnx", spare)
                    spare.rename(models / model / "1" / "model.onnx")
                    client.load_model(model)
                    if number == SETTLED:
                        settled = Resources.of(server)
            ended = Resources.of(server)
    assert settled is not None and all(count > RELOADS for count in answered.values()), answered
    assert server.exit_code == 0
    nothing_is_left(settled, ended, RELOADS)


def nothing_is_left(settled: Resources, ended: Resources, loads: int) -> None:
    assert ended.threads <= settled.threads + EXECUTOR_THREADS, (settled, ended)
    assert ended.descriptors <= settled.descriptors + 2, (settled, ended)
    if SANITIZED:  # its allocator keeps freed memory back, in mappings of its own
        return
    # Beside a stack and its guard page for each thread.
    more = ended.mappings - settled.mappings - 2 * (ended.threads - settled.threads)
    assert more <= 30, (settled, ended)
    # 0.1 MiB a load would be a leak of a small model.
    assert ended.resident_mib <= settled.resident_mib + max(8, 0.05 * loads), (settled, ended)


def builders_cpu_ns(server: Server) -> dict[int, int]:
    """Of the threads that load models, of Lumen and of the backend, by their scheduling policy."""
    used = {os.SCHED_OTHER: 0, os.SCHED_IDLE: 0}
    for task in (Path("/proc") / str(server.process.pid) / "task").iterdir():
        if (task / "comm").read_text().strip() == "lumen-build":
            policy = os.sched_getscheduler(int(task.name))
            used[policy] += int((task / "schedstat").read_text().split()[0])
    return used


def test_all_of_a_load_beside_requests_is_done_in_the_background(tmp_path: Path) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "convnet"])
    spare = tmp_path / "spare.onnx"
    with Server(models, "--backend", "openvino", "--tcp-control", "on") as server:
        with triton.InferenceServerClient(server.url) as client:

            def is_loaded_in_the_background() -> bool:
                shutil.copy(MODELS / "convnet" / "1" / "model.onnx", spare)
                spare.rename(models / "convnet" / "1" / "model.onnx")
                before = builders_cpu_ns(server)
                client.load_model("convnet")
                after = builders_cpu_ns(server)
                usual, idle = (after[policy] - before[policy] for policy in after)
                return abs(usual) < 0.01 * idle

            # While no CPU is idle the usual builders load.
            eventually(is_loaded_in_the_background, timeout_s=60)


def make_adder(repository: Path, number: int) -> str:
    """A model of its own name, width and answer: it adds `number`."""
    name, width = f"adder-{number}", 1 + number % 7
    value = onnx_tools.value
    onnx_tools.save(
        repository / name / "1" / "model.onnx",
        name,
        [helper.make_node("Add", ["input", "number"], ["output"])],
        [value("input", [None, width])],
        [value("output", [None, width])],
        [onnx_tools.initializer("number", np.array(number, np.float32))],
    )
    return name


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_different_models_come_and_go_and_nothing_is_left(tmp_path: Path, backend: str) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp"])
    arguments = ["--backend", backend, "--tcp-control", "on", "--max-active-requests", "16"]
    settled = ended = None
    with Server(models, *arguments) as server:
        with triton.InferenceServerClient(server.url) as client:
            for number in range(LOADS):
                name = make_adder(models, number)
                client.load_model(name)
                row = np.full((2, 1 + number % 7), 0.5, np.float32)
                given = triton.InferInput("input", list(row.shape), "FP32")
                answer = client.infer(name, [given.set_data_from_numpy(row)]).as_numpy("output")
                assert (answer == row + number).all()
                client.unload_model(name)
                assert not client.is_model_ready(name)
                shutil.rmtree(models / name)
                if number == SETTLED:
                    settled = Resources.of(server)
            ended = Resources.of(server)
            assert client.is_model_ready("mlp")
    assert server.exit_code == 0 and settled is not None
    nothing_is_left(settled, ended, LOADS)
