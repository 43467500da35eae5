# Inference over the shared-memory bus from Python: one request, many in flight, and several awaited
# at once. The same client speaks HTTP: `client.py [bus:/PATH | unix:/PATH | http://HOST:PORT]`;
# without a URL it starts a server of its own. The C++ side is server.cc.
# Errors: exits 1 when an answer differs; a refusal of the server is raised.
from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Client, Server

REQUESTS = 2000


def use(client: Client) -> bool:
    print(f"mlp takes {client.metadata('mlp')['inputs'][0]['shape']}")
    rows = np.random.default_rng(7).random((REQUESTS, 1, 256), np.float32)

    began = time.perf_counter()
    one_by_one = [client.infer("mlp", {"input": row}) for row in rows]
    middle = time.perf_counter()
    together = client.infer_batch("mlp", [{"input": row} for row in rows])
    ended = time.perf_counter()

    async def awaited() -> list:
        return await asyncio.gather(
            *(client.infer_async("mlp", {"input": row}) for row in rows[:50])
        )

    answers = asyncio.run(awaited())
    name = next(iter(together[0]))
    same = all(
        np.allclose(one[name], other[name], rtol=1e-4)
        for one, other in [*zip(one_by_one, together), *zip(one_by_one, answers)]
    )
    print(f"one by one: {1e6 * (middle - began) / REQUESTS:.0f} µs a request")
    print(f"in flight together: {1e6 * (ended - middle) / REQUESTS:.0f} µs a request")
    print(f"{REQUESTS} answers, {'all the same' if same else 'SOME DIFFER'} by all three ways")
    return same


def main() -> int:
    if len(sys.argv) > 1:
        with Client(sys.argv[1]) as client:
            return 0 if use(client) else 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lumen.bus"
        inline = ["--queue-type", "inline"]
        with Server(ROOT / "models", inline, bus=path), Client(f"bus:{path}") as client:
            return 0 if use(client) else 1


if __name__ == "__main__":
    sys.exit(main())
