"""`lumen bench` over TLS: against this server, and against nginx in front of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.certificates import Authority
from integration.harness import MODELS, PATIENCE, ROOT, Server, eventually, lumen_binary

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

pytestmark = pytest.mark.tool

# nginx ends TLS: HTTPS with its own session tickets, and gRPC by ALPN.
NGINX = """
daemon off;
pid nginx.pid;
events {{}}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    location / {{ proxy_pass http://{server}; }}
    location /inference. {{ grpc_pass grpc://{server}; }}
  }}
}}
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def served(authority: Authority) -> Iterator[Server]:
    certificate, key = authority.sign("server")
    words = ["--tls-cert", str(certificate), "--tls-key", str(key)]
    with Server(MODELS, *words) as server:
        yield server


def bench(
    url: str, *words: str | Path, model: str = "mlp", requests: int = 400
) -> subprocess.CompletedProcess[str]:
    command = [lumen_binary(), "bench", url, "--model", model, "--requests", requests, *words]
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60 * PATIENCE
    )


def rows_of(url: str, *words: str | Path) -> list[dict[str, Any]]:
    done = bench(url, "--json", "--clients", "1,16", *words)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    assert [row["requests"] for row in rows] == [400, 400]
    assert all(row["errors"]["count"] == 0 for row in rows)
    return rows


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_every_request_is_answered(
    served: Server, authority: Authority, scheme: str, host: str
) -> None:
    before = handshakes(served, authority)
    rows = rows_of(f"{scheme}://{host}:{served.port}", "--tls-ca", authority.certificate)
    assert rows[0]["connect_us"]["mean"] > 100, "a handshake belongs to the connection"
    assert handshakes(served, authority) - before >= 17


def handshakes(server: Server, authority: Authority) -> float:
    url = f"https://localhost:{server.port}/metrics"
    command = ["curl", "-s", "--cacert", str(authority.certificate), url]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (line,) = [one for one in page.splitlines() if one.startswith("lumen_tls_handshakes_total")]
    return float(line.split()[-1])


def test_a_connection_for_each_request(served: Server, authority: Authority) -> None:
    url = f"https://127.0.0.1:{served.port}"
    rows = rows_of(url, "--tls-ca", authority.certificate, "--new-connection")
    assert rows[0]["connect_us"]["mean"] < rows[0]["latency_us"]["mean"]


def test_large_requests_in_many_records(served: Server, authority: Authority) -> None:
    url = f"https://127.0.0.1:{served.port}"
    words = ("--clients", "3", "--json", "--tls-ca", authority.certificate)
    done = bench(url, *words, model="convnet", requests=20)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["requests"] == 20 and row["errors"]["count"] == 0


def test_a_server_that_no_known_authority_has_signed_is_not_measured(
    served: Server, authority: Authority, tmp_path: Path
) -> None:
    url = f"https://127.0.0.1:{served.port}"
    other = Authority(tmp_path, "other").certificate
    for words in ([], ["--tls-ca", other]):
        done = bench(url, *words)
        assert done.returncode == 1 and "certificate verify failed" in done.stderr, done.stderr
    assert bench(url, "--tls-ca", "none").returncode == 0


def test_a_certificate_of_another_host_is_refused(authority: Authority) -> None:
    certificate, key = authority.sign("elsewhere", names="DNS:elsewhere")
    with Server(MODELS, "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        for host, reason in (("localhost", "hostname mismatch"), ("127.0.0.1", "IP address")):
            url = f"https://{host}:{server.port}"
            done = bench(url, "--tls-ca", authority.certificate)
            assert done.returncode == 1 and reason in done.stderr, done.stderr


def test_a_certificate_of_the_clients_own(authority: Authority) -> None:
    certificate, key = authority.sign("server-of-known-clients")
    mine, my_key = authority.sign("client")
    words = ["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authority.certificate]
    with Server(MODELS, *map(str, words)) as server:
        for scheme in ("https", "grpcs"):
            url = f"{scheme}://127.0.0.1:{server.port}"
            trusts = ("--tls-ca", authority.certificate)
            rows_of(url, *trusts, "--tls-cert", mine, "--tls-key", my_key)
            done = bench(url, *trusts)
            assert done.returncode == 1 and "certificate required" in done.stderr, done.stderr


def test_a_server_without_tls_says_so(shared_server: Server) -> None:
    done = bench(f"https://127.0.0.1:{shared_server.port}", "--tls-ca", "none")
    assert done.returncode == 1 and "TLS: " in done.stderr, done.stderr


def test_nginx_in_front(shared_server: Server, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.sign("nginx")
    with Server(MODELS) as other:  # a free port, once it has ended
        port = other.port
    address = f"127.0.0.1:{shared_server.port}"
    text = NGINX.format(port=port, certificate=certificate, key=key, server=address)
    (tmp_path / "nginx.conf").write_text(text)
    program = judge_programs.debian_program("nginx")
    words = [str(program), "-p", str(tmp_path), "-c", "nginx.conf", "-e", "stderr"]
    with (tmp_path / "log").open("w") as log:
        nginx = subprocess.Popen(words, stderr=log)
    try:
        url = f"https://localhost:{port}"
        trusts = ("--tls-ca", authority.certificate)
        eventually(
            lambda: bench(url, *trusts, requests=1).returncode == 0,
            lambda: (tmp_path / "log").read_text(),
        )
        rows_of(url, *trusts)
        rows_of(f"grpcs://localhost:{port}", *trusts)
        assert nginx.poll() is None
    finally:
        nginx.terminate()
        nginx.wait(timeout=20 * PATIENCE)
