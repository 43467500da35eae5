"""Models that keep states: every transport and backend, against ONNX Runtime and silero's own loop.

The oracle holds the state itself and runs the model's file; clients of the server see no state.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest
import tritonclient.http as triton
from integration.harness import (
    PATIENCE,
    ROOT,
    Server,
    UnixConnection,
    eventually,
    lumen_binary,
)
from integration.picture_files import document
from integration.raw_http import post, post_json
from integration.sequence_models import (
    FEATURES,
    HIDDEN,
    STATE,
    Loop,
    load_reasons,
    random_sequences,
    sequence_figure,
    silero_models,
    write_rnn,
    write_steps,
)
from lumen_engine import Client, InferError
from openvino import opset13 as opset
from openvino.op.util import Variable, VariableInfo

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

StartServer = Callable[..., Server]
BACKENDS = ["openvino", "onnxruntime"]
SEED = 20261130


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "sequences"
    folder.mkdir()
    return folder


def some_row(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, FEATURES)).astype(np.float32)


def live(server: Server, model: str = "rnn") -> int:
    return sequence_figure(server, "lumen_sequences", model)


# --- states -----------------------------------------------------------------------------------


@pytest.mark.parametrize("queue_type", ["auto", "mpmc", "batched", "inline"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_interleaved_sequences_agree_with_onnxruntime(
    models: Path, backend: str, queue_type: str
) -> None:
    """Clients over TCP, a unix socket and the bus at once, on two I/O threads and two workers."""
    loop = Loop(write_rnn(models, "rnn", {"sequences": STATE, "backend": backend}))
    addresses = ["http", "unix", "bus"]
    bus, unix = models.parent / "bus", models.parent / "unix"
    arguments = ["--queue-type", queue_type, "--io-threads", "2"]
    if queue_type != "inline":
        arguments += ["--thread-count", "2"]
    failures: list[str] = []
    with Server(models, *arguments, "--bus", str(bus), unix=str(unix)) as running:
        urls = {"http": f"http://{running.url}", "unix": f"unix:{unix}", "bus": f"bus:{bus}"}

        def client(number: int) -> None:
            rng = random.Random(number)
            sequences = random_sequences(number, 20)
            expected = [loop.answers(one) for one in sequences]
            places = [(which, at) for which, one in enumerate(sequences) for at in range(len(one))]
            order = sorted(places, key=lambda place: (place[1] + rng.random() * 4, place[0]))
            # In each sequence the order stays.
            order = sorted(order, key=lambda place: place[1])
            with Client(urls[addresses[number % 3]], timeout=60 * PATIENCE) as one:
                for which, at in order:
                    answer = one.infer(
                        "rnn",
                        {"x": sequences[which][at]},
                        sequence_id=1000 * number + which + 1,
                        sequence_start=at == 0,
                        sequence_end=at == len(sequences[which]) - 1,
                    )
                    if not np.allclose(answer["y"], expected[which][at], rtol=1e-4, atol=1e-5):
                        failures.append(f"client {number}, sequence {which}, request {at}")

        threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert live(running) == 0, "each has ended"


def test_requests_in_flight_of_a_sequence_run_in_their_order(models: Path) -> None:
    loop = Loop(write_rnn(models, "rnn", {"sequences": STATE, "backend": "onnxruntime"}))
    bus = models.parent / "bus"
    with Server(models, "--bus", str(bus), "--thread-count", "2") as running:
        with Client(f"bus:{bus}") as client:
            for number, inputs in enumerate(random_sequences(SEED, 20, most=100)):
                answers = client.infer_batch(
                    "rnn",
                    [{"x": x} for x in inputs],
                    sequence_id=number + 1,
                    sequence_start=True,
                    sequence_end=True,
                )
                for answer, expected in zip(answers, loop.answers(inputs), strict=True):
                    np.testing.assert_array_equal(answer["y"], expected)
        assert live(running) == 0


def test_sequences_of_one_client_share_runs(models: Path) -> None:
    loop = Loop(write_rnn(models, "rnn", {"sequences": STATE, "backend": "onnxruntime"}))
    bus = models.parent / "bus"
    # A request is held for the others: the worker may be faster than the client, which then has
    # a single request in flight at a time.
    held = ("--queue-type", "batched", "--max-queue-delay-us", "2000")
    with Server(models, "--bus", str(bus), *held) as running:

        async def one_sequence(client: Client, number: int, inputs: list[np.ndarray]) -> None:
            for at, expected in enumerate(loop.answers(inputs)):
                answer = await client.infer_async(
                    "rnn", {"x": inputs[at]}, sequence_id=number, sequence_start=at == 0
                )
                np.testing.assert_allclose(answer["y"], expected, rtol=1e-5, atol=1e-6)

        async def all_sequences() -> None:
            with Client(f"bus:{bus}") as client:
                many = random_sequences(SEED, 64, most=40)
                await asyncio.gather(*(one_sequence(client, i + 1, s) for i, s in enumerate(many)))

        asyncio.run(all_sequences())
        (statistics,) = document(running, "/v2/models/rnn/stats")["model_stats"]
        assert statistics["inference_count"] > 4 * statistics["execution_count"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_without_rows_goes_from_request_to_request(
    server: StartServer, models: Path, backend: str
) -> None:
    """A GRU that takes any number of steps: pieces of a signal give the same as the whole."""
    file = write_steps(models, "steps", {"sequences": STATE, "backend": backend})
    signal = np.random.default_rng(3).normal(size=(60, 1, FEATURES)).astype(np.float32)
    (whole,) = Loop(file).answers([signal])
    running = server("--backend", "auto", repository=models)
    metadata = document(running, "/v2/models/steps")
    assert [one["name"] for one in metadata["inputs"] + metadata["outputs"]] == ["x", "y"]
    assert metadata["parameters"]["sequences"] == {
        "states": [{"input": "h", "output": "h_out", "datatype": "FP32", "shape": [1, 1, HIDDEN]}],
        "idle_ms": 60_000,
        "most": 1024,
    }
    with Client(f"http://{running.url}") as client:
        found, at = [], 0
        for size in (1, 7, 30, 2, 20):
            piece = signal[at : at + size]
            answer = client.infer("steps", {"x": piece}, sequence_id="s", sequence_start=at == 0)
            found.append(answer["y"])
            at += size
    np.testing.assert_allclose(np.concatenate(found), whole, rtol=1e-4, atol=1e-5)


def write_accumulator(models: Path) -> None:
    """A model of OpenVINO's own form that adds its inputs up in a variable."""
    x = opset.parameter([1, 4], np.float32, name="x")
    info = VariableInfo()
    info.data_shape, info.data_type = openvino.PartialShape([1, 4]), openvino.Type.f32
    info.variable_id = "sum"
    variable = Variable(info)
    total = opset.add(opset.read_value(opset.constant(np.zeros((1, 4), np.float32)), variable), x)
    x.output(0).set_names({"x"})
    total.output(0).set_names({"y"})
    model = openvino.Model(
        results=[opset.result(total)], sinks=[opset.assign(total, variable)], parameters=[x]
    )
    (models / "variable" / "1").mkdir(parents=True)
    openvino.save_model(model, models / "variable" / "1" / "model.xml", False)


def test_a_variable_of_an_openvino_model_is_new_in_each_request(
    server: StartServer, models: Path
) -> None:
    """It stays in OpenVINO's request, which serves all clients."""
    write_accumulator(models)
    running = server(repository=models)
    with Client(f"http://{running.url}") as one, Client(f"http://{running.url}") as other:
        for number in (1.0, 5.0, 2.0):
            x = np.full((1, 4), number, np.float32)
            for client in (one, other):
                np.testing.assert_array_equal(client.infer("variable", {"x": x})["y"], x)


# --- silero -----------------------------------------------------------------------------------


def voice(seed: int, seconds: float) -> np.ndarray:
    """Vowels, hiss and silence, so that the probability of speech moves."""
    numbers = np.random.default_rng(seed)
    time = np.arange(int(16_000 * seconds)) / 16_000
    pitch = 110 * (1 + 0.2 * np.sin(2 * np.pi * 3 * time)) * (1 + 0.3 * numbers.random())
    phase = 2 * np.pi * np.cumsum(pitch) / 16_000
    tone = sum(np.sin(k * phase) / k for k in range(1, 25))
    loud = (np.sin(2 * np.pi * 2.5 * time + numbers.random() * 6) > -0.2) * 0.2
    return (tone * loud + 0.01 * numbers.normal(size=len(time))).astype(np.float32)


def silero_loop(file: Path, audio: np.ndarray) -> np.ndarray:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [judge_programs.interpreter("silero"), ROOT / "tests/judges/silero_vad.py", file],
        input=audio.tobytes(),
        stdout=subprocess.PIPE,
        env=environment,
        check=True,
        timeout=60 * PATIENCE,
    )
    return np.frombuffer(done.stdout, np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_silero_finds_the_speech_that_its_own_loop_finds(
    server: StartServer, models: Path, backend: str
) -> None:
    """Its context of 64 samples is the client's, as it is its loop's."""
    files = silero_models()
    # OpenVINO reads the one that was made for it alone.
    names = ["silero_vad_openvino_16k"]
    if backend == "onnxruntime":
        names = ["silero_vad", "v5", "silero_vad_16k_op15", "silero_vad_op18_ifless"]
    states = {"states": [{"input": "state", "output": "stateN"}]}
    for name in names:
        folder = models / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(files[name].read_bytes())
        config = {"sequences": states, "backend": backend}
        (models / name / "config.json").write_text(json.dumps(config))
    running = server("--backend", "auto", repository=models)
    voices = [voice(seed, 3.2) for seed in range(3)]
    with Client(f"http://{running.url}") as client:
        for name in names:
            has_rate = backend == "onnxruntime"
            judge = files[name if has_rate else "silero_vad_16k_op15"]
            expected = [silero_loop(judge, one) for one in voices]
            found: list[list[float]] = [[], [], []]
            for at in range(len(expected[0])):
                for which, audio in enumerate(voices):
                    padded = np.concatenate([np.zeros(64, np.float32), audio])
                    x = padded[512 * at : 512 * at + 576].reshape(1, -1)
                    answer = client.infer(
                        name,
                        {"input": x, **({"sr": np.array(16_000)} if has_rate else {})},
                        sequence_id=which + 1,
                        sequence_start=at == 0,
                        sequence_end=at == len(expected[0]) - 1,
                    )
                    found[which].append(answer["output"].item())
            spread = np.ptp(np.concatenate(expected))
            assert spread > 0.3, "the probabilities move"
            tolerance = 1e-6 if backend == "onnxruntime" else 1e-3
            np.testing.assert_allclose(found, expected, atol=tolerance)
            assert live(running, name) == 0


# --- transports -------------------------------------------------------------------------------

GRPC = """
import queue, sys
import numpy as np
import tritonclient.grpc as triton

url, inputs, outputs = sys.argv[1:]
sequences = np.load(inputs)
replies = queue.Queue()
found = np.zeros((*sequences.shape[:2], 3), np.float32)
with triton.InferenceServerClient(url) as client:
    client.start_stream(lambda result, error: replies.put((result, error)))
    for at in range(sequences.shape[1]):
        for which in range(len(sequences)):
            x = triton.InferInput("x", [1, sequences.shape[2]], "FP32")
            x.set_data_from_numpy(sequences[which, at].reshape(1, -1))
            client.async_stream_infer(
                "rnn", [x], request_id=f"{which} {at}", sequence_id=f"sequence {which}",
                sequence_start=at == 0, sequence_end=at == sequences.shape[1] - 1)
    for _ in range(sequences.shape[0] * sequences.shape[1]):
        result, error = replies.get(timeout=60)
        assert error is None, error
        which, at = map(int, result.get_response().id.split())
        found[which, at] = result.as_numpy("y")
    client.stop_stream()
    config = client.get_model_config("rnn").config
    state = config.sequence_batching.state[0]
    assert (state.input_name, state.output_name) == ("h", "h_out"), config
    assert config.sequence_batching.max_sequence_idle_microseconds == 60_000_000
np.save(outputs, found)
"""


def test_streams_of_grpc_carry_sequences(server: StartServer, models: Path, tmp_path: Path) -> None:
    loop = Loop(write_rnn(models, "rnn", {"sequences": STATE, "backend": "onnxruntime"}))
    running = server("--backend", "auto", repository=models)
    sequences = np.random.default_rng(SEED).normal(size=(5, 20, FEATURES)).astype(np.float32)
    inputs, outputs = tmp_path / "inputs.npy", tmp_path / "outputs.npy"
    np.save(inputs, sequences)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [judge_programs.interpreter("grpc"), "-c", GRPC, running.url, str(inputs), str(outputs)],
        env=environment,
        check=True,
        timeout=150 * PATIENCE,
    )
    for found, sequence in zip(np.load(outputs), sequences, strict=True):
        expected = loop.answers([row.reshape(1, -1) for row in sequence])
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-5, atol=1e-6)
    assert live(running) == 0


def test_tritonclient_over_http_names_sequences(server: StartServer, models: Path) -> None:
    loop = Loop(write_rnn(models, "rnn", {"sequences": STATE, "backend": "onnxruntime"}))
    running = server("--backend", "auto", repository=models)
    (inputs,) = random_sequences(SEED, 1)
    with triton.InferenceServerClient(running.url) as client:
        for at, expected in enumerate(loop.answers(inputs)):
            x = triton.InferInput("x", [1, FEATURES], "FP32")
            x.set_data_from_numpy(inputs[at])
            found = client.infer("rnn", [x], sequence_id=7, sequence_start=at == 0)
            np.testing.assert_allclose(found.as_numpy("y"), expected, rtol=1e-5, atol=1e-6)
        config = client.get_model_config("rnn")
        assert config["sequence_batching"]["state"] == [
            {"input_name": "h", "output_name": "h_out", "data_type": "TYPE_FP32", "dims": [HIDDEN]}
        ]
        assert "dynamic_batching" not in config, "Triton has one of the two"


# --- bounds -----------------------------------------------------------------------------------


def resident_bytes(server: Server) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def test_ten_thousand_live_sequences_do_not_grow(models: Path) -> None:
    count = 10_000
    write_rnn(models, "rnn", {"sequences": {**STATE, "most": count}, "backend": "openvino"})
    bus, stats = models.parent / "bus", models.parent / "lumen-1.counters"
    arguments = ["--bus", str(bus), "--stats", str(stats)]
    with Server(models, *arguments) as running, Client(f"bus:{bus}") as client:

        async def ask_all(starts: bool) -> None:
            width = 200
            for begin in range(1, count + 1, width):
                await asyncio.gather(
                    *(
                        client.infer_async(
                            "rnn", {"x": some_row()}, sequence_id=id, sequence_start=starts
                        )
                        for id in range(begin, begin + width)
                    )
                )

        async def rounds() -> tuple[int, int]:
            await ask_all(starts=True)
            await ask_all(starts=False)
            before = resident_bytes(running)
            for _ in range(3):
                await ask_all(starts=False)
            await ask_all(starts=True)
            return before, resident_bytes(running)

        before, after = asyncio.run(rounds())
        assert live(running) == sequence_figure(running, "lumen_sequences_max") == count
        assert sequence_figure(running, "lumen_sequence_state_bytes") == count * 4 * HIDDEN
        assert after - before < 2 << 20, f"{(after - before) >> 10} KiB for the same sequences"
        with pytest.raises(InferError, match="has 10000 live sequences") as refused:
            client.infer("rnn", {"x": some_row()}, sequence_id=count + 1, sequence_start=True)
        assert refused.value.status == 429
        command = [lumen_binary(), "top", stats, "--once", "--json"]
        shown = subprocess.run(command, capture_output=True, check=True)
        (model,) = json.loads(shown.stdout)["models"]
        assert model["sequences"] == count


def test_an_idle_sequence_is_dropped(server: StartServer, models: Path) -> None:
    write_rnn(models, "rnn", {"sequences": {**STATE, "idle_ms": 50}, "backend": "openvino"})
    running = server(repository=models)
    with Client(f"http://{running.url}") as client:
        client.infer("rnn", {"x": some_row()}, sequence_id=1, sequence_start=True)
        eventually(lambda: live(running) == 0)
        with pytest.raises(InferError, match="dropped after 50 ms without a request"):
            client.infer("rnn", {"x": some_row()}, sequence_id=1)
    assert sequence_figure(running, "lumen_sequences_dropped_total") == 1
    assert sequence_figure(running, "lumen_sequences_started_total") == 1


def test_a_reload_ends_the_sequences_of_the_model(models: Path) -> None:
    write_rnn(models, "rnn", {"sequences": STATE, "backend": "openvino"})
    unix = models.parent / "unix"
    with Server(models, unix=str(unix)) as running, Client(f"unix:{unix}") as client:
        client.infer("rnn", {"x": some_row()}, sequence_id=1, sequence_start=True)
        write_rnn(models, "rnn", {"sequences": {**STATE, "most": 7}, "backend": "openvino"})
        with UnixConnection(unix) as connection:
            load = post("/v2/repository/models/rnn/load", b"")
            assert connection.exchange(load).status == 200
        with pytest.raises(InferError, match="no live sequence 1"):
            client.infer("rnn", {"x": some_row()}, sequence_id=1)
        client.infer("rnn", {"x": some_row()}, sequence_id=1, sequence_start=True)
        assert live(running) == 1


# --- refusals ---------------------------------------------------------------------------------


def test_requests_that_no_sequence_takes_are_refused(server: StartServer, models: Path) -> None:
    write_rnn(models, "rnn", {"sequences": STATE, "backend": "openvino"})
    running = server(repository=models)

    def answer(parameters: dict[str, Any], rows: int = 1) -> tuple[int, str]:
        data = np.zeros((rows, FEATURES)).tolist()
        x = {"name": "x", "datatype": "FP32", "shape": [rows, FEATURES], "data": data}
        body = json.dumps({"inputs": [x], "parameters": parameters})
        with running.connect() as connection:
            reply = connection.exchange(post("/v2/models/rnn/infer", body.encode()))
        return reply.status, reply.body.decode()

    begun = {"sequence_start": True}
    refusals: list[tuple[dict[str, Any], int, str]] = [
        ({}, 1, "model 'rnn' keeps states of sequences; say which by the parameter sequence_id"),
        ({"sequence_id": 0, **begun}, 1, "keeps states of sequences; say which"),
        ({"sequence_id": ""}, 1, "keeps states of sequences; say which"),
        ({"sequence_id": 3}, 1, "has no live sequence 3: it has not begun"),
        ({"sequence_id": "\\u00e4"}, 1, "has no live sequence"),
        ({"sequence_id": 3, **begun}, 2, "each of one row; got inputs of 2 rows"),
        ({"sequence_id": -1}, 1, "sequence_id"),
        ({"sequence_id": [3]}, 1, "sequence_id"),
        ({"sequence_id": "x" * 129}, 1, "'sequence_id' has 129 bytes; at most 128 are taken"),
        ({"sequence_id": 3, "sequence_start": "yes"}, 1, "true or false as 'sequence_start'"),
        ({"sequence_id": 3, "sequence_end": 1}, 1, "true or false as 'sequence_end'"),
    ]
    for parameters, rows, text in refusals:
        status, body = answer(parameters, rows)
        assert status == 400 and text in body, (parameters, body)
    assert live(running) == 0
    assert answer({"sequence_id": 3, **begun})[0] == 200
    with Client(f"http://{running.url}") as client:
        for hidden in ("h", "h_out"):
            outputs = [hidden] if hidden == "h_out" else []
            inputs = {"x": some_row(), **({"h": np.ones((1, HIDDEN))} if hidden == "h" else {})}
            with pytest.raises(InferError, match=f"'{hidden}'"):
                client.infer("rnn", inputs, outputs=outputs, sequence_id=3)


TRITON = {"input_name": "h", "output_name": "h_out", "data_type": "TYPE_FP32"}


def in_triton(**more: Any) -> dict[str, Any]:
    return {"sequence_batching": {"state": [TRITON], **more}}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"sequences": {}}, 'key "sequences": got {}'),
    "none": ({"sequences": {"states": []}}, "wanted a list of 1 to"),
    "half": ({"sequences": {"states": [{"input": "h"}]}}, "the names of two tensors"),
    "misspelt": ({"sequences": {**STATE, "idle_m": 3}}, 'did you mean "idle_ms"?'),
    "never": ({"sequences": {**STATE, "idle_ms": 0}}, "sequences.idle_ms"),
    "many": ({"sequences": {**STATE, "most": 1_000_001}}, "from 1 to 1000000"),
    "unknown": (
        {"sequences": {"states": [{"input": "g", "output": "h_out"}]}},
        'no input of that name, wanted one of "x", "h"',
    ),
    "unlike": (
        {"sequences": {"states": [{"input": "h", "output": "y"}]}},
        "wanted the same shape and type",
    ),
    "twice": (
        {"sequences": {"states": STATE["states"] * 2}},
        "another state has the same input or output",
    ),
    "both": (
        {"sequences": STATE, **in_triton()},
        'keys "sequences" and "sequence_batching" are both given',
    ),
    "dims": (in_triton(state=[{**TRITON, "dims": [HIDDEN + 1]}]), "the model takes FP32"),
    "values": (
        in_triton(state=[{**TRITON, "initial_state": [{"data_file": "../h0"}]}]),
        "the name of a file in the model's folder",
    ),
    "controls": (
        in_triton(control_input=[{"name": "START"}]),
        "sequence_batching.control_input[0].control",
    ),
    "stateless": (in_triton(state=[], direct={}), "sequence_batching.state"),
}


def test_configurations_that_no_server_can_follow_are_refused(
    server: StartServer, models: Path
) -> None:
    for name, (config, _) in WRONG.items():
        write_rnn(models, name, {"backend": "openvino", **config})
    write_rnn(models, "right", {"backend": "openvino", "sequences": STATE})
    (models / "ensemble").mkdir()
    ensemble = {"ensemble": {"steps": [{"model": "right"}, {"model": "right"}]}}
    (models / "ensemble" / "config.json").write_text(json.dumps(ensemble))
    running = server(repository=models)
    reasons = load_reasons(running)
    for name, (_, text) in WRONG.items():
        assert text in reasons[name], (name, reasons[name])
    assert "keeps states of sequences" in reasons["ensemble"]
    assert reasons["right"] == ""


def test_a_configuration_in_tritons_form_is_read_and_read_back(models: Path) -> None:
    state = {**TRITON, "dims": [HIDDEN], "initial_state": [{"name": "0", "zero_data": True}]}
    config = {
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [FEATURES]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [3]}],
        "sequence_batching": {
            "max_sequence_idle_microseconds": "5000000",
            "oldest": {"max_candidate_sequences": 4},
            "state": [state],
        },
    }
    loop = Loop(write_rnn(models, "rnn", config))
    unix = models.parent / "unix"
    with Server(models, unix=str(unix)) as running, Client(f"unix:{unix}") as client:
        for _ in range(2):
            (inputs,) = random_sequences(SEED, 1)
            for at, expected in enumerate(loop.answers(inputs)):
                answer = client.infer(
                    "rnn", {"x": inputs[at]}, sequence_id=1, sequence_start=at == 0
                )
                np.testing.assert_allclose(answer["y"], expected, rtol=1e-4, atol=1e-5)
            told = document(running, "/v2/models/rnn/config")
            batching = told["sequence_batching"]
            assert batching["max_sequence_idle_microseconds"] == 5_000_000
            assert batching["state"] == [{**TRITON, "dims": [HIDDEN]}]
            load = {"parameters": {"config": json.dumps(told)}}
            with UnixConnection(unix) as connection:
                reply = connection.exchange(post_json("/v2/repository/models/rnn/load", load))
            assert reply.status == 200, reply.body
