"""`lumen bench URL` as a user runs it: against a server, against none, and with wrong arguments."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integration.harness import PATIENCE, Server, lumen_binary

pytestmark = pytest.mark.tool


def bench(*words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [str(lumen_binary()), "bench", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s * PATIENCE)


def url_of(server: Server) -> str:
    return f"http://{server.host}:{server.port}"


def rows_of(server: Server, *words: str) -> list[dict[str, Any]]:
    done = bench(url_of(server), "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def test_a_row_for_each_number_of_clients_with_every_request_answered(
    shared_server: Server,
) -> None:
    rows = rows_of(shared_server, "--model", "mlp", "--clients", "1,4,16", "--requests", "200")
    assert [row["clients"] for row in rows] == [1, 4, 16]
    for row in rows:
        assert row["requests"] == 200 and row["errors"]["count"] == 0, row
        latency = row["latency_us"]
        assert latency["count"] == 200
        assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]
        assert latency["min"] <= latency["mean"] <= latency["max"]
        assert row["bytes_sent"] > 200 * 1024 and row["per_second"] > 0


def test_the_servers_own_stages_stand_beside_the_clients_figure(shared_server: Server) -> None:
    (row,) = rows_of(shared_server, "--model", "mlp", "--clients", "2", "--requests", "300")
    server = row["server"]
    assert server["requests"] >= 300
    stages = server["stages_us"]
    assert 0 < stages["inference"] <= stages["total"]
    assert server["outside_us"] == pytest.approx(
        row["latency_us"]["mean"] - stages["total"], abs=0.01
    )
    text = bench(url_of(shared_server), "--model", "mlp", "--clients", "2", "--requests", "300")
    assert "in the server" in text.stdout and "outside it" in text.stdout


def test_a_timed_closed_loop_and_an_open_loop_at_a_rate(shared_server: Server) -> None:
    timed = ("--model", "mlp", "--clients", "2", "--duration", "0.4", "--warm-up", "0.1")
    (closed,) = rows_of(shared_server, *timed)
    assert closed["seconds"] == pytest.approx(0.4, rel=0.5)
    assert closed["per_second"] == pytest.approx(closed["requests"] / closed["seconds"], rel=0.01)
    (opened,) = rows_of(shared_server, *timed, "--rate", "500")
    assert opened["open_loop"]["rate"] == 500
    # 200 fall due in the window and 50 before it, of which some may be late.
    assert 190 <= opened["requests"] + opened["open_loop"]["unsent"] <= 250


def test_inputs_that_repeat_are_hits_of_a_response_cache(
    server: Any, small_repository: Path, tmp_path: Path
) -> None:
    shutil.copytree(small_repository / "mlp", tmp_path / "mlp")
    config = {"response_cache": {"enable": True}}
    (tmp_path / "mlp" / "config.json").write_text(json.dumps(config))
    one = server("--model-repository", str(tmp_path))
    words = ("--model", "mlp", "--clients", "1", "--requests", "2000")
    (row,) = rows_of(one, *words, "--repeat-ratio", "0.8")
    assert row["cache"]["hit_share"] == pytest.approx(0.8, abs=0.05)
    # Fresh ones are none of an earlier run's.
    (row,) = rows_of(one, *words, "--repeat-ratio", "0")
    assert row["cache"]["hits"] == 0
    text = bench(url_of(one), *words, "--repeat-ratio", "1").stdout
    assert re.search(r"response cache: \d+ hits, \d+ misses by the server's count: (100|99)", text)


def test_a_connection_a_request_is_timed_apart(shared_server: Server) -> None:
    words = ("--model", "mlp", "--clients", "2", "--requests", "50", "--new-connection")
    (row,) = rows_of(shared_server, *words)
    assert row["requests"] == 50 and row["connect_us"]["count"] == 50
    assert 0 < row["connect_us"]["mean"] < row["latency_us"]["mean"]


def test_csv_has_a_row_for_each_number_of_clients(shared_server: Server) -> None:
    words = ("--model", "mlp", "--clients", "1,2", "--requests", "20", "--csv")
    rows = list(csv.DictReader(io.StringIO(bench(url_of(shared_server), *words).stdout)))
    assert [row["clients"] for row in rows] == ["1", "2"]
    assert all(row["requests"] == "20" and None not in row.values() for row in rows)


def test_an_input_file_arrives_at_the_server(shared_server: Server, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.ones((3, 256), np.float32))
    words = ("--model", "mlp", "--clients", "1", "--requests", "5", "--input", str(file), "--json")
    done = bench(url_of(shared_server), *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["inputs"] == "input FP32[3,256]"


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.ones((1, 256), np.float64), "arr.astype('float32')"),
        (np.ones((1, 255), np.float32), "wants FP32[-1,256]"),
        (np.asfortranarray(np.ones((4, 256), np.float32)), "ascontiguousarray"),
        (np.ones((1, 256), ">f4"), "astype('<f4')"),
        (np.array(["a"]), "type '<U1'"),
    ],
)
def test_an_input_file_that_does_not_fit_is_refused_with_the_way_out(
    shared_server: Server, tmp_path: Path, array: np.ndarray, wanted: str
) -> None:
    file = tmp_path / "x.npy"
    np.save(file, array)
    done = bench(url_of(shared_server), "--model", "mlp", "--input", str(file))
    assert done.returncode == 1 and wanted in done.stderr and str(file) in done.stderr


def test_inputs_of_a_model_with_several_are_named(shared_server: Server, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.ones((1, 16), np.float32))
    common = ("--model", "add_sub", "--clients", "1", "--requests", "3")
    unnamed = bench(url_of(shared_server), *common, "--input", str(file))
    assert unnamed.returncode == 1 and "wanted NAME=FILE" in unnamed.stderr
    unknown = bench(url_of(shared_server), *common, "--input", f"nothing={file}")
    assert unknown.returncode == 1 and "no input 'nothing'" in unknown.stderr


def test_an_unknown_model_is_told_by_the_servers_own_words(shared_server: Server) -> None:
    done = bench(url_of(shared_server), "--model", "mpl")
    assert done.returncode == 1
    assert "404" in done.stderr and "mpl" in done.stderr


def test_no_server_is_told_with_the_url() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else's
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = bench(url, "--model", "mlp")
    assert done.returncode == 1
    assert url in done.stderr and "refused" in done.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("shard-buffer",), "did you mean 'shared-buffer'?"),
        ((), "wanted a URL"),
        (("http://127.0.0.1:1",), "--model"),
        (("http://127.0.0.1:1", "--model", "m", "--clients", "0"), "--clients"),
        (("http://127.0.0.1:1", "--model", "m", "--json", "--csv"), "--csv"),
        (("http://127.0.0.1:1", "--model", "m", "--clients", "m:3"), "there is no --mix"),
        (("http://127.0.0.1:1", "--mix", "m:0,n"), "weight is '0'; wanted a number above 0"),
        (("http://127.0.0.1:1", "--mix", "m,n,m"), "'m' is there twice"),
        (("http://127.0.0.1:1", "--mix", "m,n", "--clients", "o:1"), "no model 'o'; it has m, n"),
        (("http://127.0.0.1:1", "--mix", "m,n", "--csv"), "--csv: is for one model"),
        (("http://127.0.0.1:1", "--mix", "m,n", "--model", "m"), "--model: is for one model"),
    ],
)
def test_wrong_arguments_are_refused_with_status_2(words: tuple[str, ...], wanted: str) -> None:
    done = bench(*words)
    assert done.returncode == 2
    assert wanted in done.stderr


def test_the_benches_of_libraries_go_on_working() -> None:
    words = ("--num-threads", "2", "--num-allocs-per-thread", "1000", "--json")
    done = bench("shared-buffer", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_an_interrupt_prints_the_results_so_far(shared_server: Server) -> None:
    words = ["--model", "mlp", "--clients", "1,2", "--warm-up", "0", "--duration", "600", "--csv"]
    process = subprocess.Popen(
        [str(lumen_binary()), "bench", url_of(shared_server), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    # The head of the CSV is flushed with the first row only, so wait for the server to be at work.
    served = shared_server_requests(shared_server)
    while shared_server_requests(shared_server) < served + 50:
        pass
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30 * PATIENCE)
    assert process.returncode == 0, err
    rows = list(csv.DictReader(io.StringIO(out.decode())))
    assert len(rows) == 1 and int(rows[0]["requests"]) > 0


def shared_server_requests(server: Server) -> int:
    import http.client

    connection = http.client.HTTPConnection(*server.address)
    connection.request("GET", "/v2/models/mlp/stats")
    body = json.loads(connection.getresponse().read())
    connection.close()
    return body["model_stats"][0]["inference_stats"]["success"]["count"]


def test_a_unix_socket_is_a_url_too(server: Any, tmp_path: Path) -> None:
    path = tmp_path / "l.sock"
    server("--unix", str(path))
    done = bench(f"unix:{path}", "--model", "mlp", "--clients", "2", "--requests", "50", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["requests"] == 50


@pytest.mark.parametrize("over_unix", [False, True])
def test_calls_of_grpc_are_measured_as_requests_of_http_are(
    server: Any, tmp_path: Path, over_unix: bool
) -> None:
    path = tmp_path / "l.sock"
    one = server("--unix", str(path))
    url = f"grpc+unix:{path}" if over_unix else f"grpc://{one.url}"
    for words in (
        ("--clients", "4", "--requests", "200"),
        ("--clients", "2", "--requests", "100", "--new-connection"),
        ("--clients", "4", "--requests", "100", "--rate", "1000"),
        ("--clients", "2", "--requests", "100", "--repeat-ratio", "0.5"),
    ):
        # Two inputs, and bytes between them.
        done = bench(url, "--model", "add_sub", "--json", *words)
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)["rows"]
        assert row["errors"]["count"] == 0 and row["latency_us"]["count"] == row["requests"]
        assert row["server"]["requests"] >= row["requests"]
    unknown = bench(url, "--model", "mpl")
    assert unknown.returncode == 1 and "model 'mpl' is not in the repository" in unknown.stderr
    done = bench(url, "--model", "mlp", "--in-flight", "2")
    assert done.returncode == 1 and "over HTTP and gRPC" in done.stderr


def test_a_server_that_speaks_no_grpc_is_told_with_the_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"grpc://127.0.0.1:{listener.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        done = bench(url, "--model", "mlp")
        thread.join()
    assert done.returncode == 1 and url in done.stderr


# --- several models at once -----------------------------------------------------------------------

MIX = ("--duration", "0.4", "--warm-up", "0.1")


def test_clients_choose_their_models_by_weight(shared_server: Server) -> None:
    (row,) = rows_of(shared_server, "--mix", "mlp:0.8,add_sub:0.2", "--clients", "4", *MIX)
    mlp, add_sub = row["models"]["mlp"], row["models"]["add_sub"]
    assert row["clients"] == 4 and row["errors"]["count"] == 0
    assert row["requests"] == mlp["requests"] + add_sub["requests"]
    assert mlp["requests"] == pytest.approx(0.8 * row["requests"], abs=10)
    for one in (mlp, add_sub):
        latency = one["latency_us"]
        assert 0 < latency["p50"] <= latency["p99"] <= latency["p999"] <= latency["max"]
        assert one["refused"] == 0 and one["server"]["requests"] > 0


def test_each_model_may_have_clients_and_a_rate_of_its_own(shared_server: Server) -> None:
    words = ("--mix", "mlp,add_sub,digits", "--clients", "mlp:1,digits:2", "--rate", "add_sub:250")
    (row,) = rows_of(shared_server, *words, *MIX)
    models = row["models"]
    loops = {name: (one["loop"], one["clients"]) for name, one in models.items()}
    assert loops == {"mlp": ("closed", 1), "add_sub": ("open", 16), "digits": ("closed", 2)}
    # 100 fall due in the window and 25 before it, of which some may be late.
    assert 95 <= models["add_sub"]["latency_us"]["count"] <= 125
    assert models["mlp"]["requests"] > 0 and models["digits"]["requests"] > 0


def test_a_mix_is_a_table_with_a_line_a_model(shared_server: Server) -> None:
    done = bench(url_of(shared_server), "--mix", "mlp,add_sub", "--rate", "200", *MIX)
    assert done.returncode == 0, done.stderr
    firsts = [line.split()[0] for line in done.stdout.splitlines() if line[:1].strip()]
    assert firsts[-4:] == ["model", "mlp", "add_sub", "all"], done.stdout


def test_a_mix_with_an_unknown_model_is_told_by_the_servers_own_words(
    shared_server: Server,
) -> None:
    done = bench(url_of(shared_server), "--mix", "mlp,mpl")
    assert done.returncode == 1 and "404" in done.stderr and "mpl" in done.stderr


# --- over the bus ---------------------------------------------------------------------------------


@pytest.fixture
def bus_server(server: Callable[..., Server], tmp_path: Path) -> Server:
    return server("--bus", str(tmp_path / "lumen.bus"), "--bus-area-bytes", "262144")


def test_over_the_bus_several_requests_of_a_client_are_in_flight(bus_server: Server) -> None:
    for in_flight in (1, 16):
        done = bench(
            f"bus:{bus_server.bus_path}",
            *("--json", "--model", "mlp", "--clients", "1,3", "--requests", "500"),
            *("--in-flight", str(in_flight)),
        )
        assert done.returncode == 0, done.stderr
        for row in json.loads(done.stdout)["rows"]:
            assert row["requests"] == 500 and row["errors"]["count"] == 0, row
            assert row["bytes_sent"] == 500 * 1024 and row["bytes_received"] == 500 * 40
            assert 0 < row["latency_us"]["p50"] <= row["latency_us"]["max"]
            assert row["server"]["requests"] >= 500


def test_a_measurement_over_the_bus_begins_when_all_clients_are_connected(
    bus_server: Server,
) -> None:
    """It began before, and was over when memory for the last of 16 clients had been made."""
    done = bench(
        f"bus:{bus_server.bus_path}",
        *("--json", "--model", "mlp", "--clients", "16", "--duration", "0.05", "--warm-up", "0"),
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["requests"] > 0 and 0.05 <= row["seconds"] < 1, row


def test_requests_that_the_bus_does_not_serve_are_refused_with_the_reason(
    bus_server: Server,
) -> None:
    url = f"bus:{bus_server.bus_path}"
    assert "closed loop" in bench(url, "--model", "mlp", "--rate", "10").stderr
    assert "is not in the repository" in bench(url, "--model", "none").stderr
    assert "--bus-area-bytes" in bench(url, "--model", "mlp", "--in-flight", "4000").stdout
    assert "no/bus" in bench("bus:/no/bus", "--model", "mlp").stderr
    assert "no --mix over the bus" in bench(url, "--mix", "mlp,add_sub").stderr
    assert "--in-flight 2" in bench(url_of(bus_server), "--model", "mlp", "--in-flight", "2").stderr
