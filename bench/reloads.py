"""The question: what do requests for one model pay while other models are loaded anew?

  lumen bench (open loop, 1,000 requests/s, 8 clients) --HTTP--> mlp of a Lumen server
  a client that loads squeezenet and digits in turn, without a pause, each from a new file

Both phases, with loads and without ("quiet"), follow each other on one server, round by round. The
loader, the clients and the server share the CPUs, as they do on a user's machine.
"""

from __future__ import annotations

import http.client
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lumen_engine import Server

from bench.runner import ROOT, Bench, BenchError, Goal, Run, make_row
from bench.runner.places import lumen_bench, make_squeezenet, program, say

ASKED, LOADED = "mlp", ("squeezenet", "digits")
RATE, CLIENTS = 1000, 8


def load(server: Server, models: Path, name: str) -> None:
    """From a file with new contents in the eyes of the server: another inode, of two in turn.

    Nothing is copied but at first: to bring the file is not the server's work.
    """
    file, link = models / name / "1" / "model.onnx", models.parent / "link"
    two = [models.parent / f"{name}-{number}" for number in range(2)]
    for copy in two:
        if not copy.exists():
            shutil.copy(file, copy)
    link.hardlink_to(two[1] if two[0].samefile(file) else two[0])
    link.replace(file)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", f"/v2/repository/models/{name}/load", "{}")
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    if reply.status != 200:
        raise BenchError(f"load of {name}: {reply.status} {text!r}")


@contextmanager
def loads(server: Server, models: Path) -> Iterator[list[str]]:
    """The names of the models in the order of their loads."""
    stop = threading.Event()
    done: list[str] = []
    faults: list[Exception] = []

    def work() -> None:
        try:
            while not stop.is_set():
                for name in LOADED:
                    load(server, models, name)
                    done.append(name)
        except Exception as fault:
            faults.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
    if faults:
        raise faults[0]


def measure(run: Run) -> None:
    make_squeezenet()
    words = ("--clients", str(CLIENTS), "--rate", str(RATE), "--duration", str(run.seconds))
    found: dict[str, dict[str, list[float]]] = {
        point: {"lumen": [], "quiet": []} for point in ("p50", "p99")
    }
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        for name in (ASKED, *LOADED):
            shutil.copytree(ROOT / "models" / name / "1", models / name / "1")
        options = ["--unix", "off", "--tcp-control", "on"]
        with Server(models, options, executable=program("lumen")) as server:
            url = f"http://{server.url}"
            lumen_bench(url, ASKED, *words)
            for _ in run.turns([]):
                quiet = lumen_bench(url, ASKED, *words)["latency_us"]
                with loads(server, models) as done:
                    loaded = lumen_bench(url, ASKED, *words)["latency_us"]
                say(f"{len(done)} loads; p99 {loaded['p99']:.0f} us, quiet {quiet['p99']:.0f}")
                for point, values in found.items():
                    values["lumen"].append(loaded[point])
                    values["quiet"].append(quiet[point])
    for point, values in found.items():
        run.add(make_row(f"{ASKED}, {RATE} requests/s, while models load", point, "us", values))


BENCH = Bench(
    title="Loads beside requests",
    measure=measure,
    minutes=1.5,
    quick_minutes=0.3,
    rounds=(7, 2),
    seconds=(5.0, 1.5),
    sources=("include/**", "src/**", "apps/**"),
    goals=(Goal("while models load$", "ratio_at_least", 1 / 1.2, "1.2 times quiet", metric="p99"),),
)
