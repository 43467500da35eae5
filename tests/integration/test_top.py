"""`lumen top`, `slow` and `trace` over real servers, in a terminal of 80 x 24 and as text."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from integration import prometheus
from integration.harness import MODELS, PATIENCE, Server, eventually
from integration.raw_http import Connection, get, post_json
from integration.terminal import Terminal
from lumen_engine.counters_file import CountersFile, ModelCounts

pytestmark = pytest.mark.tool

KEYS = "q quit  space pause  s sort  r reverse  / filter  o servers  ? help"  # the last line

StartServer = Callable[..., Server]


@pytest.fixture
def stats(tmp_path: Path) -> Path:
    return tmp_path / "lumen-1.counters"


@contextmanager
def load(binary: Path, server: Server, model: str = "mlp", rate: int = 200) -> Iterator[None]:
    """Requests at a rate that leaves time for others, until the block is left."""
    words = [binary, "bench", f"http://{server.url}", "--model", model, "--clients", "1"]
    words += ["--rate", str(rate), "--duration", "600"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
        try:
            yield
        finally:
            bench.kill()


def run(binary: Path, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary), *(str(word) for word in words)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60 * PATIENCE,
    )


def once(binary: Path, stats: Path, *words: str) -> dict[str, Any]:
    done = run(binary, "top", stats, "--once", "--json", *words)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def infer(values: list[float], **members: object) -> bytes:
    given = {"name": "input", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    return post_json("/v2/models/identity/infer", {"inputs": [given], **members})


def counts_of(counters: CountersFile, name: str) -> ModelCounts:
    (model,) = (model for model in counters.snapshot().models if model.name == name)
    return model


def rate_of(screen: str, model: str) -> float:
    found = re.search(rf"^{model}:1 +([\d,.]+) ", screen, re.MULTILINE)
    return float(found[1].replace(",", "")) if found else -1.0


def test_a_server_under_load_is_watched_in_a_terminal(
    server: StartServer, lumen_binary: Path, stats: Path, tmp_path: Path
) -> None:
    one = server("--stats", str(stats))
    with (
        load(lumen_binary, one),
        Terminal(tmp_path, [lumen_binary, "top", stats, "--hz", "5"]) as terminal,
    ):
        screen = terminal.wait_for(
            lambda text: 20 < rate_of(text, "mlp") < 2000 and "q quit" in text.splitlines()[-1]
        )
        lines = screen.splitlines()
        assert len(lines) == 24 and all(len(line) <= 80 for line in lines)
        assert re.match(rf" lumen {one.pid}  \S+  up \d:\d\d:\d\d .* 5 Hz$", lines[0])
        assert re.search(r"^cpu \d+ % +rss [\d.]+ MiB +throttled .* connections 1 ", screen, re.M)
        assert re.search(r"^mlp:1 .*[▁-█].* [µm]s ", screen, re.M)
        assert "time goes to" in screen and re.search(r"^I/O 0 +\d+ +\d+ +\d+ ", screen, re.M)
        assert screen.splitlines()[-1].startswith("q quit")

        terminal.press("/", "i", "d", "e", "n", "Enter")
        terminal.wait_for(lambda text: "filter: iden" in text and "mlp:1" not in text)
        terminal.press("Escape")
        terminal.wait_for(lambda text: "mlp:1" in text)
        terminal.press("?")
        terminal.wait_for("any key closes this")
        terminal.press("Enter")
        terminal.wait_for(lambda text: "any key" not in text)
        terminal.press("Space")
        terminal.wait_for("PAUSED")
        terminal.press("S")
        paused = terminal.wait_for("model▼")  # not before: the head is painted first
        terminal.press("r")
        assert rate_of(paused, "mlp") == rate_of(terminal.wait_for("model▲"), "mlp")

        for columns, height in ((120, 40), (60, 12), (80, 24)):
            terminal.resize(columns, height)
            screen = terminal.wait_for(
                lambda text, height=height: (
                    len(text.splitlines()) == height
                    and text.splitlines()[-1].startswith("q quit")
                    and text.startswith(" lumen ")
                )
            )
            assert all(len(line) <= columns for line in screen.splitlines())
        terminal.press("q")
        assert terminal.exit_status() == 0
        assert "lumen_engine" not in terminal.screen() and "Traceback" not in terminal.screen()


def test_a_size_in_the_environment_does_not_hold_the_screen_at_that_size(
    server: StartServer, lumen_binary: Path, stats: Path, tmp_path: Path
) -> None:
    server("--stats", str(stats))
    env = {"COLUMNS": "80", "LINES": "24"}
    with Terminal(tmp_path, [lumen_binary, "top", stats, "--hz", "5"], env=env) as terminal:
        terminal.wait_for("mlp:1")
        terminal.resize(120, 40)
        terminal.wait_for(
            lambda text: text.startswith(" lumen ") and text.splitlines()[39:40] == [KEYS]
        )


def styles(text: str) -> set[str]:
    """Parameters of the escape sequences that choose colours."""
    found = {word for each in re.findall(r"\x1b\[([\d;]*)m", text) for word in [each]}
    return {each for each in found if re.search(r"(^|;)(3[0-8]|4[0-8]|9\d|10\d)(;|$)", each)}


@pytest.mark.parametrize("no_colour", ["", "1"])
def test_colours_are_used_unless_the_user_wants_none(
    server: StartServer, lumen_binary: Path, stats: Path, tmp_path: Path, no_colour: str
) -> None:
    one = server("--stats", str(stats))
    env = {"NO_COLOR": no_colour} if no_colour else {}
    words = [lumen_binary, "top", stats, "--hz", "5"]
    with load(lumen_binary, one), Terminal(tmp_path, words, env=env) as terminal:
        bar = "IIII" if no_colour else "████"
        terminal.wait_for(lambda text: "time goes to" in text and bar in text)
        used = styles(terminal.screen(with_styles=True))
        if no_colour:
            # Colours that Textual's filter leaves: the terminal's own, or shades of grey.
            assert all(is_grey(each) for each in used), used
        else:
            assert not all(is_grey(each) for each in used)


def is_grey(style: str) -> bool:
    found = re.findall(r"[34]8;2;(\d+);(\d+);(\d+)", style)
    if found:
        return all(len(set(each)) == 1 for each in found)
    indexed = re.findall(r"[34]8;5;(\d+)", style)
    if indexed:
        return all(
            int(each) >= 232 or each in ("0", "7", "8", "15", "16", "231") for each in indexed
        )
    plain = [word for word in style.split(";") if re.fullmatch(r"(3|4|9|10)[0-7]", word)]
    return all(word[-1] in "07" for word in plain)


def test_a_stopped_and_a_killed_server_are_told_and_a_successor_is_shown(
    lumen_binary: Path, small_repository: Path, tmp_path: Path
) -> None:
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    one = Server(small_repository, env=env)
    words = [lumen_binary, "top", "--hz", "5"]
    # Other servers of this user, in /dev/shm, are not this test's: the first is named.
    words.insert(2, tmp_path / f"lumen-{one.pid}.counters")
    try:
        with Terminal(tmp_path, words, env=env) as terminal:
            terminal.wait_for(f" lumen {one.pid} ")
            one.signal(signal.SIGSTOP)
            terminal.wait_for("the server is stopped (SIGSTOP")
            one.signal(signal.SIGCONT)
            terminal.wait_for(lambda text: "is stopped" not in text and "mlp:1" in text)
            one.kill()
            # A screen may be seen while it is being drawn.
            told = ("DEAD", "mlp:1", "the server has ended; these are its last counts")
            terminal.wait_for(lambda text: all(each in text for each in told))
            path = tmp_path / f"lumen-{one.pid}.counters"
            two = Server(small_repository, "--stats", str(path), env=env)
            terminal.wait_for(f"lumen {one.pid} has ended; this is lumen {two.pid}")
            two.stop()
            terminal.wait_for("the server has ended")
            terminal.press("q")
            assert terminal.exit_status() == 0
    finally:
        one.kill()


def in_pty(words: list[object], env: dict[str, str], until: bytes) -> tuple[bytes, int]:
    """The output of a program to a terminal; interrupted once it has written `until`."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [str(word) for word in words],
        env=os.environ | env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    written = b""
    try:
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # EIO: nobody has the other side open any more
                break
            written += piece
            if until in written and process.poll() is None:
                process.send_signal(signal.SIGINT)
                until = b"\0never"
        return written, process.wait(20 * PATIENCE)
    finally:
        process.kill()
        os.close(master)


def test_a_dumb_terminal_gets_plain_text_again_and_again(
    server: StartServer, lumen_binary: Path, stats: Path
) -> None:
    server("--stats", str(stats))
    words = [lumen_binary, "top", stats, "--hz", "10"]
    written, status = in_pty(words, {"TERM": "dumb"}, until=b"worker 0")
    assert b"\x1b" not in written and b"Traceback" not in written
    assert written.startswith(b"lumen ") and b"\r\nmodel " in written and status == 130


def test_without_textual_it_names_the_package_to_install(
    server: StartServer, lumen_binary: Path, stats: Path, tmp_path: Path
) -> None:
    server("--stats", str(stats))
    (tmp_path / "textual").mkdir()
    error = "raise ModuleNotFoundError('no textual', name='textual')"
    (tmp_path / "textual" / "__init__.py").write_text(error)
    env = {"TERM": "xterm", "PYTHONPATH": str(tmp_path)}
    written, status = in_pty([lumen_binary, "top", stats], env, until=b"\0never")
    assert b"lumen top: needs textual" in written and b"'lumen-engine[tools]'" in written
    assert status == 1 and b"Traceback" not in written
    plain = run(lumen_binary, "top", stats, "--once", "--interval", "0.1", **env)
    assert plain.returncode == 0, "plain text does not need it"


def test_without_a_server_it_says_where_it_looked(lumen_binary: Path, tmp_path: Path) -> None:
    done = run(lumen_binary, "top", tmp_path / "none.counters", "--once")
    assert done.returncode == 1 and done.stdout == ""
    wanted = f"lumen top: {tmp_path}/none.counters: can't be opened: No such file or directory"
    assert done.stderr.startswith(wanted)
    done = run(lumen_binary, "top", "--once", "--hz", "20")
    assert done.returncode == 2 and "--hz: got 20, wanted 1 to 10" in done.stderr


def test_once_agrees_with_the_servers_metrics(
    server: StartServer, lumen_binary: Path, stats: Path
) -> None:
    one = server("--stats", str(stats))
    with Connection(one.address) as connection:
        for i in range(300):
            assert connection.exchange(infer([float(i)])).status == 200
        assert connection.exchange(infer([], id="bad")).status == 400
        # Another request of the same connection: the last one is counted by then.
        assert connection.exchange(get("/v2/health/live")).status == 200
    with CountersFile(stats) as counters:
        model = counts_of(counters, "identity")
    with Connection(one.address) as connection:
        metrics = prometheus.parse(connection.exchange(get("/metrics")).body.decode())
    labels = {"model": "identity", "version": "1"}
    for counter, name in (
        ("success", "lumen_inference_success_total"),
        ("failure", "lumen_inference_failure_total"),
        ("inference", "lumen_inference_total"),
    ):
        assert model.counters[counter] == prometheus.value(metrics, name, **labels)
    assert model.counters["failure"] == 1
    reasons = {k: v for k, v in model.counters.items() if k.startswith("failed_") and v}
    assert reasons == {"failed_invalid": 1}
    for stage, histogram in model.stages.items():
        name = "lumen_stage_duration_seconds"
        wanted = prometheus.value(metrics, f"{name}_count", stage=stage, **labels)
        assert histogram.count == wanted, stage
        spent = prometheus.value(metrics, f"{name}_sum", stage=stage, **labels)
        assert histogram.sum / 1e9 == pytest.approx(spent), stage
    told = once(lumen_binary, stats, "--interval", "0.1")
    (shown,) = (m for m in told["models"] if m["name"] == "identity")
    assert (shown["requests"], shown["failures_by_reason"]["invalid"]) == (301, 1)
    assert told["pid"] == one.pid and told["is_alive"] is True


def test_once_under_load_has_rates_latencies_and_threads(
    server: StartServer, lumen_binary: Path, stats: Path
) -> None:
    one = server("--stats", str(stats))
    with load(lumen_binary, one, rate=300):
        with CountersFile(stats) as counters:
            eventually(lambda: counters.snapshot().server["requests"] >= 50)
        told = once(lumen_binary, stats)
    (mlp,) = (m for m in told["models"] if m["name"] == "mlp")
    assert 30 < mlp["requests_per_s"] < 600
    assert 0 < mlp["p50_ns"] <= mlp["p99_ns"] <= mlp["p999_ns"]
    assert mlp["rows_per_inference"] == 1 and mlp["stage_ns"]["inference"] > 0
    assert told["server"]["connections_open"] == 1 and told["server"]["rss_bytes"] > 1 << 20
    roles = {thread["role"] for thread in told["threads"]}
    assert roles == {"io", "worker"}
    for thread in told["threads"]:
        assert thread["busy"] + thread["spin"] + thread["park"] == pytest.approx(1)


def test_the_file_of_a_killed_server_is_read(
    lumen_binary: Path, small_repository: Path, stats: Path
) -> None:
    one = Server(small_repository, "--stats", str(stats))
    with Connection(one.address) as connection:
        assert connection.exchange(infer([1.0])).status == 200
        one.signal(signal.SIGSTOP)
        told = once(lumen_binary, stats, "--interval", "0.1")
        assert told["is_alive"] and "stopped" in told["warnings"][0], "it can't answer /metrics now"
    one.kill()
    told = once(lumen_binary, stats, "--interval", "0.1")
    assert not told["is_alive"] and "has ended" in told["warnings"][0]
    assert [m["requests"] for m in told["models"] if m["name"] == "identity"] == [1]
    done = run(lumen_binary, "top", stats, "--once", "--interval", "0.1")
    assert " dead " in done.stdout.splitlines()[0]


def test_a_server_in_order_takes_its_file_away(server: StartServer, stats: Path) -> None:
    one = server("--stats", str(stats))
    assert stats.stat().st_mode & 0o777 == 0o640
    one.stop()
    assert not stats.exists()


def test_every_model_of_the_tree_is_shown(
    server: StartServer, lumen_binary: Path, stats: Path
) -> None:
    server("--stats", str(stats), repository=MODELS)
    told = once(lumen_binary, stats, "--interval", "0.05")
    assert {m["name"] for m in told["models"]} >= {"identity", "mlp", "digits", "squeezenet"}


def test_the_keys_of_the_json_are_those_of_its_page(
    server: StartServer, lumen_binary: Path, stats: Path, project_root: Path
) -> None:
    server("--stats", str(stats))
    told = once(lumen_binary, stats, "--interval", "0.05")
    page = (project_root / "docs" / "formats" / "top-json.md").read_text()
    parts = re.split(r"^## `(\w+)`.*$", page, flags=re.MULTILINE)
    tables = dict(zip(["", *parts[1::2]], parts[::2]))
    given = {"": told, "server": told["server"], "models": told["models"][0]}
    given["threads"] = told["threads"][0]
    for name, values in given.items():
        cells = re.findall(r"^\| (`.*?) \|", tables[name], re.MULTILINE)
        assert {key for cell in cells for key in re.findall(r"`(\w+)`", cell)} == set(values)
