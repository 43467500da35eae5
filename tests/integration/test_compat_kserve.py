"""KServe's SDK and MLServer's batch client, unmodified, against Lumen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import (
    FIXTURES,
    MODELS,
    PATIENCE,
    ROOT,
    SANITIZED,
    Server,
    copy_models,
)
from integration.raw_http import post_json

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

pytestmark = pytest.mark.skipif(SANITIZED, reason="of answers, which no sanitizer changes")
CALLS = Path(__file__).with_name("kserve_calls.py")
# They import packages of their own environment alone.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    names = [FIXTURES / "add_sub", FIXTURES.parent / "backend" / "identity_bytes", MODELS / "mlp"]
    models = copy_models(tmp_path_factory.mktemp("models") / "models", names)
    with Server(models, "--backend", "onnxruntime") as server:
        yield server


def run(*words: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_sdk_of_kserve_gets_what_it_asks_for(served: Server) -> None:
    answers = json.loads(run(judge_programs.interpreter("kserve"), CALLS, f"http://{served.url}"))
    assert [answers[name] for name in ("ready", "live", "model ready")] == [True] * 3
    assert answers["no model ready"] is False
    left = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    right = np.full((2, 3), 0.3, np.float32)
    wanted = {"sum": left + right, "difference": left - right}
    for form in ("JSON", "binary"):
        for asked, names in (("all", list(wanted)), ("one", ["difference"])):
            answer = answers[f"{asked}, {form}"]
            assert (answer["id"], answer["model"]) == ("a1", "add_sub")
            assert list(answer["arrays"]) == names
            for name, array in answer["arrays"].items():
                np.testing.assert_array_equal(np.array(array, np.float32), wanted[name])
        assert answers[f"texts, {form}"] == ["", "Grüße", 'a "quoted" word']
    assert "model 'none' is not in the repository" in answers["no model"]


def batch(served: Server, folder: Path, rows: list[Any], *words: str) -> list[dict[str, Any]]:
    source, target = folder / "requests.txt", folder / "replies.txt"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = judge_programs.environment("mlserver") / "bin" / "mlserver"
    files = ["-i", source, "-o", target]
    run(program, "infer", "-u", served.url, "-m", "mlp", *files, "--retries", "1", *words)
    replies = [json.loads(line) for line in target.read_text().splitlines()]
    return sorted(replies, key=lambda reply: reply["parameters"]["batch_index"])


@pytest.mark.long  # a minute to install that client
@pytest.mark.parametrize("words", [(), ("--batch-size", "8"), ("--binary-data",)], ids=str)
def test_the_batch_client_of_mlserver_gets_the_rows_that_it_sent(
    served: Server, tmp_path: Path, words: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((50, 256)).astype(np.float32)
    asked = [
        {
            "id": f"row-{i}",
            "inputs": [
                {"name": "input", "shape": [1, 256], "datatype": "FP32", "data": row.tolist()}
            ],
        }
        for i, row in enumerate(rows)
    ]
    replies = batch(served, tmp_path, asked, *words)
    assert [reply["id"] for reply in replies] == [f"row-{i}" for i in range(50)]
    # One by one, as the others of the repository's tests are held against the backend itself.
    for reply, request in zip(replies, asked, strict=True):
        with served.connect() as connection:
            own = connection.exchange(post_json("/v2/models/mlp/infer", request)).json()
        np.testing.assert_allclose(
            reply["outputs"][0]["data"], own["outputs"][0]["data"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.long
def test_the_batch_client_of_mlserver_is_told_which_row_is_wrong(
    served: Server, tmp_path: Path
) -> None:
    tensor = {"name": "input", "shape": [1, 256], "datatype": "FP32", "data": [0.0] * 256}
    right = {"inputs": [tensor]}
    wrong = {"inputs": [tensor | {"name": "other"}]}
    replies = batch(served, tmp_path, [right, wrong, right])
    assert ["error" in reply for reply in replies] == [False, True, False]
    assert "has no input 'other'" in replies[1]["error"]["msg"]
