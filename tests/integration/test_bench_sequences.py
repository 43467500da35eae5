"""`lumen bench --sequence-length`: models that keep states, over each transport."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from integration.harness import PATIENCE, Server, lumen_binary
from integration.sequence_models import STATE, sequence_figure, write_rnn


def bench(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [lumen_binary(), "bench", url, "--model", "rnn", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE)


@pytest.mark.parametrize("transport", ["http", "unix", "grpc", "grpc+unix", "bus"])
def test_requests_are_of_sequences(tmp_path: Path, transport: str) -> None:
    models = tmp_path / "models"
    write_rnn(models, "rnn", {"sequences": STATE, "backend": "openvino"})
    bus, unix = tmp_path / "bus", tmp_path / "unix"
    with Server(models, "--bus", str(bus), unix=str(unix)) as running:
        url = {
            "http": f"http://{running.url}",
            "unix": f"unix:{unix}",
            "grpc": f"grpc://{running.url}",
            "grpc+unix": f"grpc+unix:{unix}",
            "bus": f"bus:{bus}",
        }[transport]
        words = [["--clients", "3", "--requests", "210"], ["--clients", "1", "--duration", "0.2"]]
        if transport == "bus":
            words += [["--clients", "2", "--requests", "280", "--in-flight", "4"]]
        else:
            words += [
                ["--clients", "2", "--requests", "60", "--rate", "1000"],
                ["--clients", "4", "--threads", "2", "--requests", "70", "--new-connection"],
            ]
        for one in words:
            before = sequence_figure(running, "lumen_sequences_started_total")
            done = bench(url, "--sequence-length", "7", "--json", *one)
            assert done.returncode == 0, done.stderr
            (row,) = json.loads(done.stdout)["rows"]
            assert row["errors"]["count"] == 0 and row["requests"] > 0, row
            started = sequence_figure(running, "lumen_sequences_started_total") - before
            assert row["requests"] / 7 <= started, row
            if "--requests" in one:
                # The warm-up's, probes, and those that end before their last request.
                assert started <= 2 * row["requests"] / 7 + 12, row
        alone = bench(url, "--requests", "10")
        assert alone.returncode == 1 and "keeps states of sequences" in alone.stderr


def test_sequences_are_of_one_model(tmp_path: Path) -> None:
    write_rnn(tmp_path, "rnn", {"sequences": STATE, "backend": "openvino"})
    with Server(tmp_path) as running:
        command = [lumen_binary(), "bench", f"http://{running.url}", "--mix", "rnn:1"]
        done = subprocess.run(
            [*command, "--sequence-length", "3"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2 and "--sequence-length: is for one model" in done.stderr
