# Deadlines and overload: a request that is too late is answered 504 and never runs; one too many is
# answered 429 with Retry-After. The server here is small on purpose: one worker, a queue of two.
# Errors: exits 1 when an answer was neither of these nor 200.
from __future__ import annotations

import collections
import http.client
import json
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Server

CLIENTS, REQUESTS = 16, 50


def body(timeout_us: int | None) -> bytes:
    """`timeout` counts from the request's first byte; without it the server's default holds."""
    values = [0.5] * 256
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 256], "data": values}
    request: dict[str, object] = {"inputs": [tensor]}
    if timeout_us is not None:
        request["parameters"] = {"timeout": timeout_us}
    return json.dumps(request).encode()


def ask(connection: http.client.HTTPConnection, request: bytes) -> tuple[int, str, str | None]:
    connection.request("POST", "/v2/models/mlp/infer", request)
    reply = connection.getresponse()
    text = reply.read().decode()
    return reply.status, text, reply.headers["Retry-After"]


def run_client(address: str, seen: collections.Counter[int]) -> None:
    connection = http.client.HTTPConnection(address, timeout=30)
    for _ in range(REQUESTS):
        status, text, retry_after = ask(connection, body(None))
        seen[status] += 1
        # A client that obeys would wait so many seconds; these ask again at once.
        if status == 429 and retry_after is None:
            raise RuntimeError(f"429 without Retry-After: {text}")


def main() -> int:
    arguments = ["--queue-capacity", "2", "--thread-count", "1"]
    with Server(ROOT / "models", arguments) as server:
        connection = http.client.HTTPConnection(server.url, timeout=30)
        on_time, _, _ = ask(connection, body(10_000_000))
        late, text, _ = ask(connection, body(1))
        print(f"within 10 s: {on_time}; within 1 µs: {late} {text}")
        seen: collections.Counter[int] = collections.Counter()
        words = (server.url, seen)
        clients = [threading.Thread(target=run_client, args=words) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    answered, refused = seen.pop(200), seen.pop(429, 0)
    print(f"{CLIENTS} clients at once: {answered} answered, {refused} refused, other: {dict(seen)}")
    return 0 if (on_time, late) == (200, 504) and not seen else 1


if __name__ == "__main__":
    sys.exit(main())
