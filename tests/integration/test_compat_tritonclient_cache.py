"""tritonclient against a response cache: each reply has its own request's id and form."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as triton
from integration.harness import FIXTURES, Server
from integration.load import read_csv


def test_a_hit_has_the_id_and_the_form_that_its_request_wants(
    server: Callable[..., Server], tmp_path: Path
) -> None:
    repository = tmp_path / "cached"
    shutil.copytree(FIXTURES / "add_sub", repository / "add_sub")
    (repository / "add_sub" / "config.json").write_text('{"response_cache": {"enable": true}}')
    left, right = np.random.default_rng(5).standard_normal((2, 2, 3)).astype(np.float32)

    trace = tmp_path / "trace.csv"
    one = server("--telemetry-csv-path", str(trace), repository=repository)
    with triton.InferenceServerClient(one.url) as client:

        def ask(binary_in: bool, binary_out: bool, id: str = "", **options: Any) -> dict[str, Any]:
            inputs = []
            for name, array in (("left", left), ("right", right)):
                inputs.append(triton.InferInput(name, [2, 3], "FP32"))
                inputs[-1].set_data_from_numpy(array, binary_data=binary_in)
            outputs = [
                triton.InferRequestedOutput(name, binary_data=binary_out)
                for name in ("sum", "difference")
            ]
            reply = client.infer("add_sub", inputs, outputs=outputs, request_id=id, **options)
            np.testing.assert_array_equal(reply.as_numpy("sum"), left + right)
            np.testing.assert_array_equal(reply.as_numpy("difference"), left - right)
            head = reply.get_response()
            for output in head["outputs"]:
                is_binary = "binary_data_size" in output.get("parameters", {})
                assert (is_binary, "data" in output) == (binary_out, not binary_out)
            return head

        def counts() -> dict[str, int]:
            of_model = client.get_inference_statistics("add_sub")["model_stats"][0]
            stages = of_model["inference_stats"]
            names = ("success", "compute_infer", "cache_hit", "cache_miss")
            return {
                "executions": of_model["execution_count"],
                **{name: stages[name]["count"] for name in names},
            }

        assert ask(True, True, "first")["id"] == "first"
        assert counts() == {
            **{"executions": 1, "success": 1, "compute_infer": 1},
            **{"cache_hit": 0, "cache_miss": 1},
        }
        assert ask(True, True, "second")["id"] == "second"
        assert ask(True, False, "third")["id"] == "third"
        assert ask(False, True, "fourth")["id"] == "fourth"
        assert "id" not in ask(False, False)
        assert counts() == {
            **{"executions": 1, "success": 5, "compute_infer": 1},
            **{"cache_hit": 4, "cache_miss": 1},
        }
        ask(True, True, "fifth", parameters={"no_cache": True})
        assert counts() == {
            **{"executions": 2, "success": 6, "compute_infer": 2},
            **{"cache_hit": 4, "cache_miss": 1},
        }
    one.stop()
    used = [line["cache"] for line in read_csv(trace) if line["model"]]
    assert used == ["miss", *["hit"] * 4, ""]
