"""callgrind and perf record on a real server, as `lumen perf` runs them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.harness import MODELS, lumen_binary
from lumen_engine.perf import callgrind, command, flame
from lumen_engine.perf.load import run_load
from lumen_engine.perf.measured_server import one_model, serving
from lumen_engine.perf.one_request import Request
from lumen_engine.perf.options import parse_options
from lumen_engine.perf.perf_program import attached, probe
from lumen_engine.perf.programs import Interrupts, PerfError

pytestmark = pytest.mark.tool

needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind")
needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="no perf")
# The first product of the MLP is 256 x 512: that many multiplications, 8 or 16 at once, and more.
LEAST_INSTRUCTIONS = 256 * 512 / 16


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("LUMEN_BINARY", str(lumen_binary()))
    with one_model(MODELS, "mlp") as folder:
        yield folder


@needs_valgrind
@pytest.mark.slow
def test_callgrind_counts_the_measured_requests_alone(repository: Path, tmp_path: Path) -> None:
    """The start, which compiles the model, takes a thousand times as many instructions."""
    # Valgrind can't start the process in which a model is loaded for the first time.
    with serving(repository, ["--backend", "openvino"], Interrupts()):
        pass
    found = callgrind.count_requests(
        lumen_binary(), repository, "mlp", "openvino", Interrupts(), tmp_path
    )
    assert LEAST_INSTRUCTIONS < found.instructions < 20e6, found
    assert 0 < found.ll_misses <= found.d1_misses < found.data_accesses, found


@needs_perf
def test_a_recording_names_the_servers_functions(repository: Path, tmp_path: Path) -> None:
    interrupts = Interrupts()
    data = tmp_path / "perf.data"
    with serving(
        repository, ["--backend", "openvino", "--queue-type", "mpmc"], interrupts
    ) as server:
        with flame.recorded(server.pid, False, data, interrupts):
            run_load(server, "mlp", 4, 20_000, interrupts)
        stacks = flame.script(data)
    assert "lumen-w0" in stacks and "lumen-io0" in stacks
    assert "lumen::engine::" in stacks and "lumen::http::" in stacks


@needs_perf
def test_perf_counts_next_to_nothing_of_an_idle_server(repository: Path) -> None:
    """So that a phase's counts are its requests', and not those of the attached tool."""
    interrupts = Interrupts()
    support = probe(interrupts)
    with serving(repository, [], interrupts) as server:
        with attached(server.pid, support, interrupts) as idle:
            pass
        with attached(server.pid, support, interrupts) as busy:
            run_load(server, "mlp", 2, 4_000, interrupts)
    # perf says "not counted" where no thread ran at all.
    idle_ms, busy_ms = (one.counts["task-clock"].value or 0.0 for one in (idle, busy))
    assert idle_ms < 0.1 * busy_ms, (idle_ms, busy_ms)


def test_a_request_by_hand_is_answered_and_a_missing_model_is_told(repository: Path) -> None:
    with serving(repository, ["--backend", "openvino"], Interrupts()) as server:
        request = Request(server.host, server.port, "mlp")
        request.send()
        request.send()
        with pytest.raises(PerfError, match="got 404"):
            Request(server.host, server.port, "none")


@needs_perf
def test_a_flame_graph_is_drawn_and_no_map_of_names_is_left(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inferno takes minutes to build: its two programs are stood in for."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "inferno-collapse-perf").write_text("#!/bin/sh\ngrep -m1 -o 'lumen-[a-z0-9]*'\n")
    (programs / "inferno-flamegraph").write_text(
        "#!/bin/sh\necho '<svg>'; cat; echo \"$2</svg>\"\n"
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setattr(flame, "inferno", lambda interrupts: programs)
    before = set(Path("/tmp").glob("perf-*.map"))
    words = ["--model", "mlp", "--clients", "4x2000", "--no-callgrind"]
    svg = tmp_path / "out.svg"
    options = parse_options([*words, "--flame", str(svg), "--model-repository", str(MODELS)])
    result = command.run_all(options, Interrupts())
    assert result.flame == str(svg) and svg.read_text().startswith("<svg>\nlumen-")
    assert "mlp, 4 clients × 2000" in svg.read_text()
    assert set(Path("/tmp").glob("perf-*.map")) <= before


def test_json_goes_to_stdout_alone(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "mlp", "--clients", "1x20", "--no-callgrind", "--json"]
    assert command.run([*words, "--model-repository", str(MODELS)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["model"] == "mlp" and "1 client × 20" in printed.err


def test_a_perf_that_may_not_attach_costs_the_counts_and_not_the_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perf = tmp_path / "perf"
    perf.write_text(
        "#!/bin/sh\n"
        "test $1 = --version && { echo perf version 9; exit; }\n"
        'case "$*" in *" -p "*) echo "Operation not permitted" >&2; exit 255;; esac\n'
        "echo 1.5,msec,task-clock,1,100.00,, >&2\n"
    )
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = ["--model", "mlp", "--clients", "1x20,2x10", "--no-callgrind"]
    options = parse_options([*words, "--model-repository", str(MODELS)])
    result = command.run_all(options, Interrupts())
    assert [phase.load.requests for phase in result.phases] == [20, 20]
    assert all(phase.counts == {} for phase in result.phases)
    assert sum("Operation not permitted" in note for note in result.notes) == 2


@needs_perf
def test_a_flame_graph_that_fails_costs_no_figure_and_is_told_by_the_exit_status(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_cargo(interrupts: Interrupts) -> Path:
        raise PerfError("a flame graph needs inferno, and that cargo")

    monkeypatch.setattr(flame, "inferno", no_cargo)
    words = ["--model", "mlp", "--clients", "1x20", "--no-callgrind", "--json"]
    words += ["--flame", str(tmp_path / "out.svg"), "--model-repository", str(MODELS)]
    assert command.run(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["phases"][0]["load"]["requests"] == 20 and found["flame"] == ""
    assert any("needs inferno" in note for note in found["notes"])
