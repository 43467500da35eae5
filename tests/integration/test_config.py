"""config.json, flags, banner and log of the process, and SIGHUP, which reads the file again."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from integration.harness import PATIENCE, ROOT, SANITIZED, ServeProcess, UnixConnection, run_serve
from integration.raw_http import Connection, get, post_json

# It must load as it is.
CONFIG_OF_USERS = ROOT / "tests" / "fixtures" / "config_of_users.json"


@pytest.fixture
def base(small_repository: Path) -> list[str]:
    return ["--http", "127.0.0.1:0", "--unix", "off", "--model-repository", str(small_repository)]


def write_config(folder: Path, **sections: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(sections, indent=1))
    return file


def answers(connection: Connection) -> bool:
    given = {"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2.5]}
    reply = connection.exchange(post_json("/v2/models/identity/infer", {"inputs": [given]}))
    return reply.status == 200 and reply.json()["outputs"][0]["data"] == [1.5, 2.5]


def banner_line(serve: ServeProcess, begin: str) -> str:
    return next(line for line in serve.banner if line.startswith(begin))


# --- start ----------------------------------------------------------------------------------------


def test_the_form_that_users_have_loads_as_it_is(base: list[str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(CONFIG_OF_USERS, work / "config.json")
    with ServeProcess("--config", "config.json", *base, cwd=work) as serve:
        csv = tmp_path / "results" / "micro" / "squeezenet_mpmc_lumen_arena.csv"
        assert len(serve.banner) <= 12
        assert banner_line(serve, "engine ").startswith("engine mpmc x lumen_arena, no packing")
        assert "8 workers" in banner_line(serve, "cpus ")
        assert banner_line(serve, "csv ") == f"csv {csv}"
        with serve.connect() as connection:
            assert answers(connection)
    assert any("csv lines: 1 written, 0 dropped" in line for line in serve.log)
    header, line = csv.read_text().splitlines()  # in folders that the server made
    assert header.startswith("request_id,timestamp,model,queue_type,allocator_type,worker,")
    assert ",identity,mpmc,lumen_arena," in line


def test_more_workers_than_cpus_are_obeyed_with_a_warning(base: list[str]) -> None:
    # Each takes 60 ms to start, and a second under a sanitizer.
    workers = len(os.sched_getaffinity(0)) + (1 if SANITIZED else 32)
    with ServeProcess(*base, "--thread-count", str(workers)) as serve:
        assert f"{workers} workers" in banner_line(serve, "cpus ")
        serve.wait_for_log("warning", f"{workers} workers on", "wanted")
        with serve.connect() as connection:
            assert answers(connection)


def test_as_many_workers_as_cpus_bring_no_warning(base: list[str]) -> None:
    with ServeProcess(*base, "--thread-count", "0") as serve:
        words = re.search(r": (\d+) worker", banner_line(serve, "cpus "))
        assert words and int(words[1]) >= 1
    assert not any("workers on" in line for line in serve.log)


def test_flags_beat_the_file(base: list[str], tmp_path: Path) -> None:
    file = write_config(tmp_path, engine={"queue_type": "naive", "allocator_type": "standard"})
    with ServeProcess("--config", str(file), *base) as serve:
        assert "naive x standard" in banner_line(serve, "engine ")
    with ServeProcess("--config", str(file), "--queue-type", "mpmc", *base) as serve:
        assert "mpmc x standard" in banner_line(serve, "engine ")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{\n"engine": {\n"thread_cout": 1}}', ":3: 'thread_cout' is no key of 'engine'; the ne"),
        (
            '{"engine": {\n"queue_type": "mpcm"}}',
            ":2: 'queue_type': got 'mpcm', wanted one of mpmc",
        ),
        ('{"engine": {"batch_size": 0}}', ":1: 'batch_size': got 0, wanted 1 to 128"),
        ('{"engine": {"batch_size": 1,\n"batch_size": 2}}', ":2: 'batch_size' is there twice"),
        ('{"engine": {"io_threads": 1}}', ":1: 'io_threads' is no key of 'engine' but of 'server'"),
        ('{"server": {"http": "off", "unix": "off"}}', "nothing would listen"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    tmp_path: Path, small_repository: Path, text: str, wanted: str
) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(text)
    done = run_serve("--config", str(file), "--model-repository", str(small_repository))
    assert done.returncode == 1
    assert wanted in done.stderr
    assert not done.stdout


def test_a_wrong_flag_is_refused_by_its_name(base: list[str]) -> None:
    done = run_serve(*base, "--overload-status", "404")
    assert done.returncode == 1
    assert "--overload-status: got '404', wanted one of 429, 503" in done.stderr


def test_a_mistyped_flag_is_answered_with_the_nearest() -> None:
    done = run_serve("--thread-cout", "3")
    assert done.returncode == 2
    assert "--thread-cout: the nearest flag is --thread-count" in done.stderr


def test_help_lists_the_settings_with_their_defaults() -> None:
    text = run_serve("--help").stdout
    for flag in ("--queue-type", "--allocator-type", "--telemetry-csv-path", "--unix"):
        assert flag in text
    assert "[127.0.0.1:8000]" in text
    assert "(mpmc, spsc, naive, batched, inline, auto) [auto]" in text and "(1 to 128) [16]" in text


@pytest.mark.parametrize("address", ["192.0.2.1:0", "[2001:db8::1]:0"])
def test_an_address_beyond_loopback_warns_that_there_is_no_authentication(
    small_repository: Path, address: str
) -> None:
    # Addresses for documents (RFC 5737, 3849), which this machine doesn't have: nothing listens.
    done = run_serve(
        "--http", address, "--unix", "off", "--model-repository", str(small_repository)
    )
    assert done.returncode == 1
    warning = next(line for line in done.stderr.splitlines() if "warning" in line)
    assert address in warning and "no authentication" in warning and "wanted" in warning


@pytest.mark.parametrize(
    ("settings", "lacks"),
    [
        (["--api-key-file", "keys"], "no TLS"),
        (["--tls-cert", "cert"], "no authentication"),
        (["--api-key-file", "keys", "--tls-cert", "cert"], ""),
        (["--tls-cert", "cert", "--tls-client-ca", "ca"], ""),
    ],
)
def test_the_warning_names_what_is_missing(settings: list[str], lacks: str) -> None:
    # It comes before the files are read, which are not there.
    done = run_serve("--http", "192.0.2.1:0", "--unix", "off", *settings)
    assert done.returncode == 1
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert [lacks in line for line in warnings] == ([True] if lacks else []), done.stderr


def test_loopback_and_the_unix_socket_bring_no_such_warning(
    base: list[str], small_repository: Path, tmp_path: Path
) -> None:
    unix = ["--http", "off", "--unix", str(tmp_path / "s.sock")]
    for arguments in (base, [*unix, "--model-repository", str(small_repository)]):
        with ServeProcess(*arguments) as serve:
            pass
        assert not any("authentication" in line for line in serve.log)


def test_a_queue_that_cannot_fill_is_told_at_start(base: list[str]) -> None:
    with ServeProcess(*base, "--max-active-requests", "1024") as serve:
        serve.wait_for_log("warning", "max_active_requests 1024", "before it is answered 429")
    if PATIENCE == 1:  # the sanitizers' runs have fewer, see ServeProcess
        with ServeProcess(*base) as serve:
            pass
        assert not any("max_active_requests" in line for line in serve.log)


def test_a_live_change_to_a_queue_that_cannot_fill_is_told(base: list[str], tmp_path: Path) -> None:
    file = write_config(tmp_path, engine={})
    with ServeProcess("--config", str(file), *base) as serve:
        write_config(tmp_path, engine={"queue_capacity": 4096})
        serve.reload()
        serve.wait_for_log("warning", "max_active_requests", "before it is answered 429")


# --- log ------------------------------------------------------------------------------------------


def test_a_json_log_is_one_object_a_line_with_any_quoted_text(base: list[str]) -> None:
    done = run_serve(*base, "--log-format", "json", "--queue-type", 'a"b\\c\nd\x01')
    lines = done.stderr.splitlines()
    assert lines
    for line in lines:
        entry = json.loads(line)
        assert list(entry) == ["time", "level", "message"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["time"])
    assert json.loads(lines[-1])["level"] == "error"
    assert "got 'a\"b\\c\nd\x01'" in json.loads(lines[-1])["message"]


def test_the_log_level_is_obeyed(base: list[str]) -> None:
    with ServeProcess(*base, "--log-level", "error") as serve:
        pass
    assert serve.log == []


# --- SIGHUP ---------------------------------------------------------------------------------------


def test_sighup_takes_live_keys_and_names_keys_that_need_a_restart(
    base: list[str], tmp_path: Path
) -> None:
    file = write_config(tmp_path, engine={"queue_type": "mpmc"})
    with ServeProcess("--config", str(file), *base) as serve, serve.connect() as connection:
        assert answers(connection)
        write_config(
            tmp_path, engine={"queue_type": "naive"}, server={"io_threads": 2, "log_level": "warn"}
        )
        serve.reload()
        serve.wait_for_log("warning", "server.io_threads 1 -> 2 needs a restart and is left")
        assert answers(connection)
        write_config(tmp_path, engine={"queue_type": "batched", "batch_size": 4})
        serve.reload()
        line = serve.wait_for_log("SIGHUP", "engine.queue_type naive -> batched")
        assert "engine.batch_size 16 -> 4" in line and "server.log_level warn -> info" in line
        assert answers(connection)


def test_the_log_names_the_sender_of_the_sighup(base: list[str], tmp_path: Path) -> None:
    file = write_config(tmp_path, engine={})
    who = f"(by pid {os.getpid()}, uid {os.getuid()})"
    with ServeProcess("--config", str(file), *base) as serve:
        write_config(tmp_path, engine={"batch_size": 2}, server={"io_threads": 2})
        serve.reload()
        assert serve.wait_for_log("needs a restart").endswith(who)
        assert serve.wait_for_log("SIGHUP: engine.batch_size 16 -> 2").endswith(who)
        file.write_text("{")
        serve.reload()
        assert serve.wait_for_log("error", "SIGHUP").endswith(who)


def test_the_log_names_the_client_that_asked_for_a_change_over_the_unix_socket(
    small_repository: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.sock"
    arguments = ["--http", "off", "--unix", str(path), "--model-repository", str(small_repository)]
    who = f"POST /v2/lumen/engine by pid {os.getpid()}, uid {os.getuid()}: "
    with ServeProcess(*arguments) as serve:
        connection = UnixConnection(path)
        assert connection.exchange(post_json("/v2/lumen/engine", {"batch_size": 3})).status == 200
        assert '"batch_size":3' in serve.wait_for_log("info", who)
        # A client that only asks has changed nothing, and one that is refused neither.
        assert connection.exchange(get("/v2/lumen/engine")).status == 200
        assert connection.exchange(post_json("/v2/lumen/engine", {"batch_size": 0})).status == 400
        connection.socket.close()
    assert sum(who in line for line in serve.log) == 1


def test_sighup_leaves_the_flags_above_the_file(base: list[str], tmp_path: Path) -> None:
    file = write_config(tmp_path, engine={})
    arguments = ["--config", str(file), *base, "--allocator-type", "standard"]
    with ServeProcess(*arguments) as serve:
        write_config(tmp_path, engine={"allocator_type": "lumen_arena", "batch_size": 2})
        serve.reload()
        assert "allocator_type" not in serve.wait_for_log("SIGHUP", "batch_size 16 -> 2")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_sighup_over_an_unchanged_file_changes_nothing(base: list[str], workers: str) -> None:
    with ServeProcess(*base, "--thread-count", workers) as serve:
        serve.reload()
        serve.wait_for_log("SIGHUP: nothing changed")


def test_sighup_under_load_loses_no_request(base: list[str], tmp_path: Path) -> None:
    file = write_config(tmp_path, engine={})
    with ServeProcess("--config", str(file), *base) as serve:
        stop = threading.Event()

        def ask() -> int:
            asked = 0
            with serve.connect() as connection:
                while not stop.is_set():
                    assert answers(connection)
                    asked += 1
            return asked

        with ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(ask) for _ in range(4)]
            try:
                for queue_type in ("naive", "spsc", "inline", "batched", "mpmc"):
                    for allocator_type in ("standard", "lumen_arena"):
                        engine = {"queue_type": queue_type, "allocator_type": allocator_type}
                        write_config(tmp_path, engine=engine)
                        serve.reload()
                        serve.wait_for_log("SIGHUP: engine.", f"-> {allocator_type}")
            finally:
                stop.set()
            assert all(client.result() > 0 for client in clients)


@pytest.mark.parametrize("text", ['{"engine": ', '{"engine": {"queue_type": "lifo"}}', None])
def test_sighup_over_a_broken_file_changes_nothing_and_says_why(
    base: list[str], tmp_path: Path, text: str | None
) -> None:
    file = write_config(tmp_path, engine={"queue_type": "naive"})
    with ServeProcess("--config", str(file), *base) as serve, serve.connect() as connection:
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        serve.reload()
        serve.wait_for_log("error", "SIGHUP", "config.json", "the configuration stays as it was")
        assert answers(connection)
        write_config(tmp_path, engine={"queue_type": "spsc"})
        serve.reload()
        serve.wait_for_log("engine.queue_type naive -> spsc")
        assert answers(connection)
