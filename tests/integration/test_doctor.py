"""`lumen doctor` on the machine that runs the tests: all it finds is said in the agreed form."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

from integration.harness import Server, UnixConnection
from integration.raw_http import get

NAMES = [
    *("kernel", "virtualisation", "clock source", "CPUs", "CPU quota", "CPU throttling", "SMT"),
    *("governor", "NUMA nodes", "core distance", "wake-up", "AVX2", "AVX-512F", "VNNI", "AMX"),
    *("memory", "swap", "THP", "huge pages", "memlock", "/dev/shm", "XDG_RUNTIME_DIR"),
    *("descriptors", "locale", "GPU", "io_uring", "membarrier", "perf events", "hardware counters"),
]


def doctor(
    lumen_binary: Path, *arguments: str, runtime_dir: str | None = None
) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    if runtime_dir is not None:
        env["XDG_RUNTIME_DIR"] = runtime_dir
    return subprocess.run(
        [lumen_binary, "doctor", *arguments], capture_output=True, text=True, timeout=60, env=env
    )


def on_a_terminal(lumen_binary: Path, no_colour: str) -> str:
    """Its output to a terminal."""
    ours, its = pty.openpty()
    env = {**os.environ, "NO_COLOR": no_colour}
    with subprocess.Popen([lumen_binary, "doctor"], stdout=its, env=env):
        os.close(its)
        out = b""
        # Linux says EIO once the other side is closed and all is read.
        try:
            while part := os.read(ours, 65536):
                out += part
        except OSError:
            pass
    os.close(ours)
    return out.decode()


def test_the_json_has_a_finding_for_every_check(lumen_binary: Path) -> None:
    done = doctor(lumen_binary, "--json")
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout)
    # Behind them stand the servers that run, of other tests perhaps.
    assert [one["name"] for one in findings[: len(NAMES)]] == NAMES
    assert all(one["name"].startswith("server ") for one in findings[len(NAMES) :])
    for one in findings:
        assert one["status"] in ("ok", "warn", "unknown"), one
        assert isinstance(one["value"], (int, float, str)), one
        assert one["value"] != "", one
        assert one.keys() <= {"name", "value", "unit", "note", "status", "mend", "gain"}, one
        assert ("mend" in one) == ("gain" in one) == (one["status"] == "warn"), one
        if one["status"] == "unknown":
            assert one["value"].startswith("not readable: "), one


def test_its_figures_are_those_of_the_machine(lumen_binary: Path) -> None:
    found = {one["name"]: one for one in json.loads(doctor(lumen_binary, "--json").stdout)}
    assert found["kernel"]["value"] == os.uname().release
    assert found["CPUs"]["value"] == len(os.sched_getaffinity(0))
    shm = os.statvfs("/dev/shm")
    assert found["/dev/shm"]["value"] == shm.f_blocks * shm.f_frsize
    assert found["/dev/shm"]["unit"] == "bytes"
    has_avx2 = re.search(r"^flags.*\bavx2\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert found["AVX2"]["value"] == ("yes" if has_avx2 else "no")


def test_the_text_fits_80_columns_and_names_every_check(lumen_binary: Path) -> None:
    done = doctor(lumen_binary)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    heads = [line for line in lines if re.search(r" (ok|warn|unknown)$", line)][: len(NAMES)]
    assert [line[:19].rstrip() for line in heads] == NAMES
    assert re.fullmatch(r"\d+ ok, \d+ warn, \d+ unknown", lines[-1])
    assert "\033" not in done.stdout


def test_colour_is_for_terminals_without_no_color(lumen_binary: Path) -> None:
    assert "\033[32mok\033[0m" in on_a_terminal(lumen_binary, "")
    plain = on_a_terminal(lumen_binary, "1")
    assert "\033" not in plain
    assert "kernel" in plain


def test_a_missing_runtime_dir_is_a_warning_that_strict_turns_into_status_1(
    lumen_binary: Path, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    for arguments, status in (((), 0), (("--strict",), 1)):
        done = doctor(lumen_binary, "--json", *arguments, runtime_dir=missing)
        assert done.returncode == status, done.stderr
        (found,) = (one for one in json.loads(done.stdout) if one["name"] == "XDG_RUNTIME_DIR")
        assert (found["value"], found["note"], found["status"]) == (missing, "not there", "warn")
        assert "XDG_RUNTIME_DIR=" in found["mend"]


def test_one_cpu_is_a_warning_and_has_no_distance(lumen_binary: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    done = subprocess.run(
        ["taskset", "-c", str(cpu), lumen_binary, "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert (found["CPUs"]["value"], found["CPUs"]["status"]) == (1, "warn")
    assert found["core distance"]["value"] == "not readable: one CPU has no distance"


def of_server(lumen_binary: Path, runtime_dir: Path, pid: int) -> list[dict[str, Any]]:
    done = doctor(lumen_binary, "--json", runtime_dir=str(runtime_dir))
    assert done.returncode == 0, done.stderr
    return [one for one in json.loads(done.stdout) if one["name"] == f"server {pid}"]


def test_a_running_server_is_told_the_memory_of_its_instances(
    lumen_binary: Path, small_repository: Path, tmp_path: Path
) -> None:
    unix = tmp_path / "s"
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with Server(small_repository, unix=str(unix), env=env) as server:
        with UnixConnection(unix) as connection:
            engine = connection.exchange(get("/v2/lumen/engine")).json()
        (found,) = of_server(lumen_binary, tmp_path, server.pid)
        models = engine["models"]
        assert found["value"] == sum(m["instances"] * m["instance_bytes"] for m in models)
        assert (found["unit"], found["status"]) == ("bytes", "ok")
        for model in models:
            assert f"{model['instances']} of {model['name']} with " in found["note"]
    assert of_server(lumen_binary, tmp_path, server.pid) == []


def test_a_broken_file_of_a_running_server_hurts_nobody(lumen_binary: Path, tmp_path: Path) -> None:
    path = tmp_path / "lumen-77.counters"
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for content in (b"", b"LMCNTNS1", b"LMCNTNS1\2\0\0\0" + b"\xff" * 400, b"\0" * 4096):
            path.write_bytes(content)
            (found,) = of_server(lumen_binary, tmp_path, 77)
            assert found["status"] == "unknown"
            assert found["value"].startswith(f"not readable: counters file {path}: ")


def test_a_full_standard_output_is_an_error(lumen_binary: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [lumen_binary, "doctor"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert "lumen doctor: writing to stdout: No space left on device" in done.stderr
