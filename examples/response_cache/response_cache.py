# The response cache: a model whose config.json has "response_cache" answers a request like an
# earlier one without a run, and several that come at once are one run. The statistics tell of it.
# Errors: exits 1 when an answer differs from the first, or the counts are not those wanted.
from __future__ import annotations

import http.client
import json
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Server

CLIENTS = 8


def make_repository(folder: Path) -> None:
    shutil.copytree(ROOT / "models" / "mlp" / "1", folder / "mlp" / "1")
    cache = {"enable": True, "ttl_ms": 60_000, "max_bytes": 1 << 20}
    (folder / "mlp" / "config.json").write_text(json.dumps({"response_cache": cache}))


def ask(url: str, value: float, **parameters: Any) -> Any:
    connection = http.client.HTTPConnection(url, timeout=30)
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 256], "data": [value] * 256}
    body = json.dumps({"inputs": [tensor], "parameters": parameters})
    connection.request("POST", "/v2/models/mlp/infer", body)
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {text.decode()}")
    return json.loads(text)["outputs"]


def counts(url: str) -> tuple[int, int, int]:
    """Hits, misses, and calls of the model."""
    connection = http.client.HTTPConnection(url, timeout=30)
    connection.request("GET", "/v2/models/mlp/stats")
    model = json.loads(connection.getresponse().read())["model_stats"][0]
    stats = model["inference_stats"]
    return stats["cache_hit"]["count"], stats["cache_miss"]["count"], model["execution_count"]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        make_repository(Path(folder))
        with Server(folder) as server:
            first = ask(server.url, 0.5)
            again = ask(server.url, 0.5)
            print("one of the same, hits, misses, runs:", counts(server.url))
            same = again == first and counts(server.url) == (1, 1, 1)
            uncached = ask(server.url, 0.5, no_cache=True)
            print("one that wants a run of its own:    ", counts(server.url))
            same = same and uncached == first and counts(server.url) == (1, 1, 2)
            threads = [
                threading.Thread(target=ask, args=(server.url, 0.25)) for _ in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(f"{CLIENTS} clients with another at once:  ", counts(server.url))
            return 0 if same and counts(server.url) == (CLIENTS, 2, 3) else 1


if __name__ == "__main__":
    sys.exit(main())
