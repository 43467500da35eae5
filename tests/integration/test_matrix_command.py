"""`lumen matrix`: a server for each combination, the table, its files, rows that say why not."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest
from integration.harness import PATIENCE, lumen_binary

pytestmark = pytest.mark.tool

QUEUES = ("mpmc", "spsc", "naive", "batched", "inline", "auto")
ALLOCATORS = ("lumen_arena", "standard")
TELEMETRY_HEAD = (
    "request_id,timestamp,model,queue_type,allocator_type,worker,connect_us,parse_us,queue_us,"
    "preprocess_us,inference_us,postprocess_us,write_us,total_us,rows,status,cache,transport,lane"
)


def matrix(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(lumen_binary()), "matrix", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120 * PATIENCE)


def test_every_combination_answers_and_is_measured(small_repository: Path, tmp_path: Path) -> None:
    # Was: --backend wanted a number.
    words = ("--model", "mlp", "--requests", "120", "--clients", "4", "--json")
    words = (*words, "--backend", "openvino")
    done = matrix(tmp_path, *words, "--model-repository", str(small_repository))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(r["queue_type"], r["allocator_type"]) for r in rows] == [
        (queue, allocator) for queue in QUEUES for allocator in ALLOCATORS
    ]
    for row in rows:
        assert row["error"] is None
        for key in ("round_trip_mean_us", "round_trip_p50_us", "connection_mean_us"):
            assert row[key] > 0, row
        assert row["round_trip_p50_us"] <= row["round_trip_p99_us"]
        assert 0 <= row["queue_mean_us"] <= row["round_trip_mean_us"], row
        assert row["rows_per_inference"] >= 1, row
        # The two allocators really differ.
        assert (row["arena_bytes_per_request"] > 0) == (row["allocator_type"] == "lumen_arena"), row
        assert (row["heap_calls_per_request"] > 0) == (row["allocator_type"] == "standard"), row
    macro = tmp_path / "results" / "macro" / "mlp.csv"
    assert len(list(csv.DictReader(macro.open()))) == len(QUEUES) * 2
    for row in rows:
        name = f"mlp_{row['queue_type']}_{row['allocator_type']}.csv"
        lines = (tmp_path / "results" / "micro" / name).read_text().splitlines()
        assert lines[0] == TELEMETRY_HEAD
        # warm-up, the measured with one a connection before them, and one a connection
        assert sum(line.startswith("measured-1,") for line in lines) == 120
        assert sum(line.startswith("connection,") for line in lines) == 120


def test_rounds_append_to_one_file_and_give_one_row(small_repository: Path, tmp_path: Path) -> None:
    words = ("--model", "identity", "--requests", "20", "--clients", "2", "--rounds", "2")
    only = ("--queue-types", "mpmc", "--allocator-types", "lumen_arena", "--out", "there")
    done = matrix(tmp_path, *words, *only, "--model-repository", str(small_repository))
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()
    assert len(table) == 3 and table[2].startswith("| mpmc | lumen_arena | ")
    assert "n/a" not in table[2]
    micro = (tmp_path / "there" / "micro" / "identity_mpmc_lumen_arena.csv").read_text()
    for number in (1, 2):
        assert micro.count(f"\nmeasured-{number},") == 20


def test_a_row_that_fails_says_why_and_the_others_go_on(
    small_repository: Path, tmp_path: Path
) -> None:
    # A folder where the telemetry file of one combination would have to be.
    (tmp_path / "results" / "micro" / "mlp_mpmc_lumen_arena.csv" / "x").mkdir(parents=True)
    words = ("--model", "mlp", "--requests", "20", "--clients", "2", "--queue-types", "mpmc")
    done = matrix(tmp_path, *words, "--model-repository", str(small_repository))
    assert done.returncode == 1
    first, second = done.stdout.splitlines()[2:]
    assert "failed: " in first and "mlp_mpmc_lumen_arena.csv" in first
    assert "failed" not in second


def test_an_unknown_model_ends_it_at_once(small_repository: Path, tmp_path: Path) -> None:
    done = matrix(tmp_path, "--model", "mpl", "--model-repository", str(small_repository))
    assert done.returncode == 1
    assert "mpl" in done.stderr and done.stderr.count("round 1") == 1


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--model", "mlp", "--queue-types", "mpcm"), "did you mean 'mpmc'?"),
        (("--model", "mlp", "--allocator-types", "heap"), "lumen_arena standard"),
        ((), "--model"),
    ],
)
def test_wrong_arguments_are_refused_with_status_2(
    tmp_path: Path, words: tuple[str, ...], wanted: str
) -> None:
    done = matrix(tmp_path, *words)
    assert done.returncode == 2
    assert wanted in done.stderr
