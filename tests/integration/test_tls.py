"""TLS on the TCP addresses, against clients that nobody here wrote: Python's ssl, openssl, curl.

Each answer is compared with that of the unix socket, which stays without TLS.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from integration.certificates import Authority
from integration.harness import (
    PATIENCE,
    ROOT,
    SANITIZED,
    Server,
    UnixConnection,
    eventually,
    has_io_uring,
    run_serve,
)
from integration.raw_http import Connection, Reply, get
from lumen_engine import Client

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

StartServer = Callable[..., Server]


# The judge's own: an inference as a call and on a stream. The client is closed: one that was left
# open has kept its process after the last word, in CI, once.
TRITON = """
import queue, sys
import numpy as np
import tritonclient.grpc as triton

url, authority = sys.argv[1:]
client = triton.InferenceServerClient(url, ssl=True, root_certificates=authority)
results = queue.Queue()
client.start_stream(lambda result, error: results.put(error or result))
for size in (1, 100_000, 3_000_000, 7):
    x = np.random.default_rng(size).standard_normal((1, size)).astype(np.float32)
    tensor = triton.InferInput("input", list(x.shape), "FP32")
    tensor.set_data_from_numpy(x)
    client.async_stream_infer("identity", [tensor])
    for result in (client.infer("identity", [tensor]), results.get(timeout=60)):
        assert np.array_equal(result.as_numpy("output"), x), size
client.stop_stream()
client.close()
print("right")
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> tuple[Path, Path]:
    return authority.sign("server")


@pytest.fixture
def start(server: StartServer, signed: tuple[Path, Path], tmp_path: Path) -> Callable[..., Server]:
    def begin(*words: str, files: tuple[Path, Path] = signed) -> Server:
        certificate, key = files
        words = ("--tls-cert", str(certificate), "--tls-key", str(key), *words)
        return server(*words, "--unix", str(tmp_path / "unix"))

    return begin


def context_for(authority: Authority, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


class TlsConnection(Connection):
    def __init__(self, one: Server, context: ssl.SSLContext, **options: object) -> None:
        super().__init__(one.address)
        self.socket = context.wrap_socket(
            self.socket,
            server_hostname="localhost",
            **options,  # type: ignore[call-overload]
        )

    @property
    def tls(self) -> ssl.SSLSocket:
        assert isinstance(self.socket, ssl.SSLSocket)
        return self.socket


def without_python_path() -> dict[str, str]:
    """For judges, whose packages are their own."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def infer(x: np.ndarray) -> bytes:
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "input",
                    "datatype": "FP32",
                    "shape": list(x.shape),
                    "parameters": {"binary_data_size": x.nbytes},
                }
            ],
            "outputs": [{"name": "output", "parameters": {"binary_data": True}}],
        }
    ).encode()
    return (
        b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
        % (len(head), len(head) + x.nbytes)
        + head
        + x.tobytes()
    )


def values_of(reply: Reply) -> np.ndarray:
    assert reply.status == 200, reply.body
    size = int(reply.headers["inference-header-content-length"])
    return np.frombuffer(reply.body[size:], np.float32)


def test_requests_of_all_sizes_are_answered_over_one_connection(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start()
    rng = np.random.default_rng(1)
    with TlsConnection(one, context_for(authority)) as connection:
        assert connection.tls.version() == "TLSv1.3"
        for size in [1, 100, 4_000, 4_096, 5_000, 100_000, 1_000_000, 3, 2_000_000]:
            x = rng.standard_normal((1, size)).astype(np.float32)
            connection.send(infer(x))
            np.testing.assert_array_equal(values_of(connection.reply()), x[0])


def test_bytes_come_in_any_pieces(start: Callable[..., Server], authority: Authority) -> None:
    """Of plaintext, and so of records; and of the network, through a relay."""
    one = start()
    rng = np.random.default_rng(2)
    with TlsConnection(one, context_for(authority)) as connection:
        for _ in range(10):
            x = rng.standard_normal((1, int(rng.integers(1, 3000)))).astype(np.float32)
            request = infer(x) * 2  # pipelined
            while request:
                size = int(rng.integers(1, 2000))
                connection.send(request[:size])
                request = request[size:]
            for _ in range(2):
                np.testing.assert_array_equal(values_of(connection.reply()), x[0])


def relay(address: tuple[str, int], sizes: np.random.Generator) -> tuple[str, int]:
    """A relay that passes the client's bytes on in small pieces."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client, socket.create_connection(address) as upstream:
            upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def back() -> None:
                with suppress(OSError):  # the client has gone
                    while data := upstream.recv(1 << 16):
                        client.sendall(data)

            thread = threading.Thread(target=back, daemon=True)
            thread.start()
            while data := client.recv(1 << 16):
                while data:
                    size = int(sizes.integers(1, 700))
                    upstream.sendall(data[:size])
                    data = data[size:]

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[:2]  # type: ignore[no-any-return]


def test_the_network_cuts_records_anywhere(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start()
    rng = np.random.default_rng(3)
    raw = socket.create_connection(relay(one.address, rng))
    with context_for(authority).wrap_socket(raw, server_hostname="localhost") as tls:
        x = rng.standard_normal((1, 100_000)).astype(np.float32)
        tls.sendall(infer(x))
        received = b""
        while x.tobytes() not in received:
            data = tls.recv(1 << 16)
            assert data
            received += data


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_session_is_resumed(
    start: Callable[..., Server], authority: Authority, version: str
) -> None:
    one = start()
    context = context_for(authority)
    context.maximum_version = ssl.TLSVersion[version]
    with TlsConnection(one, context) as connection:
        assert connection.exchange(get("/v2/health/live")).status == 200
        session = connection.tls.session
        assert not connection.tls.session_reused
    with TlsConnection(one, context, session=session) as connection:
        assert connection.exchange(get("/v2/health/live")).status == 200
        assert connection.tls.session_reused


def test_old_versions_and_weak_ciphers_are_refused(start: Callable[..., Server]) -> None:
    one = start()
    for words in (["-tls1"], ["-tls1_1"], ["-tls1_2", "-cipher", "AES128-SHA@SECLEVEL=0"]):
        done = subprocess.run(
            ["openssl", "s_client", "-connect", one.url, *words],
            input=b"", capture_output=True, timeout=30 * PATIENCE,
        )  # fmt: skip
        assert done.returncode != 0 and b"alert" in done.stderr, words
    assert (
        b"Cipher is TLS_"
        in subprocess.run(
            ["openssl", "s_client", "-connect", one.url], input=b"", capture_output=True
        ).stdout
    )


def test_sslyze_finds_no_fault(start: Callable[..., Server], authority: Authority) -> None:
    """Held against what Mozilla recommends for servers ("intermediate"), and known attacks."""
    one = start()
    done = subprocess.run(
        [judge_programs.interpreter("sslyze"), "-m", "sslyze", f"localhost:{one.port}",
         "--mozilla_config", "intermediate", "--certinfo_ca_file", authority.certificate],
        env=without_python_path(), capture_output=True, text=True, timeout=150 * PATIENCE,
    )  # fmt: skip
    findings = re.findall(r"^ +\* (\w+): ", done.stdout.partition("COMPLIANCE AGAINST")[2], re.M)
    # It trusts no authority of our own here.
    assert findings in ([], ["certificate_path_validation"]), done.stdout
    for attack in ("OpenSSL CCS injection", "Heartbleed", "RSA cipher suites not supported"):
        assert attack in done.stdout
    assert (
        "VULNERABLE" not in done.stdout and "Client Renegotiation DoS Attack:   OK" in done.stdout
    )


def test_curl_is_served_by_http_2_and_1(start: Callable[..., Server], authority: Authority) -> None:
    one = start()
    for flag, version in (("--http2", "2"), ("--http1.1", "1.1")):
        done = subprocess.run(
            ["curl", "-sS", flag, "--cacert", str(authority.certificate), "-w", "%{http_version}",
             f"https://localhost:{one.port}/v2/models/mlp"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.endswith(version) and '"name":"mlp"' in done.stdout


def test_clients_show_a_certificate_where_one_is_wanted(
    start: Callable[..., Server], authority: Authority, tmp_path: Path
) -> None:
    one = start("--tls-client-ca", str(authority.certificate))
    known = context_for(authority)
    known.load_cert_chain(*authority.sign("client"))
    with TlsConnection(one, known) as connection:
        assert connection.exchange(get("/v2/health/live")).status == 200
    stranger = context_for(authority)
    stranger.load_cert_chain(*Authority(tmp_path, "another").sign("stranger"))
    for context in (context_for(authority), stranger):
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            with TlsConnection(one, context) as connection:
                connection.exchange(get("/v2/health/live"))


def test_lumens_client_speaks_tls(
    start: Callable[..., Server], authority: Authority, tmp_path: Path
) -> None:
    one = start("--tls-client-ca", str(authority.certificate))
    known = context_for(authority)
    known.load_cert_chain(*authority.sign("python"))
    x = np.arange(300_000, dtype=np.float32)[None]
    url = f"https://127.0.0.1:{one.port}"
    with Client(url, tls=known) as client:
        for _ in range(3):
            np.testing.assert_array_equal(client.infer("identity", {"input": x})["output"], x)
    # Without a context: by the authorities of the system, which do not know this one.
    for context in (None, context_for(Authority(tmp_path, "unknown"))):
        with Client(url, tls=context) as client, pytest.raises(ssl.SSLCertVerificationError):
            client.infer("identity", {"input": x})
    for wrong in (f"http://127.0.0.1:{one.port}", f"unix:{one.unix_path}", "bus:/tmp/bus"):
        with pytest.raises(ValueError, match="wanted https"):
            Client(wrong, tls=known)


def test_sighup_serves_new_connections_with_the_new_certificate(
    start: Callable[..., Server], authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.sign("first")
    one = start(files=(certificate, key))
    with TlsConnection(one, context_for(authority)) as before:
        first = before.tls.getpeercert()
        second = authority.sign("second")
        os.replace(second[0], certificate)
        one.reload()
        one.wait_for_log("SIGHUP", "the certificate stays")  # the key is another's
        with TlsConnection(one, context_for(authority)) as connection:
            assert connection.tls.getpeercert() == first
        os.replace(second[1], key)
        one.reload()
        one.wait_for_log("SIGHUP", "new connections get the certificate of")
        with TlsConnection(one, context_for(authority)) as connection:
            assert connection.tls.getpeercert() != first
        assert before.exchange(get("/v2/health/live")).status == 200


def test_a_client_that_speaks_no_tls_is_told_and_harms_nobody(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start()
    rng = np.random.default_rng(4)
    for data in (b"GET / HTTP/1.1\r\n\r\n", rng.bytes(3000), b"\x16\x03\x01\x02\x00\x01\xff", b""):
        with Connection(one.address) as connection:
            connection.send(data)
            connection.finish_sending()
            while connection.socket.recv(1000):
                pass
    with TlsConnection(one, context_for(authority)) as connection:
        assert connection.exchange(get("/v2/health/live")).status == 200


def test_handshakes_that_stand_still_hold_nobody_up(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start("--max-connections", "50")
    silent = [socket.create_connection(one.address) for _ in range(40)]
    for index, connection in enumerate(silent):
        connection.sendall(b"\x16\x03\x01"[: index % 4])
    with TlsConnection(one, context_for(authority)) as connection:
        for _ in range(50):
            assert connection.exchange(get("/v2/health/live")).status == 200
    for connection in silent:
        connection.close()


def test_silent_clients_do_not_take_all_places(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start("--max-connections", "10")
    silent = [socket.create_connection(one.address) for _ in range(200)]

    def serves() -> bool:
        with suppress(OSError), TlsConnection(one, context_for(authority)) as connection:
            return connection.exchange(get("/v2/health/live")).status == 200
        return False

    eventually(serves, lambda: "a client that speaks is not served")
    for connection in silent:
        connection.close()


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_many_connections_at_once(
    start: Callable[..., Server], authority: Authority, kind: str
) -> None:
    one = start(files=authority.sign(f"many-{kind}", kind))
    faults: list[str] = []

    def load(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(10):
            with TlsConnection(one, context_for(authority)) as connection:
                for _ in range(5):
                    x = rng.standard_normal((1, int(rng.integers(1, 20_000)))).astype(np.float32)
                    connection.send(infer(x))
                    if not np.array_equal(values_of(connection.reply()), x[0]):
                        faults.append("another's answer")

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_client_that_renews_its_keys_is_served_on(start: Callable[..., Server]) -> None:
    one = start()
    client = subprocess.Popen(
        ["openssl", "s_client", "-connect", one.url, "-tls1_3", "-msg"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert client.stdin is not None and client.stdout is not None
    lines = iter(client.stdout.readline, b"")
    for command in (b"", b"K\n", b"k\n", b"K\n"):  # K: the server renews its keys, too
        if command:
            client.stdin.write(command)
            client.stdin.flush()
            assert any(line.startswith(b">>>") and b"KeyUpdate" in line for line in lines)
        client.stdin.write(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.stdin.flush()
        for line in lines:
            if b"HTTP/1.1 200" in line:
                break
        else:
            pytest.fail("the client was not served on")
    client.kill()
    client.wait()


def test_the_server_ends_in_the_middle_of_handshakes_and_requests(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start()
    silent = socket.create_connection(one.address)
    idle = TlsConnection(one, context_for(authority))
    assert idle.exchange(get("/v2/health/live")).status == 200
    begin = time.monotonic()
    one.interrupt()
    assert one.wait() == 0
    assert time.monotonic() - begin < 10 * PATIENCE
    silent.close()
    idle.socket.close()


def test_files_that_can_not_be_used_are_named(
    server: StartServer, authority: Authority, signed: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate, key = map(str, signed)
    other = str(authority.sign("other")[1])
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("no certificate\n")
    for words, told in (
        (["--tls-cert", str(tmp_path / "missing.pem")], "missing.pem"),
        (["--tls-cert", str(nothing)], "tls_cert"),
        (["--tls-cert", certificate], "tls_key"),
        (["--tls-cert", certificate, "--tls-key", other], "key values mismatch"),
        (["--tls-key", key], "want tls_cert"),
        (["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", str(nothing)],
         "tls_client_ca"),
    ):  # fmt: skip
        done = run_serve("--http", "127.0.0.1:0", *words)
        assert done.returncode != 0 and told in done.stderr + done.stdout, words


@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps freed memory: memory is measured")
def test_idle_connections_hold_no_buffers(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start("--max-connections", "400")
    context = context_for(authority)
    x = np.ones((1, 1_000), np.float32)

    def connections(count: int) -> list[TlsConnection]:
        made = [TlsConnection(one, context) for _ in range(count)]
        for connection in made:
            connection.send(infer(x))
            np.testing.assert_array_equal(values_of(connection.reply()), x[0])
        return made

    first = connections(50)
    before = resident_bytes(one.pid)
    second = connections(300)
    # OpenSSL keeps 40 KiB for each; with a buffer of ours it would be 170.
    assert (resident_bytes(one.pid) - before) / 300 < 90_000
    for connection in first + second:
        connection.socket.close()


def test_handshakes_are_counted_and_a_failed_one_is_told(
    start: Callable[..., Server], authority: Authority
) -> None:
    one = start()
    context = context_for(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    session = None
    for _ in range(3):
        with TlsConnection(one, context, session=session) as connection:
            assert connection.exchange(get("/v2/health/live")).status == 200
            session = connection.tls.session
    with pytest.raises(ssl.SSLError):
        TlsConnection(one, ssl.create_default_context())  # which does not know the authority
    with Connection(one.address) as plain:
        plain.send(get("/v2/health/live"))
        assert b"HTTP" not in plain.socket.recv(1000)
    one.wait_for_log("TLS: a handshake failed: tlsv1 alert unknown ca")  # at most one line a second
    wanted = {"handshakes": 3, "handshakes_failed": 2, "sessions_resumed": 2}

    def counts() -> dict[str, int]:
        with UnixConnection(one.unix_path) as connection:
            text = connection.exchange(get("/metrics")).body.decode()
        return {
            name: int(re.search(rf"^lumen_tls_{name}_total (\d+)", text, re.M)[1])  # type: ignore[index]
            for name in wanted
        }

    eventually(lambda: counts() == wanted, lambda: f"{counts()}, wanted {wanted}")


def test_tritonclient_calls_over_tls(start: Callable[..., Server], authority: Authority) -> None:
    one = start()
    done = subprocess.run(
        [judge_programs.interpreter("grpc"), "-c", TRITON, f"localhost:{one.port}",
         str(authority.certificate)],
        env=without_python_path(),
        capture_output=True, text=True, timeout=150 * PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "right\n"


@pytest.mark.parametrize("loop", ["epoll", *(["io_uring"] if has_io_uring() else [])])
def test_each_loop_carries_it(
    start: Callable[..., Server], authority: Authority, loop: str
) -> None:
    one = start("--loop", loop)
    rng = np.random.default_rng(5)
    with TlsConnection(one, context_for(authority)) as connection:
        for size in [1, 1_000, 20_000, 1_000_000, 2]:
            x = rng.standard_normal((1, size)).astype(np.float32)
            connection.send(infer(x))
            np.testing.assert_array_equal(values_of(connection.reply()), x[0])
