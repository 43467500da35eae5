"""h2load as a client of gRPC, and of HTTP/1.1 beside it; nginx's empty answer in gRPC's shape.

  h2load (core 1, one thread, N connections) --the same bytes--> server (core 0)

h2load comes from Debian (nghttp2-client) and knows nothing of Lumen. Raises BenchError with its own
words; a status above 399 or a broken connection is an error.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from statistics import median

from bench.load import wrk
from bench.runner.places import BenchError

GRPC = ("content-type: application/grpc", "te: trailers")

# As wrk.py has it for HTTP/1.1; the status of gRPC stands in the head, as in an answer of trailers
# alone. It reads the message and throws it away.
NGINX_HTTP = "listen 127.0.0.1:{port};\n    location / {{ return 200; }}"
NGINX_GRPC = """listen 127.0.0.1:{port} http2;
    http2_max_concurrent_streams 256;
    default_type application/grpc;
    location / {{ add_header grpc-status 0; return 200; }}"""


def nginx_command(folder: Path, port: int) -> list[str]:
    command = wrk.nginx_command(folder, port)
    text = wrk.NGINX.replace(NGINX_HTTP, NGINX_GRPC)
    if text == wrk.NGINX:
        raise BenchError("the configuration of nginx in wrk.py has changed; change h2load.py, too")
    (folder / "nginx.conf").write_text(text.format(port=port))
    return command


def run(
    url: str,
    body: Path,
    headers: tuple[str, ...],
    connections: int,
    streams: int,
    seconds: float,
    core: int,
    *words: str,
    has_times: bool = False,
) -> dict[str, float]:
    """`per_second` and, with `has_times`, `p50_us` of the requests' times: that costs the client a
    line for each."""
    program = wrk.find("h2load")
    if program is None:
        raise BenchError("no h2load (apt-get install nghttp2-client)")
    log = body.with_suffix(".times")
    log.unlink(missing_ok=True)
    command = ["taskset", "-c", str(core), program, "-t", "1", "-c", str(connections)]
    command += ["-m", str(streams), "-D", str(max(1, round(seconds))), "-d", str(body)]
    command += [*([f"--log-file={log}"] if has_times else []), *words]
    for header in headers:
        command += ["-H", header]
    done = subprocess.run([*command, url], capture_output=True, text=True)
    rate = re.search(r"finished in .*, ([\d.]+) req/s", done.stdout)
    codes = re.search(r"status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx", done.stdout)
    failed = re.search(r" (\d+) errored, (\d+) timeout", done.stdout)
    if done.returncode != 0 or not rate or not codes or not int(codes[1]):
        raise BenchError(f"h2load: {done.stderr.strip()}\n{done.stdout.strip()}")
    if not failed or failed[1] != "0" or failed[2] != "0":
        raise BenchError(f"h2load: {done.stdout.strip()}")
    found = {"per_second": float(rate[1])}
    if has_times:
        found["p50_us"] = median(int(line.split()[2]) for line in log.read_text().splitlines())
    return found
