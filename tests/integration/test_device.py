"""A server whose models run on a device: each queue type, transports, faults, live changes, drain.

The device is a plugin of ONNX Runtime, tests/device, which pretends to be one: the host can't touch
its memory, its runs take a given time and may fail.
"""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from integration import prometheus
from integration.harness import (
    MODELS,
    Server,
    UnixConnection,
    copy_models,
    eventually,
    lumen_binary,
    run_serve,
)
from integration.load import QUEUE_TYPES
from integration.raw_http import Reply, get, post_json
from integration.reference import Reference
from lumen_engine.client import Client

PLUGIN = lumen_binary().parent / "liblumen_test_device.so"
ROWS = np.linspace(-1, 1, 4 * 256, dtype=np.float32).reshape(4, 256)


def providers(device_id: int = 0, **options: Any) -> str:
    """The setting, with the options of the device: 0 has streams, 1 none, 2 no memory either."""
    one = {"name": "npu", "library": str(PLUGIN), "device_id": device_id, "options": options}
    return json.dumps([one])


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return copy_models(tmp_path / "models", [MODELS / "mlp", MODELS / "identity"])


@pytest.fixture
def expected() -> np.ndarray:
    return Reference(MODELS).infer("mlp", {"input": ROWS})["output"]


def serve(models: Path, *arguments: str, **options: Any) -> Server:
    words = ("--backend", "npu", "--execution-providers", providers(**options))
    return Server(models, *words, *arguments)


def fetch(server: Server, path: str) -> Reply:
    with server.connect() as connection:
        return connection.exchange(get(path))


def ask(client: triton.InferenceServerClient, array: np.ndarray) -> np.ndarray:
    tensor = triton.InferInput("input", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    answer = client.infer("mlp", [tensor]).as_numpy("output")
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("queue_type", "device_id"), [*((one, 0) for one in QUEUE_TYPES), ("auto", 1), ("auto", 2)]
)
def test_each_queue_type_answers_rightly_under_load(
    models: Path, expected: np.ndarray, queue_type: str, device_id: int
) -> None:
    words = ("--queue-type", queue_type)
    with serve(models, *words, device_id=device_id, run_us=500) as server:
        wrong: list[str] = []

        def load(seed: int) -> None:
            random = np.random.default_rng(seed)
            with triton.InferenceServerClient(server.url) as client:
                for _ in range(25):
                    first, last = sorted(random.integers(0, 5, 2))
                    if first == last:
                        continue
                    answer = ask(client, ROWS[first:last])
                    if not np.allclose(answer, expected[first:last], atol=1e-5):
                        wrong.append(f"rows {first} to {last}")

        threads = [threading.Thread(target=load, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
    assert server.exit_code == 0


def test_a_model_without_the_device_is_unavailable_with_the_reason_and_the_others_serve(
    tmp_path: Path,
) -> None:
    models = copy_models(tmp_path / "models", [MODELS / "mlp", MODELS / "identity"])
    for name in ("cuda", "tensorrt"):
        copy_models(tmp_path / name, [MODELS / "mlp"])
        (tmp_path / name / "mlp").rename(models / f"on_{name}")
        (models / f"on_{name}" / "config.json").write_text(json.dumps({"backend": name}))
    with ExitStack() as stack, Server(models) as server:
        connection = stack.enter_context(server.connect())
        for name in ("cuda", "tensorrt"):
            reply = connection.exchange(get(f"/v2/models/on_{name}/ready"))
            assert reply.status == 503
            asked = {"inputs": [{"name": "input", "shape": [1, 256], "datatype": "FP32",
                                 "data": [0.0] * 256}]}  # fmt: skip
            reply = connection.exchange(post_json(f"/v2/models/on_{name}/infer", asked))
            assert reply.status == 503
            error = json.loads(reply.body)["error"]
            assert f"the backend {name} can't be used here" in error
            assert "onnxruntime-gpu" in error
        assert connection.exchange(get("/v2/models/mlp/ready")).status == 200
    assert server.exit_code == 0


FAILS = 666


def test_a_run_that_fails_is_answered_500_and_the_next_is_right(
    models: Path, expected: np.ndarray
) -> None:
    with ExitStack() as stack, serve(models, failing_value=FAILS) as server:
        client = stack.enter_context(triton.InferenceServerClient(server.url))
        for _ in range(4):
            with pytest.raises(triton.InferenceServerException) as failed:
                ask(client, np.full((1, 256), FAILS, np.float32))
            assert failed.value.status() == "500"
            assert "the device failed as the test wants" in str(failed.value)
            assert np.allclose(ask(client, ROWS), expected, atol=1e-5)
    assert server.exit_code == 0


def test_a_request_that_fails_fails_none_that_was_packed_with_it(
    models: Path, expected: np.ndarray
) -> None:
    """One worker and one stream: requests that come during a run are packed. A batch with one that
    fails runs request by request; once the failing client has ended, batches go through."""
    config = {"instances": 1, "device": {"streams": 1}}
    (models / "mlp" / "config.json").write_text(json.dumps(config))
    words = ("--queue-type", "batched", "--batch-size", "8", "--max-queue-delay-us", "20000")
    with serve(models, *words, run_us=2_000, failing_value=FAILS) as server:
        outcomes: list[tuple[bool, str]] = []  # whether it is to fail, and its answer

        def one(number: int) -> None:
            fails, row = number == 0, number % 4
            array = np.full((1, 256), FAILS, np.float32) if fails else ROWS[row : row + 1]
            with triton.InferenceServerClient(server.url) as client:
                for _ in range(4 if fails else 12):
                    try:
                        answer = ask(client, array)
                        right = np.allclose(answer, expected[row : row + 1], atol=1e-5)
                        outcomes.append((fails, "right" if right else "wrong"))
                    except triton.InferenceServerException as error:
                        outcomes.append((fails, error.status()))

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == [(False, "right")] * 84 + [(True, "500")] * 4
        metrics = prometheus.parse(fetch(server, "/metrics").body.decode())
        calls, rows = (
            sum(
                value
                for (_, labels), value in metrics[name].samples.items()
                if ("model", "mlp") in labels
            )
            for name in ("lumen_execution_total", "lumen_inference_total")
        )
        assert calls < rows, "none were packed"
    assert server.exit_code == 0


def test_auto_gives_a_model_with_a_node_that_the_device_lacks_to_the_cpu(
    models: Path, expected: np.ndarray
) -> None:
    words = ("--backend", "auto", "--execution-providers", providers(not_supported="Relu"))
    with ExitStack() as stack, Server(models, *words, "--backend-choices", "off") as server:
        parameters = json.loads(fetch(server, "/v2/models/mlp").body)["parameters"]
        assert parameters["backend"] in ("openvino", "onnxruntime")
        (npu,) = (one for one in parameters["backends_tried"] if one["name"] == "npu")
        assert "has no kernel for some of its nodes" in npu["problem"]
        client = stack.enter_context(triton.InferenceServerClient(server.url))
        assert np.allclose(ask(client, ROWS), expected, atol=1e-5)
    assert server.exit_code == 0


def test_a_device_that_is_lost_at_the_start_makes_its_models_unavailable(models: Path) -> None:
    with serve(models, lost=1) as server:
        reply = fetch(server, "/v2/models/mlp/ready")
        assert reply.status == 503
        assert b"the device is lost" in reply.body
    assert server.exit_code == 0


@pytest.mark.parametrize("transport", ["http", "unix", "bus"])
def test_each_transport_reaches_the_device(
    models: Path, expected: np.ndarray, tmp_path: Path, transport: str
) -> None:
    unix, bus = str(tmp_path / "s.sock"), str(tmp_path / "s.bus")
    words = ("--unix", unix, "--bus", bus)
    with serve(models, *words) as server:
        urls = {"http": f"http://{server.url}", "unix": f"unix:{unix}", "bus": f"bus:{bus}"}
        with Client(urls[transport]) as client:
            for rows in (ROWS[:1], ROWS, ROWS[2:3]):
                answer = client.infer("mlp", {"input": rows})["output"]
                first = int(np.flatnonzero((ROWS == rows[0]).all(axis=1))[0])
                assert np.allclose(answer, expected[first : first + len(rows)], atol=1e-5)
    assert server.exit_code == 0


@pytest.mark.timing
def test_a_request_whose_time_is_over_before_its_run_is_answered_504(models: Path) -> None:
    with serve(
        models, "--queue-type", "mpmc", "--thread-count", "1", "--default-timeout-us", "150000",
        run_us=400_000,
    ) as server:  # fmt: skip
        statuses: list[str] = []

        def one() -> None:
            with triton.InferenceServerClient(server.url) as client:
                try:
                    ask(client, ROWS)
                    statuses.append("200")
                except triton.InferenceServerException as error:
                    statuses.append(error.status())

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) == {"200", "504"}, statuses
        assert len(statuses) == 8
    assert server.exit_code == 0


def test_a_client_that_goes_during_its_run_harms_nobody(models: Path, expected: np.ndarray) -> None:
    with serve(models, "--queue-type", "mpmc", run_us=100_000) as server:
        head = json.dumps({"inputs": [{"name": "input", "shape": [4, 256], "datatype": "FP32",
                           "parameters": {"binary_data_size": ROWS.nbytes}}]}).encode()  # fmt: skip
        for _ in range(6):
            gone = server.connect()
            gone.send(
                b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\n"
                b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
                % (len(head), len(head) + ROWS.nbytes)
                + head + ROWS.tobytes()
            )  # fmt: skip
            gone.socket.close()
        with triton.InferenceServerClient(server.url) as client:
            assert np.allclose(ask(client, ROWS), expected, atol=1e-5)
    assert server.exit_code == 0


def test_the_engine_changes_under_load_and_every_answer_is_right(
    models: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    socket = tmp_path / "s.sock"
    with ExitStack() as stack, serve(models, "--unix", str(socket), run_us=300) as server:
        ended = threading.Event()
        problems: list[str] = []

        def load() -> None:
            with triton.InferenceServerClient(server.url) as client:
                while not ended.is_set():
                    try:
                        if not np.allclose(ask(client, ROWS[:2]), expected[:2], atol=1e-5):
                            problems.append("a wrong answer")
                    except triton.InferenceServerException as error:
                        problems.append(str(error))

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        connection = stack.enter_context(UnixConnection(socket))
        for queue_type in ("mpmc", "batched", "inline", "auto", "spsc"):
            change = {"queue_type": queue_type, "batch_size": 8, "thread_count": 2}
            assert connection.exchange(post_json("/v2/lumen/engine", change)).status == 200
        ended.set()
        for thread in threads:
            thread.join()
        assert problems == []
    assert server.exit_code == 0


def test_a_drain_waits_for_the_runs_on_the_device(models: Path, expected: np.ndarray) -> None:
    with serve(models, "--queue-type", "mpmc", run_us=400_000) as server:
        answers: list[np.ndarray] = []

        def one() -> None:
            with triton.InferenceServerClient(server.url) as client:
                answers.append(ask(client, ROWS))

        threads = [threading.Thread(target=one) for _ in range(3)]
        for thread in threads:
            thread.start()
        scrapes = 0

        def has_all() -> bool:
            nonlocal scrapes
            scrapes += 1  # each is a request as well
            found = prometheus.parse(fetch(server, "/metrics").body.decode())
            (requests,) = found["lumen_requests_total"].samples.values()
            return requests - scrapes >= 3

        eventually(has_all)
        server.interrupt()
        for thread in threads:
            thread.join()
        assert len(answers) == 3
        assert all(np.allclose(one, expected, atol=1e-5) for one in answers)
        assert server.wait() == 0


def test_auto_measures_the_device_with_its_copies_and_takes_the_faster(models: Path) -> None:
    words = ("--backend", "auto", "--execution-providers", providers(run_us=20_000))
    with Server(models, *words, "--backend-choices", "off") as server:
        document = json.loads(fetch(server, "/v2/models/mlp").body)
        parameters = document["parameters"]
        assert parameters["backend"] in ("openvino", "onnxruntime")
        costs = {one["name"]: one.get("costs", []) for one in parameters["backends_tried"]}
        assert set(costs) == {"openvino", "onnxruntime", "npu"}  # and no cuda: it isn't there
        assert all(one["ns"] > 20_000_000 for one in costs["npu"])
    assert server.exit_code == 0


@pytest.mark.parametrize("queue_type", ["mpmc", "batched"])
def test_metrics_have_the_parts_of_a_run_of_one_in_64(models: Path, queue_type: str) -> None:
    # A copy of 1 KiB may take 2 ms where the machine is busy, so a run takes ten times that.
    with serve(models, "--queue-type", queue_type, "--thread-count", "1", run_us=20_000) as server:
        with triton.InferenceServerClient(server.url) as client:
            for _ in range(80):
                ask(client, ROWS[:1])
        found = prometheus.parse(fetch(server, "/metrics").body.decode())
        labels = (("model", "mlp"), ("version", "1"))

        def value(name: str, *more: tuple[str, str]) -> float:
            wanted = dict(labels) | dict(more)
            (one,) = [v for (_, at), v in found[name].samples.items() if dict(at) == wanted]
            return one

        measured = value("lumen_device_measured_runs_total")
        assert 1 <= measured <= 4  # two streams
        run_ns = value("lumen_device_run_nanoseconds_total") / measured
        copies_ns = [
            value("lumen_device_copy_nanoseconds_total", ("direction", way)) / measured
            for way in ("in", "out")
        ]
        assert run_ns >= 20_000_000
        assert all(0 < one < run_ns for one in copies_ns), (copies_ns, run_ns)
    assert server.exit_code == 0


def test_metrics_have_the_figures_of_the_driver_by_tritons_names(
    models: Path, tmp_path: Path
) -> None:
    source = Path(__file__).parent / "fake_nvml.c"
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with Server(models, env={"LD_LIBRARY_PATH": str(tmp_path)}) as server:
        for _ in range(2):
            found = prometheus.parse(fetch(server, "/metrics").body.decode())
            first, second = ((("gpu_uuid", f"GPU-000{i}"),) for i in (1, 2))
            figures = {
                "nv_gpu_utilization": ("gauge", {first: 0.37, second: 0.0}),
                "nv_gpu_memory_total_bytes": ("gauge", {first: 80 << 30, second: 80 << 30}),
                "nv_gpu_memory_used_bytes": ("gauge", {first: 3 << 30, second: 3 << 30}),
                "nv_gpu_power_usage": ("gauge", {first: 123.456}),  # the second does not say
                "nv_energy_consumption": ("counter", {first: 7.0}),
            }
            for name, (kind, values) in figures.items():
                assert found[name].kind == kind
                assert found[name].samples == {(name, at): one for at, one in values.items()}
            assert "nv_gpu_power_limit" not in found  # the library has no such function
            assert "lumen_requests_total" in found
    assert server.exit_code == 0


def test_a_setting_that_is_wrong_is_refused_at_the_start(tmp_path: Path) -> None:
    for text, words in (
        ('[{"name": "npu"}]', 'without "library"'),
        ("[", "which is no JSON"),
        ('[{"name": "auto", "library": "x"}]', "which is a backend already"),
    ):
        done = run_serve("--execution-providers", text)
        assert done.returncode != 0
        assert words in done.stderr
        assert "execution_providers" in done.stderr or "execution-providers" in done.stderr
    config = tmp_path / "config.json"
    config.write_text('{"server": {\n"execution_providers": [{"name": "npu"}]}}')
    done = run_serve("--config", str(config))
    assert "config.json:2: 'execution_providers': got" in done.stderr
