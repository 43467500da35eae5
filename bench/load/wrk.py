"""wrk as a second, independent client, and nginx's empty answer as the floor of HTTP.

  wrk (core 1, one thread, N connections, keep-alive) --the same bytes--> server (core 0)

wrk comes from Debian and knows nothing of Lumen. It sleeps in epoll between events, so the share of
its core that it used says whether it or the server was the bottleneck. nginx reads the same body
and answers 200 without one: the difference to ours is parsing tensors and running the model.
Raises BenchError with wrk's own words; a status above 399 or a broken connection is an error.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

from bench.runner.places import BenchError

# One request for the whole run: wrk formats it once and calls no Lua while it measures.
SCRIPT = """
wrk.method = "POST"
local file = assert(io.open(os.getenv("WRK_BODY"), "rb"))
wrk.body = file:read("*a")
file:close()
wrk.headers["Content-Type"] = "application/octet-stream"
if os.getenv("WRK_JSON_BYTES") ~= "" then
  wrk.headers["Inference-Header-Content-Length"] = os.getenv("WRK_JSON_BYTES")
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\\n{"count": %d, "seconds": %.6f, "errors": %d, "p50_us": %.1f, "p99_us": %.1f}\\n',
    summary.requests, summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""

# The body fits beside the head, so that nginx reads a request in one call, as Lumen does.
NGINX = """
daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_header_buffer_size 64k;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200; }}
  }}
}}
"""


def find(program: str) -> str | None:
    """Debian keeps nginx where only root's PATH looks."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin")


def nginx_command(folder: Path, port: int) -> list[str]:
    program = find("nginx")
    if program is None:
        raise BenchError("no nginx (apt-get install nginx)")
    folder.mkdir()
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(port=port))
    return [program, "-p", str(folder), "-c", str(file)]


def run_wrk(
    url: str, body: Path, json_bytes: int | None, connections: int, seconds: float, core: int
) -> dict[str, float]:
    """The output of the load programs, and `client_share`: of its core, that wrk was running.

    `json_bytes`: how much of the body is the JSON head; None: all of it is JSON.
    """
    program = find("wrk")
    if program is None:
        raise BenchError("no wrk (apt-get install wrk)")
    script = body.with_suffix(".lua")
    script.write_text(SCRIPT)
    words = ["taskset", "-c", str(core), program, "-t", "1", "-c", str(connections)]
    words += ["-d", f"{max(1, round(seconds))}s", "-s", str(script), url]
    told = {"WRK_BODY": str(body), "WRK_JSON_BYTES": str(json_bytes or "")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run(words, env={**os.environ, **told}, capture_output=True, text=True)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return read_report(
        done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall
    )


def read_report(
    done: subprocess.CompletedProcess[str], cpu_seconds: float, wall_seconds: float
) -> dict[str, float]:
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines or not lines[-1].startswith("{"):
        raise BenchError(f"wrk: {done.stderr.strip()}\n{done.stdout.strip()}")
    report = json.loads(lines[-1])
    if report["errors"] or not report["count"]:
        raise BenchError(f"wrk: {report['errors']} errors, {report['count']} replies")
    report["per_second"] = report["count"] / report["seconds"]
    report["client_share"] = cpu_seconds / wall_seconds
    return report
