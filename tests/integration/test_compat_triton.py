"""Triton's own server, from PyPI, as the oracle: the same requests to both, the answers compared.

A refusal is a refusal: Triton answers 500 for many mistakes of the client that are 400 here. Other
differences stand in integration.triton_cases.DIFFER with the reason, and must still be there.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from google.protobuf import json_format, text_format
from integration import triton_cases, triton_sequences
from integration.harness import (
    FIXTURES,
    ROOT,
    SANITIZED,
    Server,
    copy_models,
    eventually,
    lumen_binary,
)
from integration.raw_http import Connection, Reply
from integration.triton_cases import Ask
from integration.triton_messages import triton_messages
from integration.triton_server import ENSEMBLE, TYPED, TritonServer
from tritonclient.utils import triton_to_np_dtype

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

pytestmark = pytest.mark.skipif(SANITIZED, reason="of answers, which no sanitizer changes")
Addresses = tuple[tuple[str, int], tuple[str, int]]
# Calls of gRPC that Lumen answers otherwise on purpose, with the reason.
GRPC_DIFFER = {
    "0 classes": "no classification, as Triton itself has it over HTTP",
    "an output twice": "a mistake of the client, as over HTTP",
    "raw contents for three inputs": "one that no input has is a mistake of the client",
}


def config_of(document: dict[str, Any]) -> Any:
    return json_format.ParseDict(
        document, triton_messages().ModelConfig(), ignore_unknown_fields=True
    )


def write_ensemble(models: Path) -> None:
    """Triton's configuration as JSON, and nothing else."""
    message = text_format.Parse(ENSEMBLE, triton_messages().ModelConfig())
    (models / "sums").mkdir()
    text = json_format.MessageToJson(message, preserving_proto_field_name=True)
    (models / "sums" / "config.json").write_text(text)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TritonServer, Server]]:
    folder = tmp_path_factory.mktemp("both")
    names = ["add_sub", "identity_types"]
    sources = [FIXTURES / name for name in names] + [FIXTURES.parent / "backend" / "identity_bytes"]
    models = copy_models(folder / "lumen", sources)
    write_ensemble(models)
    triton_sequences.write_for_lumen(models)
    flags = ["--backend", "onnxruntime", "--tcp-shm", "on", "--tcp-control", "on"]
    flags += ["--load-files", "on", "--python", "on"]
    with (
        TritonServer(folder / "triton") as oracle,
        Server(models, *flags, "--model-control", "explicit") as server,
    ):
        yield oracle, server


@pytest.fixture(scope="module")
def both(servers: tuple[TritonServer, Server]) -> Addresses:
    """The addresses of Triton and of Lumen."""
    return servers[0].address, servers[1].address


@pytest.fixture
def region() -> Iterator[str]:
    name = f"lmtest-triton-{os.getpid()}"
    path = Path("/dev/shm") / name
    path.write_bytes(triton_cases.VALUES.ljust(4096, b"\0"))
    yield f"/{name}"
    path.unlink()


def ask(address: tuple[str, int], request: Ask) -> Reply:
    lines = [f"{request.method} {request.path} HTTP/1.1", "Host: x", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.method != "GET":
        lines.append(f"Content-Length: {len(request.body)}")
    with Connection(address) as connection:
        connection.send("\r\n".join([*lines, "", ""]).encode() + request.body)
        return connection.reply()


def kind_of(reply: Reply) -> int:
    """The status; all refusals of a request's content are one."""
    return 400 if reply.status in (400, 500, 503) else reply.status


def is_close(a: Any, b: Any) -> bool:
    """Equal JSON; numbers of Triton are written with the digits of a double."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() <= b.keys() and all(is_close(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_close, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-6)
    return bool(a == b)


# Of documents that name the server and its backend.
OWN_WORDS = ("version", "platform", "extensions", "log_format")


def parts(reply: Reply, request: Ask) -> tuple[Any, bytes]:
    """The JSON, without the words that are each server's own, and the bytes behind it."""
    size = int(reply.headers.get("inference-header-content-length", len(reply.body)))
    # Triton writes texts that are not UTF-8 into JSON as they are.
    document = json.loads(reply.body[:size].decode(errors="surrogateescape") or "{}")
    if request.path in ("/v2", "/v2/logging") or request.path.startswith("/v2/models/add_sub"):
        if isinstance(document, dict):
            words = ("name", *OWN_WORDS) if request.path == "/v2" else OWN_WORDS
            document = {key: value for key, value in document.items() if key not in words}
    return document, reply.body[size:]


def difference(request: Ask, oracle: Reply, ours: Reply) -> str:
    """Empty: they agree. Lumen may say more than Triton, never less."""
    if kind_of(oracle) != kind_of(ours):
        return (
            f"Triton {oracle.status} {oracle.body[:150]!r}, Lumen {ours.status} {ours.body[:150]!r}"
        )
    if ours.status != 200:
        return ""
    theirs, tail = parts(oracle, request)
    own, own_tail = parts(ours, request)
    if is_close(theirs, own) and tail == own_tail:
        return ""
    return f"Triton {oracle.body[:300]!r}, Lumen {ours.body[:300]!r}"


def test_answers_are_those_of_triton_but_for_the_listed_ones(both: Addresses, region: str) -> None:
    found: dict[str, str] = {}
    asked = triton_cases.build(region)
    for name, request in asked.items():
        oracle, ours = (ask(address, request) for address in both)
        assert ours.status < 500 or ours.status in (501, 503), (name, ours)
        if words := difference(request, oracle, ours):
            found[name] = words
    unexpected = found.keys() - triton_cases.DIFFER.keys()
    assert not unexpected, "\n".join(f"{name}: {found[name]}" for name in sorted(unexpected))
    agree = triton_cases.DIFFER.keys() - found.keys()
    assert not agree, f"these do not differ any more, take them from DIFFER: {sorted(agree)}"
    assert len(asked) > 400


def test_an_ensemble_has_the_configuration_and_the_counts_that_triton_gives_it(
    both: Addresses,
) -> None:
    body = triton_cases.left(name="a"), triton_cases.RIGHT | {"name": "b"}
    request = Ask("POST", triton_cases.SUMS, json.dumps({"inputs": body}).encode())
    configs = []
    # Rows, runs and successes; of the model two steps of two requests.
    wanted = {"sums": [2, 2, 2], "add_sub": [4, 4, 4]}
    for address in both:
        configs.append(config_of(ask(address, Ask("GET", "/v2/models/sums/config")).json()))
        before = counts_of(address)
        assert ask(address, request).status == 200
        assert ask(address, request).status == 200
        # Triton counts a request after its reply is out.
        eventually(partial(has_counted, address, before, wanted))
    for field in ("name", "platform", "max_batch_size", "input", "output", "ensemble_scheduling"):
        assert getattr(configs[0], field) == getattr(configs[1], field), field


def has_counted(
    address: tuple[str, int], before: dict[str, list[int]], wanted: dict[str, list[int]]
) -> bool:
    after = counts_of(address)
    more = {name: [b - a for a, b in zip(before[name], after[name])] for name in after}
    return more == wanted


def counts_of(address: tuple[str, int]) -> dict[str, list[int]]:
    """Of the ensemble and of its model: rows, runs, successes."""
    counts = {}
    for name in ("sums", "add_sub"):
        stats = ask(address, Ask("GET", f"/v2/models/{name}/stats")).json()["model_stats"][0]
        success = stats["inference_stats"]["success"]["count"]
        counts[name] = [stats["inference_count"], stats["execution_count"], success]
    return counts


def answer_of(reply: Reply) -> dict[str, list[Any]] | None:
    """The outputs; None: the request was refused."""
    if reply.status != 200:
        return None
    return {output["name"]: output["data"] for output in reply.json()["outputs"]}


@pytest.mark.parametrize("model", triton_sequences.MODELS)
@pytest.mark.parametrize("seed", range(4))
def test_sequences_and_controls_are_as_in_triton(both: Addresses, model: str, seed: int) -> None:
    """Starts, ends and requests at random, also of sequences that are not live."""
    rng = random.Random(f"{model} {seed}")
    shape = [1] if model == "sequence_steps" else [1, 1]
    ids = [2**40 * seed + number for number in range(1, 6)]
    answered = 0
    for _ in range(150):
        x = {"name": "x", "datatype": "INT32", "shape": shape, "data": [rng.randint(-999, 999)]}
        parameters = {"sequence_id": rng.choice(ids)}
        parameters |= {"sequence_start": True} if rng.random() < 0.3 else {}
        parameters |= {"sequence_end": True} if rng.random() < 0.2 else {}
        body = json.dumps({"inputs": [x], "parameters": parameters}).encode()
        request = Ask("POST", f"/v2/models/{model}/infer", body)
        theirs, ours = (ask(address, request) for address in both)
        assert answer_of(theirs) == answer_of(ours), (parameters, theirs, ours)
        answered += ours.status == 200
        assert ours.status in (200, 400), ours
    assert 50 < answered < 150, "some are refused"


def test_a_configuration_of_sequences_is_read_as_triton_reads_it(both: Addresses) -> None:
    for name in triton_sequences.MODELS:
        path = f"/v2/models/{name}/config"
        theirs, ours = (config_of(ask(at, Ask("GET", path)).json()) for at in both)
        for field in ("max_sequence_idle_microseconds", "control_input"):
            found = [getattr(config.sequence_batching, field) for config in (theirs, ours)]
            assert found[0] == found[1], (name, field)


def test_calls_of_grpc_are_answered_as_triton_does_but_for_the_listed_ones(
    servers: tuple[TritonServer, Server],
) -> None:
    program = Path(__file__).with_name("grpc_differences.py")
    words = [judge_programs.interpreter("grpc"), program, servers[0].grpc, servers[1].url]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    differ = said["differ"]
    unexpected = differ.keys() - GRPC_DIFFER.keys()
    assert not unexpected, "\n".join(f"{name}: {differ[name]}" for name in sorted(unexpected))
    agree = GRPC_DIFFER.keys() - differ.keys()
    assert not agree, f"these do not differ any more: {sorted(agree)}"
    assert said["calls"] > 120


def test_lumen_bench_measures_tritons_grpc(servers: tuple[TritonServer, Server]) -> None:
    words = ["bench", f"grpc://{servers[0].grpc}", "--model", "add_sub", "--requests", "50"]
    words += ["--clients", "2", "--repeat-ratio", "0.5", "--json"]
    done = subprocess.run([lumen_binary(), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["requests"] == 50 and row["errors"]["count"] == 0


def test_lumen_bench_sends_triton_sequences(servers: tuple[TritonServer, Server]) -> None:
    host, port = servers[0].address
    for url in (f"grpc://{servers[0].grpc}", f"http://{host}:{port}"):
        words = ["bench", url, "--model", "sequence_numbers", "--requests", "60"]
        words += ["--clients", "3", "--sequence-length", "4", "--json"]
        done = subprocess.run([lumen_binary(), *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)["rows"]
        assert row["requests"] == 60 and row["errors"]["count"] == 0


def test_the_config_that_triton_says_is_taken(both: Addresses) -> None:
    for name in ("add_sub", "identity_bytes"):
        path = f"/v2/models/{name}"
        theirs, ours = (ask(at, Ask("GET", f"{path}/config")).json() for at in both)
        theirs |= {"backend": "onnxruntime", "default_model_filename": "model.onnx"}
        # Of the Python backend alone.
        assert theirs.pop("instance_group")[0]["kind"] == "KIND_CPU"
        call = json.dumps({"parameters": {"config": json.dumps(theirs)}}).encode()
        reply = ask(both[1], Ask("POST", f"/v2/repository/models/{name}/load", call))
        assert reply.status == 200, (theirs, reply)
        loaded = ask(both[1], Ask("GET", f"{path}/config")).json()
        assert loaded["version_policy"] == theirs["version_policy"]
        for side in ("input", "output"):
            for one, other in zip(theirs[side], loaded[side], strict=True):
                assert one | other == one, "Lumen says less, and the same"
        ask(both[1], Ask("POST", f"/v2/repository/models/{name}/load", b""))


def random_arrays(seed: int) -> dict[str, np.ndarray]:
    """One for each input of identity_types, all of the same length; every bit at random."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 40))
    arrays = {}
    for datatype in TYPED:
        dtype = np.dtype(triton_to_np_dtype(datatype))
        data = rng.bytes(count * dtype.itemsize)
        array = np.frombuffer(data, np.uint8).astype(bool) if datatype == "BOOL" else None
        arrays[datatype] = np.frombuffer(data, dtype) if array is None else array
    return arrays


@pytest.mark.parametrize("seed", range(20))
def test_random_tensors_come_back_bit_for_bit_as_from_triton(both: Addresses, seed: int) -> None:
    arrays = random_arrays(seed)
    rng = np.random.default_rng(seed)
    inputs, outputs = [], []
    for datatype, array in arrays.items():
        tensor = triton.InferInput(f"{datatype.lower()}_in", list(array.shape), datatype)
        # JSON has no infinite numbers.
        is_finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
        as_json = datatype != "FP16" and is_finite and rng.random() < 0.5
        tensor.set_data_from_numpy(array, binary_data=not as_json)
        inputs.append(tensor)
        # Triton has no JSON for FP16.
        binary = datatype == "FP16" or not is_finite or bool(rng.random() < 0.5)
        outputs.append(triton.InferRequestedOutput(f"{datatype.lower()}_out", binary_data=binary))
    rng.shuffle(inputs)
    replies = []
    for host, port in both:
        with triton.InferenceServerClient(f"{host}:{port}") as client:
            replies.append(client.infer("identity_types", inputs, outputs=outputs))
    for datatype, array in arrays.items():
        name = f"{datatype.lower()}_out"
        theirs, ours = (reply.as_numpy(name) for reply in replies)
        assert [reply.get_output(name)["shape"] for reply in replies] == [[len(array)]] * 2
        assert ours.dtype == theirs.dtype == array.dtype, name
        assert ours.tobytes() == array.tobytes(), (seed, name)
        # Triton's reader of JSON rounds some numbers wrongly, by the last bit.
        np.testing.assert_allclose(theirs, array, rtol=1e-14, err_msg=name)
