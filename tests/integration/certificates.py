"""Certificates for tests of TLS, by the program openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(*words: str | Path, **options: object) -> str:
    done = subprocess.run(
        ["openssl", *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    return str(done.stdout) + str(done.stderr)


class Authority:
    """One that signs certificates, in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", self._key, "-out", self.certificate, "-days", "2", "-subj",
                f"/CN={name}")  # fmt: skip

    def sign(
        self, name: str, key: str = "ec", names: str = "DNS:localhost,IP:127.0.0.1"
    ) -> tuple[Path, Path]:
        """A certificate for these names, and its key."""
        certificate, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        request = self.folder / f"{name}.csr"
        kind = ["-newkey", "rsa:2048"]
        if key == "ec":
            kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        openssl("req", "-new", *kind, "-nodes", "-keyout", private, "-out", request, "-subj",
                f"/CN={name}", "-addext", f"subjectAltName={names}")  # fmt: skip
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key,
                "-CAcreateserial", "-days", "2", "-copy_extensions", "copy", "-out",
                certificate)  # fmt: skip
        return certificate, private
