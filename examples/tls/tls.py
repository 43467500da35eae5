# A server of HTTPS whose clients show certificates, and a certificate that is replaced under it.
# An authority of our own signs them; yours are named by --tls-cert, --tls-key, --tls-client-ca.
# Errors: exits 1 when a client without a certificate is served, or the new one does not count.
from __future__ import annotations

import http.client
import json
import signal
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from lumen_engine import Server

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
DAYS = ("-days", "30")


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, stderr=subprocess.DEVNULL)


def make_authority(folder: Path) -> None:
    files = ("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=our authority")
    openssl(folder, "req", "-x509", *EC, *DAYS, *files)


def sign(folder: Path, name: str) -> None:
    """NAME.pem and NAME.key, for localhost."""
    files = ("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    openssl(folder, "req", "-new", *EC, *files, "-addext", "subjectAltName=DNS:localhost")
    by = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-copy_extensions", "copy")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, *DAYS, "-out", f"{name}.pem")


def ask(port: int, context: ssl.SSLContext) -> str:
    """The server's name by its certificate, and its answer."""
    connection = http.client.HTTPSConnection("localhost", port, context=context)
    body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    connection.request("POST", "/v2/models/identity/infer", json.dumps(body))
    tls = connection.sock
    assert isinstance(tls, ssl.SSLSocket)
    (((_, name),),) = tls.getpeercert()["subject"]  # type: ignore[index]
    answer = json.loads(connection.getresponse().read())
    return f"{name} answers {answer['outputs'][0]['data']} by {tls.version()}"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_authority(folder)
        for each in ("server", "client", "renewed"):
            sign(folder, each)
        files = {"--tls-cert": "server.pem", "--tls-key": "server.key", "--tls-client-ca": "ca.pem"}
        words = [word for flag, file in files.items() for word in (flag, str(folder / file))]
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        with Server(ROOT / "models", words) as server:
            try:
                print(ask(server.port, context))
                return 1
            except (ssl.SSLError, ConnectionError) as error:
                print(f"without a certificate: {type(error).__name__}")
            context.load_cert_chain(folder / "client.pem", folder / "client.key")
            print(before := ask(server.port, context))
            for part in ("pem", "key"):
                (folder / f"renewed.{part}").replace(folder / f"server.{part}")
            server.signal(signal.SIGHUP)
            answers = (ask(server.port, context) for _ in range(1000))
            print(after := next((one for one in answers if one != before), before))
            return 0 if after.startswith("renewed") else 1


if __name__ == "__main__":
    sys.exit(main())
