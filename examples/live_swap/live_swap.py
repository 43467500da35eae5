# A server is changed while four clients use it: every queue type with every allocator, over the
# unix socket. Every answer must be the first, bit for bit; the telemetry counts those of each.
# Errors: exits 1 when a request failed or an answer differed.
from __future__ import annotations

import csv
import http.client
import json
import socket
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import tritonclient.http as triton

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Server

CLIENTS, REQUESTS = 4, 300  # after each change, of all clients together


def change(path: str, **engine: object) -> None:
    """As `curl --unix-socket PATH http://localhost/v2/lumen/engine -d '{...}'`."""
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("POST", "/v2/lumen/engine", json.dumps(engine))
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(answer.read().decode())


def run_client(url: str, stop: threading.Event, answers: set, count: threading.Semaphore) -> None:
    try:
        client = triton.InferenceServerClient(url)
        tensor = triton.InferInput("input", [1, 256], "FP32")
        tensor.set_data_from_numpy(np.linspace(-1, 1, 256, dtype=np.float32).reshape(1, 256))
        while not stop.is_set():
            answers.add(client.infer("mlp", [tensor]).as_numpy("output").tobytes())
            count.release()
    except Exception as error:
        answers.add(str(error))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        log, path = Path(folder, "requests.csv"), Path(folder, "lumen.sock")
        stop, answers, count = threading.Event(), set(), threading.Semaphore(0)
        with Server(ROOT / "models", ["--telemetry-csv-path", str(log)], unix=path) as server:
            words = (server.url, stop, answers, count)
            clients = [threading.Thread(target=run_client, args=words) for _ in range(CLIENTS)]
            for client in clients:
                client.start()
            for queue in ("mpmc", "spsc", "naive", "batched", "inline"):
                for allocator in ("lumen_arena", "standard"):
                    change(server.unix_path, queue_type=queue, allocator_type=allocator)
                    while count.acquire(blocking=False):
                        pass  # those were answered while the change was made
                    for _ in range(REQUESTS):
                        if len(answers) < 2:
                            count.acquire(timeout=30)
            stop.set()
            for client in clients:
                client.join()
        served: dict[tuple[str, str], list[float]] = {}
        for row in csv.DictReader(log.open()):
            names = (row["queue_type"], row["allocator_type"])
            served.setdefault(names, []).append(float(row["total_us"]))
    for names, times in served.items():
        print("{:<8}{:<12}".format(*names), f"{len(times):>6} requests, {np.median(times):6.1f} µs")
    print(*(text for text in answers if isinstance(text, str)), sep="\n", end="")
    print(f"{len(answers) - 1} failed or different")
    return 0 if len(answers) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
