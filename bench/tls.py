"""The question: the cost of TLS in Lumen, and beside that of nginx before it.

  h2load (core 1) --HTTPS--> lumen
  h2load (core 1) --HTTPS--> nginx --unix socket--> lumen     (all servers on core 0)
  h2load (core 1) --HTTP---> lumen                            (without TLS)

Default settings, one certificate on P-256, the same version and cipher. Then new connections, one
after the other, by `openssl s_time`: with a whole handshake, and with one that resumes a session;
each asks for one small answer, which nginx gives by itself.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.load import h2load, serving, wrk
from bench.load.serving import Target
from bench.runner import ROOT, Bench, BenchError, Goal, Run, make_row
from bench.runner.places import left_out
from bench.runner.run import rotated

TLS, PROXY, PLAIN = "lumen, TLS", "nginx, TLS, before lumen", "lumen, no TLS"
CIPHER = "TLS_AES_128_GCM_SHA256"
LIVE = "/v2/health/live"
SIZES = {"1 KiB": ("mlp", (1, 256)), "600 KB": ("identity", (1, 150_528))}

# In place of the server of wrk.py. An upstream connection is kept for each client, as nginx's
# manual advises.
NGINX = """  client_body_buffer_size 2m;
  client_max_body_size 64m;
  upstream lumen {{ server unix:{socket}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {certificate};
    ssl_protocols TLSv1.2 TLSv1.3;
    location = {live} {{ return 200; }}
    location / {{
      proxy_pass http://lumen;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}"""


@dataclass
class Contender:
    scheme: str
    port: int
    targets: tuple[Target, ...]


def make_certificate(folder: Path) -> Path:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-keyout", str(key), "-out", str(certificate)]
    command += ["-days", "2", "-subj", "/CN=bench"]
    subprocess.run(command, check=True, capture_output=True)
    certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    return certificate


def start(stack: ExitStack, folder: Path) -> dict[str, Contender]:
    certificate, socket = make_certificate(folder), folder / "lumen.sock"
    work = serving.WORKLOADS[1]
    models = ["--model-repository", str(ROOT / "models")]
    (own,) = serving.start_lumen_with(
        stack, folder, "tls", [*models, "--tls-cert", str(certificate)], [work]
    )
    # Of two flags the last one counts.
    (plain,) = serving.start_lumen_with(
        stack, folder, "plain", [*models, "--unix", str(socket)], [work]
    )
    port, log = serving.free_port(), folder / "nginx.log"
    command = wrk.nginx_command(folder / "nginx", port)
    text = wrk.NGINX.replace("  server {{\n    " + h2load.NGINX_HTTP, NGINX)
    if text == wrk.NGINX:
        raise BenchError("the configuration of nginx in wrk.py has changed; change tls.py, too")
    text = text.format(port=port, socket=socket, certificate=certificate, live=LIVE)
    (folder / "nginx" / "nginx.conf").write_text(text)
    process = stack.enter_context(serving.running(command, log))
    proxy = serving.make_target(PROXY, work, port, b"", process, log)
    serving.wait_for_answer(plain)
    found = {
        TLS: Contender("https", own.port, (own,)),
        PROXY: Contender("https", port, (proxy, plain)),
        PLAIN: Contender("http", plain.port, (plain,)),
    }
    for name, one in found.items():
        wait_until_live(name, one)
    serving.stop([own, plain, proxy])
    return found


def wait_until_live(name: str, one: Contender) -> None:
    end = time.monotonic() + serving.START_TIMEOUT_S
    url = f"{one.scheme}://127.0.0.1:{one.port}{LIVE}"
    while subprocess.run(["curl", "-skf", url], capture_output=True).returncode != 0:
        if time.monotonic() > end:
            raise BenchError(f"{name}: no answer; its log:\n{one.targets[0].log.read_text()}")
        time.sleep(0.1)


@contextmanager
def awake(one: Contender) -> Iterator[None]:
    with ExitStack() as stack:
        for target in one.targets:
            stack.enter_context(serving.awake(target))
        yield


def ask(
    one: Contender, body: Path, lines: tuple[str, ...], model: str, connections: int, run: Run
) -> dict[str, float]:
    url = f"{one.scheme}://127.0.0.1:{one.port}/v2/models/{model}/infer"
    words = (url, body, lines, connections, 1, run.seconds, serving.LOAD_CORE)
    more = ("--h1", f"--tls13-ciphers={CIPHER}")
    return h2load.run(*words, *more, has_times=connections == 1)


def connect(one: Contender, kind: str, seconds: float) -> float:
    """Connections a second of one client."""
    command = ["taskset", "-c", str(serving.LOAD_CORE), "openssl", "s_time", f"-{kind}"]
    command += ["-connect", f"127.0.0.1:{one.port}", "-www", LIVE, "-tls1_3"]
    command += ["-ciphersuites", CIPHER, "-time", str(max(1, round(seconds)))]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"(\d+) connections in (\d+) real seconds", done.stdout)
    if done.returncode != 0 or not found or not int(found[1]):
        raise BenchError(f"openssl s_time: {done.stderr}\n{done.stdout}")
    return int(found[1]) / int(found[2])


def request_of(folder: Path, model: str, shape: tuple[int, ...]) -> tuple[Path, tuple[str, ...]]:
    """A file with the body, and the lines of the head."""
    work = serving.Workload(model, "input", "output", shape)
    head, _, body = serving.lumen_request(work).partition(b"\r\n\r\n")
    file = folder / f"{model}.body"
    file.write_bytes(body)
    lines = [line.decode() for line in head.split(b"\r\n") if line.startswith(b"Inference-H")]
    return file, tuple(lines)


def measure(run: Run) -> None:
    if not wrk.find("nginx") or not wrk.find("h2load"):
        left_out("tls", "apt-get install nginx-light nghttp2-client")
        return
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        contenders = start(stack, folder)
        for size, (model, shape) in SIZES.items():
            body, lines = request_of(folder, model, shape)
            one: dict[str, list[float]] = {key: [] for key in contenders}
            many: dict[str, list[float]] = {key: [] for key in contenders}
            for number, _ in enumerate(run.turns([])):
                for key in rotated(list(contenders), number):
                    with awake(contenders[key]):
                        words = (contenders[key], body, lines, model)
                        one[key].append(ask(*words, 1, run)["p50_us"])
                        many[key].append(ask(*words, 16, run)["per_second"])
            rivals = [PROXY]
            run.add(
                make_row(
                    f"{size}, 1 connection", "p50 latency", "us", one, rivals=rivals, limit=PLAIN
                ),
                make_row(
                    f"{size}, 16 connections",
                    "throughput",
                    "requests/s",
                    many,
                    more_is_better=True,
                    rivals=rivals,
                    limit=PLAIN,
                ),
            )
        for kind, text in (("new", "whole handshakes"), ("reuse", "resumed sessions")):
            rates: dict[str, list[float]] = {TLS: [], PROXY: []}
            for number, _ in enumerate(run.turns([])):
                for key in rotated([TLS, PROXY], number):
                    with awake(contenders[key]):
                        rates[key].append(connect(contenders[key], kind, run.seconds))
            run.add(make_row(text, "connections", "1/s", rates, more_is_better=True))


BENCH = Bench(
    title="TLS",
    measure=measure,
    minutes=2.0,
    quick_minutes=0.6,
    rounds=(5, 2),
    seconds=(2.0, 1.0),
    sources=("include/**", "src/**", "apps/**", "bench/load/*"),
    packages=("nginx", "nghttp2-client"),
    goals=(
        Goal("1 connection", "ratio_at_least", 1.0, "less than nginx before Lumen"),
        Goal("16 connections", "ratio_at_least", 1.0, "more than nginx before Lumen"),
        Goal("handshakes|sessions", "ratio_at_least", 1.0, "as many as nginx"),
    ),
    is_kept=False,
)
