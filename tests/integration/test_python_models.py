"""Models in Python: model.py in a process of its own, over HTTP, the unix socket and the bus.

The oracle is the same Python, in this process. The faults are those of other people's code: it
raises, answers with the wrong shape, ends its process, or does not come back.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import PATIENCE, Server, eventually
from integration.raw_http import post_json
from lumen_engine import Client, InferError

StartServer = Callable[..., Server]
TYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
TWICE = "def run(inputs):\n    return {'y': inputs['x'] * 2}\n"


def tensor(name: str, datatype: str = "FP32", dims: tuple[int, ...] = (-1,)) -> dict[str, Any]:
    word = "STRING" if datatype == "BYTES" else datatype
    return {"name": name, "data_type": f"TYPE_{word}", "dims": list(dims)}


def write_model(
    models: Path,
    name: str,
    code: str,
    inputs: list[dict[str, Any]] | None = None,
    outputs: list[dict[str, Any]] | None = None,
    **more: Any,
) -> None:
    folder = models / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.py").write_text(code)
    document = {"input": inputs or [tensor("x")], "output": outputs or [tensor("y")], **more}
    (folder / "config.json").write_text(json.dumps(document))


def python_processes(server: Server) -> list[int]:
    """The children of the server that run models."""
    found = []
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"lumen_engine.step" in words:
                found.append(int(child))
    return found


def ask(server: Server, model: str, x: Any, **options: Any) -> np.ndarray:
    with Client(f"http://{server.url}") as client:
        return client.infer(model, {"x": x}, **options)["y"]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir(exist_ok=True)
    return folder


def start(server: StartServer, models: Path, *words: str) -> Server:
    return server("--python", "on", "--tcp-control", "on", *words, repository=models)


@pytest.mark.parametrize("transport", ["http", "unix", "bus"])
def test_every_datatype_comes_and_goes_unchanged(
    server: StartServer, models: Path, tmp_path: Path, transport: str
) -> None:
    names = [*TYPES, "BYTES"]
    code = "def run(inputs):\n    return {'out_' + name: inputs['in_' + name] for name in NAMES}\n"
    write_model(
        models,
        "echo",
        f"NAMES = {names}\n{code}",
        [tensor(f"in_{name}", name, (-1, 3)) for name in names],
        [tensor(f"out_{name}", name, (-1, 3)) for name in names],
    )
    bus, unix = tmp_path / "bus", tmp_path / "unix"
    one = start(server, models, "--bus", str(bus), "--unix", str(unix))
    rng = np.random.default_rng(7)
    arrays: dict[str, np.ndarray] = {
        f"in_{name}": rng.integers(0, 2, (4, 3)).astype(dtype) for name, dtype in TYPES.items()
    }
    texts = [b"", "Grüße".encode(), b"\0\xff"] * 4
    arrays["in_BYTES"] = np.array(texts, np.object_).reshape(4, 3)
    url = {"http": f"http://{one.url}", "unix": f"unix:{unix}", "bus": f"bus:{bus}"}
    with Client(url[transport]) as client:
        answers = client.infer("echo", arrays)
    for name in names:
        assert answers[f"out_{name}"].dtype == arrays[f"in_{name}"].dtype
        np.testing.assert_array_equal(answers[f"out_{name}"], arrays[f"in_{name}"])


def test_random_requests_of_many_clients_get_their_own_answers(
    server: StartServer, models: Path
) -> None:
    write_model(models, "twice", TWICE)
    one = start(server, models)
    faults = []

    def load(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with Client(f"http://{one.url}") as client:
            for _ in range(100):
                x = rng.standard_normal(int(rng.integers(0, 3000))).astype(np.float32)
                if not np.array_equal(client.infer("twice", {"x": x})["y"], x * 2):
                    faults.append(seed)

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(python_processes(one)) == 1


def test_requests_that_the_ring_has_no_room_for_wait(server: StartServer, models: Path) -> None:
    """16 of 12 MB at once, and the ring takes 64 MiB."""
    write_model(
        models, "sum", "def run(inputs):\n    return {'y': inputs['x'].sum(keepdims=True)}\n"
    )
    one = start(server, models, "--io-threads", "2", "--thread-count", "2")
    faults: list[str] = []

    def load(value: int) -> None:
        x = np.full(3_000_000, value, np.float32)
        with Client(f"http://{one.url}") as client:
            for _ in range(3):
                got = client.infer("sum", {"x": x})["y"][0]
                faults.extend([] if got == x.sum() else [f"{value}: {got}"])

    threads = [threading.Thread(target=load, args=(value,)) for value in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_tensors_larger_than_the_ring_are_refused(server: StartServer, models: Path) -> None:
    write_model(
        models,
        "grows",
        "import numpy as np\n"
        "def run(inputs):\n"
        "    return {'y': np.zeros(int(inputs['x'][0]), np.float32)}\n",
    )
    one = start(server, models, "--max-body-bytes", str(200 << 20))
    too_many = 20_000_000  # of 4 bytes; the ring takes 64 MiB
    with pytest.raises(InferError) as caught:
        ask(one, "grows", np.zeros(too_many, np.float32))
    assert caught.value.status == 413 and "the size of the ring" in str(caught.value)
    with pytest.raises(InferError) as caught:
        ask(one, "grows", np.float32([too_many]))
    assert caught.value.status == 500
    assert ask(one, "grows", np.float32([3])).shape == (3,)


def test_a_ring_full_of_late_requests_is_emptied(server: StartServer, models: Path) -> None:
    """The process drops late requests without a reply, so nothing but the room itself is told."""
    slow = (
        "import time\n"
        "def run(inputs):\n"
        "    time.sleep(float(inputs['x'][0]))\n"  # sleep: the time of a slow model
        "    return {'y': inputs['x']}\n"
    )
    write_model(models, "slow", slow)
    one = start(server, models, "--thread-count", "4")
    statuses = []

    def load() -> None:
        try:
            ask(one, "slow", np.full(4_000_000, 1.0, np.float32), deadline=0.5)
        except InferError as error:
            statuses.append(error.status)

    (before,) = python_processes(one)
    threads = [threading.Thread(target=load) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [504] * 12
    x = np.full(4_000_000, 0.0, np.float32)
    np.testing.assert_array_equal(ask(one, "slow", x), x)
    assert python_processes(one) == [before]


FAULTS = """
import os, signal, time
import numpy as np
from lumen_engine.step import BadInput

def run(inputs):
    x = inputs["x"]
    match int(x[0]):
        case 1: raise ValueError("a word\\nof two lines")
        case 2: raise BadInput("x begins with 2; wanted another number")
        case 3: return {"y": x.astype(np.int64)}
        case 4: return {"z": x}
        case 5: return [x]
        case 6: os.kill(os.getpid(), signal.SIGSEGV)
        case 7: os._exit(3)
        case 8: time.sleep(0.5)  # sleep: the time of a slow model
        case 9: return {"y": np.zeros((2, 2), np.float32)}
        case 10: x[0] = 0
        case 11: raise ValueError("\\udcff")
        case 12: raise BadInput("no\\udcfftext")
    return {"y": x}
"""
# By the first number: the status, and words of the reason.
REFUSALS = {
    1: (500, "ValueError: a word of two lines"),
    2: (400, "x begins with 2; wanted another number"),
    3: (500, "output 'y': got int64 [1], wanted FP32 [-1]"),
    4: (500, "run() gave no output 'y'"),
    5: (500, "run() gave list, wanted a dict of arrays by name"),
    9: (500, "output 'y': got float32 [2, 2], wanted FP32 [-1]"),
    10: (500, "ValueError: assignment destination is read-only"),
    11: (500, "ValueError: ?"),
    12: (400, "no?text"),
}


@pytest.fixture
def faulty(server: StartServer, models: Path) -> Server:
    write_model(models, "faulty", FAULTS)
    return start(server, models)


def serves(one: Server) -> bool:
    try:
        return bool(np.array_equal(ask(one, "faulty", np.float32([0])), np.float32([0])))
    except InferError as error:
        # It has ended, or is being started again.
        assert error.status == 503 and "its Python process" in str(error)
        return False


@pytest.mark.parametrize("first", REFUSALS)
def test_a_fault_of_its_code_fails_that_request_alone(faulty: Server, first: int) -> None:
    (before,) = python_processes(faulty)
    with pytest.raises(InferError) as caught:
        ask(faulty, "faulty", np.float32([first]))
    status, words = REFUSALS[first]
    assert caught.value.status == status
    assert words in str(caught.value)
    assert serves(faulty)
    assert python_processes(faulty) == [before]


@pytest.mark.parametrize(
    ("first", "words"), [(6, "ended by signal 11"), (7, "ended with exit status 3")]
)
def test_a_process_that_ends_is_started_again(faulty: Server, first: int, words: str) -> None:
    (before,) = python_processes(faulty)
    with pytest.raises(InferError) as caught:
        ask(faulty, "faulty", np.float32([first]))
    assert caught.value.status == 503
    assert words in str(caught.value)
    eventually(lambda: serves(faulty), "the model serves again")
    (after,) = python_processes(faulty)
    assert after != before


def test_a_process_that_is_killed_while_idle_is_started_again(faulty: Server) -> None:
    (before,) = python_processes(faulty)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: python_processes(faulty) not in ([before], []), "another process is there")
    eventually(lambda: serves(faulty), "the model serves again")
    faulty.wait_for_log("model 'faulty': its Python process is started again: it ended by signal 9")
    faulty.wait_for_log("model 'faulty': its Python process is ready again")


def test_a_process_that_is_killed_under_load_costs_only_the_requests_that_it_had(
    faulty: Server,
) -> None:
    counts = {"right": 0, "refused": 0}
    faults: list[str] = []
    over = threading.Event()

    def load(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with Client(f"http://{faulty.url}") as client:
            while not over.is_set():
                x = rng.standard_normal(int(rng.integers(1, 3000))).astype(np.float32)
                x[0] = 0
                try:
                    right = np.array_equal(client.infer("faulty", {"x": x})["y"], x)
                    counts["right"] += right
                    faults.extend([] if right else ["another's answer"])
                except InferError as error:
                    counts["refused"] += 1
                    faults.extend([] if error.status == 503 else [str(error)])

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        right = counts["right"]
        eventually(lambda: counts["right"] > right + 50, "answers come")  # noqa: B023
        for process in python_processes(faulty):
            os.kill(process, signal.SIGKILL)
    over.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert counts["refused"] > 0
    eventually(lambda: serves(faulty), "the model serves again")


def test_no_process_is_left_when_the_server_is_killed(faulty: Server) -> None:
    (process,) = python_processes(faulty)
    faulty.interrupt(signal.SIGKILL)
    faulty.wait()
    eventually(lambda: not Path(f"/proc/{process}").exists(), "the process ends")


def test_a_deadline_is_kept_and_the_late_answer_is_nobodys(faulty: Server) -> None:
    begin = time.monotonic()
    with pytest.raises(InferError) as caught:
        ask(faulty, "faulty", np.float32([8]), deadline=0.1)
    assert caught.value.status == 504
    assert time.monotonic() - begin < 0.45 * PATIENCE
    # The process is still busy with it; the next answer is the next request's.
    for value in range(20, 40):
        x = np.float32([value, value])
        np.testing.assert_array_equal(ask(faulty, "faulty", x), x)


def test_a_process_that_does_not_come_back_is_killed(server: StartServer, models: Path) -> None:
    write_model(
        models,
        "faulty",
        "import signal\n"
        "def run(inputs):\n"
        "    while inputs['x'][0] == 1: signal.pause()\n"
        "    return {'y': inputs['x']}\n",
    )
    one = start(server, models)
    (before,) = python_processes(one)
    with pytest.raises(InferError) as caught:
        ask(one, "faulty", np.float32([1]), deadline=0.1)
    assert caught.value.status == 504
    # It is asked for a sign of life for 10 s.
    eventually(lambda: python_processes(one) not in ([before], []), "it is replaced", 30 * PATIENCE)
    eventually(lambda: serves(one), "the model serves again")


def test_other_models_are_served_while_one_does_not_come_back(
    server: StartServer, models: Path
) -> None:
    gate = models.parent / "gate"
    os.mkfifo(gate)
    # Until the test has opened it, and closed it; a start's own trial call goes on.
    wait = f"    if inputs['x'][0] == 77: open({str(gate)!r}).read()\n"
    write_model(models, "slow", f"def run(inputs):\n{wait}    return {{}}\n")
    write_model(models, "twice", TWICE)
    one = start(server, models)
    answers: list[Any] = []

    def ask_slow() -> None:
        try:
            answers.append(ask(one, "slow", np.float32([77])))
        except InferError as error:
            answers.append(error.status)

    thread = threading.Thread(target=ask_slow)
    thread.start()
    x = np.float32([1, 2])
    for _ in range(10):
        np.testing.assert_array_equal(ask(one, "twice", x, deadline=2.0 * PATIENCE), x * 2)
        assert not answers
    gate.write_text("")
    thread.join()
    assert answers == [500]


def test_a_program_is_not_run_unless_the_server_is_told_to(
    server: StartServer, models: Path
) -> None:
    write_model(models, "twice", "raise SystemExit('it ran')\n")
    one = server(repository=models)
    with one.connect() as connection:
        index = connection.exchange(post_json("/v2/repository/index", {})).json()
    assert index[0]["state"] == "UNAVAILABLE"
    assert "start it with --python on" in index[0]["reason"]
    assert python_processes(one) == []


def test_a_load_call_may_bring_no_program(server: StartServer, models: Path) -> None:
    one = start(server, models, "--load-files", "on")
    with one.connect() as connection:
        reply = connection.exchange(
            post_json(
                "/v2/repository/models/brought/load",
                {"parameters": {"config": "{}", "file:1/model.py": "cHJpbnQoMSk="}},
            )
        )
    assert reply.status == 403
    assert "a call may bring no program" in reply.error


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def run(inputs)\n", "SyntaxError: expected ':'"),
        ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
        ("x = 1\n", "wanted a function run(inputs)"),
        ("import os\nos._exit(9)\n", "it ended with exit status 9"),
    ],
)
def test_a_file_that_can_not_be_read_says_why(
    server: StartServer, models: Path, code: str, reason: str
) -> None:
    write_model(models, "broken", code)
    write_model(models, "twice", TWICE)
    one = start(server, models)
    with one.connect() as connection:
        index = connection.exchange(post_json("/v2/repository/index", {})).json()
    broken, twice = sorted(index, key=lambda entry: entry["name"])
    assert reason in broken["reason"]
    assert twice["state"] == "READY"
    assert len(python_processes(one)) == 1


def test_a_change_of_the_file_is_served_after_a_load(server: StartServer, models: Path) -> None:
    write_model(models, "twice", TWICE)
    one = start(server, models)
    x = np.float32([1, 2])
    np.testing.assert_array_equal(ask(one, "twice", x), x * 2)
    write_model(models, "twice", TWICE.replace("* 2", "* 3"))
    with one.connect() as connection:
        reply = connection.exchange(post_json("/v2/repository/models/twice/load", {}))
        assert reply.status == 200, reply.error
    np.testing.assert_array_equal(ask(one, "twice", x), x * 3)
    eventually(lambda: len(python_processes(one)) == 1, "the old process has ended")


def test_no_process_is_left_when_the_server_stops(server: StartServer, models: Path) -> None:
    write_model(models, "twice", TWICE)
    one = start(server, models)
    (process,) = python_processes(one)
    one.stop()
    assert not Path(f"/proc/{process}").exists()


def test_a_step_of_an_ensemble_may_be_python(server: StartServer, models: Path) -> None:
    write_model(models, "twice", TWICE)
    write_model(models, "plus", "def run(inputs):\n    return {'y': inputs['x'] + 1}\n")
    (models / "both").mkdir()
    steps = [
        {"model": "twice", "outputs": {"y": "between"}},
        {"model": "plus", "inputs": {"x": "between"}},
    ]
    (models / "both" / "config.json").write_text(json.dumps({"ensemble": {"steps": steps}}))
    one = start(server, models)
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(ask(one, "both", x), x * 2 + 1)
