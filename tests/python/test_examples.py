"""The examples, by the lines of examples/README.md; CTest runs those in C++ and Lisp too, as the
sanitizers need it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lumen_engine import Server

Run = Callable[..., str]
IN_CPP = ("embed", "bus", "bus_c", "logger", "pipeline", "session_tokens")


@pytest.fixture(scope="module")
def lines(project_root: Path) -> dict[str, list[str]]:
    """The words of each example's line; none for those that docs/deploy.md tells of."""
    found: dict[str, list[str]] = {}
    for row in (project_root / "examples" / "README.md").read_text().splitlines():
        names = re.findall(r"\[(\w+)\]\(\1\)", row)
        command = re.search(r"\| `([^`]+)`[^|]*\|$", row)
        for name in names:
            found[name] = shlex.split(command[1]) if command else []
    return found


@pytest.fixture
def run(project_root: Path, lumen_binary: Path, lines: dict[str, list[str]]) -> Run:
    """The example's output; it must exit with 0."""

    def run_example(name: str, *arguments: str) -> str:
        program, *words = lines[name]
        assert program.startswith((".venv/bin/python", ".build/release/"))
        is_python = program == ".venv/bin/python"
        done = subprocess.run(
            [sys.executable if is_python else lumen_binary.parent / Path(program).name,
             *words, *arguments],
            cwd=project_root,
            env={**os.environ, "LUMEN_BINARY": str(lumen_binary)},
            capture_output=True,
            text=True,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_example


def test_each_example_has_a_line_that_runs_it(
    project_root: Path, lines: dict[str, list[str]]
) -> None:
    folders = {path.name for path in (project_root / "examples").iterdir() if path.is_dir()}
    assert set(lines) == folders
    assert {name for name, words in lines.items() if not words} == {
        *("container", "systemd", "nginx", "kserve")
    }
    for words in lines.values():
        scripts = [word for word in words if word.startswith("examples/")]
        assert all((project_root / script).is_file() for script in scripts), words


@pytest.mark.parametrize("name", IN_CPP)
def test_the_examples_in_cpp_run(run: Run, name: str) -> None:
    assert run(name)


def test_an_example_is_read_at_one_sitting(project_root: Path) -> None:
    for file in (project_root / "examples").rglob("*.*"):
        if file.suffix in (".py", ".cc") and file.parent.name != "demo":
            assert len(file.read_text().splitlines()) <= 80, file


def test_the_http_client_gets_the_same_numbers_as_json_and_as_bytes(
    run: Run, server: Callable[..., Server], models_path: Path
) -> None:
    said = run("http_client")
    assert "identity takes input FP32 [-1, -1]\n" in said
    assert "as JSON:  [1, 2.5, -3]\nas bytes: [1.0, 2.5, -3.0]\n" in said
    assert run("http_client", server(models_path).url) == said


def test_late_requests_are_answered_504_and_too_many_429(run: Run) -> None:
    said = run("deadlines")
    assert re.search(r"^within 10 s: 200; within 1 µs: 504 .*expired", said, re.MULTILINE)
    found = re.search(r"(\d+) answered, (\d+) refused, other: \{\}", said)
    assert found and int(found[1]) > 0 and int(found[1]) + int(found[2]) == 800


def test_a_request_like_an_earlier_one_is_answered_without_a_run(run: Run) -> None:
    said = run("response_cache")
    assert re.search(r"^one of the same, hits, misses, runs: +\(1, 1, 1\)$", said, re.MULTILINE)
    assert re.search(r"^8 clients with another at once: +\(8, 2, 3\)$", said, re.MULTILINE)


def test_a_trace_has_the_clients_span_and_the_stages_of_the_server(run: Run) -> None:
    names = [line[:20].rstrip() for line in run("tracing").splitlines()]
    assert names[:2] == ["checkout", "  infer digits"]
    assert {"    parse", "    inference", "    write"} <= set(names)


def test_a_certificate_is_replaced_and_a_client_without_one_refused(run: Run) -> None:
    said = run("tls").splitlines()
    assert said[0].startswith("without a certificate: ")
    assert [line.split()[0] for line in said[1:]] == ["server", "renewed"]


def test_pictures_answers_files_and_pixels_as_the_models_numbers(run: Run) -> None:
    output = run("pictures")
    assert re.search(r"^599 digits: 9\d% right$", output, re.M)
    assert re.search(r"^JPEG files of 80 x 80, \d+ bytes: 9\d%$", output, re.M)
    assert "element 1 has 6 bytes" in output


def test_sequences_of_a_stateful_model_answer_as_a_loop_that_keeps_the_state(run: Run) -> None:
    output = run("sequences")
    assert re.search(r"^  anna \|.*#.*\|$", output, re.M), output
    assert re.search(r"^nobody \|[ .]+\|$", output, re.M), output
    assert "the same as by hand" in output.splitlines()


def test_an_ensemble_answers_as_its_models_do_one_by_one(run: Run) -> None:
    assert re.search(
        r"^599 pictures: 9\d% read right; their ink is \d\.\d\d$", run("ensemble"), re.M
    )


def test_a_receipt_is_read_by_one_request_also_where_it_stands_on_its_head(run: Run) -> None:
    said = run("ocr")
    for turn in (0, 180):
        assert f"turned by {turn}: LUMEN COFFEE | 12 Harbour Street | " in said


def test_the_metrics_tell_the_mean_of_each_stage(run: Run) -> None:
    said = run("metrics")
    rows = dict(re.findall(r"^  (\w+) +([\d.]+)$", said, re.MULTILINE))
    assert {"parse", "queue", "inference", "write", "total"} <= rows.keys()
    assert float(rows["inference"]) < float(rows["total"])


def test_a_pipeline_of_scikit_learn_answers_as_it_does_itself(run: Run) -> None:
    said = run("tabular")
    assert re.search(r"^9\d\.\d% of 45 held-out wines right$", said, re.MULTILINE)
    assert said.endswith("the answers are the pipeline's own\n")


def test_the_live_swap_serves_by_all_ten_combinations_and_fails_nobody(run: Run) -> None:
    said = run("live_swap")
    rows = re.findall(r"^(\w+) +(\w+) +(\d+) requests, +[\d.]+ µs$", said, re.MULTILINE)
    # With `auto` it has begun, for as long as the first change takes.
    counts = {(queue, name): int(count) for queue, name, count in rows if queue != "auto"}
    assert len(counts) == 10 and min(counts.values()) >= 100
    assert said.endswith("\n0 failed or different\n")


def test_a_python_client_of_a_cpp_server_over_the_bus(
    run: Run, lumen_binary: Path, models_path: Path, tmp_path: Path
) -> None:
    said = run("python_client_cpp_server")
    assert said.endswith("2000 answers, all the same by all three ways\n")
    program = lumen_binary.parent / "example_python_client_cpp_server"
    if not program.exists():
        return  # an installed `lumen` has no examples beside it
    bus = tmp_path / "example.bus"
    command = [str(word) for word in (program, models_path, bus)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as serving:
        assert serving.stdout and serving.stdin
        assert serving.stdout.readline() == f"serving at bus:{bus}\n"
        said = run("python_client_cpp_server", f"bus:{bus}")
        serving.stdin.close()
    assert serving.returncode == 0
    assert said.endswith("2000 answers, all the same by all three ways\n")


@pytest.mark.slow
@pytest.mark.parametrize("first", ["consumer", "producer"])
def test_the_frames_of_a_cpp_producer_reach_python_bit_for_bit(
    project_root: Path, tmp_path_factory: pytest.TempPathFactory, first: str
) -> None:
    """Either may start first; the producer is built as its CMake file says, once for both."""
    folder = project_root / "examples" / "cpp_producer_python_consumer"
    build = tmp_path_factory.getbasetemp() / "producer"
    if not (build / "producer").exists():
        release = "-DCMAKE_BUILD_TYPE=Release"
        subprocess.run(["cmake", "-B", build, "-S", folder / "producer", release], check=True)
        subprocess.run(["cmake", "--build", build, "-j2"], check=True)
    path = str(tmp_path_factory.mktemp("bus") / "bus")
    commands = {
        "consumer": [sys.executable, folder / "consumer.py", path, "--check"],
        "producer": [build / "producer", path],
    }
    env = {**os.environ, "PYTHONPATH": str(project_root / "python")}
    running = {}
    try:
        for name in sorted(commands, key=lambda name: name != first):
            running[name] = subprocess.Popen(
                commands[name], stdout=subprocess.PIPE, text=True, env=env
            )
        said = {name: process.communicate(timeout=300)[0] for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
    assert all(process.returncode == 0 for process in running.values()), said
    rate = r"[\d]+ frames/s, [\d.]+ GB/s"
    assert re.search(rf"consumer: 500000 frames in \d+ batches, {rate}, 0 wrong", said["consumer"])
    assert re.search(rf"producer: 500000 frames, {rate}", said["producer"])
