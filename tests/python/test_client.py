"""`lumen_engine.Client` over the bus, a unix socket and TCP: the same answers and errors."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lumen_engine
import numpy as np
import pytest
from integration import bus_pair
from integration.harness import FIXTURES, MODELS, PATIENCE, Server, copy_models
from integration.load import stopped
from lumen_engine import Client, InferError
from lumen_engine._tensors import BYTES, DATATYPES, array_of, tensor_of
from lumen_engine.bus import BusError

TRANSPORTS = ["bus", "unix", "http"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("client")
    repository = copy_models(
        folder / "models",
        [MODELS / "mlp", MODELS / "identity", *sorted(FIXTURES.iterdir())],
    )
    shutil.copytree(MODELS / "identity" / "1", repository / "cached" / "1")
    (repository / "cached" / "config.json").write_text('{"response_cache": {"enable": true}}')
    one = Server(
        repository,
        *("--bus", str(folder / "lumen.bus"), "--bus-area-bytes", str(1 << 20)),
        unix=str(folder / "lumen.sock"),
    )
    yield one
    one.stop()


def url_of(server: Server, transport: str) -> str:
    return {
        "bus": f"bus:{server.bus_path}",
        "unix": f"unix:{server.unix_path}",
        "http": f"http://{server.host}:{server.port}",
    }[transport]


@pytest.fixture(params=TRANSPORTS)
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(url_of(server, request.param)) as one:
        yield one


def rows(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 256), np.float32)


def test_a_row_and_several_are_answered_alike_over_all(server: Server) -> None:
    for count in (1, 7):
        given = rows(count)
        answers = []
        for transport in TRANSPORTS:
            with Client(url_of(server, transport)) as client:
                (output,) = client.infer("mlp", {"input": given}).values()
                assert output.shape == (count, 10) and output.dtype == np.float32
                answers.append(output)
        assert all(np.array_equal(answers[0], one) for one in answers)


def test_a_batch_comes_back_in_its_order(client: Client) -> None:
    given = [rows(1, seed) for seed in range(100)]
    together = client.infer_batch("mlp", [{"input": row} for row in given])
    assert len(together) == 100
    for row, answer in zip(given, together):
        (alone,) = client.infer("mlp", {"input": row}).values()
        np.testing.assert_allclose(next(iter(answer.values())), alone, rtol=1e-5)


def test_many_awaited_at_once(client: Client) -> None:
    async def all_of_them() -> None:
        given = [rows(1, seed) for seed in range(50)]
        answers = await asyncio.gather(
            *(client.infer_async("mlp", {"input": row}) for row in given)
        )
        for row, answer in zip(given, answers):
            expected = await client.infer_async("mlp", {"input": row})
            for name, array in answer.items():
                np.testing.assert_allclose(array, expected[name], rtol=1e-5)

    asyncio.run(all_of_them())


def test_lists_of_python_become_the_models_types(client: Client) -> None:
    answer = client.infer("identity", {"input": [[1, 2, 3]]})
    np.testing.assert_array_equal(answer["output"], np.array([[1, 2, 3]], np.float32))


def test_every_type_of_number_comes_back_as_it_was(client: Client) -> None:
    given = {
        f"{name.lower()}_in": np.array([0, 1, 1, 0, 1]).astype(dtype)
        for name, dtype in DATATYPES
        if name not in ("BF16", "BYTES")
    }
    answer = client.infer("identity_types", given)
    assert answer.keys() == {name.replace("_in", "_out") for name in given}
    for name, array in given.items():
        got = answer[name.replace("_in", "_out")]
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


def test_strings_are_bytes_with_their_lengths() -> None:
    given = np.array([["a", "", "ü\n"], ["b\0c", "d", "e" * 300]], object)
    tensor = tensor_of("s", given, BYTES)
    assert tensor.shape == (2, 3) and bytes(tensor.data)[:5] == b"\x01\0\0\0a"
    for data in (bytes(tensor.data), np.frombuffer(tensor.data, np.uint8)):
        back = array_of(BYTES, tensor.shape, data)
        assert back.tolist() == [[one.encode() for one in row] for row in given.tolist()]


def test_refusals_have_the_status_and_the_words_of_http(server: Server) -> None:
    def refusal(transport: str, model: str, name: str, array: np.ndarray) -> tuple[int, str]:
        with Client(url_of(server, transport)) as client, pytest.raises(InferError) as caught:
            client.infer(model, {name: array})
        return caught.value.status, caught.value.message

    for asked in [
        ("none", "input", rows(1)),
        ("mlp", "inputs", rows(1)),
        ("mlp", "input", rows(1)[:, :100]),
        ("mlp", "input", rows(1).astype(np.float64)),
    ]:
        over_http = refusal("http", *asked)
        assert over_http[0] in (400, 404)
        assert refusal("bus", *asked) == over_http
        assert refusal("unix", *asked) == over_http


def test_a_request_says_whether_an_older_answer_will_do(client: Client) -> None:
    def hits_and_misses() -> tuple[int, int]:
        stages = client.statistics("cached")["model_stats"][0]["inference_stats"]
        return stages["cache_hit"]["count"], stages["cache_miss"]["count"]

    row = np.random.default_rng().random((1, 8), np.float32)  # that no other test has asked
    hits, misses = hits_and_misses()

    def expect(more_hits: int, more_misses: int, **wishes: Any) -> None:
        nonlocal hits, misses
        hits, misses = hits + more_hits, misses + more_misses
        np.testing.assert_array_equal(
            client.infer("cached", {"input": row}, **wishes)["output"], row
        )
        assert hits_and_misses() == (hits, misses), wishes

    expect(0, 1)
    expect(1, 0)
    expect(0, 0, no_cache=True)
    client.infer_batch("cached", [{"input": row}] * 3, no_cache=True)
    asyncio.run(client.infer_async("cached", {"input": row}, no_cache=True))
    expect(1, 0, ttl_ms=3_600_000)
    stored = time.monotonic()
    while time.monotonic() < stored + 0.005:
        client.is_ready()
    expect(0, 1, ttl_ms=1)
    with pytest.raises(InferError, match="ttl_ms.*wanted 1 or more") as caught:
        client.infer("cached", {"input": row}, ttl_ms=0)
    assert caught.value.status == 400


def test_documents_are_the_same_over_all(server: Server) -> None:
    clients = [Client(url_of(server, transport)) for transport in TRANSPORTS]
    for ask in (
        Client.metadata,
        lambda client: client.metadata("mlp"),
        lambda client: client.metadata("mlp", "1"),
        lambda client: client.statistics("identity"),
        Client.is_ready,
        lambda client: client.is_ready("mlp"),
        lambda client: client.is_ready("none"),
    ):
        said = [ask(client) for client in clients]
        assert said[0] == said[1] == said[2]
    assert clients[0].is_ready() and not clients[0].is_ready("none")
    for client in clients:
        client.close()


def test_more_than_the_area_holds_is_refused_with_both_numbers(server: Server) -> None:
    with Client(url_of(server, "bus")) as client:
        with pytest.raises(ValueError, match="and an area of 1048576"):
            client.infer("mlp", {"input": rows(2000)})
        # As many as there is room for are in flight, the others wait: 64 rows at a time.
        many = client.infer_batch("mlp", [{"input": rows(200, seed)} for seed in range(20)])
        assert len(many) == 20


def test_outputs_whose_size_only_the_run_knows_find_room_at_last(server: Server) -> None:
    with Client(url_of(server, "bus")) as client:
        given = np.arange(40_000, dtype=np.float32).reshape(1, -1)  # 160 KB; the first guess is 64
        np.testing.assert_array_equal(client.infer("identity", {"input": given})["output"], given)

        async def awaited() -> None:
            answer = await client.infer_async("identity", {"input": given})
            np.testing.assert_array_equal(answer["output"], given)

        asyncio.run(awaited())


def test_a_client_that_gave_up_waiting_goes_on(server: Server) -> None:
    with Client(url_of(server, "bus")) as client:

        async def given_up() -> None:
            tasks = [
                asyncio.create_task(client.infer_async("mlp", {"input": rows(1)}))
                for _ in range(10)
            ]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(one, dict) for one in done) >= 5

        for _ in range(20):
            asyncio.run(given_up())
        assert client.infer("mlp", {"input": rows(1)})


def test_a_server_that_dies_is_told(tmp_path: Path) -> None:
    repository = copy_models(tmp_path / "models", [MODELS / "mlp"])
    server = Server(repository, "--bus", str(tmp_path / "lumen.bus"))
    with Client(url_of(server, "bus")) as client:
        assert client.infer("mlp", {"input": rows(1)})
        os.kill(server.process.pid, signal.SIGKILL)
        with pytest.raises(BusError):
            while True:
                client.infer("mlp", {"input": rows(1)})


CLIENT = """
import sys
import numpy as np
from lumen_engine import Client
with Client(sys.argv[1]) as client:
    rows = [{"input": np.zeros((1, 256), np.float32)} for _ in range(64)]
    client.infer_batch("mlp", rows)
    print("at work", flush=True)
    while True:
        client.infer_batch("mlp", rows)
"""


def test_clients_that_are_killed_leave_nothing_and_others_are_served(tmp_path: Path) -> None:
    def counts() -> dict[str, int]:
        folder = f"/proc/{one.pid}"
        return {kind: len(os.listdir(f"{folder}/{kind}")) for kind in ("fd", "task", "map_files")}

    # A server of its own: on the shared one, connections of earlier tests end while this one runs.
    # On a busy machine a start has left up to seven descriptors for a while, so the count may fall
    # below the one before; ten clients that each leave one would be above it all the same.
    one = Server(copy_models(tmp_path / "models", [MODELS / "mlp"]), "--bus", str(tmp_path / "b"))
    with Client(url_of(one, "bus")) as other:
        other.infer("mlp", {"input": rows(1)})
        before = counts()
        for _ in range(10):
            command = [sys.executable, "-c", CLIENT, url_of(one, "bus")]
            path = Path(lumen_engine.__file__).parents[1]
            env = {**os.environ, "PYTHONPATH": str(path)}
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as client:
                assert client.stdout and client.stdout.readline() == b"at work\n"
                client.kill()
            other.infer("mlp", {"input": rows(1)})
        give_up = time.monotonic() + 20 * PATIENCE
        while any(now > before[kind] for kind, now in counts().items()):
            assert time.monotonic() < give_up, f"{before} before, {counts()} now"
            other.infer("mlp", {"input": rows(1)})
    one.stop()


def test_a_url_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="wanted bus:/PATH"):
        Client("ftp://localhost")
    with pytest.raises((OSError, BusError)):
        Client("bus:/no/such/bus", timeout=0.1)


INFER = """
import sys
import numpy as np
from lumen_engine import Client

with Client(sys.argv[1]) as client:
    for what in ("warm", "waits"):
        print(what, flush=True)
        client.infer("mlp", {"input": np.zeros((1, 256), "f4")})
        print("answered", flush=True)
        sys.stdin.readline()
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ctrl_c_breaks_the_wait_for_a_server_that_is_stopped(
    server: Server, transport: str
) -> None:
    with bus_pair.python("-c", INFER, url_of(server, transport)) as process:
        assert process.stdin and process.stdout
        assert [process.stdout.readline() for _ in range(2)] == ["warm\n", "answered\n"]
        # All its threads: one that ran on for a moment has answered.
        with stopped(server.pid):
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "waits\n"
            bus_pair.wait_for_state(process.pid, "S")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30 * PATIENCE)
    assert out == "" and "KeyboardInterrupt" in err


def test_a_refusal_goes_from_one_process_to_another() -> None:
    """It could not be made anew from its text alone: its reader got a TypeError."""
    error = pickle.loads(pickle.dumps(InferError(404, "no model 'a'")))
    assert isinstance(error, InferError)
    assert (error.status, error.message, str(error)) == (404, "no model 'a'", "404: no model 'a'")
