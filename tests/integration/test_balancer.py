"""examples/nginx in front of three servers: TLS, certificates, keys, and servers that are replaced.

nginx is Debian's. The configuration is used as it stands, but for its ports.
"""

from __future__ import annotations

import http.client
import json
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from integration.harness import MODELS, PATIENCE, ROOT, Server, copy_models, eventually

sys.path.insert(0, str(ROOT / "tools"))
import judge_programs

EXAMPLE = ROOT / "examples" / "nginx"
PATH = "/v2/models/identity/infer"
KEY = "a-key-of-32-bytes-for-the-example"
pytestmark = pytest.mark.tool


def unused_ports(count: int) -> list[int]:
    """Below those that the kernel gives to connections: a server finds its own free once more."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as one:
            if port not in found and one.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return found


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def make_certificates(folder: Path) -> None:
    """Of an authority, a server and a client, for two days."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    openssl(folder, "req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name, extra in (
        ("server", "subjectAltName=IP:127.0.0.1"),
        ("client", "basicConstraints=CA:FALSE"),
    ):
        words = ["req", "-x509", *new, "-CA", "ca.pem", "-CAkey", "ca.key", "-addext", extra]
        openssl(
            folder, *words, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"
        )


class Balanced:
    """Three servers behind nginx; `ports` are theirs, `tls` and `mutual` nginx's."""

    def __init__(self, folder: Path, repository: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.repository = repository
        *self.ports, self.tls, self.mutual = unused_ports(5)
        keys = folder / "keys"
        keys.write_text(f"infer {KEY}\n")
        keys.chmod(0o600)
        self.flags = ("--api-key-file", str(keys), "--drain-delay-ms", "300")
        self.servers = [self.start(port) for port in self.ports]
        stack.callback(lambda: [server.stop() for server in self.servers])
        make_certificates(folder)
        self._write_configuration()
        program = judge_programs.debian_program("nginx")
        words = [str(program), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
        # A pipe that nobody reads would stop it: it has a line for each server that is gone.
        with (folder / "nginx.log").open("w") as log:
            self.nginx = subprocess.Popen(words, stderr=log)
        stack.callback(self._end_nginx)
        eventually(lambda: self.is_ready(), lambda: f"{words}: {self.nginx.poll()}")

    def start(self, port: int) -> Server:
        return Server(self.repository, *self.flags, http=f"127.0.0.1:{port}")

    def replace(self, number: int) -> None:
        """As an upgrade does it: SIGTERM, the end, another one at the same port."""
        old = self.servers[number]
        old.interrupt(signal.SIGTERM)
        assert old.wait() == 0
        self.servers[number] = self.start(self.ports[number])

    def is_ready(self) -> bool:
        assert self.nginx.poll() is None, (self.folder / "nginx.log").read_text()
        try:
            with closing(self.client()) as client:
                client.request("GET", "/v2/health/ready")
                return client.getresponse().status == 200
        except OSError:
            return False

    def client(
        self, port: int = 0, *, with_certificate: bool = False
    ) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        if with_certificate:
            context.load_cert_chain(self.folder / "client.pem", self.folder / "client.key")
        return http.client.HTTPSConnection(
            "127.0.0.1", port or self.tls, timeout=60, context=context
        )

    def _write_configuration(self) -> None:
        text = (EXAMPLE / "nginx.conf").read_text()
        given = {8001 + i: port for i, port in enumerate(self.ports)}
        for old, new in {**given, 8443: self.tls, 8444: self.mutual}.items():
            assert text.count(f"127.0.0.1:{old}") in (1, 2)
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        (self.folder / "nginx.conf").write_text(text)
        shutil.copy(EXAMPLE / "routes.conf", self.folder)

    def _end_nginx(self) -> None:
        self.nginx.terminate()
        self.nginx.wait(timeout=20 * PATIENCE)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    folder = tmp_path_factory.mktemp("balanced")
    repository = copy_models(folder / "models", [MODELS / "identity", MODELS / "mlp"])
    with ExitStack() as stack:
        yield Balanced(folder, repository, stack)


def infer(
    client: http.client.HTTPSConnection, row: np.ndarray, key: str = KEY
) -> tuple[int, list[float]]:
    tensor = {
        "name": "input",
        "datatype": "FP32",
        "shape": list(row.shape),
        "data": row.ravel().tolist(),
    }
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    client.request("POST", PATH, json.dumps({"inputs": [tensor]}), headers)
    reply = client.getresponse()
    body = reply.read()
    return reply.status, json.loads(body)["outputs"][0]["data"] if reply.status == 200 else []


@contextmanager
def load(balanced: Balanced, clients: int) -> Iterator[list[str]]:
    """Requests until the block ends and each client has asked; the list has the failures.

    The block begins when each client has its first answer, so that all of them meet it.
    """
    ended = threading.Event()
    failures: list[str] = []
    counts = [0] * clients

    def each_has_asked(more_than: int) -> bool:
        assert any(thread.is_alive() for thread in threads), failures[:5]
        return min(counts) > more_than

    def ask(number: int) -> None:
        rng = np.random.default_rng(number)
        with closing(balanced.client()) as client:
            while not ended.is_set():
                row = rng.integers(0, 1000, (1, 8)).astype(np.float32)
                try:
                    status, got = infer(client, row)
                    if status != 200 or got != row.ravel().tolist():
                        failures.append(f"client {number}: {status}, {got} for {row}")
                except Exception as error:
                    failures.append(f"client {number}: {error!r}")
                    client.close()
                counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: each_has_asked(0), lambda: str(counts))
        yield failures
        # A busy machine may have run few of them by now: their number is not under test.
        eventually(lambda: each_has_asked(20), lambda: str(counts))
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_servers_are_replaced_one_after_the_other_and_no_request_fails(balanced: Balanced) -> None:
    with load(balanced, 4) as failures:
        for number in (0, 1, 2, 0, 1, 2):
            balanced.replace(number)
    assert not failures, failures[:5]


def test_a_server_that_is_killed_costs_no_request(balanced: Balanced) -> None:
    """nginx asks the next one for those in flight, too: an inference may be asked twice."""
    with load(balanced, 4) as failures:
        balanced.servers[1].kill()
        balanced.servers[1] = balanced.start(balanced.ports[1])
    assert not failures, failures[:5]


def test_a_client_without_a_certificate_is_refused_where_one_is_wanted(balanced: Balanced) -> None:
    row = np.ones((1, 8), np.float32)
    with closing(balanced.client(balanced.mutual)) as client:
        assert infer_status(client, row) == 400
    with closing(balanced.client(balanced.mutual, with_certificate=True)) as client:
        assert infer(client, row) == (200, [1.0] * 8)


def infer_status(client: http.client.HTTPSConnection, row: np.ndarray) -> int:
    client.request("POST", PATH, json.dumps({"inputs": []}))
    reply = client.getresponse()
    reply.read()
    return reply.status


def test_a_key_goes_through_and_changes_do_not(balanced: Balanced) -> None:
    row = np.ones((1, 8), np.float32)
    with closing(balanced.client()) as client:
        assert infer(client, row, "none-of-the-keys-of-this-server--")[0] == 401
        assert infer(client, row)[0] == 200
        for path in ("/v2/repository/index", "/v2/lumen/engine", "/v2/systemsharedmemory/status"):
            client.request("POST", path, "{}", {"Authorization": f"Bearer {KEY}"})
            reply = client.getresponse()
            reply.read()
            assert reply.status == 403, path


def test_grpc_goes_through_on_the_same_port(balanced: Balanced) -> None:
    program = f"""
import numpy as np, tritonclient.grpc as triton
address, authority = "127.0.0.1:{balanced.tls}", {str(balanced.folder / "ca.pem")!r}
client = triton.InferenceServerClient(address, ssl=True, root_certificates=authority)
assert client.is_server_ready()
row = np.arange(8, dtype=np.float32).reshape(1, 8)
given = triton.InferInput("input", row.shape, "FP32")
given.set_data_from_numpy(row)
for _ in range(100):
    reply = client.infer("identity", [given], headers={{"authorization": "Bearer {KEY}"}})
    assert (reply.as_numpy("output") == row).all()
client.close()
"""
    python = judge_programs.interpreter("grpc")
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
